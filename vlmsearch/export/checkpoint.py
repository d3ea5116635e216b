"""A model to export: its towers, its weights and what it does around them."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from vlmsearch.errors import ConfigError
from vlmsearch.export.layers import Activation, Layers
from vlmsearch.export.transformer import Pooling, Transformer
from vlmsearch.export.weights import Json, Weights, read_json
from vlmsearch.media.images import Preprocess
from vlmsearch.models.bundle import Tower

_ACTIVATIONS: dict[str, Activation] = {"quick_gelu": "quick_gelu", "gelu": "gelu"}
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
        """How many tokens the transformer sees."""

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
    """A model to export: its weights in float32, its towers and what it does around them."""

    folder: Path
    weights: Weights
    dim: int
    image: ImageTower | None
    text: TextTower
    preprocess: Preprocess | None
    max_tokens: int
    pad: int

    @property
    def towers(self) -> tuple[Tower, ...]:
        """The towers it has, image first."""
        return ("image", "text") if self.image else ("text",)

    def tower(self, name: Tower) -> ImageTower | TextTower:
        """One of its towers."""
        if name == "text":
            return self.text
        if self.image is None:
            raise ConfigError(f"{self.folder} has no image tower")
        return self.image

    def write(self, tower: Tower, layers: Layers) -> None:
        """Write one tower into ``layers``."""
        self.tower(tower).write(layers, self.weights)

    def digest(self) -> str:
        """SHA-256 over everything that decides the vectors: weights, towers, preprocessing and tokenizer."""
        total = hashlib.sha256()
        for name in sorted(self.weights):
            array = self.weights[name]
            total.update(f"{name}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        total.update(repr((self.image, self.text, self.preprocess, self.max_tokens)).encode())
        total.update((self.folder / "tokenizer.json").read_bytes())
        return total.hexdigest()


def image_settings(folder: Path) -> Json:
    """How the checkpoint's images are prepared, from either of the files that say so."""
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


def sentence_modules(folder: Path) -> tuple[Pooling, int | None]:
    """The pooling and the token limit of a sentence-transformers folder."""
    if not (folder / "modules.json").is_file():
        raise ConfigError(f"{folder} has no modules.json: BERT can be exported as sentence-transformers saves it")
    modules = read_json(folder / "modules.json")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Normalize"}:
        raise ConfigError(f"{folder / 'modules.json'}: Transformer, Pooling and Normalize can be exported, not {kinds}")
    pooling = read_json(folder / str(modules[1]["path"]) / "config.json")
    known: dict[str, Pooling] = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max"}
    chosen = [name for mode, name in known.items() if pooling.get(f"pooling_mode_{mode}")]
    chosen = chosen or [name for name in known.values() if pooling.get("pooling_mode") == name]
    switches = {key.removeprefix("pooling_mode_"): on for key, on in pooling.items() if key.startswith("pooling_mode_")}
    others = [mode for mode, on in switches.items() if on is True and mode not in known]
    if len(chosen) != 1 or others:
        raise ConfigError(f"{folder}: one of mean, cls and max pooling can be exported, not {chosen + others}")
    prompts = folder / "config_sentence_transformers.json"
    if prompts.is_file() and read_json(prompts).get("default_prompt_name"):
        raise ConfigError(f"{folder} puts a prompt before every text, which cannot be exported")
    limits = folder / "sentence_bert_config.json"
    return chosen[0], read_json(limits).get("max_seq_length") if limits.is_file() else None


def read_transformer(config: Json, folder: Path) -> Transformer:
    """The sizes of a transformer, by the usual names of a configuration."""
    activation = _ACTIVATIONS.get(str(config["hidden_act"]))
    if activation is None:
        known = ", ".join(_ACTIVATIONS)
        raise ConfigError(f"{folder}: activation {config['hidden_act']!r} cannot be exported; {known} can")
    return Transformer(
        width=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        activation=activation,
        epsilon=config["layer_norm_eps"],
    )
