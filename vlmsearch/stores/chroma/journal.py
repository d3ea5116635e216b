"""The writes under way on a Chroma server, where nothing can be written on a condition.

A writer makes an entry before it writes vectors, and looks for it right before and right after the documents' rows
name them. Whoever takes it for gone removes the entry first, then looks which rows name its vectors, and only then
removes the others. Whichever of the two comes second sees what the other did: either the rows were there and nothing
is removed, or the writer finds that its entry has gone, and writes once more. So taking a writer for gone that is only
slow costs it time and loses nothing, and no clock is asked.

A change of metadata must not undo what another writer names between its look at a row and its own write. Its entry has
a version of its own kind. It looks for other entries once it has made its own, and takes that back where there are any.
Other writers look for such entries before they name versions, and wait until there are none. So of the two, the one
whose entry came second sees the first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vlmsearch.stores.chroma.collections import UNSEARCHED_HNSW, ChromaCollection
from vlmsearch.stores.chroma.connection import ChromaConnection
from vlmsearch.stores.writers import Life, at_work, life_of, new_version, this_process

_CHANGE = "m"
"""The beginning of versions of changes of metadata, and of no other."""


@dataclass(frozen=True)
class WriteEntry:
    """A write of so many documents, and whether its process is still there."""

    version: str
    documents: int
    life: Life

    def __str__(self) -> str:
        return f"write of {self.documents} documents, {self.version}"


class ChromaJournal:
    """The entries of one generation of an index; the collection is made by the first write."""

    def __init__(self, connection: ChromaConnection, generation: str) -> None:
        self._rows = ChromaCollection(connection, f"{connection.prefix}.{generation}.journal")

    @contextmanager
    def writing(self, documents: int, *, changes_metadata: bool = False) -> Iterator[str]:
        """Make an entry and give its version; after an error it stays, for nobody knows what was written."""
        version = _CHANGE + new_version()[1:] if changes_metadata else new_version()
        if self._rows.find() is None:
            self._rows.create(UNSEARCHED_HNSW)
        with at_work(version):
            self._rows.insert(version, json.dumps([this_process(), documents]))
            yield version

    def has(self, version: str) -> bool:
        """Return whether the entry is still there."""
        return version in self._rows.get([version], "uris")

    def others(self, version: str) -> bool:
        """Return whether a process that may still be there has another entry."""
        return any(entry.version != version and entry.life != "gone" for entry in self.entries())

    def changes(self) -> list[WriteEntry]:
        """Return the entries of changes of metadata."""
        if not any(version.startswith(_CHANGE) for version in self.versions()):
            return []
        return [entry for entry in self.entries() if entry.version.startswith(_CHANGE)]

    def remove(self, versions: Collection[str]) -> None:
        """Remove entries."""
        if versions:
            self._rows.delete(versions)

    def entries(self) -> list[WriteEntry]:
        """Return all entries that there are."""
        if self._rows.find() is None:
            return []
        rows = self._rows.get(self._rows.ids(), "uris")
        contents = {version: json.loads(row) for version, row in rows.items()}
        return [WriteEntry(version, count, life_of(owner, version)) for version, (owner, count) in contents.items()]

    def versions(self) -> set[str]:
        """Return the versions of all entries."""
        return set(self._rows.ids()) if self._rows.find() is not None else set()

    def drop(self) -> None:
        """Remove the journal."""
        self._rows.drop()
