"""What every encoder of bundles shares: texts to token ids, images to pixels, chunks to one vector.

A runtime only has to run a tower on a batch.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vlmsearch.errors import ConfigError, TextTruncatedWarning, VlmsearchError, one_line
from vlmsearch.media.images import Preprocess, opened_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.models.bundle import Bundle
from vlmsearch.models.tokenizers import no_panics
from vlmsearch.types import ImageSource, Role, Vectors

Ids = NDArray[np.int32]
Pixels = NDArray[np.uint8]


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_tokenizer(bundle: Bundle) -> Tokenizer:
    """The bundle's tokenizer, which neither cuts nor fills up."""
    with no_panics(bundle.name):
        try:
            tokenizer = Tokenizer.from_buffer(bundle.read("tokenizer.json"))
        except VlmsearchError:
            raise
        except Exception as exc:  # the library raises nothing more particular
            raise ConfigError(f"{bundle.folder / 'tokenizer.json'} cannot be used: {one_line(exc)}") from exc
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def to_pixels(image: ImageSource, preprocess: Preprocess, limits: ImageLimits = DEFAULT_LIMITS) -> Pixels:
    """Pixels as a model takes them, uint8 (size, size, 3); InvalidInputError for an image that cannot be used."""
    with opened_image(image, at_least=preprocess.at_least, limits=limits) as upright:
        return preprocess.apply(upright)


def check_length(bundle: Bundle, vectors: Vectors) -> Vectors:
    """Return vectors that a model gave; ConfigError where they are not of the length that its bundle says."""
    if vectors.shape[1:] != (bundle.space.dim,):
        raise ConfigError(
            f"{bundle.name} says that its vectors have {bundle.space.dim} numbers, and its model gives the shape "
            f"{vectors.shape[1:]}: build it again"
        )
    return vectors


@dataclass(frozen=True)
class Piece:
    """A stretch of one text that fits the model."""

    text: int
    ids: list[int]


class TextBatches:
    """Tokenises for one bundle and forms batches of like lengths, so that little is computed on padding."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._input = bundle.text
        self._tokenizer = open_tokenizer(bundle)

    def encode(self, texts: Sequence[str], role: Role, batch_size: int, run: Callable[[Ids, Ids], Vectors]) -> Vectors:
        """One unit vector a text, (len(texts), dim): the mean of its chunks, weighted by their length."""
        pieces = sorted(self._pieces(texts, role), key=lambda piece: len(piece.ids))
        totals = np.zeros((len(texts), self._bundle.space.dim), np.float32)
        for start in range(0, len(pieces), batch_size):
            batch = pieces[start : start + batch_size]
            weights = np.array([max(len(piece.ids), 1) for piece in batch], np.float32)
            vectors = check_length(self._bundle, run(*self._arrays(batch)))
            np.add.at(totals, [piece.text for piece in batch], vectors * weights[:, None])
        unit: Vectors = totals / np.maximum(np.linalg.norm(totals, axis=1, keepdims=True), 1e-12)
        return unit

    def _pieces(self, texts: Sequence[str], role: Role) -> Iterator[Piece]:
        room = self._input.room
        with no_panics(self._bundle.name):
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        for index, encoding in enumerate(encodings):
            ids = encoding.ids
            if len(ids) <= room:
                yield Piece(index, ids)
            elif role == "query":
                warnings.warn(
                    f"the query has {len(ids)} tokens and {self._bundle.name} reads {room}: the rest was not used",
                    TextTruncatedWarning,
                    stacklevel=5,
                )
                yield Piece(index, ids[:room])
            else:
                count = -(-len(ids) // room)
                for part in np.array_split(np.arange(len(ids)), count):
                    yield Piece(index, ids[part[0] : part[-1] + 1])

    def _arrays(self, batch: Sequence[Piece]) -> tuple[Ids, Ids]:
        form = self._input
        rows = [[*form.prefix, *piece.ids, *form.suffix] for piece in batch]
        ids = np.full((len(rows), max(map(len, rows))), form.pad, np.int32)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return ids, mask
