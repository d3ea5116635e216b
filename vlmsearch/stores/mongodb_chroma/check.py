"""Comparing documents in MongoDB with their vectors in Chroma and with the journal, while others may write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo.operations import UpdateOne

from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.chroma.check import row_names
from vlmsearch.stores.chroma.vectors import Key, VectorRows
from vlmsearch.stores.mongodb.connection import Row, bulk
from vlmsearch.stores.mongodb.index import MongoIndex
from vlmsearch.stores.mongodb.journal import Journal, JournalEntry
from vlmsearch.types import Field

_STATE = {"version": 1, "fields": 1, "stale": 1, "pending": 1}
_EVERY: Row = {}


@dataclass
class _Inconsistencies:
    """What is not in order, by field, and the versions that rows still have to be rid of."""

    orphans: dict[Field, set[Key]] = field(default_factory=dict)
    stale: dict[Field, set[Key]] = field(default_factory=dict)
    missing: dict[Field, set[Key]] = field(default_factory=dict)
    half_done: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Checker:
    """The parts of one index; ``forget`` takes replaced and pending versions off the rows of documents."""

    index: MongoIndex
    vectors: VectorRows
    journal: Journal
    forget: Callable[[Mapping[str, Sequence[str]]], None]

    def report(self, *, repair: bool) -> CheckReport:
        """Return what is there and what is not in order, and whether it has been repaired."""
        entries = self.journal.entries()
        unfinished = [entry for entry in entries if not entry.is_alive]
        if repair:
            for entry in unfinished:
                self.roll_back(entry.version, entry.ids)
        keys = {each: set(self.vectors.keys(each)) for each in self.vectors.fields}
        states = {row["_id"]: row for page in self.index.scan(_STATE, _EVERY) for row in page}
        found = self._compare(keys, states, {e.version for e in unfinished})
        if repair:
            self._repair(found, states)
        half_done = [f"{'replace' if states[id]['version'] else 'delete'} {id}" for id in found.half_done]
        return CheckReport(
            self.index.name,
            sum(row["version"] is not None for row in states.values()),
            {str(each): len(rows) for each, rows in keys.items()},
            row_names(found.orphans),
            row_names(found.stale),
            row_names(found.missing),
            tuple(sorted([*(f"{e.kind} of {len(e.ids)} documents, {e.version}" for e in unfinished), *half_done])),
            len(entries) - len(unfinished),
            repair,
        )

    def roll_back(self, version: str, ids: Sequence[str]) -> None:
        """End a write that was cut off: rows that name the version stay, vectors of others are removed.

        Once the version is pending no more, no row can come to name it: its writer, should it only have been slow,
        writes once more.
        """
        self.forget({id: [version] for id in ids})
        now = self.index.rows(ids, {"version": 1})
        self.vectors.remove([(id, version) for id in ids if id not in now or now[id]["version"] != version])
        self.journal.close(version)

    def _compare(
        self, keys: Mapping[Field, set[Key]], states: Mapping[str, Row], dead: Collection[str]
    ) -> _Inconsistencies:
        found = _Inconsistencies()
        for each, rows in keys.items():
            wanted = {(id, row["version"]) for id, row in states.items() if str(each) in row["fields"]}
            self._sort(found, each, rows - wanted, dead)
            found.missing[each] = self._missing(each, wanted - rows)
        waiting = [id for id, row in states.items() if _is_half_done(row, dead)]
        busy = self._busy(dead) if waiting else set()
        now = self.index.rows(waiting, _STATE, _EVERY)
        busy |= self._busy(dead) if waiting else set()
        found.half_done = {
            id: [*row.get("stale", []), *row.get("pending", [])]
            for id, row in now.items()
            if id not in busy and _is_half_done(row, dead)
        }
        return found

    def _sort(self, found: _Inconsistencies, each: Field, rows: set[Key], dead: Collection[str]) -> None:
        """Tell vectors without a document from those of old versions; writes under way are none of both."""
        if not rows:
            return
        busy = self._busy(dead)
        now = self.index.rows([id for id, _ in rows], _STATE, _EVERY)
        busy |= self._busy(dead)
        idle = {key for key in rows if key[0] not in busy}
        idle = {(id, version) for id, version in idle if id not in now or now[id]["version"] != version}
        there = self.vectors.among(each, idle)
        found.orphans[each] = {key for key in there if key[0] not in now}
        found.stale[each] = there - found.orphans[each]

    def _missing(self, each: Field, keys: set[Key]) -> set[Key]:
        lost = keys - self.vectors.among(each, keys) if keys else set()
        now = self.index.rows([id for id, _ in lost], _STATE) if lost else {}
        return {(id, version) for id, version in lost if id in now and now[id]["version"] == version}

    def _busy(self, dead: Collection[str]) -> set[str]:
        entries: list[JournalEntry] = self.journal.entries()
        return {id for entry in entries if entry.version not in dead and entry.is_alive for id in entry.ids}

    def _repair(self, found: _Inconsistencies, states: Mapping[str, Row]) -> None:
        for each in self.vectors.fields:
            self.vectors.remove_from(each, found.orphans.get(each, set()) | found.stale.get(each, set()))
        self.vectors.remove([(id, version) for id, versions in found.half_done.items() for version in versions])
        self.forget(found.half_done)
        lost: dict[Key, list[str]] = {}
        for each, missing in found.missing.items():
            for key in missing:
                lost.setdefault(key, []).append(str(each))
        writes: list[Any] = [
            UpdateOne(
                {"_id": id, "version": version},
                {"$set": {"digest": "", "fields": [name for name in states[id]["fields"] if name not in names]}},
            )
            for (id, version), names in lost.items()
        ]
        if writes:
            self.index.run("note missing vectors", lambda rows: bulk(rows, writes))


def _is_half_done(row: Row, dead: Collection[str]) -> bool:
    """Return whether a row has more to be rid of than versions of writes that are known to be cut off."""
    pending = row.get("pending", [])
    return bool(row.get("stale") or set(pending) - set(dead) or (row["version"] is None and not pending))
