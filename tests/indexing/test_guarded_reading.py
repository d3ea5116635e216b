"""A file that takes its reader memory, time or life is one reject: files are read in child processes with limits.

The readers are those of `tests.support.isolated_functions`, and the files are harmless text.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.isolated_functions import READERS
from vlmsearch import ImageLimits, Pipeline
from vlmsearch._util import isolation
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import OperationCancelledError
from vlmsearch.indexing import containers, reading
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.indexing.sources import Paths
from vlmsearch.media import images

HERE = "tests.support.isolated_functions"
ALL = SourceOptions(pdf=True)
LIMITS = ImageLimits(memory_bytes=2**29, cpu_seconds=2, seconds=120)


@pytest.fixture(autouse=True)
def _readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "CHILD", f"{HERE}:read_by_name")


def write(folder: Path, *names: str) -> Path:
    """Write a harmless file of each name."""
    folder.mkdir()
    for name in names:
        (folder / f"{name}.pdf").write_text("a dog in the snow")
    return folder


def test_each_limit_and_each_death_is_one_reject_and_the_other_files_are_read(tmp_path: Path) -> None:
    costly = READERS.keys() - {"sleep"}
    folder = write(tmp_path / "in", "a", *costly, "z")
    pipeline = Pipeline(MockEncoder(), MemoryStore(), image_limits=LIMITS)
    report = pipeline.index(Paths([folder], options=ALL, limits=LIMITS))
    assert report.added == 2
    assert {Path(id).name for id in pipeline.store.ids()} == {"a.pdf", "z.pdf"}
    messages = {Path(reject.id).stem: (reject.code, str(reject.message)) for reject in report.rejects}
    reasons = {
        "abort": ("corrupt", "is damaged: it ends what reads it (SIGABRT)"),
        "allocate": ("too_large", "takes more than 536,870,912 bytes to read"),
        "answer": ("too_large", "it gives 2,147,"),
        "kill": ("unreadable", "was not read: the process that read it was killed"),
        "leave": ("corrupt", "is damaged: it ends what reads it (status 3)"),
        "nest": ("corrupt", "is nested too deeply"),
        "spin": ("timeout", "took more than 2 seconds of processor time to read"),
    }
    assert messages.keys() == reasons.keys() == costly
    for name, (code, reason) in reasons.items():
        assert messages[name][0] == code
        assert reason in messages[name][1]


def test_a_reader_that_waits_is_ended(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", "sleep")
    (folder / "z.txt").write_text("a blue car")
    limits = ImageLimits(seconds=1)
    report = Pipeline(MockEncoder(), MemoryStore(), image_limits=limits).index(Paths([folder], options=ALL))
    [reject] = report.rejects
    assert (report.added, reject.code) == (1, "timeout")
    assert "sleep.pdf' took more than 1 seconds to read" in reject.message


def test_cancelling_ends_a_reader_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "in", "sleep")
    token = CancelToken()

    def stream(*arguments: Any, **options: Any) -> Iterator[object]:
        for result in isolation.stream(*arguments, **options):
            threading.Thread(target=token.cancel).start()
            yield result

    monkeypatch.setattr(reading, "stream", stream)
    pipeline = Pipeline(MockEncoder(), MemoryStore())
    with running_under(token), pytest.raises(OperationCancelledError):
        pipeline.index(Paths([folder], options=ALL))


@pytest.mark.parametrize("suffix", ["avif", "heic"])
def test_a_picture_in_a_video_format_is_decoded_in_a_child_with_these_limits(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(_: str, __: object, limits: isolation.ProcessLimits, **given: object) -> object:
        return isolation.call(f"{HERE}:allocate", 2**30, limits, name=str(given["name"]))

    if suffix == "heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "z.txt").write_text("a blue car")
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(tmp_path / "in" / f"a.{suffix}")
    monkeypatch.setattr(images, "call", call)
    report = Pipeline(MockEncoder(), MemoryStore(), image_limits=LIMITS).index(tmp_path / "in")
    assert report.added == 1
    assert [reject.code for reject in report.rejects] == ["too_large"]
