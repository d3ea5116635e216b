"""A model to export: its towers, its weights and what it does around them."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Literal

import numpy as np

from vlmsearch.building.layers import Activation, Layers
from vlmsearch.building.transformer import Pooling, Transformer
from vlmsearch.building.weights import Json, Weights, read_json
from vlmsearch.errors import ConfigError, VlmsearchError, one_line
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import MAX_DIM, MAX_ID, MAX_SIDE, MAX_TOKENS, Logits, Tower
from vlmsearch.models.recipe import NO_PROMPTS, Prompts

_ACTIVATIONS: dict[str, Activation] = {
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
}
_MAX_LAYERS = 2**10
_RESAMPLE: dict[int, Literal["lanczos", "bilinear", "bicubic"]] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}


@dataclass(frozen=True)
class ImageTower(ABC):
    """An image tower; mean and deviation are those of its preprocessing, per channel."""

    transformer: Transformer
    size: int
    patch: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Return how many tokens the transformer sees."""

    @abstractmethod
    def write(self, layers: Layers, weights: Weights) -> None:
        """Write ``pixels`` uint8 (n, size, size, 3) to ``embedding`` float32 (n, dim), unit rows."""


@dataclass(frozen=True)
class TextTower(ABC):
    """A text tower that reads up to ``positions`` tokens."""

    transformer: Transformer
    positions: int

    @abstractmethod
    def write(self, layers: Layers, weights: Weights) -> None:
        """Write ``input_ids`` and ``attention_mask`` int32 (n, length) to ``embedding`` float32 (n, dim), unit rows."""


@dataclass(frozen=True)
class Checkpoint:
    """A model to export: its weights in float32, its towers and what it does around them.

    ``prompts`` stand before its texts. Where ``fill`` is given, all texts are padded to so many tokens and no mask is
    applied. ``lower`` says to lower-case texts, which the tokenizer itself does not.
    """

    folder: Path
    weights: Weights
    dim: int
    image: ImageTower | None
    text: TextTower
    preprocess: Preprocess | None
    max_tokens: int
    pad: int
    prompts: Prompts = NO_PROMPTS
    fill: int | None = None
    lower: bool = False
    logits: Logits | None = None

    def __post_init__(self) -> None:
        self._check("vectors", self.dim, 1, MAX_DIM)
        self._check("tokens", self.max_tokens, 1, MAX_TOKENS)
        self._check("pad token", self.pad, 0, MAX_ID)
        self._check("positions", self.text.positions, 1, MAX_TOKENS)
        for form in (tower.transformer for tower in (self.image, self.text) if tower):
            self._check("width", form.width, 1, MAX_DIM)
            self._check("heads", form.heads, 1, form.width)
            self._check("layers", form.layers, 1, _MAX_LAYERS)
            self._check_numbers("epsilon", form.epsilon)
        if self.image:
            self._check("image size", self.image.size, 1, MAX_SIDE)
            self._check("patch size", self.image.patch, 1, self.image.size)
            self._check_numbers("mean", *self.image.mean)
            self._check_numbers("deviation", *self.image.std)

    def _check(self, what: str, value: object, minimum: int, maximum: int) -> None:
        """Raise ConfigError for a size in the settings that no model has."""
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise ConfigError(
                f"{self.folder}: {what}: {minimum} to {maximum:,} can be exported, not {str(value)[:60]!r}"
            )

    def _check_numbers(self, what: str, *values: object) -> None:
        for value in values:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ConfigError(f"{self.folder}: {what}: {str(value)[:60]!r} is not a number")

    @property
    def towers(self) -> tuple[Tower, ...]:
        """Return the towers it has, image first."""
        return ("image", "text") if self.image else ("text",)

    @property
    def float32_bytes(self) -> int:
        """Return how many bytes the weights take in float32."""
        return sum(self.weights[name].nbytes for name in self.weights)

    def tower(self, name: Tower) -> ImageTower | TextTower:
        """Return one of its towers."""
        if name == "text":
            return self.text
        if self.image is None:
            raise ConfigError(f"{self.folder} has no image tower")
        return self.image

    def write(self, tower: Tower, layers: Layers) -> None:
        """Write one tower into ``layers``; ConfigError where its tensors are not as its settings say."""
        try:
            self.tower(tower).write(layers, self.weights)
        except VlmsearchError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as exc:
            raise ConfigError(f"{self.folder}: its tensors do not fit its settings ({one_line(exc, 120)})") from exc

    def digest(self) -> str:
        """SHA-256 over everything that decides the vectors: weights, towers, preprocessing, tokenizer and prompts."""
        total = hashlib.sha256()
        for name in sorted(self.weights):
            array = self.weights[name]
            total.update(f"{name}{array.shape}".encode())
            total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        total.update(repr((self.image, self.text, self.preprocess, self.max_tokens)).encode())
        total.update((self.folder / "tokenizer.json").read_bytes())
        if self.fill or self.prompts != NO_PROMPTS:
            total.update(repr((self.prompts, self.fill)).encode())
        if self.lower:
            total.update(b"lower")
        return total.hexdigest()


def read_logits(weights: Weights) -> Logits:
    """Read what two towers make of a cosine; the scale is kept as its logarithm."""
    scale, bias = math.exp(float(weights["logit_scale"].item())), weights.get("logit_bias")
    return Logits(round(scale, 4), None if bias is None else round(float(bias.item()), 4))


def image_settings(folder: Path) -> Json:
    """Return how the checkpoint's images are prepared, from either of the files that say so."""
    alone, together = folder / "preprocessor_config.json", folder / "processor_config.json"
    if together.is_file() and not alone.is_file():
        return read_json(together).get("image_processor") or {}
    return read_json(alone) or {}


def shorter_edge(prep: Json, folder: Path) -> Preprocess:
    """Resizing by the shorter edge and a crop of the middle."""
    size, crop, resample = prep.get("size", 224), prep.get("crop_size", 224), prep.get("resample", 3)
    edge = size if isinstance(size, int) else size.get("shortest_edge")
    window = crop if isinstance(crop, int) else crop["height"]
    if edge != window or resample not in _RESAMPLE:
        raise ConfigError(
            f"{folder}: images must be resized by their shorter edge and cropped to the same size, with resample one "
            f"of {list(_RESAMPLE)}; here size is {size}, crop_size {crop}, resample {resample}"
        )
    return Preprocess(size=int(edge), interpolation=_RESAMPLE[resample])


def whole_image(prep: Json, folder: Path) -> Preprocess:
    """Resizing of all of an image to a square, whatever its shape."""
    size, resample, square = prep.get("size", {}), prep.get("resample", 3), prep.get("do_center_crop")
    sides = (size, size) if isinstance(size, int) else (size.get("height"), size.get("width"))
    if square or sides[0] is None or sides[0] != sides[1] or resample not in _RESAMPLE:
        raise ConfigError(
            f"{folder}: images must be resized to a square without a crop, with resample one of {list(_RESAMPLE)}; "
            f"here size is {size}, do_center_crop {square}, resample {resample}"
        )
    return Preprocess(size=int(sides[0]), crop=False, interpolation=_RESAMPLE[resample])


@dataclass(frozen=True)
class SentenceModules:
    """The modules of sentence-transformers around a transformer.

    ``limit`` is the most tokens that it lets through, if it says so. ``other_prompts`` are the names of prompts that
    are neither those of queries nor those of documents. ``is_plain`` says that all modules are its own.

    Whether a model has its Normalize module makes no difference here: vectors have length one always, and search
    compares them by their cosine. For a model without one, sentence-transformers gives vectors of the same direction
    whose dot products are not cosines.
    """

    pooling: Pooling
    limit: int | None
    prompts: Prompts
    other_prompts: tuple[str, ...]
    is_plain: bool


def sentence_modules(folder: Path) -> SentenceModules:
    """Read the modules of a sentence-transformers folder; ConfigError names what cannot be exported."""
    if not (folder / "modules.json").is_file():
        raise ConfigError(f"{folder} has no modules.json: a text model is exported as sentence-transformers saves it")
    modules = read_json(folder / "modules.json")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Normalize"}:
        raise ConfigError(f"{folder / 'modules.json'}: Transformer, Pooling and Normalize can be exported, not {kinds}")
    limits = folder / "sentence_bert_config.json"
    settings = read_json(limits) if limits.is_file() else {}
    if settings.get("do_lower_case") and not lowers(folder):
        raise ConfigError(f"{limits}: do_lower_case cannot be exported: the tokenizer itself keeps capitals")
    pooling = _pooling(folder / str(modules[1]["path"]) / "config.json")
    is_plain = all(str(module["type"]).startswith("sentence_transformers.") for module in modules)
    return SentenceModules(pooling, settings.get("max_seq_length"), *_prompts(folder), is_plain)


def lowers(folder: Path) -> bool:
    """Return whether the tokenizer makes capitals small by itself.

    A setting that says so changes nothing then.
    """
    normalizer = read_json(folder / "tokenizer.json").get("normalizer") or {}
    parts = normalizer.get("normalizers", [normalizer])
    return any(part.get("type") == "Lowercase" or part.get("lowercase") is True for part in parts)


_POOLINGS: dict[str, Pooling] = {"mean_tokens": "mean", "cls_token": "cls"}
"""By the names of old configurations; new ones leave out ``_token`` and ``_tokens``."""


def _pooling(path: Path) -> Pooling:
    """Return the pooling of a module.

    It is a name or several, ``pooling_mode``, or one switch a mode.
    """
    config = read_json(path)
    if not config.get("include_prompt", True):
        raise ConfigError(f"{path}: pooling that leaves the prompt out (include_prompt) cannot be exported")
    named = config.get("pooling_mode")
    if named is None:
        switches = [key for key, on in config.items() if key.startswith("pooling_mode_") and on is True]
        modes = [key.removeprefix("pooling_mode_") for key in switches]
    else:
        modes = [named] if isinstance(named, str) else list(named)
    new = {mode.partition("_token")[0]: pooling for mode, pooling in _POOLINGS.items()}
    known = _POOLINGS | new
    if len(modes) != 1 or modes[0] not in known:
        raise ConfigError(f"{path}: one of {', '.join(_POOLINGS.values())} pooling can be exported, not {modes}")
    return known[modes[0]]


def _prompts(folder: Path) -> tuple[Prompts, tuple[str, ...]]:
    """Return the prompts of ``encode_query`` and ``encode_document`` in sentence-transformers, and the other names.

    They are named "query" and "document"; without one there is none. Neither the default prompt nor "passage" and
    "corpus" take their place: its models always have a prompt "document", which is empty where they name none.
    """
    path = folder / "config_sentence_transformers.json"
    config = read_json(path) if path.is_file() else {}
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, (str, NoneType)) for text in prompts.values()):
        raise ConfigError(f"{path}: prompts are texts by their names, not {str(prompts)[:60]!r}")
    if default is not None and default not in (*prompts, "query", "document"):
        raise ConfigError(f"{path}: the default prompt {default!r} is not among its prompts, {list(prompts)}")
    others = tuple(name for name, text in prompts.items() if text and name not in ("query", "document"))
    return Prompts(prompts.get("query") or "", prompts.get("document") or ""), others


def read_transformer(config: Json, folder: Path) -> Transformer:
    """Return the sizes of a transformer, by the usual names of a configuration."""
    activation = _ACTIVATIONS.get(str(config["hidden_act"]))
    if activation is None:
        known = ", ".join(_ACTIVATIONS)
        raise ConfigError(f"{folder}: activation {config['hidden_act']!r} cannot be exported; {known} can")
    return Transformer(
        width=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        activation=activation,
        epsilon=float(config["layer_norm_eps"]),
    )
