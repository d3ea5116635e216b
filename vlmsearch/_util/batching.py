"""Items in groups of bounded size, and ids in pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
PAGE = 1000
"""Rows that a store is asked for at once."""


def groups(
    items: Iterable[Item], sizes: Iterable[int], *, total: int, max_items: int | None = None
) -> Iterator[list[Item]]:
    """Yield items in order, up to ``max_items`` and ``total`` of their sizes at a time. A larger one goes alone."""
    group: list[Item] = []
    filled = 0
    for item, size in zip(items, sizes):
        if group and (len(group) == max_items or filled + size > total):
            yield group
            group, filled = [], 0
        group.append(item)
        filled += size
    if group:
        yield group


def pages(ids: Collection[str]) -> Iterator[list[str]]:
    """Return the distinct ids, `PAGE` at a time."""
    distinct = list(dict.fromkeys(ids))
    return (distinct[start : start + PAGE] for start in range(0, len(distinct), PAGE))


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield items in order, up to ``size`` at a time."""
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch
