"""Search by ``$vectorSearch``, where the server has it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel
from typing_extensions import Self

from vlmsearch.errors import BackendError, BackendUnavailableError
from vlmsearch.stores.mongodb.connection import Row, Rows, is_transient
from vlmsearch.stores.mongodb.values import escape, unpack, vector_path
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.types import Field, Vectors

T = TypeVar("T")
_MAX_CANDIDATES = 10_000
_CANDIDATES_PER_HIT = 20
_POLL_SECONDS = 0.5
_UNAUTHORIZED = 13


@dataclass(frozen=True)
class VectorSearch:
    """The vector indexes of a collection, one a field; ``dims`` are the lengths of the vectors."""

    dims: Mapping[Field, int]

    @classmethod
    def on(cls, rows: Rows, dims: Mapping[Field, int]) -> Self | None:
        """Return the vector indexes that a collection has or can have: None where the server knows none."""
        try:
            list(rows.list_search_indexes())
        except OperationFailure as exc:
            if is_transient(exc) or exc.code == _UNAUTHORIZED:
                raise
            return None
        return cls(dims)

    def create(self, rows: Rows) -> None:
        """Make the indexes that are missing."""
        have = {index["name"] for index in rows.list_search_indexes()}
        missing = [field for field in self.dims if _name(field) not in have]
        if missing:
            if rows.name not in rows.database.list_collection_names():
                rows.database.create_collection(rows.name)
            rows.create_search_indexes([self._model(field) for field in missing])

    def _model(self, field: Field) -> SearchIndexModel:
        vector = {"type": "vector", "path": vector_path(field), "numDimensions": self.dims[field]}
        return SearchIndexModel({"fields": [{**vector, "similarity": "cosine"}]}, _name(field), "vectorSearch")

    def wait(self, run: Callable[[Callable[[Rows], Sequence[Row]]], Sequence[Row]], seconds: float, name: str) -> None:
        """Return when all indexes can be queried; BackendUnavailableError after ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            indexes = {index["name"]: index for index in run(_indexes)}
            waiting = [field for field in self.dims if not indexes.get(_name(field), {}).get("queryable")]
            if not waiting:
                return
            failed = [str(field) for field in waiting if indexes.get(_name(field), {}).get("status") == "FAILED"]
            if failed:
                raise BackendError(f"{name} could not build its vector index of {', '.join(failed)}")
            if time.monotonic() > deadline:
                raise BackendUnavailableError(
                    f"{name} has not built its vector index of {', '.join(map(str, waiting))} in {seconds:g} s; "
                    "wait longer with the option index_timeout"
                )
            time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))

    def find(self, rows: Rows, field: Field, queries: Vectors, limit: int) -> list[list[VersionedHit]]:
        """Return the ``limit`` nearest rows of each query.

        Cosines are those of the vectors that the rows have now.
        """
        candidates = min(_MAX_CANDIDATES, max(limit, _CANDIDATES_PER_HIT * limit))
        name = escape(str(field))
        pages = []
        for query in queries:
            stage = {
                "index": _name(field),
                "path": vector_path(field),
                "queryVector": query.astype(float).tolist(),
                "numCandidates": candidates,
                "limit": limit,
            }
            answer = rows.aggregate([{"$vectorSearch": stage}, {"$project": {"version": 1, vector_path(field): 1}}])
            hits = [
                VersionedHit(
                    row["_id"], float(np.clip(unpack(row["vectors"][name]) @ query, -1.0, 1.0)), row["version"]
                )
                for row in answer
                if name in row.get("vectors", {})
            ]
            pages.append(sorted(hits, key=lambda hit: (-hit.score, hit.id)))
        return pages


def _indexes(rows: Rows) -> list[Row]:
    return [dict(index) for index in rows.list_search_indexes()]


def _name(field: Field) -> str:
    return f"vlmsearch_{field.space}_{field.modality}"
