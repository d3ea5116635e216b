"""The writes under way in MongoDB, and the count of changes of an index.

An entry is made before anything is written and removed when everything is. Times are those of the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

from vlmsearch.stores import writers
from vlmsearch.stores.mongodb.connection import Row, Rows
from vlmsearch.stores.writers import WriteEntry, WriteJournal

T = TypeVar("T")
_CHANGES: Row = {"_id": "changes"}


class RunOnRows(Protocol):
    """A function that calls a collection: `MongoConnection.run` on one."""

    def __call__(self, operation: str, call: Callable[[Rows], T], /) -> T:
        """Call a function with the collection."""


class MongoJournal(WriteJournal):
    """The entries of one index, a row for each."""

    def __init__(self, run: RunOnRows) -> None:
        self._run = run

    def add(self, entry: WriteEntry) -> None:
        """Make an entry."""
        row = {"kind": entry.kind, "ids": list(entry.ids), "owner": entry.owner}
        update = {"$set": row, "$currentDate": {"at": True}}
        self._run(f"begin a {entry.kind}", lambda rows: rows.update_one({"_id": entry.version}, update, upsert=True))

    def remove(self, versions: Collection[str]) -> None:
        """Note that these writes are done."""
        self._run("end a write", lambda rows: rows.delete_many({"_id": {"$in": [*versions]}}))

    def entries(self) -> list[WriteEntry]:
        """Return all entries that there are."""
        wanted = {"kind": 1, "ids": 1, "owner": 1, "at": 1, "now": "$$NOW"}
        rows_found = self._run("read the journal", lambda rows: list(rows.find({}, wanted)))
        return [_entry(row["_id"], row, row["now"]) for row in rows_found]


class ChangeCounter(WriteJournal):
    """The row that counts the changes of an index and names the writes under way."""

    def __init__(self, run: RunOnRows) -> None:
        self._run = run
        self._gone: dict[str, float] = {}

    def add(self, entry: WriteEntry) -> None:
        """Note that a write begins."""
        key = f"open.{entry.version}"
        row = {f"{key}.owner": entry.owner, f"{key}.kind": entry.kind, f"{key}.documents": entry.documents}
        self._note({"$set": row, "$currentDate": {f"{key}.at": True}})

    def remove(self, versions: Collection[str]) -> None:
        """Take writes off the row."""
        if versions:
            self._note({"$unset": {f"open.{version}": "" for version in versions}})

    def entries(self) -> list[WriteEntry]:
        """Return the writes under way, and those that were cut off."""
        return _entries(self._read())

    def count(self) -> int | None:
        """Return how often the index has been changed.

        None while somebody writes. Takes off the row who is long gone.
        """
        row = self._read()
        entries, moment = _entries(row), time.monotonic()
        if not entries:
            return int(row.get("count", 0))
        self._gone = {entry.version: self._gone.get(entry.version, moment) for entry in entries if entry.is_gone}
        self.remove([version for version, since in self._gone.items() if moment - since > writers.IN_FLIGHT_SECONDS])
        return None

    def _read(self) -> Row:
        wanted = {"open": 1, "count": 1, "now": "$$NOW"}
        return self._run("look for changes", lambda rows: rows.find_one(_CHANGES, wanted)) or {}

    def _note(self, update: Row) -> None:
        counted = {**update, "$inc": {"count": 1}}
        self._run("note a change", lambda rows: rows.update_one(_CHANGES, counted, upsert=True))


def _entries(row: Row) -> list[WriteEntry]:
    return [_entry(version, entry, row["now"]) for version, entry in row.get("open", {}).items()]


def _entry(version: str, row: Row, now: Any) -> WriteEntry:
    """Return an entry, whose time and ``now`` are both by the server's clock: those of clients may differ."""
    ids = tuple(row.get("ids", ()))
    count, age = row.get("documents", len(ids)), (now - row["at"]).total_seconds()
    return WriteEntry(version, row["owner"], row.get("kind", "write"), count, ids, age)
