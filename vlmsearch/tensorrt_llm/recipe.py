"""Recipes of language and vision models: what TensorRT-LLM runs, how far quantised, and for which limits."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vlmsearch._util.files import expand_home
from vlmsearch._util.tables import as_dataclass, read_table, suggest
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import LANGUAGE, data_folder, recipe_names

Family = Literal["gpt", "llama", "phi", "qwen2.5-vl", "qwen3-vl", "llava"]
Rope = Literal["none", "default", "llama3", "longrope"]
Dtype = Literal["float16", "bfloat16"]
Method = Literal["none", "int8_wo", "int4_wo", "int8_sq", "int4_awq", "fp8"]
KvCache = Literal["same", "int8", "fp8"]
_SIGHTED = ("qwen2.5-vl", "qwen3-vl", "llava")
_BLOCK = 64
"""Tokens in a block of the KV cache: 64 in TensorRT-LLM 0.10 and 32 in 1.2."""


@dataclass(frozen=True)
class Architecture:
    """A decoder's shape.

    ``family`` is the folder of TensorRT-LLM's conversion script, or the kind of vision model. ``hidden`` and ``ffn``
    are widths, ``context`` the positions it was trained for. ``parameters`` are the weights of a vision model's
    decoder with its embeddings.
    """

    family: Family
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    ffn: int
    vocab: int
    context: int
    rope: Rope = "default"
    parameters: int = 0


@dataclass(frozen=True)
class Vision:
    """A vision tower's shape, and the tokens that it makes of a picture.

    A token is ``merge`` x ``merge`` patches of ``patch`` x ``patch`` pixels. A tower with a fixed ``side`` reads
    every picture at that size. Another reads it near its own size, with ``min_pixels`` to ``max_pixels``.
    ``parameters`` are its weights, the projection to the decoder included.
    """

    parameters: int
    layers: int
    hidden: int
    ffn: int
    patch: int
    merge: int = 1
    side: int = 0
    min_pixels: int = 0
    max_pixels: int = 0

    def tokens(self, side: int) -> int:
        """Return the tokens of a square picture.

        Source: ``smart_resize`` of transformers' ``image_processing_qwen2_vl.py``.
        """
        unit = self.patch * self.merge
        if self.side:
            return (self.side // unit) ** 2
        units = round(side / unit)
        if (units * unit) ** 2 > self.max_pixels:
            units = math.floor(side / math.sqrt(side**2 / self.max_pixels) / unit)
        elif (units * unit) ** 2 < self.min_pixels:
            units = math.ceil(side * math.sqrt(self.min_pixels / side**2) / unit)
        return units**2


@dataclass(frozen=True)
class Quantisation:
    """The storage of weights: ``int8_wo`` and ``int4_wo`` are weight-only; the others are calibrated.

    ``block_size`` is for ``int4_awq``. Calibration reads ``samples`` texts, ``batch`` at once; a single one is not
    padded. ``kv_cache`` is the type of cached keys and values: ``same`` is that of the model.
    """

    method: Method = "none"
    block_size: int = 128
    samples: int = 512
    batch: int = 1
    kv_cache: KvCache = "same"


@dataclass(frozen=True)
class Limits:
    """The limits of an engine: requests in a batch, tokens of a prompt, of prompt and answer, and of a whole batch."""

    batch: int
    input: int
    sequence: int
    tokens: int
    beams: int = 1


@dataclass(frozen=True)
class LlmRecipe:
    """One language model: ``source`` and ``revision`` on the hub, or ``checkpoint``, a folder beside the recipe.

    ``gated`` models are downloaded after their licence was accepted on the hub. ``release`` is the Triton release
    that is built for unless another is named, ``tp`` and ``pp`` are tensor and pipeline parallelism; ``splits`` says
    whether TensorRT-LLM's tables allow tensor parallelism for the model. A model with ``vision`` has no engines.
    """

    kind: Literal["llm"]
    name: str
    licence: str
    architecture: Architecture
    limits: Limits
    release: str
    source: str = ""
    revision: str = ""
    checkpoint: str = ""
    gated: bool = False
    dtype: Dtype = "float16"
    tp: int = 1
    pp: int = 1
    splits: bool = True
    quantisation: Quantisation = Quantisation()
    vision: Vision | None = None
    folder: Path = field(default=Path(), metadata={"given": False})
    location: str = field(default="", metadata={"given": False})

    @property
    def argument(self) -> str:
        """Return what commands of a shell call it: a name, or the file or folder that it was read from."""
        return shlex.quote(self.location or self.name)


def find_llm_recipe(location: str) -> LlmRecipe:
    """Return the recipe of a name, or of a file or folder.

    These have a ``/`` or ``.toml``.

    ConfigError says which there are.
    """
    if "/" in location or os.sep in location or location.endswith(".toml"):
        place = os.path.join(location, "recipe.toml") if expand_home(location).is_dir() else location
        return dataclasses.replace(read_llm_recipe(expand_home(place)), location=place)
    known = recipe_names(LANGUAGE)
    if location in recipe_names():
        raise ConfigError(f"{location} is an encoder: `vlmsearch build {location}`; here are {', '.join(known)}")
    if location not in known:
        hint = suggest(location, known)
        raise ConfigError(f"no language model {location!r}; {hint}there are {', '.join(known)}, and files (FILE.toml)")
    return read_llm_recipe(data_folder("engines") / location / "recipe.toml")


def read_llm_recipe(path: Path) -> LlmRecipe:
    """Return the recipe in a file; ConfigError says what is wrong with it."""
    table = read_table(path)
    if table.get("kind") != LANGUAGE:
        raise ConfigError(
            f'{path} is not a recipe of a language model (kind = "llm"): `vlmsearch build` reads encoders'
        )
    recipe = dataclasses.replace(as_dataclass(LlmRecipe, table, str(path)), folder=path.parent)
    _check(recipe, str(path))
    return recipe


def _check(recipe: LlmRecipe, where: str) -> None:
    shape, limits = recipe.architecture, recipe.limits
    parts = (shape, limits, recipe.quantisation, recipe)
    small = [name for part in parts for name, value in _numbers(part).items() if value < 1 and name != "parameters"]
    rules = (
        (
            bool(recipe.source) != bool(recipe.checkpoint),
            "give either source (on the hub) or checkpoint (a folder beside the recipe)",
        ),
        (not recipe.source or bool(recipe.revision), "revision must be given, so that everyone builds the same model"),
        (bool(recipe.name) and not set("/:+, ") & set(recipe.name), f"name cannot be {recipe.name!r}"),
        (not small, f"{', '.join(small)} must be at least 1"),
        (shape.hidden % max(shape.heads, 1) == 0, f"hidden {shape.hidden} is not a multiple of heads {shape.heads}"),
        (shape.heads % max(shape.kv_heads, 1) == 0, f"heads {shape.heads} is not a multiple of {shape.kv_heads}"),
        (limits.input < limits.sequence, f"limits: input {limits.input} leaves no room in sequence {limits.sequence}"),
        (
            limits.sequence <= shape.context,
            f"limits: sequence {limits.sequence} is longer than the model's context of {shape.context}",
        ),
        (
            (shape.family in _SIGHTED) == (recipe.vision is not None) == (shape.parameters > 0),
            f"vision and the parameters of architecture are for {', '.join(_SIGHTED)}",
        ),
        (
            recipe.vision is None or recipe.quantisation == Quantisation(),
            "a vision model runs as its checkpoint is: leave quantisation out",
        ),
        (limits.tokens >= limits.batch * limits.beams, "limits: tokens must be at least batch x beams"),
        (
            min(limits.tokens, limits.batch * limits.input) >= _BLOCK,
            f"limits: tokens and batch x input must be at least {_BLOCK}, a block of the KV cache",
        ),
    )
    for holds, message in rules:
        if not holds:
            raise ConfigError(f"{where}: {message}")


def _numbers(value: object) -> dict[str, int]:
    given = vars(value)
    return {name: number for name, number in given.items() if isinstance(number, int) and not isinstance(number, bool)}
