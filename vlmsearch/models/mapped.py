"""ONNX files whose large tensors stay on the disk: mapped into memory, and shared by all sessions of a model.

ONNX Runtime reads a file whole and copies each tensor out of it. It maps tensors only where a model says that they lie
in another file. So a session gets a model in which the large tensors of a file are said to lie in that same file. They
do where `vlmsearch.building.graph` wrote them: each begins at a multiple of `ALIGNMENT`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.errors import ConfigError, ModelUnavailableError

ALIGNMENT = 64
"""Bytes: what the widest instructions of a processor read at once."""
_LARGE = 2**16
_GRAPH, _INITIALIZER = 7, 5
_DIMS, _TYPE, _NAME, _RAW, _EXTERNAL, _PLACE = 1, 2, 8, 9, 13, 14
_BYTES = 2
"""Protocol buffers' wire type of what has its length before it."""
_IS_EXTERNAL = bytes([_PLACE << 3, 1])
"""TensorProto.data_location, which is EXTERNAL."""
_ELSEWHERE = b"location"
"""The key by which a tensor, wherever it is in a model, names another file."""


@dataclass(frozen=True)
class MappedModel:
    """A model without its large tensors, and the folder with the file that they are in."""

    graph: bytes
    folder: Path


@dataclass(frozen=True)
class _Field:
    """A field of a message: its number, where it begins, and where its content lies."""

    number: int
    kind: int
    begin: int
    start: int
    stop: int


def map_model(path: Path) -> MappedModel:
    """Return the model in a file.

    ModelUnavailableError where it cannot be read, ConfigError where it is damaged.

    A model that reads tensors from other files is refused: no bundle has one.
    """
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as exc:
        raise ModelUnavailableError(f"{path} cannot be read: {exc}; build it again") from exc
    model = bytearray()
    with data:
        try:
            for field in _fields(data, 0, len(data)):
                if field.number == _GRAPH and field.kind == _BYTES:
                    model += _message(_GRAPH, _graph(data, field, path))
                else:
                    model += _plain(data, field, path)
        except (IndexError, ValueError) as exc:
            raise ConfigError(f"{path} is no ONNX model: {exc}; build it again") from exc
    return MappedModel(bytes(model), path.parent)


def _graph(data: mmap.mmap, field: _Field, path: Path) -> bytes:
    graph = bytearray()
    for part in _fields(data, field.start, field.stop):
        is_tensor = part.number == _INITIALIZER and part.kind == _BYTES
        graph += _tensor(data, part, path) if is_tensor else _plain(data, part, path)
    return bytes(graph)


def _plain(data: mmap.mmap, field: _Field, path: Path) -> bytes:
    """Return a field as it is, which must have no tensor in it that lies elsewhere."""
    content = data[field.begin : field.stop]
    if _ELSEWHERE in content:
        raise _reads_elsewhere(path)
    return content


def _tensor(data: mmap.mmap, field: _Field, path: Path) -> bytes:
    """Return an initializer as the model gets it."""
    parts = list(_fields(data, field.start, field.stop))
    if any(part.number in (_EXTERNAL, _PLACE) for part in parts):
        raise _reads_elsewhere(path)
    raw = next((part for part in parts if part.number == _RAW), None)
    if raw is None or raw.stop - raw.start < _LARGE or raw.start % ALIGNMENT:
        return data[field.begin : field.stop]
    kept = b"".join(data[part.begin : part.stop] for part in parts if part.number in (_DIMS, _TYPE, _NAME))
    place = {"location": path.name, "offset": str(raw.start), "length": str(raw.stop - raw.start)}
    for key, value in place.items():
        kept += _message(_EXTERNAL, _message(1, key.encode()) + _message(2, value.encode()))
    return _message(_INITIALIZER, kept + _IS_EXTERNAL)


def _reads_elsewhere(path: Path) -> ConfigError:
    return ConfigError(f"{path} reads its weights from other files, which no bundle does")


def _fields(data: mmap.mmap, start: int, stop: int) -> Iterator[_Field]:
    """Yield the fields of a message."""
    while start < stop:
        tag, place = _varint(data, start)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            begin = place
            _, end = _varint(data, place)
        elif kind == _BYTES:
            length, begin = _varint(data, place)
            end = begin + length
        elif kind in (1, 5):
            begin, end = place, place + (8 if kind == 1 else 4)
        else:
            raise ValueError(f"a field of type {kind}")
        if end > stop:
            raise ValueError(f"a field ends at {end:,}, after its message")
        yield _Field(number, kind, start, begin, end)
        start = end


def _varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    """Return a whole number as protocol buffers write it, and where it ends."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _varint_bytes(len(content)) + content


def _varint_bytes(value: int) -> bytes:
    """Return a whole number as protocol buffers write it."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
