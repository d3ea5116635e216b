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
from collections.abc import Collection

from vlmsearch.stores.chroma.collections import UNSEARCHED_HNSW, ChromaCollection
from vlmsearch.stores.chroma.connection import ChromaConnection
from vlmsearch.stores.writers import WriteEntry, WriteJournal, WriteKind, new_version

_CHANGE = "m"
"""The beginning of versions of changes of metadata, and of no other."""


class ChromaJournal(WriteJournal):
    """The entries of one generation of an index; the collection is made by the first write."""

    def __init__(self, connection: ChromaConnection, generation: str) -> None:
        self._rows = ChromaCollection(connection, f"{connection.prefix}.{generation}.journal")

    def version_of(self, kind: WriteKind) -> str:
        """Return the version of a new write, which tells changes of metadata from others."""
        return _CHANGE + new_version()[1:] if kind == "change" else new_version()

    def add(self, entry: WriteEntry) -> None:
        """Make an entry."""
        if self._rows.find() is None:
            self._rows.create(UNSEARCHED_HNSW)
        self._rows.insert(entry.version, json.dumps([entry.owner, entry.documents]))

    def has(self, version: str) -> bool:
        """Return whether the entry is still there."""
        return version in self._rows.get([version], "uris")

    def others(self, version: str) -> bool:
        """Return whether a process that may still be there has another entry."""
        return any(entry.version != version and not entry.is_gone for entry in self.entries())

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
        entries = []
        for version, row in rows.items():
            owner, documents = json.loads(row)
            entries.append(WriteEntry(version, owner, "change" if version.startswith(_CHANGE) else "write", documents))
        return entries

    def versions(self) -> set[str]:
        """Return the versions of all entries."""
        return set(self._rows.ids()) if self._rows.find() is not None else set()

    def drop(self) -> None:
        """Remove the journal."""
        self._rows.drop()
