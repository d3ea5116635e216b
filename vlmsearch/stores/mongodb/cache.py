"""Vectors kept in memory between searches, for as long as nobody changes the index.

One row counts the changes of an index and names the writers that are at it. What was read is kept only where nobody
wrote meanwhile, and used only while the count is the same and nobody writes; so it is never older than the last write
that has returned, in any process. A writer that is killed stays in the row until a reader finds that it is gone; what
it had sent may still be carried out then, so the reader waits a moment before it takes it off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vlmsearch.stores.mongodb.journal import ChangeCounter
from vlmsearch.stores.mongodb.scan import VectorBlock, merge_blocks
from vlmsearch.types import Field


@dataclass(frozen=True)
class _Snapshot:
    count: int
    blocks: tuple[VectorBlock, ...]


class VectorCache:
    """The vectors of each field as of the last change, in up to ``max_bytes`` altogether."""

    def __init__(self, changes: ChangeCounter, max_bytes: int) -> None:
        self._changes = changes
        self._max_bytes = max_bytes
        self._snapshots: dict[Field, _Snapshot] = {}
        self._loading = threading.Lock()

    def find(self, field: Field) -> tuple[VectorBlock, ...] | None:
        """Return the vectors of a field that are kept; None where the database has changed since."""
        snapshot = self._snapshots.get(field)
        return snapshot.blocks if snapshot is not None and snapshot.count == self._changes.count() else None

    def load(self, field: Field, read: Callable[[], Iterator[VectorBlock]]) -> Iterator[VectorBlock]:
        """Yield the blocks that ``read`` gives, and keep them where they fit and nobody wrote meanwhile."""
        count = self._changes.count() if self._max_bytes else None
        if count is None or not self._loading.acquire(blocking=False):
            yield from read()
            return
        try:
            self._snapshots.pop(field, None)
            room = self._max_bytes - sum(
                block.size for snapshot in list(self._snapshots.values()) for block in snapshot.blocks
            )
            blocks: list[VectorBlock] = []
            for block in read():
                room -= block.size
                if room >= 0:
                    blocks.append(block)
                else:
                    blocks.clear()
                yield block
            if room >= 0 and self._changes.count() == count:
                self._snapshots[field] = _Snapshot(count, (merge_blocks(blocks),) if blocks else ())
        finally:
            self._loading.release()
