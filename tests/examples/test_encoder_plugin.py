"""The encoder among the examples, installed as a package of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vlmsearch.demo.scenes import make_scene

PLUGIN = ROOT / "examples" / "encoder-plugin"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One in which the package is installed."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(PLUGIN)]
    subprocess.run(command, check=True, capture_output=True)
    return os.environ | {"PYTHONPATH": str(site)}


def test_it_passes_the_suite_of_encoders(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(PLUGIN), str(PLUGIN)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_its_url_indexes_and_searches(environment: dict[str, str], tmp_path: Path) -> None:
    def vlmsearch(*arguments: str) -> str:
        command = [sys.executable, "-m", "vlmsearch", *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "photos").mkdir()
    for number in range(6):
        make_scene(number).draw(96).save(tmp_path / "photos" / f"{number}.png")
    url = "colours:?shades=6"
    assert "colours:" in vlmsearch("backends")
    report = json.loads(vlmsearch("index", "photos", "--encoder", url, "--store", "sqlite:./index", "--json"))
    assert report["added"] == 6
    found = vlmsearch("search", "--image", "photos/3.png", "--encoder", url, "--store", "sqlite:./index", "--json")
    assert Path(json.loads(found)["matches"][0]["id"]).name == "3.png"
    assert "colours:6" in vlmsearch("info", "--store", "sqlite:./index")
