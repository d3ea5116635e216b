"""Collections of a Chroma database."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection as Ids, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from chromadb import Collection
from chromadb.api import ServerAPI
from chromadb.errors import NotFoundError
from chromadb.types import Collection as Model
from numpy.typing import NDArray

from vlmsearch._util.batching import groups, pages
from vlmsearch._util.options import Options, bounded
from vlmsearch._util.retry import AttemptOptions
from vlmsearch.errors import ConfigError
from vlmsearch.stores.chroma.connection import ChromaConnection, parse_location
from vlmsearch.stores.chroma.filters import Where, compile_filter
from vlmsearch.stores.filters import Filter
from vlmsearch.types import Field, Hit, Vectors

T = TypeVar("T")
EXACT_UP_TO = 1000
"""Rows of collections that are searched exactly: HNSW is asked for all of them."""
_MAX_CANDIDATES = 100_000
_REQUEST_BYTES = 8 * 2**20
VERSION_CHARS = 16
"""The number of characters of a version, with which a row's id begins.

The rest is the document's id.
"""


@dataclass(frozen=True)
class HnswOptions(Options):
    """Options of the graph of a new index (HNSW, Malkov and Yashunin 2018).

    In a URL, each is an option of ``chroma:`` and ``mongodb+chroma:``, such as ``hnsw_ef_search``.

    Attributes:
        max_neighbors: Links of a vector at most, from 2 to 1,000: M in the paper.
        ef_construction: Candidates that are compared when a vector is added, from 2 to 100,000.
        ef_search: Candidates that are compared in a search, from 2 to 100,000.
    """

    max_neighbors: int = bounded(24, minimum=2, maximum=1000)
    ef_construction: int = bounded(150, minimum=2, maximum=_MAX_CANDIDATES)
    ef_search: int = bounded(400, minimum=2, maximum=_MAX_CANDIDATES)


DEFAULT_HNSW = HnswOptions()
UNSEARCHED_HNSW = HnswOptions(max_neighbors=2, ef_construction=4, ef_search=4)
"""For collections that are never searched; Chroma indexes them all the same."""


def connect(location: str, *, ssl: bool = False, timeout: float = 30.0, retries: int = 3) -> ChromaConnection:
    """Return the index at ``//host:8000/name``; nothing is opened yet."""
    address = parse_location(location)
    AttemptOptions(timeout, retries)
    return ChromaConnection(address, ssl=ssl, timeout=timeout, retries=retries)


class ChromaCollection:
    """One collection; requests are split so that each stays within what Chroma takes at a time."""

    def __init__(self, connection: ChromaConnection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._model: Model | None = None
        self._max_rows = 0

    def find(self) -> Mapping[str, Any] | None:
        """Return the collection's metadata, or None where there is no such collection."""

        def look(server: ServerAPI) -> Model | None:
            try:
                return server.get_collection(self.name)
            except NotFoundError:
                return None

        self._model = self._model or self._connection.run(f"look for {self.name}", look)
        return None if self._model is None else dict(self._model.metadata or {})

    def create(self, hnsw: HnswOptions, metadata: Mapping[str, Any] | None = None) -> None:
        """Make the collection unless it is there."""
        # of vectors of length one the inner product is the cosine; Chroma's "cosine" changes their last bits
        configuration: Any = {"hnsw": {"space": "ip", **asdict(hnsw)}}

        def make(server: ServerAPI) -> Model:
            return server.get_or_create_collection(
                self.name, configuration=configuration, metadata=dict(metadata) if metadata else None
            )

        self._model = self._connection.run(f"create {self.name}", make)

    def needed(self, name: str) -> None:
        """Raise ConfigError, naming the index, where there is no such collection."""
        if self.find() is None:
            raise ConfigError(
                f"{name} lacks its collection {self.name} on {self._connection.name}: the index has to be built anew"
            )

    def drop(self) -> None:
        """Remove the collection, if it is there."""

        def remove(server: ServerAPI) -> None:
            with suppress(NotFoundError):
                server.delete_collection(self.name)

        self._connection.run(f"drop {self.name}", remove)
        self._model = None

    def upsert(
        self,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        metadata: Sequence[Mapping[str, str | int | bool]] | None,
        texts: Sequence[str] | None = None,
    ) -> None:
        """Write rows. ``texts`` go into Chroma's ``uris``: text that it neither indexes nor sends with the metadata."""
        sizes = [2 * vectors[0].nbytes] * len(ids)
        self._write("upsert", {"ids": ids, "embeddings": list(vectors), "metadatas": metadata, "uris": texts}, sizes)

    def update(self, ids: Sequence[str], metadata: Sequence[Mapping[str, str | bool]], texts: Sequence[str]) -> None:
        """Change rows, in the same parts as `upsert`. Where there is none any more, none is made."""
        self._write("update", {"ids": ids, "metadatas": metadata, "uris": texts}, [0] * len(ids))

    def _write(
        self, verb: Literal["upsert", "update"], columns: Mapping[str, Sequence[Any] | None], sizes: list[int]
    ) -> None:
        for text_column in filter(None, (columns["uris"], columns["metadatas"])):
            texts = (value if isinstance(value, str) else json.dumps(value) for value in text_column)
            sizes = [size + len(text) for size, text in zip(sizes, texts)]
        for part in groups(range(len(sizes)), sizes, total=_REQUEST_BYTES, max_items=self._limit()):
            some = {name: [values[i] for i in part] for name, values in columns.items() if values is not None}
            self._rows(f"write {len(part)} rows", partial(_call, verb, some))

    def _limit(self) -> int:
        limit = self._max_rows or self._connection.run("ask for its limits", lambda s: s.get_max_batch_size())
        self._max_rows = limit
        return limit

    def insert(self, id: str, text: str) -> None:
        """Write one row without a vector of its own, unless there is one with this id."""
        vector, texts = placeholders([id]), [text]
        self._rows("write a row", lambda rows: rows.add(ids=[id], embeddings=vector, uris=texts))

    def get(self, ids: Ids[str], include: Literal["metadatas", "uris"]) -> dict[str, Any]:
        """Return the metadata or the texts of those ids that are there."""
        answers = self._answers(ids, [include])
        return {id: value for answer in answers for id, value in zip(answer["ids"], answer[include])}

    def get_both(self, ids: Ids[str]) -> dict[str, tuple[Mapping[str, Any], str]]:
        """Return the metadata and the texts of those ids that are there. Both are of one moment."""
        answers = self._answers(ids, ["metadatas", "uris"])
        return {
            id: (metadata, text)
            for answer in answers
            for id, metadata, text in zip(answer["ids"], answer["metadatas"], answer["uris"])
        }

    def ids(self, where: Where | None = None) -> list[str]:
        """Return all ids, or those whose metadata pass ``where``, as they are at one moment.

        They are read at once: between pages by their offset, a delete would move others to where none is read.
        """
        ids: list[str] = self._get(where=where, include=[])["ids"]
        return ids

    def there(self, ids: Ids[str]) -> set[str]:
        """Return the ids that have rows."""
        return {id for answer in self._answers(ids, []) for id in answer["ids"]}

    def _answers(self, ids: Ids[str], include: list[str], where: Where | None = None) -> Iterator[Any]:
        return (self._get(ids=page, where=where, include=include) for page in pages(ids))

    def _get(self, **options: Any) -> Any:
        return self._rows("read rows", lambda rows: rows.get(**options))

    def nearest(self, vectors: Vectors, count: int, where: Where | None) -> list[list[tuple[str, float]]]:
        """Find ids and cosines of the nearest rows of each vector, best first. Fewer come only where no more pass."""
        cosines = self._query(vectors, count, where)
        if any(len(rows) < count for rows in cosines):
            self._add_unlinked(cosines, vectors, where)
        cut = [((id, min(1.0, max(-1.0, cosine))) for id, cosine in rows.items()) for rows in cosines]
        return [sorted(rows, key=best_first)[:count] for rows in cut]

    def _query(self, vectors: Vectors, count: int, where: Where | None) -> list[dict[str, float]]:
        def ask(rows: Collection) -> Any:
            return rows.query(query_embeddings=vectors, n_results=count, where=where, include=["distances"])

        answer = self._rows("search", ask)
        return [
            dict(zip(ids, (1.0 - d for d in distances))) for ids, distances in zip(answer["ids"], answer["distances"])
        ]

    def _add_unlinked(self, near: Sequence[dict[str, float]], vectors: Vectors, where: Where | None) -> None:
        """Add the rows that pass and that HNSW did not come to: its graph may leave some without a link to them."""
        if where is None and len(self) <= min(map(len, near)):
            return
        passing = self.ids(where)
        cosines = self.cosines([id for id in passing if any(id not in rows for rows in near)], vectors)
        for i, rows in enumerate(near):
            rows.update((id, values[i]) for id, values in cosines.items() if id not in rows)

    def cosines(self, ids: Ids[str], vectors: Vectors, where: Where | None = None) -> dict[str, list[float]]:
        """Return the cosines with each vector of those rows among ``ids`` that are there and pass."""
        cosines_by_id: dict[str, list[float]] = {}
        norms = np.linalg.norm(vectors, axis=1)
        for answer in self._answers(ids, ["embeddings"], where):
            if answer["ids"]:
                rows = np.asarray(answer["embeddings"], np.float32)
                cosines = rows @ vectors.T / np.outer(np.linalg.norm(rows, axis=1), norms)
                cosines_by_id.update(zip(answer["ids"], np.clip(cosines, -1.0, 1.0).tolist()))
        return cosines_by_id

    def exact(self, vectors: Vectors, limit: int, where: Filter | None) -> list[list[Hit]]:
        """Compare all rows with each vector, best first; those of versions that were replaced count, too."""
        cosines = self.cosines(self.ids(None if where is None else compile_filter(where)), vectors)
        names = [row[VERSION_CHARS:] for row in cosines]
        by_query = np.array(list(cosines.values())).reshape(-1, len(vectors)).T
        return [[Hit(names[row], scores[row]) for row in np.argsort(-scores)[:limit]] for scores in by_query]

    def vectors(self, ids: Ids[str]) -> dict[str, NDArray[np.float32]]:
        """Return the vectors of those ids that are there."""
        return {
            id: np.asarray(vector, np.float32)
            for answer in self._answers(ids, ["embeddings"])
            for id, vector in zip(answer["ids"], answer["embeddings"])
        }

    def delete(self, ids: Ids[str]) -> None:
        """Remove rows; unknown ids are ignored."""
        for some in pages(ids):
            self._rows(f"delete {len(some)} rows", lambda rows, some=some: rows.delete(ids=some))  # type: ignore[misc]

    def __len__(self) -> int:
        return self._rows("count its rows", lambda rows: rows.count())

    def _rows(self, operation: str, call: Callable[[Collection], T]) -> T:
        model = self._model
        if model is None:
            raise ConfigError(f"{self._connection.name} has no collection {self.name}")
        return self._connection.run(
            operation, lambda server: call(Collection(client=server, model=model, embedding_function=None))
        )


def field_collection(connection: ChromaConnection, generation: str, field: Field) -> ChromaCollection:
    """Return the collection of the vectors of one field in a generation of an index."""
    space = re.sub(r"[^A-Za-z0-9-]+", lambda odd: f"_{odd[0].encode().hex()}_", field.space)
    return ChromaCollection(connection, f"{connection.prefix}.{generation}.{space}.{field.modality}")


def placeholders(ids: Sequence[str]) -> Vectors:
    """Return a unit vector for each id, for collections that have no vectors of their own."""
    turns = [int.from_bytes(hashlib.blake2b(id.encode(), digest_size=4).digest(), "big") / 2**32 for id in ids]
    return np.array([[math.cos(math.tau * turn), math.sin(math.tau * turn)] for turn in turns], np.float32)


def best_first(row: tuple[str, float]) -> tuple[float, str]:
    """Return the sorting key of a row: the best cosine first, then the document's id."""
    return -row[1], row[0][VERSION_CHARS:]


def _call(verb: Literal["upsert", "update"], columns: Mapping[str, Any], rows: Collection) -> None:
    getattr(rows, verb)(**columns)
