"""Everyone who decodes images does the same work."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from benchmarks.images import camera_pictures, decoders, main
from tests.support.tables import tables
from vlmsearch.demo.scenes import make_scene
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
    for data, source in zip(pictures.files, files):
        with Image.open(BytesIO(data)) as image, Image.open(BytesIO(source)) as original:
            assert (image.format, image.size) == ("JPEG", (96, 64))
            assert bool(image.info.get("progressive")) == progressive
            smooth = np.asarray(original.resize((96, 64), Image.Resampling.BICUBIC), float)
            assert 1 < np.std(np.asarray(image, float) - smooth) < 8


def test_large_pictures_are_fewer(files: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.images._MOST_PIXELS", 2 * 96 * 64)
    assert [len(camera_pictures(files, size).files) for size in ((96, 64), (97, 64), (300, 300))] == [2, 1, 1]


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


def test_decoding_and_the_way_to_vectors_are_timed() -> None:
    sizes = ("--size", "96", "64", "--size", "64", "96", "--progressive")
    decoding, overlap = tables(main, *sizes, "--count", "4", "--rounds", "1").values()
    kinds = ["96x64, progressive", "64x96, progressive"]
    assert [row["images"] for row in decoding] == [kind for kind in kinds for _ in range(4)]
    assert all(float(row["images/s"]) > 0 and float(row["kB"]) > 0 for row in decoding)
    assert [row["images"] for row in overlap] == kinds
    for row in overlap:
        slower = min(float(row["decoded/s"]), float(row["encoded/s"]))
        assert float(row["of slower"]) == pytest.approx(float(row["both/s"]) / slower, rel=0.05)
