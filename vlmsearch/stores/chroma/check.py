"""Comparison of documents with their vectors in Chroma, while others may write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.chroma.vectors import Key, VectorRows
from vlmsearch.stores.documents import DocumentRow
from vlmsearch.types import Field

States = Mapping[str, DocumentRow]
KeysByField = dict[Field, set[Key]]


class Discrepancies:
    """Vectors that are not in order, by field."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.orphans: KeysByField = defaultdict(set)
        self.stale: KeysByField = defaultdict(set)
        self.missing: KeysByField = defaultdict(set)

    def remove(self, vectors: VectorRows) -> None:
        """Remove the vectors that belong to nothing."""
        for field, keys in self.orphans.items():
            vectors.remove_from(field, keys | self.stale[field])

    def report(self, store: str, *, unfinished: Iterable[str], in_progress: int, repaired: bool) -> CheckReport:
        """Return the report on a store, whose documents are not counted yet."""
        loose, stale, lost = map(_row_names, (self.orphans, self.stale, self.missing))
        return CheckReport(store, 0, self.counts, loose, stale, lost, tuple(sorted(unfinished)), in_progress, repaired)


def _row_names(keys_by_field: Mapping[Field, set[Key]]) -> tuple[str, ...]:
    """Return field, id and version of each vector, for people."""
    return tuple(sorted(f"{field} {id} {version}" for field, keys in keys_by_field.items() for id, version in keys))


def compare(
    vectors: VectorRows,
    read_all: Callable[[], States],
    read_again: Callable[[Collection[str]], States],
    under_way: Callable[[], set[str]],
) -> Discrepancies:
    """Compare all documents with all vectors.

    What looks wrong is looked at again, for it may have been written meanwhile.

    Args:
        vectors: The vectors.
        read_all: Reads the states of all documents.
        read_again: Reads the states of some.
        under_way: Gives the versions and the documents that are being written. A write that ended before it is asked
            has named its vectors, or never will.

    Returns:
        What is not in order.
    """
    result = Discrepancies()
    rows_by_field = {field: set(vectors.keys(field)) for field in vectors.fields}
    states = read_all()
    for field, rows in rows_by_field.items():
        wanted = _named(field, states)
        result.counts[str(field)] = len(rows)
        if extra := rows - wanted:
            busy = under_way()
            now = read_again({id for id, _ in extra})
            busy |= under_way()  # a document that was replaced since then has vectors that its writer is to remove
            idle = {key for key in extra - _named(field, now) if busy.isdisjoint(key)}
            there = vectors.among(field, idle)
            result.orphans[field] = {key for key in there if key[0] not in now}
            result.stale[field] = there - result.orphans[field]
        if lost := wanted - rows:
            lost -= vectors.among(field, lost)
            result.missing[field] = lost & _named(field, read_again({id for id, _ in lost}))
    return result


def _named(field: Field, states: States) -> set[Key]:
    """Return the vectors of a field that documents should have."""
    return {(id, state.version) for id, state in states.items() if field in state.fields}
