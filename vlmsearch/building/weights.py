"""Files of a checkpoint, as the transformers library saves them, read without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vlmsearch._util.extras import install_command
from vlmsearch._util.strict_json import parse_json
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
    try:
        import torch
    except ImportError as exc:
        raise MissingDependencyError(f"PyTorch's own files need torch: {install_command('build')}") from exc
    tensors: dict[str, Any] = {}
    for file in sorted(folder.glob("pytorch_model*.bin")):
        try:
            tensors |= torch.load(file, map_location="cpu", weights_only=True)
        except Exception as exc:  # whatever torch raises for a damaged file, or one that is more than tensors
            raise ConfigError(f"{file} is damaged: {one_line(exc)}") from exc
    return tensors


_FLOATS: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(code) for name, code in (("F32", "<f4"), ("F16", "<f2"), ("F64", "<f8"), ("BF16", "<u2"))
}
"""The types of safetensors for fractions.

NumPy has no bfloat16, whose bits are the upper half of a float32.
"""
_MAX_HEADER = 100_000_000
"""Bytes; the format's own limit."""


@dataclass(frozen=True)
class _StoredTensor:
    """A tensor in a file: where its bytes are, how they are kept, and its shape."""

    file: Path
    kept: str
    shape: tuple[int, ...]
    place: int

    def __call__(self) -> Array:
        """Return the tensor in float32: mapped where the file has it so, else converted."""
        if not math.prod(self.shape):
            return np.zeros(self.shape, np.float32)
        data = np.memmap(self.file, _FLOATS[self.kept], "r", self.place, self.shape)
        array: Array = (
            (data.astype(np.uint32) << 16).view(np.float32)
            if self.kept == "BF16"
            else data.astype(np.float32, copy=False)
        )
        return array


class StoredWeights(Mapping[str, Array]):
    """Tensors by name, each read when it is asked for.

    A missing one is the checkpoint's fault.
    """

    def __init__(self, folder: Path, readers: Mapping[str, Callable[[], Array]]) -> None:
        self._folder, self._readers = folder, readers

    def __getitem__(self, name: str) -> Array:
        if name not in self._readers:
            raise ConfigError(f"{self._folder} cannot be exported: it has no tensor {name}")
        return self._readers[name]()

    def get(self, name: str, default: Any = None) -> Any:
        """Return a tensor, or ``default`` where there is none."""
        return self[name] if name in self._readers else default

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def read_weights(folder: Path, rename: Callable[[str], str]) -> Weights:
    """Return all tensors of numbers with a fraction, in float32.

    Each is read from its file when it is asked for.
    """
    stored: dict[str, _StoredTensor] = {}
    for file in weight_files(folder):
        try:
            stored.update({rename(name): tensor for name, tensor in _header(file).items()})
        except (OSError, AttributeError, LookupError, TypeError, ValueError) as exc:
            raise ConfigError(f"{file} is damaged: {one_line(exc)}") from exc
    return StoredWeights(folder, stored)


def _header(file: Path) -> dict[str, _StoredTensor]:
    """Return the tensors of a safetensors file, by the names in its header: 8 bytes of length, JSON, then the data.

    The format is that of https://github.com/huggingface/safetensors.
    """
    size = file.stat().st_size
    with file.open("rb") as data:
        length = int.from_bytes(data.read(8), "little")
        if not 2 <= length <= min(_MAX_HEADER, size - 8):
            raise ValueError(f"its header has {length:,} bytes, and the file {size:,}")
        entries = parse_json(data.read(length))
    stored = {}
    for name, entry in entries.items():
        if name == "__metadata__" or entry["dtype"] not in _FLOATS:
            continue
        shape, (begin, end) = tuple(map(_whole, entry["shape"])), map(_whole, entry["data_offsets"])
        if end - begin != math.prod(shape) * _FLOATS[entry["dtype"]].itemsize or 8 + length + end > size:
            raise ValueError(f"{name} does not lie where the header says")
        stored[name] = _StoredTensor(file, entry["dtype"], shape, 8 + length + begin)
    return stored


def _whole(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{str(value)[:40]!r} is no size")
    return value


def read_json(path: Path) -> Any:
    """Return what a JSON file of a checkpoint holds; ModelUnavailableError where it is missing."""
    try:
        return parse_json(path.read_text(encoding="utf-8"), with_nan=True)
    except FileNotFoundError:
        raise ModelUnavailableError(f"{path.parent} is not a checkpoint: it has no {path.name}") from None
    except ValueError as exc:
        raise ConfigError(f"{path} is damaged: {one_line(exc)}") from exc
