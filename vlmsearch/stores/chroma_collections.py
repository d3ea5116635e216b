"""Collections of a Chroma database, and the vectors of one field in one of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Collection as Ids
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from chromadb import Collection
from chromadb.api import ServerAPI
from chromadb.errors import NotFoundError
from chromadb.types import Collection as Model
from numpy.typing import NDArray

from vlmsearch.errors import ConfigError
from vlmsearch.filters import Filter
from vlmsearch.stores.chroma_connection import Address, ChromaConnection, ServedChroma, parse_location
from vlmsearch.stores.chroma_filters import Where, compile_filter, filterable
from vlmsearch.stores.chroma_folder import EmbeddedChroma
from vlmsearch.types import Field, Hit, Scalar, Vectors

T = TypeVar("T")
EXACT_UP_TO = 1000
"""Collections of so many rows are searched exactly: HNSW is asked for all of them."""
_REQUEST_BYTES = 8 * 2**20
_PAGE = 1000
_LONG_PAGE = 20_000
_SPARE = 8
_VERSION_CHARS = 16


def connect(location: str, *, ssl: bool = False, timeout: float = 30.0) -> ChromaConnection:
    """The database at a folder or at ``//host:8000/name``; nothing is opened yet."""
    address = parse_location(location)
    if not timeout > 0:
        raise ConfigError(f"timeout is a number of seconds above 0, not {timeout}")
    if isinstance(address, Address):
        return ServedChroma(address, ssl=ssl, timeout=timeout)
    if ssl:
        raise ConfigError(f"ssl is for a Chroma server, and {location!r} is a folder")
    return EmbeddedChroma(address)


class ChromaCollection:
    """One collection; requests are split so that each stays within what Chroma takes at a time."""

    def __init__(self, connection: ChromaConnection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._model: Model | None = None
        self._most = 0

    def find(self) -> Mapping[str, Any] | None:
        """The collection's metadata, or None where there is no such collection."""

        def look(server: ServerAPI) -> Model | None:
            try:
                return server.get_collection(self.name)
            except NotFoundError:
                return None

        self._model = self._model or self._connection.run(f"look for {self.name}", look)
        return None if self._model is None else dict(self._model.metadata or {})

    def create(self, hnsw: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
        """Make the collection unless it is there."""
        configuration: Any = {"hnsw": {"space": "cosine", **hnsw}}

        def make(server: ServerAPI) -> Model:
            return server.get_or_create_collection(
                self.name, configuration=configuration, metadata=dict(metadata) if metadata else None
            )

        self._model = self._connection.run(f"create {self.name}", make, writes=True)

    def upsert(
        self,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        metadata: Sequence[Mapping[str, str | int | bool]],
        texts: Sequence[str] | None = None,
    ) -> None:
        """Write rows. ``texts`` go into Chroma's ``uris``: text that it neither indexes nor sends with the metadata."""
        self._most = self._most or self._connection.run("ask for its limits", lambda s: s.get_max_batch_size())
        vector_bytes = 2 * vectors[0].nbytes
        sizes = [vector_bytes + len(text) for text in texts] if texts else [vector_bytes] * len(ids)
        for part in _parts(sizes, self._most):
            self._upsert(ids[part], vectors[part], metadata[part], texts[part] if texts else None)

    def _upsert(
        self,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        metadata: Sequence[Mapping[str, str | int | bool]],
        texts: Sequence[str] | None,
    ) -> None:
        def write(rows: Collection) -> None:
            uris = None if texts is None else list(texts)
            rows.upsert(ids=list(ids), embeddings=vectors, metadatas=list(metadata), uris=uris)

        self._rows(f"write {len(ids)} rows", write, writes=True)

    def get(self, ids: Ids[str], include: Literal["metadatas", "uris"]) -> dict[str, Any]:
        """The metadata or the texts of those ids that are there."""
        found: dict[str, Any] = {}
        for some in pages(ids):
            answer = self._get(ids=some, include=[include])
            found.update(zip(answer["ids"], answer[include]))
        return found

    def ids(self, where: Where | None = None) -> list[str]:
        """All ids, or those whose metadata pass ``where``."""
        found: list[str] = []
        while True:
            page = self._get(where=where, limit=_LONG_PAGE, offset=len(found), include=[])["ids"]
            found += page
            if len(page) < _LONG_PAGE:
                return found

    def _get(self, **options: Any) -> Any:
        return self._rows("read rows", lambda rows: rows.get(**options))

    def nearest(self, vectors: Vectors, count: int, where: Where | None) -> list[list[tuple[str, float]]]:
        """For each vector, ids and cosines of its ``count`` nearest rows, best first; fewer only where no more pass."""

        def ask(rows: Collection) -> Any:
            return rows.query(query_embeddings=vectors, n_results=count, where=where, include=["distances"])

        answer = self._rows("search", ask)
        found = [
            dict(zip(ids, (1.0 - d for d in distances))) for ids, distances in zip(answer["ids"], answer["distances"])
        ]
        if any(len(rows) < count for rows in found):
            self._add_unlinked(found, vectors, where)
        cut = [((id, min(1.0, max(-1.0, cosine))) for id, cosine in rows.items()) for rows in found]
        return [sorted(rows, key=_best_first)[:count] for rows in cut]

    def _add_unlinked(self, found: Sequence[dict[str, float]], vectors: Vectors, where: Where | None) -> None:
        """Add the rows that pass and that HNSW did not come to: its graph may leave some without a link to them."""
        if where is None and len(self) <= min(map(len, found)):
            return
        passing = self.ids(where)
        for rows, vector in zip(found, vectors):
            for some in pages([id for id in passing if id not in rows]):
                answer = self._get(ids=some, include=["embeddings"])
                if answer["ids"]:
                    unlinked = np.asarray(answer["embeddings"], np.float32)
                    cosines = unlinked @ vector / (np.linalg.norm(unlinked, axis=1) * np.linalg.norm(vector))
                    rows.update(zip(answer["ids"], cosines.tolist()))

    def delete(self, ids: Ids[str]) -> None:
        """Remove rows; unknown ids are ignored."""
        for some in pages(ids):
            self._delete(some)
            self._connection.note_garbage()

    def _delete(self, ids: list[str]) -> None:
        self._rows(f"delete {len(ids)} rows", lambda rows: rows.delete(ids=ids), writes=True)

    def __len__(self) -> int:
        return self._rows("count its rows", lambda rows: rows.count())

    def _rows(self, operation: str, call: Callable[[Collection], T], *, writes: bool = False) -> T:
        model = self._model
        if model is None:
            raise ConfigError(f"{self._connection.name} has no collection {self.name}")
        return self._connection.run(
            operation,
            lambda server: call(Collection(client=server, model=model, embedding_function=None)),
            writes=writes,
            collection=self.name,
        )


@dataclass(frozen=True)
class _Row:
    """A row of `FieldVectors`: which document it is of, and which version of its vector."""

    id: str
    version: str
    score: float


class FieldVectors:
    """The vectors of one field, each a row of its own that never changes.

    A row's id is the version (a digest of vector and metadata) and the document's id. Writing a document again
    adds a row beside the old one, so that whoever keeps the documents decides which version counts, at one instant;
    a row of any other version is never found.
    """

    def __init__(self, collection: ChromaCollection) -> None:
        self.collection = collection
        self._is_small = True

    def write(self, ids: Sequence[str], vectors: Vectors, metadata: Sequence[Mapping[str, Scalar]]) -> dict[str, str]:
        """Add rows for documents with distinct ids; returns their versions."""
        rows = [{"id": id, **filterable(values)} for id, values in zip(ids, metadata)]
        versions = [_version(vector, row) for vector, row in zip(vectors, rows)]
        self.collection.upsert([version + id for version, id in zip(versions, ids)], vectors, rows)
        return dict(zip(ids, versions))

    def remove(self, ids: Ids[str], *, keep: Mapping[str, str] | None = None) -> None:
        """Remove all rows of documents, but the versions to ``keep``."""
        rows = [row for some in pages(ids) for row in self.collection.ids({"id": {"$in": some}})]
        kept = keep or {}
        self.collection.delete([row for row in rows if kept.get(row[_VERSION_CHARS:]) != row[:_VERSION_CHARS]])

    def ids(self) -> Iterator[tuple[str, str]]:
        """Id and version of every row."""
        return ((row[_VERSION_CHARS:], row[:_VERSION_CHARS]) for row in self.collection.ids())

    def search(
        self,
        vectors: Vectors,
        *,
        limit: int,
        where: Filter | None,
        versions: Callable[[Ids[str]], Mapping[str, str]],
    ) -> list[list[Hit]]:
        """For each vector, the ``limit`` nearest documents whose version is the one that ``versions`` gives for them.

        Rows of other versions take no place: more rows are asked for until there are enough or no more.
        """
        compiled = None if where is None else compile_filter(where)
        self._is_small = self._is_small and len(self.collection) <= EXACT_UP_TO
        count = max(limit + _SPARE, EXACT_UP_TO if self._is_small else 0)
        again = True
        while True:
            found = [
                [_Row(row[_VERSION_CHARS:], row[:_VERSION_CHARS], score) for row, score in rows]
                for rows in self.collection.nearest(vectors, count, compiled)
            ]
            hits, outdated = _settle(found, limit, versions)
            short = any(len(some) < limit and len(rows) >= count for some, rows in zip(hits, found))
            if not short and not (outdated and again):
                return hits
            again = short  # a document that was replaced meanwhile is asked for once more
            count *= 4


def field_vectors(connection: ChromaConnection, field: Field) -> FieldVectors:
    """The vectors of one field of the index that ``connection`` names."""
    space = re.sub(r"[^A-Za-z0-9-]+", lambda odd: f"_{odd[0].encode().hex()}_", field.space)
    return FieldVectors(ChromaCollection(connection, f"{connection.prefix}.{space}.{field.modality}"))


def _settle(
    found: Sequence[Sequence[_Row]], limit: int, versions: Callable[[Ids[str]], Mapping[str, str]]
) -> tuple[list[list[Hit]], bool]:
    """The first ``limit`` current rows of each list, and whether a document was there in an old version only."""
    current: dict[str, str | None] = {}
    window = limit + _SPARE
    while True:
        new = {row.id for rows in found for row in rows[:window]} - current.keys()
        if new:
            current |= dict.fromkeys(new, None) | dict(versions(new))
        hits = [
            [Hit(row.id, row.score) for row in rows[:window] if current[row.id] == row.version][:limit]
            for rows in found
        ]
        if all(len(some) >= limit or len(rows) <= window for some, rows in zip(hits, found)):
            break
        window *= 2
    shown = {(row.id, row.version) for rows in found for row in rows[:window]}
    return hits, any(version is not None and (id, version) not in shown for id, version in current.items())


def _version(vector: NDArray[np.float32], metadata: Mapping[str, str | int | bool]) -> str:
    digest = hashlib.blake2b(np.ascontiguousarray(vector).tobytes(), digest_size=_VERSION_CHARS // 2)
    digest.update(json.dumps(metadata, sort_keys=True).encode())
    return digest.hexdigest()


def _best_first(row: tuple[str, float]) -> tuple[float, str]:
    return -row[1], row[0][_VERSION_CHARS:]


def pages(ids: Ids[str]) -> Iterator[list[str]]:
    """The distinct ones among ``ids``, as many at a time as a request may name."""
    distinct = list(dict.fromkeys(ids))
    return (distinct[start : start + _PAGE] for start in range(0, len(distinct), _PAGE))


def _parts(sizes: Sequence[int], most: int) -> Iterator[slice]:
    """Slices of at most ``most`` items and, unless one item alone is larger, of so many bytes as a request may have."""
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == most or total + size > _REQUEST_BYTES):
            yield slice(start, index)
            start, total = index, 0
        total += size
    if len(sizes) > start:
        yield slice(start, len(sizes))
