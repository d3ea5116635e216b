"""`vlmsearch bench images` times everyone at the same work, and says what it timed."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from benchmarks.images import Overlap, Pictures, camera_pictures, decoders
from vlmsearch.cli import cli
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import VlmsearchError
from vlmsearch.media.images import Preprocess
from vlmsearch.models.inputs import to_pixels


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    found = []
    for seed in range(3):
        out = BytesIO()
        make_scene(seed).draw(128).save(out, "JPEG")
        found.append(out.getvalue())
    return found


@pytest.mark.parametrize("progressive", [False, True])
def test_pictures_are_those_of_a_camera(files: list[bytes], progressive: bool) -> None:
    pictures = camera_pictures(files, (96, 64), progressive=progressive)
    assert pictures.name == ("96x64, progressive" if progressive else "96x64")
    assert len(pictures.files) == 3
    assert pictures.kilobytes == pytest.approx(sum(map(len, pictures.files)) / 3000)
    for data, source in zip(pictures.files, files):
        with Image.open(BytesIO(data)) as image, Image.open(BytesIO(source)) as original:
            assert (image.format, image.size) == ("JPEG", (96, 64))
            assert bool(image.info.get("progressive")) == progressive
            smooth = np.asarray(original.resize((96, 64), Image.Resampling.BICUBIC), float)
            assert 1 < np.std(np.asarray(image, float) - smooth) < 8


def test_large_pictures_are_fewer(files: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.images._MOST_PIXELS", 2 * 96 * 64)
    assert [len(camera_pictures(files, size).files) for size in ((96, 64), (97, 64), (300, 300))] == [2, 1, 1]


def test_a_model_on_a_gpu_is_compared_with_the_slower_and_one_on_the_cores_with_both() -> None:
    overlap = Overlap(Pictures("any", (b"",)), decoded=100, encoded=300, both=75)
    assert overlap.of_slower == pytest.approx(0.75)
    assert overlap.of_shared == pytest.approx(1)


@pytest.mark.parametrize(
    "preprocess", [Preprocess(32), Preprocess(32, crop=False, interpolation="bilinear")], ids=["cropped", "squashed"]
)
def test_everyone_makes_the_same_pixels(files: list[bytes], preprocess: Preprocess) -> None:
    for data in camera_pictures(files, (90, 60)).files:
        expected = to_pixels(data, preprocess).astype(int)
        made = {name: decode(data) for name, decode in decoders(preprocess).items()}
        assert isinstance(made.pop("vlmsearch: JPEG to RGB"), Image.Image)
        assert set(made) == {
            "vlmsearch: JPEG to pixels",
            "Pillow and transformers' processor",
            "Pillow and PyTorch's resizing",
        }
        for name, pixels in made.items():
            assert np.abs(pixels - expected).max() <= 1, name


def test_the_command_times_decoding_and_the_way_to_vectors() -> None:
    arguments = ["--sizes", "96x64,64x96", "--progressive", "--count", "4", "--rounds", "1"]
    result = CliRunner().invoke(cli, ["bench", "images", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    kinds = ["96x64, progressive", "64x96, progressive"]
    assert [row["images"] for row in data["overlap"]] == kinds
    assert [row["images"] for row in data["decoding"]] == [kind for kind in kinds for _ in range(4)]
    assert all(row["images_per_second_and_core"] > 0 and row["kilobytes"] > 0 for row in data["decoding"])
    for row in data["overlap"]:
        slower = min(row["decoded_per_second"], row["encoded_per_second"])
        assert row["of_slower"] == pytest.approx(row["both_per_second"] / slower, rel=0.02)
    assert "bench images: decoding 96x64" in result.stderr


def test_the_files_of_a_folder_are_timed_as_they_are(files: list[bytes], tmp_path: Path) -> None:
    for number, data in enumerate(files):
        (tmp_path / f"{number}.jpg").write_bytes(data)
    result = CliRunner().invoke(cli, ["bench", "images", "--images", str(tmp_path), "--count", "5", "--rounds", "1"])
    assert result.exit_code == 0, result.output
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == ["images", *["as they are"] * 4, "images", "as they are"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--progressive", "--images", "here"], "--progressive is for what --sizes makes: give --sizes, too"),
        (["--encoder", "onnx:demo-minilm"], "has no image tower that runs here: give an encoder such as onnx:demo"),
        (["--encoder", "mock:"], "has no image tower that runs here"),
    ],
)
def test_what_cannot_be_timed_is_one_clear_line(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["bench", "images", *arguments])
    assert isinstance(result.exception, VlmsearchError)
    assert message in str(result.exception)


@pytest.mark.parametrize("sizes", ["640", "640x", "0x5", "640x480,", "100000x1"])
def test_sizes_that_are_none_are_wrong_usage(sizes: str) -> None:
    result = CliRunner().invoke(cli, ["bench", "images", "--sizes", sizes])
    assert result.exit_code == 2
    assert "such as 640x480,1024x768" in result.stderr
