"""Metadata as columns in memory, and the documents that a filter lets pass."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vlmsearch.stores.filters import ORDERINGS, Comparison, Filter, value_order
from vlmsearch.types import MetadataValue, Scalar

_ABSENT, _NUMBER, _BOOL, _STRING, _LIST = range(5)

_KIND_ORDER = np.array([3.0, 0.0, 2.0, 1.0, 1.0])
"""By kind: numbers come before strings and strings before bools; documents without a value are last."""

Mask = NDArray[np.bool_]
StoredValue = float | int | bytes | str
"""A value as it is kept: a double for a number, 0 or 1 for a bool, bytes for a string, JSON for a list of strings."""


def restored(value: StoredValue) -> MetadataValue:
    """Return what was kept as a value of metadata; whole numbers as int."""
    if isinstance(value, str):
        return tuple(json.loads(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogatepass")
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    return bool(value)


def stored(value: MetadataValue) -> StoredValue:
    """Return a value of metadata as it is kept."""
    return json.dumps(value) if isinstance(value, tuple) else _stored_scalar(value)


def _stored_scalar(value: Scalar) -> float | int | bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return int(value) if isinstance(value, bool) else float(value)


def _scalar(kind: int, value: float, names: list[bytes]) -> Scalar:
    """Return a value of metadata from what is kept of it."""
    if kind == _STRING:
        return names[int(value)].decode("utf-8", "surrogatepass")
    if kind == _BOOL:
        return bool(value)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


@dataclass(frozen=True)
class Column:
    """The values that one key has in the documents, by their places.

    ``kinds`` says which of the five an entry is; a string's number is its place in ``strings``, which only grows.
    That of a list is the place of its strings, joined. ``listed`` has the documents whose lists hold a string, string
    by string; ``starts`` says where those of each begin, and where the last ones end. Without ``joins``, the first
    string stands for a list where documents are sorted: to keep all lists joined takes several times as much memory.
    """

    kinds: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    numbers: NDArray[np.float64] = field(default_factory=lambda: np.empty(0, np.float64))
    strings: dict[bytes, int] = field(default_factory=dict)
    listed: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    starts: NDArray[np.int32] = field(default_factory=lambda: np.zeros(1, np.int32))
    joins: bool = True

    def with_rows(self, count: int, places: NDArray[np.int64], values: Iterable[StoredValue]) -> Column:
        """Return the column with values added, and as many entries as there are documents."""
        added = count - len(self.kinds)
        kinds = np.concatenate([self.kinds, np.zeros(added, np.uint8)])
        numbers = np.concatenate([self.numbers, np.zeros(added)])
        lists, texts_of_lists = list[int](), list[int]()
        for place, value in zip(places.tolist(), values):
            if isinstance(value, bytes):
                kinds[place], numbers[place] = _STRING, self.strings.setdefault(value, len(self.strings))
            elif isinstance(value, str):
                texts = [text.encode("utf-8", "surrogatepass") for text in json.loads(value)]
                lists += [place] * len(texts)
                texts_of_lists += [self.strings.setdefault(text, len(self.strings)) for text in texts]
                joined = b", ".join(texts if self.joins else texts[:1])
                kinds[place], numbers[place] = _LIST, self.strings.setdefault(joined, len(self.strings))
            else:
                kinds[place], numbers[place] = _NUMBER if isinstance(value, float) else _BOOL, value
        if not lists:
            return replace(self, kinds=kinds, numbers=numbers)
        added_texts = np.array(texts_of_lists, np.int32)
        order = np.argsort(added_texts, kind="stable")
        starts = np.pad(self.starts, (0, len(self.strings) + 1 - len(self.starts)), "edge")
        listed = np.insert(self.listed, starts[added_texts[order] + 1], np.array(lists, np.int32)[order])
        starts[1:] += np.cumsum(np.bincount(added_texts, minlength=len(self.strings)), dtype=np.int32)
        return replace(self, kinds=kinds, numbers=numbers, listed=listed, starts=starts)

    def counts(self, places: NDArray[np.int64]) -> dict[Scalar, int]:
        """Count the values that these documents have, the most frequent first, then by value."""
        listed = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        if len(listed):
            listed = listed[np.isin(self.listed, places)]
        kinds = np.concatenate([self.kinds[places], np.full(len(listed), _STRING)])
        numbers = np.concatenate([self.numbers[places], listed])
        counted: dict[Scalar, int] = {}
        names = list(self.strings)
        for kind in (_NUMBER, _STRING, _BOOL):
            values, times = np.unique(numbers[kinds == kind], return_counts=True)
            for value, count in zip(values.tolist(), times.tolist()):
                scalar = _scalar(kind, value, names)
                counted[scalar] = counted.get(scalar, 0) + count  # True and 1 are one key
        return dict(sorted(counted.items(), key=lambda item: (-item[1], *value_order(item[0]))))

    def sort_keys(self, places: NDArray[np.int64], *, falls: bool) -> list[NDArray[np.float64]]:
        """Return arrays to sort documents by, the last one first: numbers, strings, bools and absent values."""
        kinds, numbers = self.kinds[places], self.numbers[places].copy()
        are_strings = kinds >= _STRING
        if are_strings.any():
            numbers[are_strings] = self._ranks()[numbers[are_strings].astype(np.int64)]
        return [-numbers if falls else numbers, _KIND_ORDER[kinds]]

    def _ranks(self) -> NDArray[np.float64]:
        """Return the place of each string among all, in their order."""
        names = list(self.strings)
        ranks = np.empty(len(names))
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return ranks

    def passing(self, comparison: Comparison) -> Mask:
        """Return for each document whether it passes."""
        value = comparison.value
        if comparison.operator in ORDERINGS:
            within: Mask = (self.kinds == _NUMBER) & ORDERINGS[comparison.operator](self.numbers, value)
            return within
        wanted: dict[int, list[float]] = {}
        for operand in value if isinstance(value, tuple) else (value,):
            kept = _stored_scalar(operand)
            if not isinstance(kept, bytes):
                wanted.setdefault(_NUMBER if isinstance(kept, float) else _BOOL, []).append(kept)
            elif kept in self.strings:
                wanted.setdefault(_STRING, []).append(self.strings[kept])
        mask = self.kinds == _ABSENT if comparison.or_absent else np.zeros(len(self.kinds), np.bool_)
        for kind, numbers in wanted.items():
            if (is_kind := self.kinds == kind).any():
                mask |= is_kind & (self.numbers == numbers[0] if len(numbers) == 1 else np.isin(self.numbers, numbers))
        for text in map(int, wanted.get(_STRING, ())):
            if text + 1 < len(self.starts):  # else only a newer column has it
                mask[self.listed[self.starts[text] : self.starts[text + 1]]] = True
        return mask if comparison.operator in ("$eq", "$in") else ~mask


def passing(where: Filter, compared: Callable[[Comparison], Mask]) -> Mask:
    """Return for each document whether it passes a filter; ``compared`` says which pass one comparison."""
    if isinstance(where, Comparison):
        return compared(where)
    combine = np.logical_and if where.operator == "$and" else np.logical_or
    return functools.reduce(combine, (passing(part, compared) for part in where.filters))
