"""Files of a checkpoint, as the transformers library saves them, read without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from safetensors import safe_open

from vlmsearch.building.layers import Array
from vlmsearch.errors import ConfigError, MissingDependencyError, ModelUnavailableError, one_line

Weights = Mapping[str, Array]
Json = dict[str, Any]


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder holds a checkpoint, in transformers' layout or in OpenCLIP's."""
    return any((folder / name).is_file() for name in ("config.json", "open_clip_config.json"))


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files that hold the weights, one or several with an index; all there."""
    for path in (folder / "model.safetensors", folder / "open_clip_model.safetensors"):
        index = path.with_name(f"{path.name}.index.json")
        if path.is_file():
            return [path]
        if index.is_file():
            files = [folder / Path(name).name for name in _listed(index)]
            for file in files:
                if not file.is_file():
                    raise ModelUnavailableError(f"{folder} has no {file.name}, which its {index.name} lists")
            return files
    if any(folder.glob("pytorch_model*.bin")):
        raise ConfigError(only_pickled(str(folder)))
    raise ModelUnavailableError(f"{folder} has no weights: there is no model.safetensors")


def _listed(index: Path) -> list[str]:
    """Return the names of the files that an index lists."""
    data = read_json(index)
    names = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ConfigError(f"{index} is damaged: its weight_map is no table of files")
    return sorted(set(names.values()))


def only_pickled(name: str) -> str:
    """Return the message for a model without safetensors."""
    return (
        f"{name} has its weights in PyTorch's pickled format alone (pytorch_model.bin), which is not read: load it "
        "with transformers, save it with save_pretrained, which writes safetensors, and build that folder; or write a "
        "recipe that says pickled = true"
    )


def unpickled(folder: Path) -> dict[str, Any]:
    """Return the tensors of PyTorch's own files; its restricted unpickler makes nothing but tensors."""
    tensors: dict[str, Any] = {}
    for file in sorted(folder.glob("pytorch_model*.bin")):
        try:
            tensors |= _torch().load(file, map_location="cpu", weights_only=True)
        except MissingDependencyError:
            raise
        except Exception as exc:  # whatever torch raises for a damaged file, or one that is more than tensors
            raise ConfigError(f"{file} is damaged: {one_line(exc)}") from exc
    return tensors


class _Weights(dict[str, Array]):
    """Tensors by name; one that is not there is the checkpoint's fault."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> Array:
        raise ConfigError(f"{self._folder} cannot be exported: it has no tensor {name}")


def read_weights(folder: Path, rename: Callable[[str], str]) -> dict[str, Array]:
    """Return all tensors in float32."""
    weights = _Weights(folder)
    for file in weight_files(folder):
        try:
            tensors = _read_safetensors(file)
        except MissingDependencyError:
            raise
        except Exception as exc:  # whatever the readers raise for a damaged file
            raise ConfigError(f"{file} is damaged: {one_line(exc)}") from exc
        weights.update({rename(name): array for name, array in tensors.items()})
    return weights


def _read_safetensors(file: Path) -> dict[str, Array]:
    try:
        with safe_open(file, "np") as tensors:
            arrays = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    except TypeError:  # bfloat16, which NumPy has from ml_dtypes at best
        _torch()
        with safe_open(file, "pt") as tensors:
            return _floats({name: tensors.get_tensor(name) for name in tensors.keys()})  # noqa: SIM118
    floats = {
        name: array for name, array in arrays.items() if array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    }
    return {name: array.astype(np.float32, copy=False) for name, array in floats.items()}


def _floats(tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: tensor.float().numpy() for name, tensor in tensors.items() if tensor.is_floating_point()}


def _torch() -> ModuleType:
    try:
        import torch
    except ImportError as exc:
        raise MissingDependencyError("these weights need torch: pip install 'vlmsearch[build]'") from exc
    return torch


def read_json(path: Path) -> Any:
    """Return what a JSON file of a checkpoint holds; ModelUnavailableError where it is missing."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelUnavailableError(f"{path.parent} is not a checkpoint: it has no {path.name}") from None
    except (RecursionError, ValueError) as exc:
        raise ConfigError(f"{path} is damaged: {one_line(exc)}") from exc
