"""Recipes: which model to build, from what, how far, and how good it has to be."""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vlmsearch.bundles import PROFILES, Precision, Tower, data_folder, recipe_names
from vlmsearch.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

Range = tuple[int, int, int]
"""Least, usual and greatest."""


@dataclass(frozen=True)
class Shapes:
    """The sizes of batches and texts that a compiled engine is made for."""

    image_batch: Range = (1, 32, 128)
    text_batch: Range = (1, 32, 256)
    text_length: Range = (2, 32, 77)


@dataclass(frozen=True)
class Calibration:
    """What INT8 ranges are taken from when the user gives no data of their own.

    ``images`` and ``texts`` are how many; ``held_out`` is how many more of each are kept for measuring. ``texts_from``
    is the project's own English sentences or the captions of drawn scenes. ``trusted`` are the towers whose users'
    data is like that; only their ranges may be fixed without data from the user. ``smoothing`` is SmoothQuant's alpha.
    ``most_excluded`` is the largest share of layers that may stay in high precision.
    """

    images: int = 128
    texts: int = 256
    held_out: int = 128
    texts_from: Literal["sentences", "scenes"] = "sentences"
    trusted: tuple[Tower, ...] = ("text",)
    smoothing: float = 0.5
    most_excluded: float = 0.5


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
        path = Path(location).expanduser()
        return read_recipe(path / "recipe.toml" if path.is_dir() else path)
    known = recipe_names()
    if location not in known:
        near = difflib.get_close_matches(location, [*known, *PROFILES], 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"no recipe {location!r}; {hint}there are {', '.join(known)}, and files (FILE.toml)")
    return read_recipe(data_folder("engines") / location / "recipe.toml")


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file; ConfigError says what is wrong with it."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is no TOML: {exc}") from exc
    recipe = dataclasses.replace(_build(Recipe, table, str(path)), folder=path.parent)
    _check(recipe, str(path))
    return recipe


T = typing.TypeVar("T")


def _build(kind: type[T], table: Mapping[str, object], where: str) -> T:
    """A dataclass from a table with the same keys."""
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.metadata.get("given", True)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, 1, 0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(f"{where}: unknown key {key!r}; {hint}there are {', '.join(fields)}")
    missing = [name for name, f in fields.items() if f.default is dataclasses.MISSING and name not in table]
    if missing:
        raise ConfigError(f"{where}: {', '.join(missing)} must be given")
    return kind(**{key: _value(hints[key], value, f"{where}: {key}") for key, value in table.items()})


def _value(kind: object, value: object, where: str) -> object:
    """A TOML value as the annotated type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise ConfigError(f"{where} is a table, not {value!r}")
        return _build(kind, value, where)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{where} is one of {', '.join(map(str, arguments))}, not {value!r}")
        return value
    if origin is tuple:
        fixed = Ellipsis not in arguments
        if not isinstance(value, list) or (fixed and len(value) != len(arguments)):
            raise ConfigError(f"{where} is a list{f' of {len(arguments)}' if fixed else ''}, not {value!r}")
        return tuple(_value(arguments[0], item, where) for item in value)
    wanted: dict[object, tuple[type, ...]] = {float: (float, int), int: (int,), str: (str,)}
    if isinstance(value, bool) or not isinstance(value, wanted[kind]):
        names = {float: "a number", int: "a whole number", str: "a text"}
        raise ConfigError(f"{where} is {names[typing.cast('type', kind)]}, not {value!r}")
    return float(value) if kind is float and isinstance(value, int) else value


def _check(recipe: Recipe, where: str) -> None:
    if bool(recipe.source) == bool(recipe.checkpoint):
        raise ConfigError(f"{where}: give either source (on the hub) or checkpoint (a folder beside the recipe)")
    if recipe.source and not recipe.revision:
        raise ConfigError(f"{where}: revision must be given, so that everyone builds the same model")
    if not recipe.name or "/" in recipe.name or ":" in recipe.name or "+" in recipe.name or recipe.name in PROFILES:
        raise ConfigError(f"{where}: name cannot be {recipe.name!r}")
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
