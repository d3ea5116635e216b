"""The store of PostgreSQL beside a bare table of pgvector, with an HNSW index in place on both sides.

``python -m benchmarks.pgvector --url postgresql://postgres@127.0.0.1/postgres`` makes both from the same drawn
documents, in the same batches, in turns, and searches both with the same queries and ``ef_search``. The bare table has
ids and vectors alone. The store has metadata, texts and words beside them, each with an index.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import click
import numpy as np
import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector

from benchmarks.common import in_turns, print_figures
from vlmsearch import Record
from vlmsearch._util.batching import batches
from vlmsearch.bench.search import WidenedEncoder, draw_documents
from vlmsearch.registry import open_encoder
from vlmsearch.stores.postgresql.connection import PostgresAddress, PostgresOptions, connect, quoted
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.types import Field, Vectors

_BATCH = 500
_EF_SEARCH = 100
_QUERIES = 200
_COMPARED = 20
"""Queries whose page is compared with the exact one."""
_DIMENSIONS, _NOISE = 48, 0.3
_TABLE = "bench"


class BareTable:
    """A table of ids and vectors, written and searched as the manual of pgvector shows."""

    def __init__(self, session: psycopg.Connection[tuple[object, ...]], dim: int) -> None:
        self._session = session
        session.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(session)
        session.execute("DROP TABLE IF EXISTS bare")
        session.execute(f"CREATE TABLE bare (id text PRIMARY KEY, vector vector({dim}))")
        session.execute(f"SET hnsw.ef_search = {_EF_SEARCH}")

    def write(self, records: Sequence[Record], field: Field) -> None:
        """Add documents in one transaction."""
        with self._session.transaction(), self._session.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO bare (id, vector) VALUES (%s, %s)",
                [(record.document.id, Vector(record.vectors[field])) for record in records],
            )

    def index(self) -> None:
        """Make the HNSW index."""
        self._session.execute("CREATE INDEX bare_hnsw ON bare USING hnsw (vector vector_ip_ops)")

    def search(self, vector: Vectors, limit: int) -> list[str]:
        """Return the ids of the nearest documents."""
        query = "SELECT id, -(vector <#> %s) FROM bare ORDER BY vector <#> %s LIMIT %s"
        value = Vector(vector)
        return [str(row[0]) for row in self._session.execute(query, (value, value, limit))]


def drawn_records(documents: int, encoder: WidenedEncoder, field: Field) -> Iterator[list[Record]]:
    """Yield drawn documents whose vectors lie near a space of few dimensions, as those of models do."""
    dim = encoder.spaces[0].dim
    plane, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((dim, _DIMENSIONS)))
    for records in draw_documents(documents, encoder):
        rows = np.stack([record.vectors[field] for record in records])
        near = (rows @ plane) @ plane.T
        rows = near / np.linalg.norm(near, axis=1, keepdims=True) + _NOISE * rows
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        yield from batches([replace(record, vectors={field: row}) for record, row in zip(records, rows)], _BATCH)


def fill(
    store: PostgresStore, bare: BareTable, field: Field, records: Iterator[list[Record]], timed: int
) -> tuple[float, float]:
    """Write both, the last documents in turns with an index in place, and return how many each wrote a second."""
    kept: list[list[Record]] = []
    index = store._tables.vectors[field].index  # noqa: SLF001
    store._do("drop an index", f"DROP INDEX {quoted('public', index)}")  # noqa: SLF001
    for batch in records:
        kept.append(batch)
        if len(kept) * _BATCH > timed:
            first = kept.pop(0)
            store.upsert(first)
            bare.write(first, field)
    bare.index()
    store.check(repair=True)
    seconds = [0.0, 0.0]
    for batch in kept:
        start = time.perf_counter()
        store.upsert(batch)
        middle = time.perf_counter()
        bare.write(batch, field)
        seconds[0] += middle - start
        seconds[1] += time.perf_counter() - middle
    written = _BATCH * len(kept)
    return written / seconds[0], written / seconds[1]


def searched(
    store: PostgresStore, bare: BareTable, field: Field, queries: Vectors, limit: int
) -> tuple[list[float], list[float]]:
    """Search both in turns, and return the median seconds of each, and the share of the exact page that each finds."""

    def search(searched: PostgresStore, query: Vectors) -> list[str]:
        return [hit.id for hit in searched.search(field, query[None], limit=limit)[0]]

    contenders = {"store": partial(search, store), "bare": partial(bare.search, limit=limit)}
    seconds, answers = in_turns(contenders, list(queries))
    exact = PostgresStore(store._connection, table=_TABLE, exact_up_to=10**9)  # noqa: SLF001
    nearest = [set(search(exact, query)) for query in queries[:_COMPARED]]
    recalls = [
        statistics.mean(len(best & set(ids)) / limit for best, ids in zip(nearest, pages)) for pages in answers.values()
    ]
    return list(map(statistics.median, seconds.values())), recalls


@click.command()
@click.option("--url", required=True, metavar="URL", help="An empty database: postgresql://user@host/database.")
@click.option("--documents", default=100_000, show_default=True, type=click.IntRange(2000), help="Drawn documents.")
@click.option("--timed", default=10_000, show_default=True, type=click.IntRange(1000), help="Those that are timed.")
@click.option("--dim", default=384, show_default=True, type=click.IntRange(8), help="Numbers of a vector.")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1), help="Documents of a search.")
def main(url: str, documents: int, timed: int, dim: int, limit: int) -> None:
    """Measure writes and searches beside those of bare pgvector."""
    connection = connect(PostgresAddress.parse(url.removeprefix("postgresql:")), PostgresOptions(timeout=3600))
    with (
        WidenedEncoder(open_encoder("onnx:demo-minilm"), dim) as encoder,
        PostgresStore(connection, table=_TABLE, exact_up_to=0, ef_search=_EF_SEARCH) as store,
        psycopg.connect(connection.conninfo, autocommit=True) as session,
    ):
        if store.manifest() is not None:
            raise click.UsageError("the database has an index of an earlier call: take an empty one")
        bare = BareTable(session, dim)
        store.bind(encoder.fingerprint, encoder.spaces)
        (field,) = encoder.spaces[0].fields
        rates = fill(store, bare, field, drawn_records(documents, encoder, field), timed)
        session.execute("VACUUM ANALYZE")
        strangers = next(iter(drawn_records(_QUERIES, encoder, field)))
        queries = np.stack([record.vectors[field] for record in strangers])
        queries += np.random.default_rng(2).standard_normal(queries.shape).astype(np.float32) * _NOISE / dim**0.5
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        seconds, recalls = searched(store, bare, field, queries, limit)
    medians = [1000 * median for median in seconds]
    rows = [
        ("written a second", f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", f"{rates[0] / rates[1]:.2f}"),
        (f"search of {limit}, p50 ms", f"{medians[0]:.2f}", f"{medians[1]:.2f}", f"{medians[0] / medians[1]:.2f}"),
        ("recall", f"{recalls[0]:.3f}", f"{recalls[1]:.3f}", ""),
    ]
    print_figures(f"{documents:,} x {dim}", ("figure", "postgresql:", "bare pgvector", "ratio"), rows)


if __name__ == "__main__":
    main()
