"""`vlmsearch describe`."""

import json
from pathlib import Path

import pytest

from tests.support.cli import ok, run
from tests.support.terminal import on_a_terminal
from vlmsearch.demo.scenes import make_scene

SETTINGS = {"VLMSEARCH_STORE": "sqlite:./index", "VLMSEARCH_ENCODER": "onnx:demo"}
SEES = ("--generator", "mock:?pictures=2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    for seed in range(4):
        make_scene(seed).draw(64).save(tmp_path / "pictures" / f"{seed}.png")
    ok("index", "pictures", cwd=tmp_path, **SETTINGS)
    return tmp_path


def test_pictures_are_described_and_found(folder: Path) -> None:
    assert ok("describe", "--dry-run", *SEES, cwd=folder, **SETTINGS).startswith("4 left: that takes about 0 s")
    said = ok("describe", "--limit", "1", *SEES, cwd=folder, **SETTINGS).splitlines()
    assert said[0].startswith("1 described, 0 unchanged in ")
    assert said[1].startswith("3 left: that takes about ")
    report = json.loads(ok("describe", "--json", *SEES, cwd=folder, **SETTINGS))
    assert (report["described"], report["unchanged"], report["left"], report["rejects"]) == (3, 1, 0, [])
    shown = on_a_terminal("search", "mock reply", cwd=folder, environment=SETTINGS)
    assert shown.count(b"(generated)") == 4


def test_what_cannot_be_used_is_named(folder: Path) -> None:
    done = run("describe", "--fields", "colour, count:whole", *SEES, cwd=folder, **SETTINGS)
    assert done.returncode == 0
    assert "0 described" in done.stdout
    assert done.stderr.count("there is no JSON object in the answer") == 4
    blind = run("describe", "--generator", "mock:", cwd=folder, **SETTINGS)
    assert (blind.returncode, "sees no pictures" in blind.stderr) == (1, True)
