"""Recipes: which model to build, from what, how far, and how good it has to be."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vlmsearch._util.files import expand_home
from vlmsearch._util.json_table import PLAIN_NAME
from vlmsearch._util.tables import as_dataclass, read_table, suggest
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import LANGUAGE, PROFILES, Precision, Tower, data_folder, padded_length, recipe_names

Range = tuple[int, int, int]
"""Least, usual and greatest."""


@dataclass(frozen=True)
class Shapes:
    """The sizes of batches and texts, in tokens, that a compiled engine is made for."""

    image_batch: Range = (1, 32, 128)
    text_batch: Range = (1, 32, 256)
    text_length: Range = (2, 32, 77)

    @property
    def columns(self) -> Range:
        """The lengths of texts once they are padded, as an engine gets them."""
        least, usual, most = map(padded_length, self.text_length)
        return least, usual, most


def read_batches(text: str) -> Range:
    """The least, usual and greatest batch, from numbers with commas between them."""
    try:
        least, usual, most = (int(part) for part in text.split(","))
    except ValueError:
        least = usual = most = 0
    if not 1 <= least <= usual <= most:
        raise ConfigError(f"{text!r} is not the least, usual and greatest batch, as 1,32,256")
    return least, usual, most


@dataclass(frozen=True)
class Calibration:
    """What INT8 ranges are taken from when the user gives no data of their own.

    ``images`` and ``texts`` are how many; ``held_out`` is how many more of each are kept for measuring. ``texts_from``
    is the project's own English sentences or the captions of drawn scenes. ``trusted`` are the towers whose users'
    data is like that; only their ranges may be fixed without data from the user. ``smoothing`` is SmoothQuant's alpha.
    ``most_excluded`` is the largest share of layers that may stay in high precision. ``relevance_scenes`` is how many
    drawn scenes relevance is fitted on, beside the project's labelled passages; 0 fits none.
    """

    images: int = 128
    texts: int = 256
    held_out: int = 128
    texts_from: Literal["sentences", "scenes"] = "sentences"
    trusted: tuple[Tower, ...] = ("text",)
    smoothing: float = 0.5
    most_excluded: float = 0.5
    relevance_scenes: int = 300


@dataclass(frozen=True)
class TowerGate:
    """How near to float32 a lower precision must stay: the mean cosine, and the share of the 10 nearest kept."""

    mean_cosine: float = 0.985
    overlap: float = 0.90


@dataclass(frozen=True)
class Gates:
    """What a built model must reach.

    ``float32`` is the least cosine to transformers, ``pixels`` the greatest difference to its preprocessing in levels
    of 255, ``jpeg`` the least cosine from encoded images to vectors.
    """

    float32: float = 0.99999
    pixels: int = 1
    jpeg: float = 0.999
    image: TowerGate = TowerGate()
    text: TowerGate = TowerGate()

    def tower(self, tower: Tower) -> TowerGate:
        """The gate of one tower's lower precisions."""
        return self.image if tower == "image" else self.text


@dataclass(frozen=True)
class Recipe:
    """One model: ``source`` and ``revision`` on the hub, or ``checkpoint``, a folder beside the recipe.

    ``space`` names the embedding space, ``precisions`` is what a bundle holds by default, and ``scenes`` the number of
    drawn scenes that retrieval is measured on (0: not at all).
    """

    name: str
    licence: str
    space: str
    source: str = ""
    revision: str = ""
    checkpoint: str = ""
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    scenes: int = 0
    shapes: Shapes = Shapes()
    calibration: Calibration = Calibration()
    gates: Gates = Gates()
    folder: Path = field(default=Path(), metadata={"given": False})


def find_recipe(location: str) -> Recipe:
    """The recipe of a name, or of a file or folder (with a ``/`` or ``.toml``); ConfigError says which there are."""
    if "/" in location or os.sep in location or location.endswith(".toml"):
        path = expand_home(location)
        return read_recipe(path / "recipe.toml" if path.is_dir() else path)
    known = recipe_names()
    if location in recipe_names(LANGUAGE):
        others = ", ".join(known)
        raise ConfigError(f"{location} is a language model: `vlmsearch llm plan {location}`; here are {others}")
    if location not in known:
        hint = suggest(location, [*known, *PROFILES])
        raise ConfigError(f"no recipe {location!r}; {hint}there are {', '.join(known)}, and files (FILE.toml)")
    return read_recipe(data_folder("engines") / location / "recipe.toml")


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file; ConfigError says what is wrong with it."""
    table = read_table(path)
    if table.get("kind") == LANGUAGE:
        raise ConfigError(f"{path} is the recipe of a language model: `vlmsearch llm plan` reads it")
    recipe = dataclasses.replace(as_dataclass(Recipe, table, str(path)), folder=path.parent)
    _check(recipe, str(path))
    return recipe


def _check(recipe: Recipe, where: str) -> None:
    if bool(recipe.source) == bool(recipe.checkpoint):
        raise ConfigError(f"{where}: give either source (on the hub) or checkpoint (a folder beside the recipe)")
    if recipe.source and not recipe.revision:
        raise ConfigError(f"{where}: revision must be given, so that everyone builds the same model")
    for key, name in (("name", recipe.name), ("space", recipe.space)):
        if not PLAIN_NAME.fullmatch(name) or name in PROFILES:
            raise ConfigError(f"{where}: {key} cannot be {name!r}: it has letters, digits, ., _ and -")
    if "fp32" not in recipe.precisions:
        raise ConfigError(f"{where}: precisions must hold fp32, which the others are measured against")
    for name, (least, usual, most) in dataclasses.asdict(recipe.shapes).items():
        if not 1 <= least <= usual <= most:
            raise ConfigError(f"{where}: shapes: {name} is least, usual and greatest, not {[least, usual, most]}")
    data = recipe.calibration
    if min(data.images, data.texts) < 1 or data.held_out < 16:
        raise ConfigError(f"{where}: calibration: at least 1 of images and texts, and 16 of held_out")
    shares = {"smoothing": data.smoothing, "most_excluded": data.most_excluded}
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ConfigError(f"{where}: calibration: {name} is from 0 to 1, not {share}")
