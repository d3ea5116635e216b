"""The encoder among the examples, installed as a package of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ok
from tests.support.paths import ROOT
from vlmsearch.demo.scenes import make_scene

PLUGIN = ROOT / "examples" / "encoder-plugin"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH in which the package is installed."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(PLUGIN)]
    subprocess.run(command, check=True, capture_output=True)
    return site


def test_it_passes_the_suite_of_encoders(site: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(PLUGIN), str(PLUGIN)]
    environment = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_its_url_indexes_and_searches(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(site)
    (tmp_path / "photos").mkdir()
    for number in range(6):
        make_scene(number).draw(96).save(tmp_path / "photos" / f"{number}.png")
    url, store = "colours:?shades=6", ("--store", "sqlite:./index")
    assert "colours:" in ok("backends")
    report = json.loads(ok("index", "photos", "--encoder", url, *store, "--json", cwd=tmp_path))
    assert report["added"] == 6
    found = ok("search", "--image", "photos/3.png", "--encoder", url, *store, "--json", cwd=tmp_path)
    assert Path(json.loads(found)["matches"][0]["id"]).name == "3.png"
    assert "colours:6" in ok("info", *store, cwd=tmp_path)
