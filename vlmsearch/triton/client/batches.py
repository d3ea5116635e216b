"""How a client forms requests, and makes one vector of the pieces of a long text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.address import has_port
from vlmsearch._util.batching import groups
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.types import ImageSource, Vectors

MOST_BYTES = 16 * 2**20
"""Of inputs in one request, unless a single item has more."""


def split_location(location: str) -> tuple[str, str]:
    """Address and model of ``//host:8001/vlm``; ConfigError says how it is written."""
    address, _, model = location.removeprefix("//").partition("/")
    if not location.startswith("//") or not has_port(address) or not model or "/" in model:
        raise ConfigError(
            f"a Triton server is triton://HOST:PORT/MODEL, such as triton://127.0.0.1:8001/vlm, not {location!r}"
        )
    return address, model


def size_of(image: ImageSource) -> int:
    """About how many bytes an image has when it is sent."""
    if isinstance(image, bytes):
        return len(image)
    try:
        return image.stat().st_size if isinstance(image, Path) else 0
    except (OSError, ValueError):
        return 0


def batches(items: Sequence[int], sizes: Sequence[int], most: int, *, total: int = MOST_BYTES) -> Iterator[list[int]]:
    """``items`` in order, up to ``most`` at a time and ``total`` bytes of them together."""
    return groups(items, sizes, total=total, most=most)


def utf8(item: int, text: str) -> bytes:
    """A text as it is sent; a space for an empty one, which has the same tokens and which the server would refuse."""
    try:
        return text.encode() or b" "
    except UnicodeEncodeError as exc:
        raise InvalidInputError("invalid", f"text {item} is not valid Unicode: {exc.reason}") from exc


@dataclass(frozen=True)
class Piece:
    """The vector of a stretch of one text, and how many tokens it has."""

    text: int
    tokens: int
    row: NDArray[np.float32]


def piece_lengths(tokens: int, room: int) -> list[int]:
    """How a long text is cut, as `vlmsearch.models.inputs` does it: into pieces as equal as can be."""
    count = math.ceil(tokens / room)
    return [tokens // count + (number < tokens % count) for number in range(count)]


def pooled(pieces: Sequence[Piece], count: int, dim: int) -> Vectors:
    """One unit vector a text, (count, dim): the mean of its pieces, weighted by their length."""
    ordered = sorted(pieces, key=lambda piece: piece.tokens)
    totals = np.zeros((count, dim), np.float32)
    if ordered:
        weights = np.array([max(piece.tokens, 1) for piece in ordered], np.float32)
        rows = np.stack([piece.row for piece in ordered])
        np.add.at(totals, [piece.text for piece in ordered], rows * weights[:, None])
    unit: Vectors = totals / np.maximum(np.linalg.norm(totals, axis=1, keepdims=True), 1e-12)
    return unit
