"""Metadata as columns in memory, and the documents that a filter lets pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vlmsearch.stores.filters import ORDERINGS, Comparison, Filter, normalise
from vlmsearch.types import Scalar

_ABSENT, _NUMBER, _BOOL, _STRING = range(4)

Mask = NDArray[np.bool_]
Stored = float | int | bytes
"""A value as it is kept: a double for a number, 0 or 1 for a bool, bytes for a string."""


def stored(value: Scalar) -> Stored:
    """Return a value of metadata as it is kept."""
    plain = normalise(value)
    if isinstance(plain, str):
        return plain.encode("utf-8", "surrogatepass")
    return int(plain) if isinstance(plain, bool) else plain


@dataclass(frozen=True)
class Column:
    """The values that one key has in the documents, by their places.

    ``kinds`` says which of the four an entry is; a string's number is its place in ``strings``, which only grows.
    """

    kinds: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    numbers: NDArray[np.float64] = field(default_factory=lambda: np.empty(0, np.float64))
    strings: dict[bytes, int] = field(default_factory=dict)

    def with_rows(self, count: int, places: NDArray[np.int64], values: Iterable[Stored]) -> Column:
        """Return the column with values added, and as many entries as there are documents."""
        added = count - len(self.kinds)
        kinds = np.concatenate([self.kinds, np.zeros(added, np.uint8)])
        numbers = np.concatenate([self.numbers, np.zeros(added)])
        for place, value in zip(places.tolist(), values):
            if isinstance(value, bytes):
                kinds[place], numbers[place] = _STRING, self.strings.setdefault(value, len(self.strings))
            else:
                kinds[place], numbers[place] = _NUMBER if isinstance(value, float) else _BOOL, value
        return Column(kinds, numbers, self.strings)

    def passing(self, comparison: Comparison) -> Mask:
        """Return for each document whether it passes."""
        value = comparison.value
        if comparison.operator in ORDERINGS:
            within: Mask = (self.kinds == _NUMBER) & ORDERINGS[comparison.operator](self.numbers, value)
            return within
        wanted: dict[int, list[float]] = {}
        for operand in value if isinstance(value, tuple) else (value,):
            kept = stored(operand)
            if not isinstance(kept, bytes):
                wanted.setdefault(_NUMBER if isinstance(kept, float) else _BOOL, []).append(kept)
            elif kept in self.strings:
                wanted.setdefault(_STRING, []).append(self.strings[kept])
        mask = np.zeros(len(self.kinds), np.bool_)
        for kind, numbers in wanted.items():
            equal = self.numbers == numbers[0] if len(numbers) == 1 else np.isin(self.numbers, numbers)
            mask |= (self.kinds == kind) & equal
        return mask if comparison.operator in ("$eq", "$in") else ~mask


def passing(where: Filter, column: Callable[[str], Column]) -> Mask:
    """Return for each document whether it passes a filter; ``column`` gives the column of a key."""
    if isinstance(where, Comparison):
        return column(where.key).passing(where)
    combine = np.logical_and if where.operator == "$and" else np.logical_or
    masks = [passing(part, column) for part in where.filters]
    combined: Mask = combine.reduce(masks)
    return combined


def keys_of(where: Filter) -> set[str]:
    """Return the keys that a filter compares."""
    return {where.key} if isinstance(where, Comparison) else set().union(*map(keys_of, where.filters))
