"""The applications with frameworks among the examples: what a user sees who copies one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.cli import script
from tests.support.paths import ROOT
from vlmsearch.demo.scenes import make_scene


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(6):
        make_scene(number).draw(96).save(tmp_path / "photos" / f"{number}.png")
    return tmp_path


def run(name: str, folder: Path, *arguments: str) -> list[str]:
    return script(ROOT / "examples" / name, "photos", *arguments, cwd=folder).splitlines()


def check(lines: list[str], most: int) -> list[str]:
    """The names of the files that were found, best first."""
    found = [re.fullmatch(r"([01]\.\d{3})  (.+)", line) for line in lines]
    assert all(found)
    assert 1 <= len(found) <= most
    scores = [float(match[1]) for match in found if match]
    assert scores == sorted(scores, reverse=True)
    return [Path(match[2]).name for match in found if match]


def test_haystack_fills_an_index_and_searches_it(folder: Path) -> None:
    first, *found = run("haystack_app.py", folder, "--like", "photos/3.png")
    assert first == "6 new, 6 in the index"
    assert check(found, 5)[0] == "3.png"
    first, *found = run("haystack_app.py", folder, make_scene(2).caption())
    assert first == "0 new, 6 in the index"
    assert "2.png" in check(found, 5)


def test_llama_index_fills_an_index_and_searches_it(folder: Path) -> None:
    (folder / "photos" / "note.txt").write_text("The museum opens at nine.")
    first, *found = run("llama_index_app.py", folder, "museum")
    assert first == "7 in the index"
    assert check(found, 5)[0] == "note.txt"
    _, *found = run("llama_index_app.py", folder, "--like", "photos/3.png")
    assert check(found, 5)[0] == "3.png"
