"""Documents of an index that are drawn at random, and always the same ones.

Each id has a number that is as good as random and never changes. A sample holds the documents with the smallest
numbers: a bottom-k sample with permanent random numbers (Ohlsson, "Coordination of samples using permanent random
numbers", in Business Survey Methods, 1995). So a document that is added or removed replaces at most one other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable

import numpy as np

from vlmsearch.types import Field, Vectors


def sampling_key(id: str) -> int:
    """Return the number of an id, from 0 to 2**31 - 1.

    Args:
        id: The id of a document.

    Returns:
        The number, the same in every process.

    Example:
        >>> sampling_key("a") == sampling_key("a") != sampling_key("b")
        True
    """
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=4).digest(), "big") >> 1


class VectorSamples:
    """The vectors of samples, kept as long as an index is in the same state. May be used from several threads."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Field, int], tuple[Hashable, Vectors]] = {}

    def get(self, field: Field, count: int, state: Hashable, draw: Callable[[], Vectors]) -> Vectors:
        """Return the sample of the index in this state, drawn at the first call.

        Args:
            field: The field of the sample.
            count: Number of vectors.
            state: A value that differs when the index has changed.
            draw: Draws the sample.

        Returns:
            The vectors; they cannot be written to.
        """
        kept = self._kept.get((field, count))
        if kept is None or kept[0] != state:
            vectors = np.ascontiguousarray(draw(), np.float32)
            vectors.flags.writeable = False
            kept = self._kept[field, count] = state, vectors
        return kept[1]
