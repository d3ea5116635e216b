"""Duplicates are told from other pictures: drawn scenes, those that differ in one attribute, photographs."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.support.edits import EDITS, altered
from tests.support.paths import SHARED
from vlmsearch import InvalidInputError
from vlmsearch.demo.scenes import make_scene
from vlmsearch.media.duplicates import is_duplicate, look_at, placements
from vlmsearch.media.images import open_image

SEEDS = range(50_000_000, 50_000_016)
PHOTOS = SHARED / "photos"


def recall(pictures: list[Image.Image]) -> dict[str, float]:
    """The share of edited pictures that are found to be duplicates, by edit."""
    found: dict[str, float] = {}
    looks = [look_at(picture) for picture in pictures]
    for name, edit in EDITS.items():
        duplicates = [look_at(edit(picture, random.Random(i))) for i, picture in enumerate(pictures)]
        found[name] = sum(map(is_duplicate, looks, duplicates)) / len(duplicates)
    return found


@pytest.mark.slow
def test_edited_scenes_are_duplicates() -> None:
    found = recall([make_scene(seed).draw() for seed in SEEDS])
    assert min(found.values()) >= 0.85, found
    assert sum(found.values()) / len(found) >= 0.95, found


@pytest.mark.slow
def test_scenes_that_differ_in_one_attribute_are_not() -> None:
    wrong = 0
    for seed in SEEDS:
        scene = make_scene(seed)
        one = look_at(scene.draw())
        wrong += sum(is_duplicate(one, look_at(altered(scene, random.Random(seed + i)).draw())) for i in range(4))
    assert wrong <= 1  # of 64


def test_copying_goes_both_ways() -> None:
    for seed in SEEDS[:6]:
        picture = make_scene(seed).draw()
        one, other = look_at(picture), look_at(EDITS["cropped"](picture, random.Random(seed)))
        assert is_duplicate(one, other)
        assert is_duplicate(other, one)


@pytest.mark.skipif(not PHOTOS.is_dir(), reason="no photographs here")
def test_edited_photographs_are_duplicates_and_others_are_not() -> None:
    files = sorted(PHOTOS.rglob("*.jpg"))[:12]
    pictures = [open_image(path) for path in files]
    found = recall(pictures)
    assert min(found.values()) >= 0.9, found
    assert sum(found.values()) / len(found) >= 0.97, found
    looks = [look_at(picture) for picture in pictures]
    assert not any(is_duplicate(looks[i], looks[j]) for i in range(len(looks)) for j in range(i))


@pytest.mark.parametrize(
    "edit",
    [
        lambda picture: picture.convert("L"),
        lambda picture: picture.resize((600, 600)).crop((0, 0, 480, 480)).transpose(Image.Transpose.ROTATE_90),
        lambda picture: picture.resize((128, 200)),
    ],
    ids=["grey", "a crop of four fifths, turned", "squashed"],
)
def test_what_is_done_to_a_copy_may_be_combined(edit: Callable[[Image.Image], Image.Image]) -> None:
    picture = make_scene(1).draw()
    assert is_duplicate(look_at(picture), look_at(edit(picture)))


def test_pictures_of_one_colour_are_duplicates_of_nothing() -> None:
    white, black = (look_at(Image.new("RGB", (100, 100), colour)) for colour in ("white", "black"))
    assert placements(white.sketch, black.sketch) == []
    assert not is_duplicate(white, white)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        look_at(tmp_path / "gone.png")
