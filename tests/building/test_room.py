"""Room for a model is looked at before it is downloaded and built."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlmsearch._util import machine
from vlmsearch.building import room
from vlmsearch.building.room import check_disk, check_memory
from vlmsearch.errors import ModelUnavailableError

LARGE, SMALL = 1_500_000_000, 90_000_000


def test_a_disk_that_is_too_small_is_one_line_that_names_a_smaller_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_free", lambda _: 3_000_000_000)
    with pytest.raises(ModelUnavailableError, match=r"^big needs 4\.8 GB on the disk of .*3\.0 GB are free; onnx:clip"):
        check_disk("big", download=LARGE, weights=LARGE, hub=tmp_path / "hub")
    check_disk("small", download=SMALL, weights=SMALL, hub=tmp_path / "hub")


def test_memory_that_is_too_little_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "available_memory", lambda: 500_000_000)
    with pytest.raises(ModelUnavailableError, match=r"^building big takes .* of memory, and 0\.5 GB are free; onnx:c"):
        check_memory("big", LARGE)
    with pytest.raises(ModelUnavailableError, match=r"are free$"):
        check_memory("small", SMALL)
    monkeypatch.setattr(room, "available_memory", lambda: None)
    check_memory("big", LARGE)


def test_the_limit_of_a_container_counts_without_its_cache_of_files(tmp_path: Path) -> None:
    files = {"memory.max": "4000\n", "memory.current": "3000\n", "memory.stat": "anon 5\ninactive_file 500\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert machine._group_memory(tmp_path) == 1500
    (tmp_path / "memory.max").write_text("max\n")
    assert machine._group_memory(tmp_path) is None
