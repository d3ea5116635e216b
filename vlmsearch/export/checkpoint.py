"""Checkpoints as the transformers and sentence-transformers libraries save them, read without either."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from safetensors import safe_open

from vlmsearch.errors import ConfigError, MissingDependencyError, ModelUnavailableError, one_line
from vlmsearch.export import architectures
from vlmsearch.export.architectures import Bert, ClipImage, ClipText, CrossEncoder, Pooling, Transformer, Weights
from vlmsearch.export.layers import Activation, Array, Layers
from vlmsearch.media.images import Preprocess


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights: safetensors, one or several with an index, else PyTorch's own; all there."""
    for one, index in (
        ("model.safetensors", "model.safetensors.index.json"),
        ("pytorch_model.bin", "pytorch_model.bin.index.json"),
    ):
        if (folder / one).is_file():
            return [folder / one]
        if (folder / index).is_file():
            files = [folder / name for name in sorted(set(read_json(folder / index)["weight_map"].values()))]
            for file in files:
                if not file.is_file():
                    raise ModelUnavailableError(f"{folder} has no {file.name}, which its {index} lists")
            return files
    raise ModelUnavailableError(f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin")


class _Weights(dict[str, Array]):
    """Tensors by name; one that is not there is the checkpoint's fault."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> Array:
        raise ConfigError(f"{self._folder} cannot be exported: it has no tensor {name}")


def read_weights(folder: Path, rename: Callable[[str], str]) -> Weights:
    """All tensors in float32."""
    found = _Weights(folder)
    for file in weight_files(folder):
        try:
            tensors = _read_safetensors(file) if file.suffix == ".safetensors" else _read_pickle(file)
        except MissingDependencyError:
            raise
        except Exception as exc:  # whatever the readers raise for a damaged file
            raise ConfigError(f"{file} is damaged: {one_line(exc)}") from exc
        found.update({rename(name): array for name, array in tensors.items()})
    return found


def _read_safetensors(file: Path) -> dict[str, Array]:
    try:
        with safe_open(file, "np") as tensors:
            found = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    except TypeError:  # bfloat16, which NumPy has from ml_dtypes at best
        _torch()
        with safe_open(file, "pt") as tensors:
            return _floats({name: tensors.get_tensor(name) for name in tensors.keys()})  # noqa: SIM118
    floats = {name: array for name, array in found.items() if array.dtype.kind == "f" or array.dtype.name == "bfloat16"}
    return {name: array.astype(np.float32, copy=False) for name, array in floats.items()}


def _read_pickle(file: Path) -> dict[str, Array]:
    return _floats(_torch().load(file, map_location="cpu", weights_only=True))


def _floats(tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: tensor.float().numpy() for name, tensor in tensors.items() if tensor.is_floating_point()}


def _torch() -> ModuleType:
    try:
        import torch
    except ImportError as exc:
        raise MissingDependencyError("these weights need torch: pip install 'vlmsearch[export]'") from exc
    return torch


def read_json(path: Path) -> Any:
    """What a JSON file of a checkpoint holds; ModelUnavailableError where it is missing."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelUnavailableError(f"{path.parent} is not a checkpoint: it has no {path.name}") from None
    except ValueError as exc:
        raise ConfigError(f"{path} is damaged: {exc}") from exc


Json = dict[str, Any]
Tower = Literal["image", "text"]
_ACTIVATIONS: dict[str, Activation] = {"quick_gelu": "quick_gelu", "gelu": "gelu"}
_RESAMPLE: dict[int, Literal["lanczos", "bilinear", "bicubic"]] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}


@dataclass(frozen=True)
class Checkpoint:
    """A model to export: its weights in float32, its tokenizer and what it does around the transformer."""

    folder: Path
    weights: Weights
    image: ClipImage | None
    text: ClipText | Bert | CrossEncoder
    preprocess: Preprocess | None
    max_tokens: int
    pad: int

    @property
    def dim(self) -> int:
        """The length of its vectors."""
        return self.weights["text_projection.weight"].shape[0] if self.image else self.text.transformer.width

    @property
    def towers(self) -> tuple[Tower, ...]:
        """The towers it has, image first."""
        return ("image", "text") if self.image else ("text",)

    def write(self, tower: Tower, layers: Layers) -> None:
        """Write one tower into ``layers``."""
        if tower == "image":
            if self.image is None:
                raise ConfigError(f"{self.folder} has no image tower")
            architectures.write_clip_image(layers, self.image, self.weights)
        elif isinstance(self.text, Bert):
            architectures.write_bert(layers, self.text, self.weights)
        elif isinstance(self.text, CrossEncoder):
            architectures.write_cross_encoder(layers, self.text, self.weights)
        else:
            architectures.write_clip_text(layers, self.text, self.weights)

    def digest(self) -> str:
        """SHA-256 over everything that decides the vectors: weights, towers, preprocessing and tokenizer."""
        total = hashlib.sha256()
        for name in sorted(self.weights):
            array = self.weights[name]
            total.update(f"{name}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        total.update(repr((self.image, self.text, self.preprocess, self.max_tokens)).encode())
        total.update((self.folder / "tokenizer.json").read_bytes())
        return total.hexdigest()


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a CLIP or BERT checkpoint; ConfigError says what is missing or which architecture cannot be exported."""
    return _load(folder, {"clip": _clip, "bert": _bert}, "CLIP and BERT checkpoints")


def load_cross_encoder(folder: Path) -> Checkpoint:
    """Read a BERT checkpoint that gives one number; ConfigError as `load_checkpoint` raises it."""
    return _load(folder, {"bert": _cross_encoder}, "cross-encoders of BERT")


def _load(folder: Path, readers: Mapping[str, Callable[[Path, Json], Checkpoint]], what: str) -> Checkpoint:
    config = read_json(folder / "config.json")
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError(f"{folder} has no tokenizer.json: save the checkpoint with its fast tokenizer")
    kind = config.get("model_type") if isinstance(config, dict) else None
    read = readers.get(str(kind))
    if read is None:
        raise ConfigError(f"{folder} is of type {kind!r}; {what} can be exported")
    try:
        return read(folder, config)
    except (KeyError, TypeError, AttributeError, IndexError) as exc:
        raise ConfigError(f"{folder}: its settings are incomplete or damaged ({exc!r})") from exc


def _clip(folder: Path, config: Json) -> Checkpoint:
    vision = _tower_config(config, "vision_config", _CLIP_DEFAULTS | _VISION_DEFAULTS)
    text = _tower_config(config, "text_config", _CLIP_DEFAULTS | _TEXT_DEFAULTS)
    prep = image_settings(folder)
    image = ClipImage(
        _transformer(vision, folder),
        size=vision["image_size"],
        patch=vision["patch_size"],
        mean=tuple(prep["image_mean"]),
        std=tuple(prep["image_std"]),
    )
    # Configurations of before 2023 carry the wrong end token, 2, and mean "the largest id".
    end, positions = text["eos_token_id"], text["max_position_embeddings"]
    weights = read_weights(folder, lambda name: name)
    tower = ClipText(_transformer(text, folder), positions, None if end == 2 else end)
    return Checkpoint(folder, weights, image, tower, _preprocess(prep, folder), positions, text["pad_token_id"])


def _tower_config(config: Json, name: str, defaults: Json) -> Json:
    """One tower's settings: what older configurations keep under ``*_dict`` replaces everything else."""
    old = config.get(f"{name}_dict")
    return defaults | (config.get(name) or {}) | (defaults | old if old else {})


def image_settings(folder: Path) -> Json:
    """How the checkpoint's images are prepared, from either of the files that say so."""
    alone, together = folder / "preprocessor_config.json", folder / "processor_config.json"
    if together.is_file() and not alone.is_file():
        return read_json(together).get("image_processor") or {}
    return read_json(alone) or {}


_CLIP_DEFAULTS: Json = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "num_hidden_layers": 12}
_VISION_DEFAULTS: Json = {"hidden_size": 768, "num_attention_heads": 12, "image_size": 224, "patch_size": 32}
_TEXT_DEFAULTS: Json = {
    "hidden_size": 512,
    "num_attention_heads": 8,
    "eos_token_id": 49407,
    "pad_token_id": 1,
    "max_position_embeddings": 77,
}


def _preprocess(prep: Json, folder: Path) -> Preprocess:
    size, crop, resample = prep.get("size", 224), prep.get("crop_size", 224), prep.get("resample", 3)
    edge = size if isinstance(size, int) else size.get("shortest_edge")
    window = crop if isinstance(crop, int) else crop["height"]
    if edge != window or resample not in _RESAMPLE:
        raise ConfigError(
            f"{folder}: images must be resized by their shorter edge and cropped to the same size, with resample one "
            f"of {list(_RESAMPLE)}; here size is {size}, crop_size {crop}, resample {resample}"
        )
    return Preprocess(size=int(edge), interpolation=_RESAMPLE[resample])


def _bert(folder: Path, config: Json) -> Checkpoint:
    pooling, limit = sentence_modules(folder)
    form, positions, weights = _bert_parts(folder, config)
    tower, most = Bert(form, positions, pooling), min(limit or positions, positions)
    return Checkpoint(folder, weights, None, tower, None, most, config.get("pad_token_id", 0))


def _cross_encoder(folder: Path, config: Json) -> Checkpoint:
    heads, labels = config.get("architectures"), config.get("id2label")
    count = config.get("num_labels", 2) if labels is None else len(labels)
    if heads != ["BertForSequenceClassification"] or count != 1:
        has = f"{heads} with {count} labels"
        raise ConfigError(f"{folder}: BertForSequenceClassification with one label can be exported, not {has}")
    form, positions, weights = _bert_parts(folder, config)
    limits = folder / "tokenizer_config.json"
    limit = read_json(limits).get("model_max_length") if limits.is_file() else None
    most = min(int(limit or positions), positions)
    return Checkpoint(folder, weights, None, CrossEncoder(form, positions), None, most, config.get("pad_token_id", 0))


def _bert_parts(folder: Path, config: Json) -> tuple[Transformer, int, Weights]:
    """The sizes of a BERT, how many positions it has, and its tensors."""
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ConfigError(f"{folder}: only absolute positions can be exported")
    form = _transformer({"hidden_act": "gelu", "layer_norm_eps": 1e-12} | config, folder)
    weights = read_weights(folder, lambda name: name.removeprefix("bert."))
    return form, config["max_position_embeddings"], weights


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


def _transformer(config: Json, folder: Path) -> Transformer:
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
