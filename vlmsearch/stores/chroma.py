"""Chroma as a store: embedded in this process, or on a server.

An index is a collection for the vectors of each field, one for the documents and one for the quarantine list. The
documents' row is written last and removed first: only what has one exists, and it names the versions of the vectors
that belong to it. So a document is replaced at one instant, and whatever a killed process left behind is never found.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from vlmsearch.errors import ConfigError
from vlmsearch.filters import Filter
from vlmsearch.stores.base import Store, check_manifest, check_records
from vlmsearch.stores.chroma_collections import ChromaCollection, FieldVectors, connect, field_vectors
from vlmsearch.types import Document, Field, Hit, Manifest, Record, Reject, Space, Stamp, Vectors

_FORMAT = 1
_PLAIN_HNSW = {"max_neighbors": 2, "ef_construction": 4, "ef_search": 4}
"""For collections that are never searched; Chroma indexes them all the same."""


@dataclass(frozen=True)
class _State:
    """What the documents' row says beside the document itself."""

    stamp: Stamp
    versions: Mapping[str, str]

    def dump(self) -> str:
        return json.dumps([self.stamp.digest, self.stamp.source, self.versions])

    @classmethod
    def load(cls, metadata: Mapping[str, str]) -> _State:
        digest, source, versions = json.loads(metadata["state"])
        return cls(Stamp(digest, source), versions)


class ChromaStore(Store):
    """Documents and vectors in a folder (``chroma:./index``) or on a server (``chroma://host:8000/name``).

    A folder is written by one process at a time; a second one sees it as it was when it opened it. A server needs no
    credentials, or a token in the environment variable VLMSEARCH_CHROMA_TOKEN; ``ssl`` and ``timeout``, in seconds
    for a request, are for servers. The ``hnsw_`` options shape a new index: links of a vector, and how many
    candidates are looked at when one is added and when one is looked for. Up to 1,000 vectors of a field, search
    is exact.
    """

    def __init__(
        self,
        location: str,
        *,
        ssl: bool = False,
        timeout: float = 30.0,
        hnsw_max_neighbors: int = 24,
        hnsw_ef_construction: int = 150,
        hnsw_ef_search: int = 400,
    ) -> None:
        self._connection = connect(location, ssl=ssl, timeout=timeout)
        self.name = self._connection.name
        self._hnsw = {
            "max_neighbors": hnsw_max_neighbors,
            "ef_construction": hnsw_ef_construction,
            "ef_search": hnsw_ef_search,
        }
        for option, value in self._hnsw.items():
            if value < 2:
                raise ConfigError(f"hnsw_{option} is at least 2, not {value}")
        self._documents = ChromaCollection(self._connection, f"{self._connection.prefix}.documents")
        self._rejects = ChromaCollection(self._connection, f"{self._connection.prefix}.rejects")
        self._manifest: Manifest | None = None
        self._fields: dict[Field, FieldVectors] = {}
        self._opening = threading.RLock()
        self._writing = threading.Lock()

    def bind(self, fingerprint: str, spaces: Sequence[Space]) -> None:
        """Make the index ready, creating its collections the first time.

        Raises IndexMismatchError if another encoder filled it, and ConfigError where the folder has other things in it.
        """
        with self._opening:
            if self.manifest() is None:
                self._connection.prepare()
                self._create(Manifest(fingerprint, tuple(spaces), datetime.now(timezone.utc).isoformat()))
            manifest = self.manifest()
            if manifest is not None:
                check_manifest(self.name, manifest, fingerprint, spaces)

    def _create(self, manifest: Manifest) -> None:
        """Make all collections; the documents' one, made last, makes them an index."""
        for space in manifest.spaces:
            for field in space.fields:
                field_vectors(self._connection, field).collection.create(self._hnsw)
        self._rejects.create(_PLAIN_HNSW)
        spaces = [[space.name, space.dim, sorted(space.modalities)] for space in manifest.spaces]
        about = {
            "vlmsearch_format": _FORMAT,
            "fingerprint": manifest.fingerprint,
            "spaces": json.dumps(spaces),
            "created": manifest.created,
        }
        self._documents.create(_PLAIN_HNSW, about)

    def manifest(self) -> Manifest | None:
        """What built this index, or None where there is none."""
        with self._opening:
            if self._manifest is None and self._connection.exists():
                about = self._documents.find()
                if about is not None:
                    self._open(about)
            return self._manifest

    def _open(self, about: Mapping[str, Any]) -> None:
        if about.get("vlmsearch_format") != _FORMAT:
            raise ConfigError(
                f"{self.name} has a collection {self._documents.name} that this version of vlmsearch cannot read; "
                "give the index another name, or upgrade"
            )
        spaces = tuple(Space(name, dim, frozenset(kinds)) for name, dim, kinds in json.loads(about["spaces"]))
        fields = {field: field_vectors(self._connection, field) for space in spaces for field in space.fields}
        for collection in (self._rejects, *(vectors.collection for vectors in fields.values())):
            if collection.find() is None:
                raise ConfigError(f"{self.name} lacks its collection {collection.name}: the index has to be built anew")
        self._fields = fields
        self._manifest = Manifest(about["fingerprint"], spaces, about["created"])

    def upsert(self, records: Sequence[Record]) -> None:
        """Add or replace records, each at one instant, which is when its documents' row is written."""
        spaces = self._needed().spaces
        check_records(records, spaces)
        if not records:
            return
        with self._writing:
            old = self._states([record.document.id for record in records])
            versions = self._write_vectors(records)
            self._write_documents(records, versions)
            self._remove_outdated(old, versions)

    def _write_vectors(self, records: Sequence[Record]) -> dict[str, dict[str, str]]:
        versions: dict[str, dict[str, str]] = {record.document.id: {} for record in records}
        for field, vectors in self._fields.items():
            some = [record for record in records if field in record.vectors]
            if some:
                written = vectors.write(
                    [record.document.id for record in some],
                    np.stack([record.vectors[field] for record in some]).astype(np.float32, copy=False),
                    [record.document.metadata for record in some],
                )
                for id, version in written.items():
                    versions[id][str(field)] = version
        return versions

    def _write_documents(self, records: Sequence[Record], versions: Mapping[str, Mapping[str, str]]) -> None:
        ids = [record.document.id for record in records]
        states = [_State(record.stamp, versions[record.document.id]).dump() for record in records]
        contents = [_dump_document(record.document) for record in records]
        self._documents.upsert(ids, _placeholders(ids), [{"state": state} for state in states], contents)

    def _remove_outdated(self, old: Mapping[str, _State], versions: Mapping[str, Mapping[str, str]]) -> None:
        for field, vectors in self._fields.items():
            name = str(field)
            new = {id: versions[id].get(name, "") for id in old}
            changed = [id for id, state in old.items() if state.versions.get(name, "") not in ("", new[id])]
            vectors.remove(changed, keep=new)

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        """For each vector, the ``limit`` nearest documents, best first; equal cosines in the order of their ids."""
        if self.manifest() is None or not len(vectors) or limit < 1:
            return [[] for _ in vectors]
        if field not in self._fields:
            raise ConfigError(f"{self.name} has no field {field}; it has {', '.join(map(str, self._fields))}")

        def versions(ids: Collection[str]) -> dict[str, str]:
            states = self._states(ids)
            return {id: state.versions[str(field)] for id, state in states.items() if str(field) in state.versions}

        return self._fields[field].search(vectors, limit=limit, where=where, versions=versions)

    def get(self, ids: Sequence[str]) -> list[Document]:
        """The documents with these ids, in the order of ``ids``; unknown ids are left out."""
        if self.manifest() is None:
            return []
        contents = self._documents.get(ids, "uris")
        return [_load_document(id, contents[id]) for id in ids if id in contents]

    def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
        """The stamps of those documents among ``ids`` that are in the store whole."""
        return {id: state.stamp for id, state in self._states(ids).items()}

    def fields(self, ids: Sequence[str]) -> dict[str, frozenset[Field]]:
        """The fields that each of those documents among ``ids`` that are in the store has a vector in."""
        return {id: frozenset(map(Field.parse, state.versions)) for id, state in self._states(ids).items()}

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents, then their vectors, also those that a killed process left; returns how many were there."""
        if self.manifest() is None:
            return 0
        with self._writing:
            there = self._states(ids)
            self._documents.delete(there)
            for vectors in self._fields.values():
                vectors.remove(ids)
        return len(there)

    def ids(self) -> Iterator[str]:
        """All ids, as they were when this was called."""
        return iter(self._documents.ids() if self.manifest() else ())

    def __len__(self) -> int:
        return len(self._documents) if self.manifest() else 0

    def rejects(self) -> list[Reject]:
        """The quarantine list, by id."""
        if self.manifest() is None:
            return []
        rows = self._rejects.get(self._rejects.ids(), "uris")
        return [_load_reject(id, rows[id]) for id in sorted(rows)]

    def quarantine(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the quarantine list, or replace their entries."""
        self._needed()
        latest = {reject.id: reject for reject in rejects}
        if latest:
            states = [{"state": reject.code} for reject in latest.values()]
            self._rejects.upsert(
                list(latest), _placeholders(list(latest)), states, list(map(_dump_reject, latest.values()))
            )

    def release(self, ids: Sequence[str]) -> None:
        """Take inputs off the quarantine list; unknown ids are ignored."""
        if self.manifest() is not None:
            self._rejects.delete(ids)

    def close(self) -> None:
        """Let go of the database, and of the lock on its folder."""
        self._connection.close()

    def _needed(self) -> Manifest:
        manifest = self.manifest()
        if manifest is None:
            raise ConfigError(f"{self.name} is no index yet: bind it to an encoder before writing")
        return manifest

    def _states(self, ids: Collection[str]) -> dict[str, _State]:
        if self.manifest() is None:
            return {}
        return {id: _State.load(row) for id, row in self._documents.get(ids, "metadatas").items()}


def _placeholders(ids: Sequence[str]) -> Vectors:
    """A unit vector for each id, for collections that have no vectors of their own."""
    turns = [int.from_bytes(hashlib.blake2b(id.encode(), digest_size=4).digest(), "big") / 2**32 for id in ids]
    return np.array([[math.cos(math.tau * turn), math.sin(math.tau * turn)] for turn in turns], np.float32)


def _dump(values: Sequence[object]) -> str:
    """JSON that can be encoded: as it is where possible, escaped where a text has half a surrogate pair."""
    text = json.dumps(values, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(values)
    return text


def _dump_document(document: Document) -> str:
    path = str(document.image) if isinstance(document.image, Path) else None
    return _dump([document.text, path, dict(document.metadata)])


def _load_document(id: str, content: str) -> Document:
    text, path, metadata = json.loads(content)
    return Document(id, text, None if path is None else Path(path), metadata)


def _dump_reject(reject: Reject) -> str:
    return _dump([reject.code, reject.message, reject.stamp.digest, reject.stamp.source])


def _load_reject(id: str, content: str) -> Reject:
    code, message, digest, source = json.loads(content)
    return Reject(id, code, message, Stamp(digest, source))
