"""An encoder without a model, whose neighbours are known beforehand."""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from vlmsearch._util.text import utf8_bytes
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError, TextTruncatedWarning, apply_to_each
from vlmsearch.media.images import open_image
from vlmsearch.types import ImageSource, RelevanceFit, Role, Space, Vectors

MAX_WORDS = 200
"""Number of words that are read of a text."""
WORD_DIM = 128
GRID = 4
_MAX_TEXTS = 3


class MockEncoder(Encoder):
    """Text and image vectors in a space ``clip``, text vectors in a space ``minilm``.

    Texts are near each other by the words they share, images by the colours in the same places; a text and an image
    have cosine 0, unless they are planted. ``neighbours`` plants: for a text, the images and texts that are nearest
    to it, best first; everything else has cosine 0 with that text. An image counts by its pixels. An item may be in
    three lists, and cannot have a list of its own.

    >>> MockEncoder(neighbours={"a dog": [Path("dog.jpg"), Path("wolf.jpg")]})  # doctest: +SKIP
    """

    text_window = MAX_WORDS

    def __init__(self, *, neighbours: Mapping[str, Sequence[str | ImageSource]] | None = None) -> None:
        if isinstance(neighbours, str):
            raise ConfigError("neighbours are for Python, not for a URL")
        self._axes = {text: axis for axis, text in enumerate(sorted(neighbours or {}))}
        self._weights: dict[str, dict[int, float]] = {text: {axis: 1.0} for text, axis in self._axes.items()}
        keys = {text: [_key(item) for item in items] for text, items in (neighbours or {}).items()}
        shared = _max_lists(keys)
        for text, items in keys.items():
            for rank, item in enumerate(items):
                weight = (0.9 - 0.4 * rank / len(items)) / math.sqrt(shared)
                self._weights.setdefault(item, {})[self._axes[text]] = weight
        self.spaces = (
            Space("clip", len(self._axes) + WORD_DIM + 3 * GRID * GRID, frozenset({"text", "image"})),
            Space("minilm", len(self._axes) + WORD_DIM, frozenset({"text"})),
        )
        self.relevance = dict.fromkeys(
            (("clip", "image"), ("clip", "text"), ("minilm", "text")), RelevanceFit(-4.0, 20.0, 0.0, 0.0, 1.0, 0.0, 0.1)
        )
        self.fingerprint = f"mock:{hashlib.sha256(repr(sorted(keys.items())).encode()).hexdigest()[:12]}"

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Vectors by space; a text beyond 200 words is cut, a query with a TextTruncatedWarning.

        InvalidBatchError names all texts that are not valid Unicode.
        """
        clip, minilm = self.spaces
        apply_to_each(utf8_bytes, texts)
        rows = np.zeros((len(texts), clip.dim), np.float32)
        for row, text in zip(rows, texts):
            words = _words(text) or [text]
            if role == "query" and len(words) > MAX_WORDS:
                warnings.warn(f"only the first {MAX_WORDS} of {len(words)} words are read", TextTruncatedWarning, 2)
            start = len(self._axes)
            row[start : start + WORD_DIM] = _bag(words[:MAX_WORDS]) * self._plant(row, text)
        return {"clip": rows, "minilm": np.ascontiguousarray(rows[:, : minilm.dim])}

    def text_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return how many words each text has."""
        apply_to_each(utf8_bytes, texts)
        return [len(_words(text)) for text in texts]

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Vectors of the space ``clip``; InvalidBatchError names all images that cannot be used."""
        rows = np.zeros((len(images), self.spaces[0].dim), np.float32)
        for row, opened in zip(rows, apply_to_each(open_image, images)):
            row[len(self._axes) + WORD_DIM :] = _colours(opened) * self._plant(row, _digest(opened))
        return {"clip": rows}

    def _plant(self, row: NDArray[np.float32], key: str) -> float:
        """Tie an item to planted texts, and return the length left for its content."""
        weights = self._weights.get(key, {})
        for axis, weight in weights.items():
            row[axis] = weight
        return math.sqrt(1.0 - sum(weight * weight for weight in weights.values()))


def _key(item: str | ImageSource) -> str:
    return item if isinstance(item, str) else _digest(open_image(item))


def _max_lists(keys: Mapping[str, Sequence[str]]) -> int:
    """Return the highest number of lists that an item is in.

    ConfigError for more than can be kept.
    """
    for text, items in keys.items():
        if len(set(items)) < len(items) or any(item in keys for item in items):
            raise ConfigError(f"the neighbours of {text!r} must be distinct and have no neighbours of their own")
    count = max(Counter(item for items in keys.values() for item in items).values(), default=1)
    if count > _MAX_TEXTS:
        raise ConfigError(f"an item can be the neighbour of {_MAX_TEXTS} texts, not of {count}")
    return count


def _digest(image: PIL.Image.Image) -> str:
    return hashlib.sha256(repr(image.size).encode() + image.tobytes()).hexdigest()


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _bag(words: Iterable[str]) -> NDArray[np.float32]:
    total = np.zeros(WORD_DIM, np.float32)
    for word, count in Counter(words).items():
        total += count * _word(word)
    return _unit(total)


@lru_cache(maxsize=4096)
def _word(word: str) -> NDArray[np.float32]:
    digest = hashlib.shake_128(word.encode()).digest(WORD_DIM)
    return _unit(np.frombuffer(digest, np.int8).astype(np.float32) + 0.5)


def _colours(image: PIL.Image.Image) -> NDArray[np.float32]:
    """Mean colours of a grid over the image, and a little that differs for every picture."""
    grid = np.asarray(image.resize((GRID, GRID), PIL.Image.Resampling.BOX), np.float32).ravel() / 127.5 - 1.0
    odd = np.frombuffer(hashlib.shake_128(image.tobytes()).digest(grid.size), np.int8)
    return _unit(grid + (odd + 0.5) / 2000)


def _unit(vector: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit
