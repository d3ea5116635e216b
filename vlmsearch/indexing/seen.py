"""The ids that a run has met, in eight bytes each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_FEW = 2**16


class SeenIds:
    """Hashes of ids: the last ones in a set, the others in sorted arrays, each longer than the next.

    Two ids of ten million have one hash with a probability of 1 in 370,000.
    """

    def __init__(self) -> None:
        self._last: set[int] = set()
        self._sorted: list[NDArray[np.int64]] = []

    def add(self, ids: Sequence[str]) -> int:
        """Note ids, and return how many of them had been noted before.

        >>> seen = SeenIds()
        >>> seen.add(["a", "b", "a"]), seen.add(["b", "c"])
        (1, 1)
        """
        hashes = np.array([hash(id) for id in ids], np.int64)
        known = np.zeros(len(ids), bool)
        for array in self._sorted:
            known |= array[np.minimum(np.searchsorted(array, hashes), len(array) - 1)] == hashes
        new = hashes[~known].tolist()
        before = len(self._last)
        self._last.update(new)
        repeated = len(ids) - (len(self._last) - before)
        if len(self._last) >= _FEW:
            self._sort()
        return repeated

    def _sort(self) -> None:
        array = np.fromiter(self._last, np.int64)
        while self._sorted and len(self._sorted[-1]) <= len(array):
            array = np.concatenate([self._sorted.pop(), array])
        self._sorted.append(np.sort(array))
        self._last = set()
