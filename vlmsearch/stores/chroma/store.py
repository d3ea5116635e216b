"""Chroma as a store: embedded in this process, or on a server.

The documents' row is written after the vectors and removed before them: only what has one exists, and it names the
version of the vectors that belongs to it. So a document is replaced at one instant, and whatever a killed process left
behind is never found.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from typing_extensions import Self

from vlmsearch.errors import BackendUnavailableError, InvalidInputError, apply_to_each
from vlmsearch.stores.base import CheckReport, changed_records, check_changes, check_records, dim_of, drawn_ids
from vlmsearch.stores.chroma.check import Discrepancies, State, compare, digest_version, row_names
from vlmsearch.stores.chroma.collections import DEFAULT_HNSW, HnswOptions, connect, placeholders
from vlmsearch.stores.chroma.connection import ChromaConnection
from vlmsearch.stores.chroma.index import ChromaIndex, dump
from vlmsearch.stores.chroma.vectors import DocumentRow
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.generations import Slot
from vlmsearch.stores.writers import is_under_way
from vlmsearch.types import Document, Field, Hit, MetadataChange, Record, Stamp, Vectors

_WRITES = 1000
_PATIENCE = 30.0
"""For how many seconds changes of metadata and other writes to a server wait for one another."""
_MOMENT = 0.02
_LAST_GASP = 5.0
"""For how many seconds a server may still be carrying out what a writer sent before it found that its entry is gone."""


class ChromaStore(ChromaIndex):
    """Documents and vectors in a folder (``chroma:./index``) or on a server (``chroma://host:8000/name``).

    A folder is used by one process at a time, for searching too. A server needs no credentials, or a token in the
    environment variable VLMSEARCH_CHROMA_TOKEN; ``ssl``, ``timeout``, in seconds for one attempt, and ``retries``, how
    many follow, are for servers. ``hnsw`` shapes a new index; in a URL its fields are options, such as
    ``hnsw_ef_search``. Up to 1,000 vectors of a field, search is exact.
    """

    def __init__(
        self,
        location: str,
        *,
        ssl: bool = False,
        timeout: float = 30.0,
        retries: int = 3,
        hnsw: HnswOptions = DEFAULT_HNSW,
    ) -> None:
        super().__init__(connect(location, ssl=ssl, timeout=timeout, retries=retries), hnsw)

    @classmethod
    def on(cls, connection: ChromaConnection, *, slot: Slot = "index", hnsw: HnswOptions = DEFAULT_HNSW) -> Self:
        """Return the store over a connection that is there already."""
        store = cls.__new__(cls)
        ChromaIndex.__init__(store, connection, hnsw, slot)
        return store

    def over(self, slot: Slot) -> Self:
        """Another store over the same connection."""
        return self.on(self._connection, slot=slot, hnsw=self._hnsw)

    # ---- writing

    def upsert(self, records: Sequence[Record]) -> None:
        """Add or replace records, each at one instant, which is when its documents' row is written."""
        with self.in_use(records):
            check_records(records, self.needed().spaces)
            if self._connection.most_bytes:
                apply_to_each(self._check_size, records)
            for start in range(0, len(records), _WRITES):
                if start:
                    self.check_in_use()
                with self._connection.writing():
                    some = records[start : start + _WRITES]
                    self._write_beside_others(some) if self._connection.is_shared else self._write_alone(some)

    def _check_size(self, record: Record) -> None:
        """Raise InvalidInputError for a document that no request to the server can hold."""
        most = self._connection.most_bytes
        size = len(json.dumps(_dump_document(record.document), ensure_ascii=False).encode())
        if size > most:
            large = f"{record.document.id!r} has {size:,} bytes as it is sent; {self.name} takes {most:,}"
            raise InvalidInputError("too_large", large)

    def _write_alone(self, records: Sequence[Record]) -> None:
        versions = {record.document.id: digest_version(record) for record in records}
        old = self._states(list(versions))
        self._vectors.write(records, versions)
        self._name(records, versions)
        self._clean([id for id, state in old.items() if state.version != versions[id]])

    def _write_beside_others(self, records: Sequence[Record]) -> None:
        """Write under a version of its own, again for as long as someone took the write for cut off meanwhile."""
        ids = [record.document.id for record in records]
        replaced = set(self._states(ids))
        while not (version := self._try_to_write(records)):
            replaced = set(ids)
        now = self._states(ids)
        beaten = {id for id in ids if id not in now or now[id].version != version}
        self._clean(replaced | beaten)

    def _try_to_write(self, records: Sequence[Record]) -> str:
        """Write vectors and then the rows that name them; returns the version, or "" where the entry has gone."""
        with self._journal.writing(len(records)) as version:
            versions = dict.fromkeys([record.document.id for record in records], version)
            self._vectors.write(records, versions)
            self._wait_for_changes()
            if not self._journal.has(version):
                return ""
            self._name(records, versions)
            if not self._journal.has(version):
                return ""
            self._journal.remove([version])  # before the cleaning: of two writers, one sees what the other left
            return version

    def update_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace the metadata of documents that are still as they were read, each at one instant; returns their ids.

        BackendUnavailableError where others keep writing to the server.
        """
        wanted = check_changes(changes)
        if self.as_opened() is None:
            return []
        changed: list[str] = []
        with self.in_use():
            if self._connection.most_bytes:
                apply_to_each(self._check_size, wanted)
            for start in range(0, len(changes), _WRITES):
                some = changes[start : start + _WRITES]
                changed += self._change_beside_others(some) if self._connection.is_shared else self._change_alone(some)
        return changed

    def _wait_for_changes(self) -> None:
        """Return when no change of metadata is under way, so that none undoes what is about to be named."""
        end = time.monotonic() + _PATIENCE
        while changes := self._journal.changes():
            over = [entry.version for entry in changes if entry.life == "gone" or time.monotonic() > end]
            time.sleep(_LAST_GASP if over else _MOMENT)
            self._journal.remove(over)

    def _change_alone(self, changes: Sequence[MetadataChange]) -> list[str]:
        with self._connection.writing():
            records = changed_records(self.records([change.document.id for change in changes]), changes)
            if records:
                self._write_alone(records)
        return [record.document.id for record in records]

    def _change_beside_others(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Change metadata while no other writer names versions: see `ChromaJournal`."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with self._connection.writing(), self._journal.writing(len(changes), changes_metadata=True) as version:
                if not self._journal.others(version):
                    return self._change_under(version, changes)
                self._journal.remove([version])
            time.sleep(secrets.randbelow(100) / 1000)  # of two, one comes first
        raise BackendUnavailableError(
            f"{self.name} was written to for {_PATIENCE:.0f} seconds, so no metadata were changed: try again when the "
            "others are done; a write of a process that is gone ends with `vlmsearch check --repair`"
        )

    def _change_under(self, version: str, changes: Sequence[MetadataChange]) -> list[str]:
        records = changed_records(self.records([change.document.id for change in changes]), changes)
        ids = [record.document.id for record in records]
        versions = dict.fromkeys(ids, version)
        self._vectors.write(records, versions)
        if not self._journal.has(version):
            return []  # someone took this for gone
        self._name(records, versions, only_there=True)
        named = {id for id, state in self._states(ids).items() if state.version == version}
        is_whole = self._journal.has(version)
        self._journal.remove([version])
        self._clean(ids)
        if not is_whole:  # whoever took this for gone may have removed vectors
            self._write_beside_others([record for record in records if record.document.id in named])
        return [id for id in ids if id in named]

    def _name(self, records: Sequence[Record], versions: Mapping[str, str], *, only_there: bool = False) -> None:
        """Write the documents' rows, which name the versions of their vectors; or ``only_there``, no new ones."""
        self._write_documents(
            [record.document for record in records],
            [State(record.stamp, versions[record.document.id], tuple(map(str, record.vectors))) for record in records],
            only_there=only_there,
        )

    def _write_documents(
        self, documents: Sequence[Document], states: Sequence[State], *, only_there: bool = False
    ) -> None:
        ids = [document.id for document in documents]
        rows = [{"state": state.dump()} for state in states]
        texts = list(map(_dump_document, documents))
        if only_there:
            self._documents.update(ids, rows, texts)
        else:
            self._documents.upsert(ids, placeholders(ids), rows, texts)

    def _clean(self, ids: Collection[str]) -> None:
        """Remove those vectors of documents that no row names and no write under way is about to name."""
        keys = {field: self._vectors.keys_of(field, ids) for field in self._vectors.fields} if ids else {}
        busy = self._under_way() if any(keys.values()) else set()  # before the rows are read
        named = {(id, state.version) for id, state in self._states(ids).items()} if any(keys.values()) else set()
        for field, found in keys.items():
            self._vectors.remove_from(field, [key for key in found - named if key[1] not in busy])

    def _under_way(self) -> set[str]:
        """Return the versions that writers of other processes may be about to name; a folder has none."""
        return self._journal.versions() if self._connection.is_shared else set()

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents, then their vectors, also those that a killed process left; returns how many were there."""
        if self.as_opened() is None:
            return 0
        with self.in_use(), self._connection.writing():
            there = self._states(ids)
            self._documents.delete(there)
            self._clean(ids)
        return len(there)

    # ---- reading

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        """For each vector, the ``limit`` nearest documents, best first; equal cosines in the order of their ids."""
        if self.as_opened() is None or not len(vectors) or limit < 1:
            return [[] for _ in vectors]
        dim_of(self.name, self.needed().spaces, field)
        found = self._vectors.search(field, vectors, limit=limit, where=where, versions=self._versions_of(field))
        return [list(hits) for hits in found]

    def compare(self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Return the documents that pass a filter and have a vector of the field, with their cosines, best first."""
        manifest = self.as_opened()
        if manifest is None:
            return []
        dim_of(self.name, manifest.spaces, field)
        return list(self._vectors.compare(field, vectors, ids, where, self._versions_of(field)))

    def _versions_of(self, field: Field) -> Callable[[Collection[str]], dict[str, str]]:
        name = str(field)

        def versions(ids: Collection[str]) -> dict[str, str]:
            return {id: state.version for id, state in self._states(ids).items() if name in state.fields}

        return versions

    def sample(self, field: Field, count: int) -> Vectors:
        """Vectors of documents that are chosen at random, the same ones as long as there are as many documents."""
        manifest = self.as_opened()
        if manifest is None:
            return np.empty((0, 0), np.float32)
        dim = dim_of(self.name, manifest.spaces, field)

        def draw() -> Vectors:
            ids = drawn_ids(self, field, count)
            return np.array(self._vectors.vectors_of(field, ids, self._versions_of(field)), np.float32).reshape(-1, dim)

        return self._samples.get(field, count, (self.generation, self.writes_here, len(self)), draw)

    def get(self, ids: Sequence[str]) -> list[Document]:
        """Return the documents with these ids, in the order of ``ids``; unknown ids are left out."""
        if self.as_opened() is None:
            return []
        contents = self._documents.get(ids, "uris")
        return [_load_document(id, contents[id]) for id in ids if id in contents]

    def get_versions(self, versions: Mapping[str, str]) -> dict[str, Document]:
        """Return those documents that are still of the version that is given for their id."""
        if self.as_opened() is None:
            return {}
        rows = self._documents.get_both(list(versions))
        return {
            id: _load_document(id, content)
            for id, (metadata, content) in rows.items()
            if State.load(metadata).version == versions[id]
        }

    def records(self, ids: Sequence[str]) -> list[Record]:
        """Return the records of those documents among ``ids`` that are in the store, in the order of ``ids``."""
        manifest = self.as_opened()
        return [] if manifest is None else self._vectors.records_of(ids, self._document_rows, manifest.fingerprint)

    def _document_rows(self, ids: Collection[str]) -> dict[str, DocumentRow]:
        found: dict[str, DocumentRow] = {}
        for id, (metadata, content) in self._documents.get_both(ids).items():
            state, document = State.load(metadata), _load_document(id, content)
            found[id] = DocumentRow(document, state.stamp, state.version, frozenset(map(Field.parse, state.fields)))
        return found

    def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
        """Return the stamps of those documents among ``ids`` that are in the store.

        On a server, one that lacks a vector has no digest, so that it counts as changed and is indexed again.
        """
        states = self._states(ids)
        broken = self._lacking(states) if self._connection.is_shared else ()
        return {id: Stamp("", s.stamp.source) if id in broken else s.stamp for id, s in states.items()}

    def _lacking(self, states: Mapping[str, State]) -> set[str]:
        """Return the documents that do not have all the vectors that their rows name."""
        found: set[str] = set()
        for field in self._vectors.fields:
            wanted = {(id, state.version) for id, state in states.items() if str(field) in state.fields}
            found |= {id for id, _ in wanted - self._vectors.among(field, wanted)}
        now = self._states(found)
        return {id for id in found if now.get(id) == states[id]}  # others have been replaced, and their vectors removed

    def fields(self, ids: Sequence[str]) -> dict[str, frozenset[Field]]:
        """Return the fields that each of those documents among ``ids`` that are in the store has a vector in."""
        return {id: frozenset(map(Field.parse, state.fields)) for id, state in self._states(ids).items()}

    def ids(self) -> Iterator[str]:
        """Return all ids, as they were when this was called."""
        return iter(self._documents.ids() if self.as_opened() else ())

    def __len__(self) -> int:
        return len(self._documents) if self.as_opened() else 0

    def _states(self, ids: Collection[str]) -> dict[str, State]:
        if self.as_opened() is None:
            return {}
        return {id: State.load(row) for id, row in self._documents.get(ids, "metadatas").items()}

    # ---- checking

    def check(self, *, repair: bool = False) -> CheckReport:
        """Return whether documents and vectors agree; with ``repair``, what belongs to nothing is removed.

        In a folder, each vector is searched for, too; where one is not found, ``repair`` has Chroma make its graphs
        again.

        On a server, a write of another machine counts as under way, and ``repair`` ends it: if its writer is still
        there, it writes once more. Missing vectors stay missing there until their documents are indexed again.
        """
        self.needed()
        is_shared = self._connection.is_shared
        with self._connection.writing():
            entries = self._journal.entries()
            cut_off = [entry for entry in entries if not is_shared or entry.life == "gone"]
            if repair:
                cut_off = [entry for entry in entries if not is_shared or not is_under_way(entry.version)]
                self._journal.remove([entry.version for entry in cut_off])
                if cut_off and is_shared:
                    time.sleep(_LAST_GASP)
            found = compare(self._vectors, self._every_state(), self._states, self._under_way)
            if repair:
                self._repair(found)
        return CheckReport(
            self.name,
            found.documents,
            found.counts,
            orphans=row_names(found.orphans),
            stale=row_names(found.stale),
            missing=row_names(found.missing),
            unindexed=row_names(found.unindexed),
            unfinished=tuple(sorted(map(str, cut_off))),
            in_progress=len(entries) - len(cut_off),
            repaired=repair,
        )

    def _repair(self, found: Discrepancies) -> None:
        for field in self._vectors.fields:
            self._vectors.remove_from(field, found.orphans[field] | found.stale[field])
        if any(found.unindexed.values()):
            self._connection.renew()
            for field, keys in found.unindexed.items():
                still = self._vectors.lost(field) & keys
                self._vectors.remove_from(field, still)
                found.missing[field] |= still
        lost: dict[str, set[str]] = {}
        for field, keys in found.missing.items():
            for id, _ in keys:
                lost.setdefault(id, set()).add(str(field))
        if (
            lost and not self._connection.is_shared
        ):  # beside others, a row might be replaced between reading and writing it
            documents = {document.id: document for document in self.get(list(lost))}
            states = {id: state for id, state in self._states(lost).items() if id in documents}
            self._write_documents(
                [documents[id] for id in states],
                [
                    replace(
                        state,
                        stamp=Stamp("", state.stamp.source),
                        fields=tuple(name for name in state.fields if name not in lost[id]),
                    )
                    for id, state in states.items()
                ],
            )

    def _every_state(self) -> dict[str, State]:
        return self._states(self._documents.ids())


def _dump_document(document: Document) -> str:
    path = str(document.image) if isinstance(document.image, Path) else None
    return dump([document.text, path, dict(document.metadata)])


def _load_document(id: str, content: str) -> Document:
    text, path, metadata = json.loads(content)
    return Document(id, text, None if path is None else Path(path), metadata)
