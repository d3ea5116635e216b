"""The writes under way, so that one that was cut off can be told from one that is only slow.

An entry is made before anything is written and removed when everything is. Times are those of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol, TypeVar

from vlmsearch.stores.mongodb.connection import Row, Rows
from vlmsearch.stores.writers import at_work, is_under_way, life_of, new_version, this_process

T = TypeVar("T")
Change = Literal["write", "delete"]
PATIENCE = timedelta(minutes=10)
"""Time, by the clock of the server, after which a write of another process counts as cut off."""
AT: Row = {"$currentDate": {"at": True}}
"""The update that notes the time."""
NOW = "$$NOW"
"""The server's time, in a projection."""


class RunOnRows(Protocol):
    """A function that calls a collection: `MongoConnection.run` on one."""

    def __call__(self, operation: str, call: Callable[[Rows], T], /) -> T:
        """Call a function with the collection."""


@dataclass(frozen=True)
class JournalEntry:
    """A write or delete of some documents: its version, their ids, and whether somebody is still at it."""

    version: str
    kind: Change
    ids: tuple[str, ...]
    is_alive: bool


class Journal:
    """The entries of one index."""

    def __init__(self, run: RunOnRows) -> None:
        self._run = run

    @contextmanager
    def writing(self, kind: Change, ids: Sequence[str]) -> Iterator[str]:
        """Note that these documents are written or deleted meanwhile, under the new version that this gives.

        After an error the entry stays, for nobody knows what was written.
        """
        version = new_version()
        update = {"$set": {"kind": kind, "ids": list(ids), "owner": this_process()}, **AT}
        with at_work(version):
            self._run(f"begin a {kind}", lambda rows: rows.update_one({"_id": version}, update, upsert=True))
            yield version
            self.close(version)

    def close(self, version: str) -> None:
        """Note that all is done."""
        self._run("end a write", lambda rows: rows.delete_one({"_id": version}))

    def entries(self) -> list[JournalEntry]:
        """Return all entries that there are."""
        wanted = {"kind": 1, "ids": 1, "owner": 1, "at": 1, "now": NOW}
        rows_found = self._run("read the journal", lambda rows: list(rows.find({}, wanted)))
        return [JournalEntry(row["_id"], row["kind"], tuple(row["ids"]), is_alive(row)) for row in rows_found]


def is_alive(row: Row) -> bool:
    """Return whether the process that a row names is still at work on it.

    The row has the time it was written ``at`` and the time ``now``, both by the server's clock: those of clients may
    differ.
    """
    if is_under_way(row["_id"]):
        return True
    return life_of(row["owner"], row["_id"]) != "gone" and abs(row["now"] - row["at"]) <= PATIENCE
