"""Comparison of documents in MongoDB with vectors in Chroma and the journal. Others may write meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.operations import UpdateOne

from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.chroma.check import Discrepancies, States, compare
from vlmsearch.stores.chroma.vectors import VectorRows
from vlmsearch.stores.documents import DocumentRow
from vlmsearch.stores.mongodb.connection import Row, bulk
from vlmsearch.stores.mongodb.index import MongoIndex
from vlmsearch.stores.mongodb.journal import MongoJournal
from vlmsearch.stores.mongodb.values import document_row, fields_of
from vlmsearch.types import Stamp, document_of

_STATE = {"version": 1, "digest": 1, "source": 1, "fields": 1, "stale": 1, "pending": 1}
_EVERY: Row = {}


@dataclass(frozen=True)
class Checker:
    """The parts of one index; ``forget`` takes replaced and pending versions off the rows of documents."""

    index: MongoIndex
    vectors: VectorRows
    journal: MongoJournal
    forget: Callable[[Mapping[str, Sequence[str]]], None]

    def report(self, *, repair: bool) -> CheckReport:
        """Check documents, vectors and journal."""
        entries = self.journal.entries()
        unfinished = [entry for entry in entries if entry.is_gone]
        if repair:
            for entry in unfinished:
                self.roll_back(entry.version, entry.ids)
        dead = {entry.version for entry in unfinished}
        rows: dict[str, Row] = {}

        def read_all() -> States:
            rows.update((row["_id"], row) for page in self.index.scan(_STATE, _EVERY) for row in page)
            return _states(rows)

        def read_again(ids: Collection[str]) -> States:
            return _states(self.index.kept_rows(ids, _STATE, _EVERY))

        vectors = compare(self.vectors, read_all, read_again, lambda: self._busy(dead))
        half_done = self._half_done([id for id, row in rows.items() if _is_half_done(row, dead)], dead)
        if repair:
            self._repair(vectors, half_done)
        writes = list(map(str, unfinished))
        writes += [f"{'replace' if row['version'] else 'delete'} {id}" for id, row in half_done.items()]
        report = vectors.report(
            self.index.name,
            unfinished=writes,
            in_progress=len(entries) - len(unfinished),
            repaired=repair,
        )
        there = {id: document_row(row) for id, row in rows.items() if row["version"] is not None}
        return self.index.with_rows(report, there, self.journal)

    def roll_back(self, version: str, ids: Sequence[str]) -> None:
        """End a write that was cut off: rows that name the version stay, vectors of others are removed.

        Once the version is pending no more, no row can come to name it: its writer, should it only have been slow,
        writes once more.
        """
        self.forget({id: [version] for id in ids})
        now = self.index.kept_rows(ids, {"version": 1})
        self.vectors.remove([(id, version) for id in ids if id not in now or now[id]["version"] != version])
        self.journal.remove([version])

    def _half_done(self, ids: Collection[str], dead: Collection[str]) -> dict[str, Row]:
        """Return the rows of writes that nobody is at and that the journal lacks."""
        if not ids:
            return {}
        busy = self._busy(dead)
        rows = self.index.kept_rows(ids, _STATE, _EVERY)
        busy |= self._busy(dead)
        return {id: row for id, row in rows.items() if id not in busy and _is_half_done(row, dead)}

    def _busy(self, dead: Collection[str]) -> set[str]:
        """Return the documents that are being written."""
        entries = self.journal.entries()
        return {id for entry in entries if entry.version not in dead and not entry.is_gone for id in entry.ids}

    def _repair(self, vectors: Discrepancies, half_done: Mapping[str, Row]) -> None:
        vectors.remove(self.vectors)
        versions = {id: [*row.get("stale", []), *row.get("pending", [])] for id, row in half_done.items()}
        self.vectors.remove([(id, version) for id, several in versions.items() for version in several])
        self.forget(versions)
        lost: dict[tuple[str, str], list[str]] = {}
        for field, keys in vectors.missing.items():
            for key in keys:
                lost.setdefault(key, []).append(str(field))
        writes: list[Any] = [
            UpdateOne({"_id": id, "version": version}, {"$pull": {"fields": {"$in": names}}})
            for (id, version), names in lost.items()
        ]
        if writes:
            self.index.blank({document_of(id) for id, _ in lost})
            self.index.run("note missing vectors", lambda rows: bulk(rows, writes))


def _states(rows: Mapping[str, Row]) -> States:
    """Return the rows of documents. A deleted one whose vectors are not gone yet has no version."""
    return {id: DocumentRow(Stamp("", ""), row["version"] or "", fields_of(row)) for id, row in rows.items()}


def _is_half_done(row: Row, dead: Collection[str]) -> bool:
    """Return whether a row has more to be rid of than versions of writes cut off."""
    pending = row.get("pending", [])
    return bool(row.get("stale") or set(pending) - set(dead) or (row["version"] is None and not pending))
