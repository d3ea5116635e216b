"""What the README shows, run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vlmsearch.demo.scenes import make_scene

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(8):
        make_scene(17_000_000 + i).draw(128).save(folder / f"scene-{i:04}.png")
    return folder


def test_the_twelve_lines_work(photos: Path) -> None:
    (code,) = [block for block in BLOCKS if "pipe.index" in block]
    *found, answer = _run(code, photos.parent).splitlines()
    assert len(found) == 3
    assert "note-1" in " ".join(found)
    assert "a red star above a green circle" in answer


def test_answers_come_whole_and_as_streams(photos: Path) -> None:
    (index,) = [block for block in BLOCKS if "pipe.index" in block]
    (code,) = [block for block in BLOCKS if "stream=True" in block]
    _run(index, photos.parent)
    whole, streamed, *sources = _run(code, photos.parent).splitlines()
    assert whole.startswith(streamed + " (Citation(number=1, ")
    assert sources
    assert all(re.fullmatch(r"\[\d\] \S+", source) for source in sources)


def _run(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_contract_suite_runs_as_shown(tmp_path: Path) -> None:
    (code,) = [block for block in BLOCKS if "class TestMyStore" in block and "pytest" not in block]
    (tmp_path / "test_mine.py").write_text(
        f"from vlmsearch_mocks import MemoryStore\n\ndef MyStore(path):\n    return MemoryStore()\n\n{code}"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 20


def test_every_command_line_shown_is_one(photos: Path) -> None:
    fenced = "\n".join(re.findall(r"```[a-z]*\n(.*?)```", README, re.DOTALL))
    shown = re.findall(r"^vlmsearch (\w+)", fenced, re.MULTILINE)
    assert {"index", "search", "ask", "info", "doctor"} <= set(shown)
    for command in set(shown):
        done = subprocess.run(
            [sys.executable, "-m", "vlmsearch", command, "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, command
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - {"--evaluate"}
    assert options
    helps = "".join(
        subprocess.run(
            [sys.executable, "-m", "vlmsearch", *name.split(), "--help"], capture_output=True, text=True
        ).stdout
        for name in (
            "index",
            "search",
            "ask",
            "info",
            "build",
            "fsck",
            "reindex",
            "triton serve",
            "triton status",
            "triton repo",
            "bench encode",
            "bench gpu",
            "bench llm",
            "bench triton",
            "llm plan",
            "llm build",
            "llm repo",
            "llm serve",
        )
    )
    assert {option for option in options if option not in helps} == set()
