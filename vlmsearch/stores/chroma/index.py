"""An index in Chroma: what built it, its generations, and its reject list.

An index ``name`` is the collections ``name.about`` (what built it, and which generation is in use), ``name.rejects``
and, for each generation, ``name.N.documents``, one for the vectors of each field and, on a server, ``name.N.journal``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vlmsearch.errors import ConfigError
from vlmsearch.stores.base import DiskUse
from vlmsearch.stores.chroma.collections import UNSEARCHED_HNSW, ChromaCollection, HnswOptions, placeholders
from vlmsearch.stores.chroma.connection import ChromaConnection, Subindex
from vlmsearch.stores.chroma.journal import ChromaJournal
from vlmsearch.stores.chroma.vectors import VectorRows, row_bytes
from vlmsearch.stores.generations import GenerationalStore, Slot
from vlmsearch.stores.samples import VectorSamples
from vlmsearch.types import Manifest, Reject, Space, Stamp

_OURS = {"vlmsearch": "about"}


class ChromaIndex(GenerationalStore):
    """An index whose parts are all in Chroma."""

    kind = "chroma"

    def __init__(self, connection: ChromaConnection, hnsw: HnswOptions, slot: Slot = "index") -> None:
        super().__init__(connection.name, slot)
        self.is_served = connection.is_shared
        self._connection = connection
        self._hnsw = hnsw
        shared = Subindex(connection, "")
        self._about = ChromaCollection(shared, f"{shared.prefix}.about")
        self._rejects = ChromaCollection(shared, f"{shared.prefix}.rejects")
        self._documents = self._documents_of("0")
        self._vectors = VectorRows(shared, ())
        self._journal = ChromaJournal(shared)
        self._samples = VectorSamples()

    # ---- what it is made of

    def read_slot(self, slot: Slot) -> dict[str, Any] | None:
        """The row of a slot, or None."""
        about = self._about.find() if self._connection.exists() else None
        if about is None:
            return None
        if about != _OURS:
            raise ConfigError(
                f"{self.name} has a collection {self._about.name} that vlmsearch did not make, or not this version "
                "of it; give the index another name, or upgrade"
            )
        row = self._about.get([slot], "uris").get(slot)
        found: dict[str, Any] | None = json.loads(row) if row else None
        return found

    def fill_slot(self, slot: Slot, row: Mapping[str, Any]) -> None:
        """Make the row of a slot, unless there is one."""
        self._about.create(UNSEARCHED_HNSW, _OURS)
        self._about.insert(slot, json.dumps(row))

    def replace_slot(self, slot: Slot, row: Mapping[str, Any], revision: str | None) -> bool:
        """Put another row in the place of one of this revision, at one instant; False where there is no such row.

        On a server, another process may change it between the look and the write: Chroma has no conditional write.
        """
        with self._connection.writing():
            if not self._is_at(slot, revision):
                return False
            self._about.upsert([slot], placeholders([slot]), None, [json.dumps(row)])
            return True

    def clear_slot(self, slot: Slot, revision: str | None) -> None:
        """Remove the row of a slot, if it is of this revision."""
        with self._connection.writing():
            if self._is_at(slot, revision):
                self._about.delete([slot])

    def _is_at(self, slot: Slot, revision: str | None) -> bool:
        row = self.read_slot(slot)
        return row is not None and row.get("revision") == revision

    def prepare(self, spaces: Sequence[Space], generation: str) -> None:
        """Make the collections of a generation."""
        self._connection.prepare()
        self._vectors_of(generation, spaces).create(self._hnsw)
        self._documents_of(generation).create(UNSEARCHED_HNSW)
        self._rejects.create(UNSEARCHED_HNSW)

    def opened(self, manifest: Manifest, generation: str) -> None:
        """Find the collections of a generation."""
        documents, vectors = self._documents_of(generation), self._vectors_of(generation, manifest.spaces)
        documents.needed(self.name)
        vectors.open(self.name)
        self._rejects.needed(self.name)
        self._documents, self._vectors = documents, vectors
        self._journal = self._journal_of(generation)

    def drop(self, generation: str, spaces: Sequence[Space]) -> None:
        """Remove everything that a generation has."""
        self._vectors_of(generation, spaces).drop()
        self._documents_of(generation).drop()
        self._journal_of(generation).drop()

    def _journal_of(self, generation: str) -> ChromaJournal:
        return ChromaJournal(Subindex(self._connection, generation))

    def _documents_of(self, generation: str) -> ChromaCollection:
        part = Subindex(self._connection, generation)
        return ChromaCollection(part, f"{part.prefix}.documents")

    def _vectors_of(self, generation: str, spaces: Sequence[Space]) -> VectorRows:
        return VectorRows(Subindex(self._connection, generation), spaces)

    # ---- the disk

    def disk_use(self) -> DiskUse | None:
        """What the folder takes with everything in it; None for a server, which does not say."""
        found = self._connection.disk_use()
        if found is None:
            return None
        collections = map(self._documents_of, self.kept_generations())
        return DiskUse(found[0], sum(len(each) for each in collections if each.find() is not None), found[1])

    def places(self) -> tuple[Path, ...]:
        """Return the folder; nothing for a server."""
        return self._connection.places()

    def vector_bytes(self, dim: int) -> int:
        """About how many bytes a vector takes: in the graph, and in Chroma's log of it."""
        return row_bytes(dim)

    # ---- the reject list

    def rejects(self) -> list[Reject]:
        """The reject list, by id."""
        if self.as_opened() is None:
            return []
        rows = self._rejects.get(self._rejects.ids(), "uris")
        return [_load_reject(id, rows[id]) for id in sorted(rows)]

    def reject(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the reject list, or replace their entries."""
        self.needed()
        latest = {reject.id: reject for reject in rejects}
        if latest:
            ids = list(latest)
            self._rejects.upsert(
                ids,
                placeholders(ids),
                None,
                [dump([r.code, r.message, r.stamp.digest, r.stamp.source]) for r in latest.values()],
            )

    def release(self, ids: Sequence[str]) -> None:
        """Take inputs off the reject list; unknown ids are ignored."""
        if self.as_opened() is not None:
            self._rejects.delete(ids)

    def close(self) -> None:
        """Let go of the database, and of the lock on its folder."""
        self._connection.close()


def dump(values: Sequence[object]) -> str:
    """JSON that can be encoded: as it is where possible, escaped where a string has half a surrogate pair."""
    text = json.dumps(values, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(values)
    return text


def _load_reject(id: str, content: str) -> Reject:
    code, message, digest, source = json.loads(content)
    return Reject(id, code, message, Stamp(digest, source))
