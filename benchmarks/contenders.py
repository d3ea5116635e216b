"""What is measured beside each other: embedded stores, and LanceDB as it comes, each in a folder of its own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from benchmarks.corpus import LIMIT, Condition, CorpusBlock
from vlmsearch.registry import open_store
from vlmsearch.stores.base import Store, WordSearch
from vlmsearch.stores.filters import parse_filter
from vlmsearch.types import Document, Field, Record, Space, Stamp, Vectors

FIELD = Field("clip", "image")
_FINGERPRINT = "bench:1"
_PEERS = ("lancedb", "lancedb-ivf")
_COLUMNS = ["id", "text", "serial", "album", "rating", "_distance"]
_REFINE = 10
"""Candidates that LanceDB compares with whole vectors, in limits of the search."""


class Contender(Protocol):
    """A collection on disk: filled block by block, then searched."""

    def add(self, block: CorpusBlock) -> None:
        """Write the documents of a block; they are durable and can be found when this returns."""

    def finish(self) -> None:
        """Do what its manual says is to be done after the last block."""

    def count(self) -> int:
        """Return how many documents there are."""

    def search(self, vector: Vectors, condition: Condition | None = None, *, limit: int = LIMIT) -> list[str]:
        """Return the ids of the nearest documents; ``vector`` has the shape (dim,)."""

    def page(self, vector: Vectors) -> list[str]:
        """Search without a filter and read the texts and metadata of the documents."""

    def search_words(self, query: str) -> list[str] | None:
        """Return the ids of the documents that fit words best; None where words are not ranked."""

    def close(self) -> None:
        """Let go of the files."""


def place_of(name: str, folder: Path) -> Path:
    """Return where a contender keeps its files."""
    return folder / "".join(letter if letter.isalnum() else "-" for letter in name)


def open_contender(name: str, folder: Path, dim: int) -> Contender:
    """Open, and create where it is not there: ``sqlite?option=value``, ``lancedb``, ``lancedb-ivf``."""
    place = place_of(name, folder)
    if name in _PEERS:
        return _LanceDB(place, dim, is_indexed=name == "lancedb-ivf")
    place.mkdir(parents=True, exist_ok=True)
    scheme, mark, options = name.partition("?")
    return _EmbeddedStore(f"{scheme}:{place / 'index'}{mark}{options}", dim)


class _EmbeddedStore:
    def __init__(self, url: str, dim: int) -> None:
        self._url = url
        self._spaces = [Space(FIELD.space, dim, frozenset({"text", "image"}))]
        self._store: Store = open_store(url)
        if self._store.manifest() is None:
            self._store.bind(_FINGERPRINT, self._spaces)

    def add(self, block: CorpusBlock) -> None:
        self._store.upsert([
            Record(Document(id, text=text, metadata=metadata), {FIELD: vector}, Stamp(id))
            for id, text, metadata, vector in zip(block.ids, block.texts, block.metadata, block.vectors)
        ])  # fmt: skip

    def finish(self) -> None:
        self._store.close()
        self._store = open_store(self._url)

    def count(self) -> int:
        return len(self._store)

    def search(self, vector: Vectors, condition: Condition | None = None, *, limit: int = LIMIT) -> list[str]:
        where = parse_filter(condition.where) if condition else None
        return [hit.id for hit in self._store.search(FIELD, vector[None], limit=limit, where=where)[0]]

    def page(self, vector: Vectors) -> list[str]:
        return [document.id for document in self._store.get(self.search(vector))]

    def search_words(self, query: str) -> list[str] | None:
        manifest = self._store.manifest()
        if not isinstance(self._store, WordSearch) or manifest is None or not manifest.language:
            return None
        return [hit.id for hit in self._store.search_words(query, limit=LIMIT).hits]

    def close(self) -> None:
        self._store.close()


class _LanceDB:
    """A table of LanceDB, by its own package alone.

    Blocks are appended, and nothing is replaced, which saves it the look-up of ids that a store makes. Without indexes
    it compares with all vectors. With them it has IVF-PQ, which its manual recommends from 100,000 vectors, with the
    settings of its own and whole vectors for the first candidates, B-trees for the metadata and its full text index.
    """

    def __init__(self, place: Path, dim: int, *, is_indexed: bool) -> None:
        import lancedb
        import pyarrow as pa

        self._arrow = pa
        self._dim = dim
        self._is_indexed = is_indexed
        database = lancedb.connect(str(place), read_consistency_interval=timedelta(0))
        self._schema = pa.schema([
            ("id", pa.string()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), dim)),
            ("serial", pa.int64()), ("album", pa.string()), ("rating", pa.float64()),
        ])  # fmt: skip
        self._table = database.create_table("bench", schema=self._schema, exist_ok=True)

    def add(self, block: CorpusBlock) -> None:
        vectors = self._arrow.FixedSizeListArray.from_arrays(self._arrow.array(block.vectors.ravel()), self._dim)
        columns = {"id": block.ids, "text": block.texts, "vector": vectors, **block.columns}
        self._table.add(self._arrow.table(columns, schema=self._schema))

    def finish(self) -> None:
        self._table.optimize()
        if self._is_indexed:
            from lancedb.index import FTS, BTree, IvfPq

            for column, index in (
                ("vector", IvfPq(distance_type="cosine")), ("text", FTS()), ("id", BTree()),
                ("serial", BTree()), ("album", BTree()), ("rating", BTree()),
            ):  # fmt: skip
                self._table.create_index(column, config=index)

    def count(self) -> int:
        number: int = self._table.count_rows()
        return number

    def search(self, vector: Vectors, condition: Condition | None = None, *, limit: int = LIMIT) -> list[str]:
        return self._ids(self._query(vector, condition, limit).select(["id", "_distance"]))

    def page(self, vector: Vectors) -> list[str]:
        return self._ids(self._query(vector, None, LIMIT).select(_COLUMNS))

    def search_words(self, query: str) -> list[str] | None:
        if not self._is_indexed:
            return None
        return self._ids(self._table.search(query, query_type="fts").limit(LIMIT).select(["id", "_score"]))

    def close(self) -> None:
        pass

    def _query(self, vector: Vectors, condition: Condition | None, limit: int) -> Any:
        query = self._table.search(vector).distance_type("cosine").limit(limit)
        if self._is_indexed:
            query = query.refine_factor(_REFINE)
        return query.where(condition.sql, prefilter=True) if condition else query

    @staticmethod
    def _ids(query: Any) -> list[str]:
        ids: list[str] = query.to_arrow()["id"].to_pylist()
        return ids
