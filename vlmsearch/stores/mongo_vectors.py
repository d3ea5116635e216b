"""The vectors of documents that are in MongoDB, kept in Chroma: rows that are written once and never change.

A row's id is the version of the document, 16 characters, and the document's id; so the row in MongoDB, which names one
version, decides which vectors count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

import numpy as np
from chromadb.api import ServerAPI
from chromadb.errors import NotFoundError

from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.filters import Filter
from vlmsearch.stores.chroma_collections import EXACT_UP_TO, ChromaCollection, connect, field_vectors
from vlmsearch.stores.chroma_connection import ChromaConnection, is_damage
from vlmsearch.stores.chroma_filters import Where, compile_filter, filterable
from vlmsearch.stores.mongo_rows import VersionedHit
from vlmsearch.stores.retry import retrying
from vlmsearch.types import Field, Record, Space, Vectors

T = TypeVar("T")
Key = tuple[str, str]
"""A document's id and a version."""
Versions = Callable[[Collection[str]], Mapping[str, str]]
_VERSION = 16
_SPARE = 8
_MOST_LOOKS = 20


def chroma_at(url: str, name: str, *, timeout: float) -> ChromaConnection:
    """The Chroma that ``url`` names: a folder, or a server such as ``http://host:8000`` or ``https://host``."""
    parts = urlsplit(url)
    if parts.scheme in ("http", "https", "chroma"):
        path = parts.path.strip("/") or name
        return connect(f"//{parts.netloc}/{path}", ssl=parts.scheme == "https", timeout=timeout)
    if "://" in url or not url:
        raise ConfigError("the option chroma is a server (http://host:8000) or a folder (./vectors)")
    return connect(url.removeprefix("chroma:"), timeout=timeout)


class _Generation(ChromaConnection):
    """A connection under another prefix, whose calls are tried again when the server cannot be reached."""

    def __init__(self, inner: ChromaConnection, generation: str, retries: int) -> None:
        self.name = inner.name
        self.prefix = f"{inner.prefix}.{generation}"
        self._inner = inner
        self._retries = retries

    def exists(self) -> bool:
        return self._inner.exists()

    def prepare(self) -> None:
        self._inner.prepare()

    def run(self, operation: str, call: Callable[[ServerAPI], T], *, writes: bool = False, collection: str = "") -> T:
        return retrying(
            lambda: self._inner.run(operation, call, writes=writes, collection=collection), self._retries, _is_race
        )

    def note_garbage(self) -> None:
        self._inner.note_garbage()

    def close(self) -> None:
        self._inner.close()


def _is_race(exc: BackendError) -> bool:
    """Whether a row was removed while the server was searching, which looks like damage to it."""
    return exc.__cause__ is not None and is_damage(exc.__cause__)


class VectorRows:
    """The vectors of one generation of an index, by field."""

    def __init__(self, connection: ChromaConnection, generation: str, spaces: Sequence[Space], retries: int) -> None:
        self._connection = _Generation(connection, generation, retries)
        fields = [field for space in spaces for field in space.fields]
        self.fields: dict[Field, ChromaCollection] = {
            field: field_vectors(self._connection, field).collection for field in fields
        }
        self._is_small = dict.fromkeys(fields, True)

    def create(self, hnsw: Mapping[str, int]) -> None:
        """Make the collections."""
        self._connection.prepare()
        for collection in self.fields.values():
            collection.create(hnsw)

    def open(self, name: str) -> None:
        """Find the collections; ConfigError where one is missing."""
        for collection in self.fields.values():
            if collection.find() is None:
                raise ConfigError(f"{name} lacks its collection {collection.name} on {self._connection.name}")

    def drop(self) -> None:
        """Remove the collections."""

        def remove(server: ServerAPI, name: str) -> None:
            try:
                server.delete_collection(name)
            except NotFoundError:
                return

        for collection in self.fields.values():
            name = collection.name
            self._connection.run(f"drop {name}", lambda server, name=name: remove(server, name), writes=True)  # type: ignore[misc]

    def write(self, records: Sequence[Record], version: str) -> None:
        """Add the vectors of all records under one version."""
        for field, collection in self.fields.items():
            some = [record for record in records if field in record.vectors]
            if some:
                ids = [record.document.id for record in some]
                rows = [{"id": r.document.id, **filterable(r.document.metadata)} for r in some]
                vectors = np.stack([record.vectors[field] for record in some]).astype(np.float32, copy=False)
                collection.upsert([version + id for id in ids], vectors, rows)

    def remove(self, keys: Collection[Key]) -> None:
        """Remove the vectors of these versions of documents from every field; unknown ones are ignored."""
        for field in self.fields if keys else ():
            self.remove_from(field, keys)

    def remove_from(self, field: Field, keys: Collection[Key]) -> None:
        """Remove the vectors of these versions of documents from a field."""
        self.fields[field].delete([version + id for id, version in keys])

    def keys(self, field: Field) -> Iterator[Key]:
        """What there is a vector of."""
        return ((row[_VERSION:], row[:_VERSION]) for row in self.fields[field].ids())

    def among(self, field: Field, keys: Collection[Key]) -> set[Key]:
        """Those of ``keys`` that there is a vector of."""
        found = self.fields[field].get([version + id for id, version in keys], "metadatas")
        return {(row[_VERSION:], row[:_VERSION]) for row in found}

    def search(
        self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None, versions: Versions
    ) -> list[list[VersionedHit]]:
        """For each vector, the ``limit`` nearest documents by the version that ``versions`` gives for each.

        More rows are asked for until there are enough or no more, and again where a document was replaced meanwhile.
        """
        compiled = None if where is None else compile_filter(where)
        rows = self.fields[field]
        self._is_small[field] = self._is_small[field] and len(rows) <= EXACT_UP_TO
        count = max(limit + _SPARE, EXACT_UP_TO if self._is_small[field] else 0)
        for _ in range(_MOST_LOOKS):
            hits, is_short, is_outdated = _look(rows, vectors, count, limit, compiled, versions)
            if is_short:
                count *= 4
            elif not is_outdated:
                break
        return hits


def _look(
    rows: ChromaCollection, vectors: Vectors, count: int, limit: int, where: Where | None, versions: Versions
) -> tuple[list[list[VersionedHit]], bool, bool]:
    """Hits, whether more rows have to be asked for, and whether a document was there in an old version only."""
    found = rows.nearest(vectors, count, where)
    current: dict[str, str] = {}
    asked: set[str] = set()
    hits, window = [], limit + _SPARE
    while True:
        new = {row[_VERSION:] for some in found for row, _ in some[:window]} - asked
        if new:
            asked |= new
            current |= versions(new)
        hits = [
            [
                VersionedHit(row[_VERSION:], cosine, row[:_VERSION])
                for row, cosine in some[:window]
                if current.get(row[_VERSION:]) == row[:_VERSION]
            ][:limit]
            for some in found
        ]
        if all(len(page) >= limit or len(some) <= window for page, some in zip(hits, found)):
            break
        window *= 2
    is_short = any(len(page) < limit and len(some) >= count for page, some in zip(hits, found))
    shown = {(row[_VERSION:], row[:_VERSION]) for some in found for row, _ in some[:window]}
    return hits, is_short, any(key not in shown for key in current.items())
