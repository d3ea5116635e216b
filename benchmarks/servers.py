"""Search and upsert on servers: what our stores add to the bare drivers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
import numpy as np
from chromadb import HttpClient
from numpy.typing import NDArray
from pymongo import MongoClient
from typing_extensions import Self

from benchmarks.common import print_figures
from vlmsearch.stores.base import Store
from vlmsearch.stores.chroma.connection import chroma_settings
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.types import Document, Field, Record, Space, Stamp, Vectors

FIELD = Field("clip", "image")
LIMIT = 10
_HNSW = {"space": "cosine", "max_neighbors": 24, "ef_construction": 150, "ef_search": 400}
_BATCH = 500
_INDEX = "pair"
_SEED = 11


class Figure(NamedTuple):
    """One measured figure, and the bare one beside it."""

    name: str
    ours: float
    bare: float
    unit: str


@click.command()
@click.option("--mongo", default="localhost:27017", show_default=True, metavar="HOST:PORT", help="Where MongoDB is.")
@click.option("--chroma", default="localhost:8000", show_default=True, metavar="HOST:PORT",
              help="Where a Chroma server is.")  # fmt: skip
@click.option("--documents", default=100_000, show_default=True, type=click.IntRange(1000), help="How many documents.")
@click.option("--dim", default=512, show_default=True, type=click.IntRange(2), help="How long their vectors are.")
@click.option("--queries", default=200, show_default=True, type=click.IntRange(3), help="How many searches are timed.")
def main(mongo: str, chroma: str, documents: int, dim: int, queries: int) -> None:
    """Time mongodb+chroma: and mongodb: beside the bare drivers, in turns; searches are medians.

    What it writes is in a database vlmsearch-bench, and removed at the end.
    """
    rows = [
        (figure.name, figure.unit, f"{figure.ours:.3f}", f"{figure.bare:.3f}", f"{figure.ours / figure.bare:.2f}")
        for figure in measure(mongo, chroma, documents, dim, queries)
    ]
    print_figures(f"{documents:,} x {dim}", ("what", "unit", "ours", "bare", "ratio"), rows, left=2)


def measure(mongo_address: str, chroma_address: str, documents: int, dim: int, queries: int) -> Iterator[Figure]:
    """Fill an index of each store and a bare one of each server, in a database ``vlmsearch-bench``, and time them.

    The database is made anew, and removed at the end.
    """
    rng = np.random.default_rng(_SEED)
    vectors = _unit(rng.normal(size=(documents, dim)))
    asked = _unit(vectors[rng.integers(documents, size=queries)] + rng.normal(size=(queries, dim)) * 0.05)
    space = Space("clip", dim, frozenset({"text", "image"}))
    with _BareMongo(mongo_address) as mongo, _BareChroma(chroma_address) as chroma:
        chroma_url = f"http://{chroma_address}"
        with MongoChromaStore(f"//{mongo_address}/{mongo.name}", chroma=chroma_url, index=_INDEX) as pair:
            pair.bind("bench", [space])
            bare, ours = _fill(chroma, pair, vectors)
            yield Figure("upsert, pair beside bare Chroma", ours, bare, "documents/s")
            mongo.fill(documents)
            bare, ours = _in_turns(lambda q: mongo.find(chroma.query(q)), lambda q: _page(pair, q), asked)
            yield Figure("search p50, pair beside bare query and find", ours, bare, "ms")
        with MongoStore(f"//{mongo_address}/{mongo.name}", index="exact") as store:
            store.bind("bench", [space])
            for start in range(0, documents, _BATCH):
                store.upsert(_records(vectors, start))
            few = asked[: max(3, queries // 20)]
            bare, ours = _in_turns(lambda q: _scan(vectors, q), lambda q: _page(store, q), few)
            yield Figure("search p50, mongodb: beside numpy in memory", ours, bare, "ms")
            bare, ours = _in_turns(lambda q: mongo.scan(q, dim), lambda q: _page(store, q), few)
            yield Figure("search p50, mongodb: beside reading all with pymongo and numpy", ours, bare, "ms")


def _unit(rows: NDArray[np.floating[Any]]) -> Vectors:
    unit: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _records(vectors: Vectors, start: int) -> list[Record]:
    return [
        Record(Document(f"doc-{i}", text=f"text {i}", metadata={"number": i}), {FIELD: vectors[i]}, Stamp(f"{i}"))
        for i in range(start, min(start + _BATCH, len(vectors)))
    ]


def _fill(chroma: _BareChroma, store: Store, vectors: Vectors) -> tuple[float, float]:
    """Return documents per second of both, batch by batch in turns."""
    bare = ours = 0.0
    for start in range(0, len(vectors), _BATCH):
        records = _records(vectors, start)
        bare += _time(lambda start=start: chroma.upsert(vectors, start))  # type: ignore[misc]
        ours += _time(lambda records=records: store.upsert(records))  # type: ignore[misc]
    return len(vectors) / bare, len(vectors) / ours


def _page(store: Store, query: Vectors) -> None:
    store.get([hit.id for hit in store.search(FIELD, query[None], limit=LIMIT)[0]])


def _scan(vectors: Vectors, query: Vectors) -> list[int]:
    cosines = vectors @ query
    best = np.argpartition(-cosines, LIMIT)[:LIMIT]
    return [int(i) for i in best[np.argsort(-cosines[best])]]


def _in_turns(bare: Callable[[Any], object], ours: Callable[[Any], object], queries: Vectors) -> tuple[float, float]:
    """Return the medians of both in milliseconds, after one call that is not counted."""
    bare(queries[0])
    ours(queries[0])
    pairs = [
        (_time(lambda q=query: bare(q)), _time(lambda q=query: ours(q)))  # type: ignore[misc]
        for query in queries
    ]
    first, second = zip(*pairs)
    return 1000 * statistics.median(first), 1000 * statistics.median(second)


def _time(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


class _BareMongo:
    """A collection of texts and vectors, by pymongo alone."""

    name = "vlmsearch-bench"

    def __init__(self, address: str) -> None:
        self._client: MongoClient[dict[str, Any]] = MongoClient(f"mongodb://{address}/")

    def __enter__(self) -> Self:
        self._client.drop_database(self.name)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.drop_database(self.name)
        self._client.close()

    def fill(self, documents: int) -> None:
        rows = [{"_id": f"doc-{i}", "text": f"text {i}", "number": i} for i in range(documents)]
        self._client[self.name]["bare"].insert_many(rows)

    def find(self, ids: list[str]) -> None:
        list(self._client[self.name]["bare"].find({"_id": {"$in": ids}}))

    def scan(self, query: Vectors, dim: int) -> None:
        """Read every vector of the exact index, and compare."""
        rows = self._client[self.name]["exact.1.documents"].find({}, {"vectors": 1})
        ids, parts = [], []
        for row in rows:
            ids.append(row["_id"])
            parts.append(row["vectors"]["clip/image"][2:])
        _scan(np.frombuffer(b"".join(parts), "<f4").reshape(-1, dim), query)


class _BareChroma:
    """A collection of vectors, by chromadb alone."""

    name = "vlmsearch-bench-bare"

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._client = HttpClient(host=host, port=int(port), settings=chroma_settings())

    def __enter__(self) -> Self:
        self._drop()
        configuration: Any = {"hnsw": _HNSW}
        self._rows = self._client.create_collection(self.name, configuration=configuration, embedding_function=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def _drop(self) -> None:
        for each in self._client.list_collections():
            if each.name == self.name or each.name.startswith(f"{_BareMongo.name}-{_INDEX}."):
                self._client.delete_collection(each.name)

    def upsert(self, vectors: Vectors, start: int) -> None:
        numbers = range(start, min(start + _BATCH, len(vectors)))
        self._rows.upsert(
            ids=[f"doc-{i}" for i in numbers],
            embeddings=vectors[start : start + _BATCH],
            metadatas=[{"number": i} for i in numbers],
        )

    def query(self, query: Vectors) -> list[str]:
        found = self._rows.query(query_embeddings=query[None], n_results=LIMIT, include=["distances"])
        return found["ids"][0]


if __name__ == "__main__":
    main()
