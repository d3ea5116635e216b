"""From a folder of photographs to an answer with neither torch nor transformers, from a hub on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkpoints import make_bert
from tests.support.cli import ok
from tests.support.hub import Hub, taken_for_the_real_one
from tests.support.siglip import make_siglip
from vlmsearch.demo.scenes import make_scene

MODELS = "somebody/tiny-siglip+somebody/tiny-bert"
WITHOUT = """
import sys
for name in ("torch", "transformers", "safetensors", "huggingface_hub", "yaml", "sentence_transformers"):
    sys.modules[name] = None
from vlmsearch.cli import main
main()
"""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with taken_for_the_real_one(tmp_path, monkeypatch) as server:
        server.models["somebody/tiny-siglip"] = make_siglip(tmp_path / "siglip")
        server.models["somebody/tiny-bert"] = make_bert(tmp_path / "bert")
        yield server


def run_without(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, timeout=280, check=False
    )


def test_a_folder_of_photographs_is_indexed_and_searched(hub: Hub, tmp_path: Path) -> None:
    photos = tmp_path / "here" / "photos"
    photos.mkdir()
    for number in range(40):
        make_scene(70_000_000 + number).draw(96).save(photos / f"{number}.jpg")
    (photos / "notes.txt").write_text("too few texts to calibrate on\n")
    done = run_without("index", "photos", "--encoder", f"onnx:{MODELS}", "--store", "sqlite:./index")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("41 added")
    found = run_without("search", "a red star", "--all", "--limit", "3", "--store", "sqlite:./index")
    assert found.returncode == 0, found.stderr
    assert len(found.stdout.splitlines()) >= 3
    listed = json.loads(ok("models", "--json"))["built"]
    rows = {(row["name"], row["precision"]): row for row in listed}
    assert rows["somebody--tiny-siglip", "fp32"]["proof"] == rows["somebody--tiny-bert", "fp32"]["proof"] == "family"
    built = json.loads((tmp_path / "cache/bundles/somebody--tiny-siglip/bundle.json").read_text())
    samples = built["measured"]["samples"]
    assert (samples["image"]["origin"], samples["text"]["origin"]) == ("your own: photos", "English sentences")
    assert built["measured"]["checks"]["tokens.split_differently"]["value"] == 0


@pytest.mark.usefixtures("hub")
def test_what_needs_torch_says_how_to_install_it_without_cuda() -> None:
    refused = run_without("index", ".", "--encoder", "torch:somebody/tiny-bert", "--store", "sqlite:./index")
    assert refused.returncode == 1
    assert "[build]' --extra-index-url https://download.pytorch.org/whl/cpu" in refused.stderr
