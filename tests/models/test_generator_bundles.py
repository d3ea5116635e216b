"""The description of language models for ONNX Runtime."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.bundle import data_folder
from vlmsearch.models.generator import PictureInput, generator_names, open_generator_bundle, sees_pictures

BUNDLE = data_folder("engines") / "demo-vlm" / "bundle"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLE, tmp_path / "mine"))


def test_bundles_that_come_with_the_project() -> None:
    assert {"demo-gpt2", "demo-vlm"} <= set(generator_names())
    assert open_generator_bundle("demo-gpt2").pictures is None
    assert open_generator_bundle("demo-vlm").pictures == PictureInput(max_count=4, side=160, tokens=100, token=1)
    assert [sees_pictures(name) for name in ("demo-gpt2", "demo-vlm", "none", "/nowhere")] == [
        False,
        True,
        False,
        False,
    ]
    assert sum(file.stat().st_size for file in BUNDLE.iterdir()) <= 15_000_000


def test_a_folder_is_named_after_itself(folder: Path) -> None:
    assert open_generator_bundle(str(folder)).name == "mine"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("max_count", 0, "pictures: max_count is a whole number from 1 to 1,024, not 0"),
        ("side", 10**9, "pictures: side is a whole number from 1 to 16,384"),
        ("tokens", "many", "pictures: tokens is a whole number"),
        ("token", None, "pictures: token is a whole number"),
    ],
)
def test_numbers_are_checked(folder: Path, key: str, value: object, message: str) -> None:
    file = folder / "generator.json"
    description = json.loads(file.read_text())
    description["pictures"][key] = value
    file.write_text(json.dumps(description))
    with pytest.raises(ConfigError, match=message):
        open_generator_bundle(str(folder))


def test_the_graph_for_pictures_belongs_to_it(folder: Path) -> None:
    file = folder / "generator.json"
    description = json.loads(file.read_text())
    del description["files"]["vision.onnx"]
    file.write_text(json.dumps(description))
    with pytest.raises(ConfigError, match=r"vision\.onnx is missing"):
        open_generator_bundle(str(folder))


@pytest.mark.parametrize("name", ["vision.onnx", "model.onnx", "model.safetensors", "tokenizer.json"])
def test_damage_is_found(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ModelUnavailableError, match="is damaged"):
        open_generator_bundle(str(folder))
