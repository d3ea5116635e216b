"""A stand-in for a Chroma server: the part of its client's interface that the stores use, with Chroma's errors."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID, uuid4

import numpy as np
from chromadb.api import ServerAPI
from chromadb.errors import InvalidArgumentError, NotFoundError
from chromadb.types import Collection
from numpy.typing import NDArray

from vlmsearch.stores.chroma.connection import EXPECTED, ChromaConnection, translate
from vlmsearch.stores.filters import ORDERINGS
from vlmsearch_mocks.faults import Faults

T = TypeVar("T")
_MAX_ROWS = 5000


@dataclass
class _Row:
    vector: NDArray[np.float32]
    metadata: Mapping[str, Any] | None
    uri: str | None


@dataclass
class _Rows:
    name: str
    metadata: Mapping[str, Any] | None
    rows: dict[str, _Row] = field(default_factory=dict)


class MockChroma:
    """Stands for the client of a Chroma server, with exact search."""

    def __init__(self, *, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.data: dict[UUID, _Rows] = {}
        self._lock = threading.RLock()
        self.faults.watch("chroma", self._now)

    def get_max_batch_size(self) -> int:
        """Return how many rows a request may have."""
        return _MAX_ROWS

    def get_collection(self, name: str) -> Collection:
        """Return a collection; NotFoundError where there is none."""

        def look() -> Collection:
            for id, rows in self.data.items():
                if rows.name == name:
                    return _model(id, rows)
            raise NotFoundError(f"Collection [{name}] does not exist")

        return self._call("get_collection", look)

    def get_or_create_collection(
        self, name: str, *, configuration: object = None, metadata: Mapping[str, Any] | None = None
    ) -> Collection:
        """Return a collection, made where there is none."""

        def make() -> Collection:
            for id, rows in self.data.items():
                if rows.name == name:
                    return _model(id, rows)
            id = uuid4()
            self.data[id] = _Rows(name, metadata)
            return _model(id, self.data[id])

        return self._call("get_or_create_collection", make)

    def delete_collection(self, name: str) -> None:
        """Remove a collection."""

        def remove() -> None:
            for id, rows in list(self.data.items()):
                if rows.name == name:
                    del self.data[id]
                    return
            raise NotFoundError(f"Collection [{name}] does not exist")

        self._call("delete_collection", remove)

    # ---- what chromadb's own Collection calls

    def _upsert(
        self,
        collection_id: UUID,
        ids: Sequence[str],
        embeddings: Sequence[NDArray[np.float32]],
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        uris: Sequence[str] | None = None,
        **_: object,
    ) -> bool:
        def write(count: int) -> bool:
            rows = self._rows(collection_id)
            if len(ids) > _MAX_ROWS:
                raise InvalidArgumentError(f"Batch size of {len(ids)} is greater than max batch size of {_MAX_ROWS}")
            for i, id in enumerate(ids[:count]):
                vector = np.array(embeddings[i], np.float32)
                rows.rows[id] = _Row(vector, metadatas[i] if metadatas else None, uris[i] if uris else None)
            return True

        return self._call("upsert", lambda: write(len(ids)), lambda: write(len(ids) // 2))

    def _update(
        self,
        collection_id: UUID,
        ids: Sequence[str],
        embeddings: None = None,
        metadatas: Sequence[Mapping[str, Any]] = (),
        documents: None = None,
        uris: Sequence[str] = (),
        **_: object,
    ) -> bool:
        def write(count: int) -> bool:
            rows = self._rows(collection_id).rows
            for id, metadata, uri in list(zip(ids, metadatas, uris))[:count]:
                if id in rows:
                    rows[id] = _Row(rows[id].vector, {**(rows[id].metadata or {}), **metadata}, uri)
            return True

        return self._call("update", lambda: write(len(ids)), lambda: write(len(ids) // 2))

    def _add(
        self,
        ids: Sequence[str],
        collection_id: UUID,
        embeddings: Sequence[NDArray[np.float32]],
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        uris: Sequence[str] | None = None,
        **_: object,
    ) -> bool:
        def write(count: int) -> bool:
            rows = self._rows(collection_id).rows
            for i, id in enumerate(ids[:count]):
                vector = np.array(embeddings[i], np.float32)
                rows.setdefault(id, _Row(vector, metadatas[i] if metadatas else None, uris[i] if uris else None))
            return True

        return self._call("add", lambda: write(len(ids)), lambda: write(len(ids) // 2))

    def _get(
        self,
        collection_id: UUID,
        ids: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int | None = None,
        offset: int | None = None,
        include: Sequence[str] = (),
        **_: object,
    ) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            rows = self._rows(collection_id, reads=True).rows
            chosen = [id for id in (rows if ids is None else ids) if id in rows]
            passing = [id for id in chosen if where is None or _passes(rows[id].metadata or {}, where)]
            start = offset or 0
            page = passing[start : None if limit is None else start + limit]
            return {
                "ids": page,
                "metadatas": [rows[id].metadata for id in page] if "metadatas" in include else None,
                "embeddings": [rows[id].vector for id in page] if "embeddings" in include else None,
                "uris": [rows[id].uri for id in page] if "uris" in include else None,
                "documents": None,
                "data": None,
                "included": list(include),
            }

        return self._call("get", read)

    def _query(
        self,
        collection_id: UUID,
        query_embeddings: Sequence[NDArray[np.float32]],
        n_results: int = 10,
        where: Mapping[str, Any] | None = None,
        **_: object,
    ) -> dict[str, Any]:
        def search() -> dict[str, Any]:
            rows = self._rows(collection_id, reads=True).rows
            ids = [id for id, row in rows.items() if where is None or _passes(row.metadata or {}, where)]
            answer: dict[str, Any] = {"ids": [], "distances": []}
            table = np.array([rows[id].vector for id in ids], np.float32)
            for query in query_embeddings:
                distances = 1.0 - table @ np.asarray(query, np.float32) if ids else np.zeros(0, np.float32)
                order = np.argsort(distances, kind="stable")[:n_results]
                answer["ids"].append([ids[i] for i in order])
                answer["distances"].append([float(distances[i]) for i in order])
            return {**answer, "embeddings": None, "metadatas": None, "uris": None, "documents": None, "data": None}

        return self._call("query", search)

    def _delete(self, collection_id: UUID, ids: Sequence[str] = (), **_: object) -> int:
        def remove() -> int:
            rows = self._rows(collection_id).rows
            return sum(rows.pop(id, None) is not None for id in ids)

        return self._call("delete", remove)

    def _count(self, collection_id: UUID, **_: object) -> int:
        return self._call("count", lambda: len(self._rows(collection_id, reads=True).rows))

    def _rows(self, id: UUID, *, reads: bool = False) -> _Rows:
        past = self.faults.past("chroma") if reads else None
        data = self.data if past is None else past
        if id not in data:
            raise NotFoundError(f"Collection [{id}] does not exist")
        rows: _Rows = data[id]
        return rows

    def _now(self) -> dict[UUID, _Rows]:
        with self._lock:
            return copy.deepcopy(self.data)

    def _call(self, operation: str, do: Callable[[], T], half: Callable[[], object] | None = None) -> T:
        with self._lock:
            return self.faults.around("chroma", operation, do, half)


class MockChromaConnection(ChromaConnection):
    """A connection to a `MockChroma`."""

    def __init__(self, client: MockChroma, *, prefix: str = "vlmsearch", retries: int = 2) -> None:
        self.name = "mock chroma"
        self.prefix = prefix
        self.retries = retries
        self._client = client

    def attempt(self, operation: str, call: Callable[[ServerAPI], T]) -> T:
        """Call the mock; a fault becomes the error that it would be with a server."""
        try:
            return call(self._client)  # type: ignore[arg-type]
        except EXPECTED as exc:
            raise translate(exc, self.name, operation) from exc

    def writing(self) -> AbstractContextManager[object]:
        """Return at once: as on a server, others may write at any time."""
        return nullcontext()

    def close(self) -> None:
        """Keep what is in memory."""


def _model(id: UUID, rows: _Rows) -> Collection:
    return Collection(id, rows.name, {}, None, None if rows.metadata is None else dict(rows.metadata), None, "t", "d")


def _passes(metadata: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Return whether metadata pass a filter as chromadb has checked it."""
    for key, condition in where.items():
        if key in ("$and", "$or"):
            if not (all if key == "$and" else any)([_passes(metadata, part) for part in condition]):
                return False
        else:
            conditions = condition if isinstance(condition, Mapping) else {"$eq": condition}
            if not all(_holds(metadata.get(key), operator, value) for operator, value in conditions.items()):
                return False
    return True


def _holds(have: object, operator: str, value: Any) -> bool:
    if operator in ORDERINGS:
        return type(have) is type(value) and bool(ORDERINGS[operator](have, value))
    wanted = value if operator in ("$in", "$nin") else [value]
    return any(type(have) is type(candidate) and have == candidate for candidate in wanted) == (
        operator in ("$eq", "$in")
    )
