"""Vectors kept in memory between searches, for as long as nobody changes the index.

One row counts the changes of an index and names the writers that are at it. What was read is kept only where nobody
wrote meanwhile, and used only while the count is the same and nobody writes; so it is never older than the last write
that has returned, in any process. A writer that is killed stays in the row until a reader finds that it is gone; what
it had sent may still be carried out then, so the reader waits a moment before it takes it off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vlmsearch.stores.mongodb.connection import Row
from vlmsearch.stores.mongodb.journal import NOW, PATIENCE, RunOnRows, is_alive
from vlmsearch.stores.mongodb.scan import VectorBlock, merge_blocks
from vlmsearch.stores.writers import at_work, new_version, this_process
from vlmsearch.types import Field

_ONE: Row = {"_id": "changes"}
_READ: Row = {"open": 1, "count": 1, "now": NOW}
_LAST_GASP = 5.0
"""Seconds that a server may still be carrying out what a writer sent before it was killed."""
_SIGN_OF_LIFE = PATIENCE.total_seconds() / 10
"""Seconds between two signs of life of a writer."""


class Changes:
    """The row that counts the changes of an index."""

    def __init__(self, run: RunOnRows) -> None:
        self._run = run
        self._gone: dict[str, float] = {}

    @contextmanager
    def writing(self) -> Iterator[Callable[[], None]]:
        """Note a write, and give a function to call between its steps, which says that the writer is still there.

        After an error nobody knows what was written, and the entry stays.
        """
        version = new_version()
        seen = time.monotonic()
        entry = f"open.{version}"
        note = {"$set": {f"{entry}.owner": this_process()}, "$currentDate": {f"{entry}.at": True}}

        def live() -> None:
            nonlocal seen
            if time.monotonic() - seen > _SIGN_OF_LIFE:
                self._note(note)
                seen = time.monotonic()

        with at_work(version):
            self._note({**note, "$inc": {"count": 1}})
            yield live
            self._note({"$unset": {entry: ""}, "$inc": {"count": 1}})

    def count(self) -> int | None:
        """Return how often the index has been changed.

        None while somebody writes. Takes off the row who is long gone.
        """
        row = self._read()
        if not row.get("open"):
            return int(row.get("count", 0))
        gone, moment = _gone(row), time.monotonic()
        self._gone = {version: self._gone.get(version, moment) for version in gone}
        over = [version for version, since in self._gone.items() if moment - since > _LAST_GASP]
        self.forget(over)
        return None

    def writes(self) -> tuple[list[str], int]:
        """List the writes whose writers are gone, and count the others."""
        row = self._read()
        gone = _gone(row)
        return gone, len(row.get("open", {})) - len(gone)

    def forget(self, versions: list[str]) -> None:
        """Take writes off the row."""
        for version in versions:
            self._note({"$unset": {f"open.{version}": ""}, "$inc": {"count": 1}})

    def _read(self) -> Row:
        return self._run("look for changes", lambda rows: rows.find_one(_ONE, _READ)) or {}

    def _note(self, update: Row) -> None:
        self._run("note a change", lambda rows: rows.update_one(_ONE, update, upsert=True))


def _gone(row: Row) -> list[str]:
    """Return the entries of writers that are not there any more."""
    entries: dict[str, Any] = row.get("open", {})
    return [version for version, entry in entries.items() if not is_alive({"_id": version, "now": row["now"], **entry})]


@dataclass(frozen=True)
class _Kept:
    count: int
    blocks: tuple[VectorBlock, ...]


class VectorCache:
    """The vectors of each field as of the last change, as long as they take no more than ``most_bytes`` altogether."""

    def __init__(self, changes: Changes, most_bytes: int) -> None:
        self._changes = changes
        self._most = most_bytes
        self._kept: dict[Field, _Kept] = {}
        self._loading = threading.Lock()

    def find(self, field: Field) -> tuple[VectorBlock, ...] | None:
        """Return the vectors of a field that are kept; None where the database has changed since."""
        kept = self._kept.get(field)
        return kept.blocks if kept is not None and kept.count == self._changes.count() else None

    def load(self, field: Field, read: Callable[[], Iterator[VectorBlock]]) -> Iterator[VectorBlock]:
        """Yield the blocks that ``read`` gives, and keep them where they fit and nobody wrote meanwhile."""
        count = self._changes.count() if self._most else None
        if count is None or not self._loading.acquire(blocking=False):
            yield from read()
            return
        try:
            self._kept.pop(field, None)
            room = self._most - sum(block.size for kept in list(self._kept.values()) for block in kept.blocks)
            blocks: list[VectorBlock] = []
            for block in read():
                room -= block.size
                if room >= 0:
                    blocks.append(block)
                else:
                    blocks.clear()
                yield block
            if room >= 0 and self._changes.count() == count:
                self._kept[field] = _Kept(count, (merge_blocks(blocks),) if blocks else ())
        finally:
            self._loading.release()
