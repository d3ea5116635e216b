"""Files that somebody else made end no process, and stop no other file."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support import films, office
from tests.support.hostile_files import HOSTILE, mutations, write_hostile
from tests.support.pdf_files import write_pdf
from vlmsearch import ImageLimits, Pipeline, Reject
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import ConfigError, OperationCancelledError
from vlmsearch.indexing.items import Sourced, SourceOptions
from vlmsearch.indexing.sources import Paths
from vlmsearch.stores.base import reject_list_of

ALL = SourceOptions(pdf=True, video=True, office=True)
LIMITS = ImageLimits(memory_bytes=2**29, decoded_bytes=2**29, cpu_seconds=3, seconds=20)
FLAGS = ("--pdf", "--video", "--office", "--image-limits", "memory=512Mi,decoded=512Mi,cpu=3,time=20")
WRITERS: dict[str, Callable[[Path], object]] = {
    "pdf": lambda path: write_pdf(path, ["one\ntwo", "three"], title="A title"),
    "mp4": lambda path: films.film(path, (1, 1), subtitles=[(0.2, 0.8, "Hello")]),
    "mkv": lambda path: films.film(path, (1, 1), subtitles=[(0.2, 0.8, "<i>Hello</i>")]),
    "avi": lambda path: films.film(path, (1, 1)),
    **{kind: lambda path: office.write(path, "A dog in the snow.") for kind in ("docx", "xlsx", "pptx", "odt", "ods")},
    **{kind: lambda path: office.write(path, "A dog in the snow.") for kind in ("epub", "rtf", "html")},
    "parquet": lambda path: pq.write_table(pa.table({"id": ["a", "b"], "text": ["x", "y"], "n": [1, None]}), path),
    "tar": lambda path: _write_tar(path),
    "csv": lambda path: path.write_text('id,text,n\na,"x, y",1\nb,z,\n'),
    "jsonl": lambda path: path.write_text('{"id": "a", "text": "x", "n": 1}\n{"id": "b", "text": "y"}\n'),
    "avif": lambda path: make_scene(1).draw(64).save(path),
    "heic": lambda path: _write_heic(path),
}


def _write_tar(path: Path) -> None:
    picture = BytesIO()
    make_scene(1).draw(32).save(picture, "PNG")
    with tarfile.open(path, "w") as tar:
        for name, data in (("a.png", picture.getvalue()), ("a.txt", b"a star"), ("a.json", b'{"year": 2020}')):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, BytesIO(data))


def _write_heic(path: Path) -> None:
    import pillow_heif

    pillow_heif.from_pillow(make_scene(1).draw(64)).save(path)


def _command(folder: Path, *paths: Path) -> dict[str, object]:
    """What ``index`` says of some files, which it reads with 8 GiB of addresses."""
    command = [sys.executable, "-m", "vlmsearch", "index", *map(str, paths), *FLAGS, "--json"]
    command += ["--store", f"sqlite:{folder}/index", "--encoder", "mock:"]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -v 8388608; exec "$0" "$@"', *command],
        capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    report: dict[str, object] = json.loads(done.stdout)
    return report


@pytest.mark.slow
def test_hostile_files_are_rejected_one_by_one_and_what_is_beside_them_is_indexed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_hostile(folder)
    (folder / "a.txt").write_text("a dog in the snow")
    (folder / "z.txt").write_text("a blue car")
    tables = [folder / name for name in HOSTILE if name.endswith((".parquet", ".tar"))]
    report = _command(tmp_path, folder, *tables)
    rejects = report["rejects"]
    assert isinstance(rejects, list)
    codes = {Path(reject["id"]).name: reject["code"] for reject in rejects}
    wrong = {name: codes.get(name, "") for name, (_, allowed) in HOSTILE.items() if codes.get(name, "") not in allowed}
    assert not wrong
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path}/index") as pipeline:
        ids = {Path(id).name for id in pipeline.store.ids()}
    assert {"a.txt", "z.txt", "tags.html", "brackets.mkv"} <= ids
    assert not {name for name in codes if "#" not in name} & ids


@pytest.mark.slow
def test_a_picture_larger_than_its_header_says_takes_the_memory_of_a_child(tmp_path: Path) -> None:
    data = BytesIO()
    Image.new("RGB", (8000, 8000), (10, 200, 30)).save(data, "AVIF", quality=10, speed=10)
    said = b"ispe\0\0\0\0" + (8000).to_bytes(4, "big") * 2
    assert said in data.getvalue()
    lie = data.getvalue().replace(said, b"ispe\0\0\0\0" + (64).to_bytes(4, "big") * 2)
    (tmp_path / "lie.avif").write_bytes(lie)
    (tmp_path / "good.txt").write_text("a dog")
    limits = ImageLimits(memory_bytes=2**27, decoded_bytes=2**27, cpu_seconds=30, seconds=60)
    pipeline = Pipeline(MockEncoder(), MemoryStore(), image_limits=limits)
    report = pipeline.index(tmp_path)
    assert [reject.code for reject in report.rejects] in (["too_large"], ["corrupt"])  # as its decoder says it
    assert report.added == 1


def test_cancelling_ends_what_reads_a_page_that_takes_long(tmp_path: Path) -> None:
    from threading import Timer

    HOSTILE["slow.pdf"][0](tmp_path / "slow.pdf")
    pipeline = Pipeline(MockEncoder(), MemoryStore())
    token = CancelToken()
    Timer(1, token.cancel).start()
    with running_under(token), pytest.raises(OperationCancelledError):
        pipeline.index(Paths([tmp_path / "slow.pdf"], options=ALL))


def _fuzz(folder: Path, kind: str, count: int) -> None:
    """Index mutations of a file of a kind, with a text before and after them."""
    files = folder / "in"
    files.mkdir()
    WRITERS[kind](folder / f"whole.{kind}")
    data = (folder / f"whole.{kind}").read_bytes()
    names = [files / f"{number:04}.{kind}" for number in range(count)]
    for name, changed in zip(names, mutations(data, count, seed=7)):
        name.write_bytes(changed)
    (files / "a.txt").write_text("a dog in the snow")
    (files / "z.txt").write_text("a blue car")
    if kind not in ("csv", "jsonl", "parquet", "tar"):
        report = _command(folder, files)
        assert isinstance(report["rejects"], list)
    else:  # a header that cannot be used ends a run by its error, and not by a traceback
        pipeline = Pipeline(MockEncoder(), MemoryStore(), image_limits=LIMITS)
        for name in names:
            with suppress(ConfigError):
                assert all(isinstance(item, (Sourced, Reject)) for item in Paths([name], limits=LIMITS))
        pipeline.index(files)
        assert {Path(id).name for id in pipeline.store.ids()} == {"a.txt", "z.txt"}
        return
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder}/index") as pipeline:
        ids = {Path(id).name for id in pipeline.store.ids()}
        assert {"a.txt", "z.txt"} <= ids
        rejected = {Path(reject.id).name for reject in reject_list_of(pipeline.store).rejects()}
    assert {name.name for name in names} <= ids | rejected


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_mutations_of_ordinary_files_lose_nothing(kind: str, tmp_path: Path) -> None:
    _fuzz(tmp_path, kind, 12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", WRITERS)
def test_five_hundred_mutations_of_ordinary_files_lose_nothing(kind: str, tmp_path: Path) -> None:
    _fuzz(tmp_path, kind, 500)
