"""Recipes are data: the shipped ones are sound, and a mistake in one's own is named."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import PROFILES, recipe_names
from vlmsearch.models.recipe import (
    Calibration,
    Gates,
    Prompts,
    Quality,
    Recipe,
    Shapes,
    TowerGate,
    find_recipe,
    read_recipe,
    to_toml,
)

MINE = 'name = "mine"\nsource = "me/mine"\nrevision = "abc"\nlicence = "MIT"\nspace = "mine"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_are_complete(name: str, tmp_path: Path) -> None:
    recipe = find_recipe(name)
    assert recipe.name == name
    assert recipe.licence
    assert "int8" in recipe.precisions
    if recipe.source:
        assert re.fullmatch(r"[0-9a-f]{40}", recipe.revision), "a branch may move: pin a commit"
    else:
        assert (recipe.folder / recipe.checkpoint / "config.json").is_file()
    assert recipe.gates.text == TowerGate(0.985, 0.90)
    assert recipe.gates.float32 == 0.99999
    assert recipe.family
    assert recipe.languages
    assert recipe.parameters > 100_000
    assert recipe.dim
    for figure in recipe.quality:
        assert figure.source.startswith("https://")
    assert read_recipe(written(tmp_path, recipe)) == dataclasses.replace(recipe, folder=tmp_path)


def written(folder: Path, recipe: Recipe) -> Path:
    path = folder / "recipe.toml"
    path.write_text(to_toml(recipe), encoding="utf-8")
    return path


def test_no_two_recipes_build_the_same_model() -> None:
    sources = [find_recipe(name).source for name in recipe_names()]
    named = [source for source in sources if source]
    assert len(set(named)) == len(named)


def test_what_is_odd_in_a_recipe_is_written_and_read_the_same(tmp_path: Path) -> None:
    odd = 'a "quoted" \\ line\n\t\x7f\x01 \u2028 \U0001f600'
    recipe = Recipe(
        "mine", odd, "mine", source="me/mine", revision="abc", languages=("de",), pickled=True, pooling="cls",
        prompts=Prompts(query=odd), gates=Gates(text=TowerGate(overlap=0.5)), scenes=3,
        quality=(Quality("one", 1.5, "x"), Quality("two", 100.0, odd)), folder=tmp_path,
    )  # fmt: skip
    assert read_recipe(written(tmp_path, recipe)) == recipe


def test_every_profile_has_its_recipes() -> None:
    assert {name for names in PROFILES.values() for name in names} <= set(recipe_names())


def test_all_models_asked_for_have_a_recipe() -> None:
    sizes = {"clip-vit-base-patch32", "clip-vit-base-patch16", "clip-vit-large-patch14"}
    newer = {"siglip2-base-patch16-224", "siglip2-base-patch32-256", "tinyclip-vit-8m-16"}
    sentences = {"all-minilm-l6-v2", "all-minilm-l12-v2", "multilingual-e5-base", "bge-small-en-v1.5"}
    assert set(recipe_names()) > sizes | newer | sentences | {"demo-clip", "demo-minilm"}
    assert len(recipe_names()) >= 20


def test_a_recipe_of_ones_own_is_read_from_a_file_or_a_folder(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        MINE
        + 'precisions = ["fp32", "fp16"]\n[shapes]\ntext_length = [1, 8, 16]\n[calibration]\ntrusted = []\nimages = 9\n'
        + "[gates]\npixels = 2\nimage = { overlap = 1 }\n",
    )
    expected = Recipe(
        "mine",
        "MIT",
        "mine",
        source="me/mine",
        revision="abc",
        precisions=("fp32", "fp16"),
        shapes=Shapes(text_length=(1, 8, 16)),
        calibration=Calibration(trusted=(), images=9),
        gates=Gates(pixels=2, image=TowerGate(overlap=1.0)),
        folder=tmp_path,
    )
    assert find_recipe(str(path)) == expected
    assert find_recipe(f"{tmp_path}/") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINE + 'licens = "x"\n', "unknown key 'licens'; did you mean 'licence'?"),
        (MINE + "[gates]\nfloat_32 = 0.9\n", "gates: unknown key 'float_32'; did you mean 'float32'?"),
        (MINE + "[gates.text]\nrecall = 0.9\n", "gates: text: unknown key 'recall'; there are mean_cosine, overlap"),
        (MINE + 'folder = "/tmp"\n', "unknown key 'folder'"),
        ('name = "mine"\n', "licence, space must be given"),
        (MINE + 'checkpoint = "x"\n', "either source (on the hub) or checkpoint"),
        (MINE.replace('revision = "abc"\n', ""), "revision must be given"),
        (MINE + 'precisions = ["fp32", "int4"]\n', "one of fp32, fp16, int8, qdq, not 'int4'"),
        (MINE + 'precisions = ["int8"]\n', "must hold fp32"),
        (MINE + 'precisions = "fp32"\n', "precisions is a list, not 'fp32'"),
        (MINE + "[shapes]\nimage_batch = [1, 2]\n", "a list of 3, not [1, 2]"),
        (MINE + "[shapes]\nimage_batch = [4, 2, 8]\n", "least, usual and greatest, not [4, 2, 8]"),
        (MINE + "[gates]\npixels = 1.5\n", "pixels is a whole number, not 1.5"),
        (MINE + "[gates]\npixels = true\n", "pixels is a whole number, not True"),
        (MINE + "gates = 1\n", "gates is a table, not 1"),
        (MINE + "[calibration]\nheld_out = 3\n", "16 of held_out"),
        (MINE + "parameters = -1\n", "parameters and dim are counts, not -1"),
        (MINE + '[[quality]]\nbenchmark = "b"\nscore = 101\nsource = "s"\n', "b needs a score from 0 to 100"),
        (MINE + '[[quality]]\nbenchmark = "b"\nscore = 5\n', "quality: source must be given"),
        (MINE + "[calibration]\nsmoothing = 2\n", "smoothing is from 0 to 1, not 2"),
        (MINE.replace("mine", "a/b", 1), "name cannot be 'a/b'"),
        (MINE.replace("mine", "demo", 1), "name cannot be 'demo'"),
        ("name = \n", "is not TOML"),
    ],
)
def test_a_mistake_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        read_recipe(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_an_unknown_name_are_clear(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        find_recipe(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match=r"did you mean 'clip-vit-base-patch32'.*all-minilm-l6-v2.*FILE\.toml"):
        find_recipe("clip-vit-base-patch-32")
