"""The store of PostgreSQL beside what a user would write: tables of pgvector, and full text search.

``python -m benchmarks.pgvector --url postgresql://postgres@127.0.0.1/empty`` writes the same drawn documents into each
of them, in the same batches, and asks each the same queries, in turns. ``--against FOLDER`` has another checkout of
vlmsearch take part, in a process of its own. Each cell has the processor time of the server and of the client.

* **pgvector, hnsw**: vectors alone with an HNSW index that is kept up to date, and iterative scans for filters.
* **pgvector, bits**: HNSW on binary codes, re-ranked by the vectors, as the manual of pgvector shows.
* **tsvector**: texts alone with a GIN index, ranked by ``ts_rank``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from multiprocessing import Pipe
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import Vector
from pgvector.psycopg import register_vector

import vlmsearch
from benchmarks import pgvector_process
from benchmarks.common import print_figures
from benchmarks.pgvector_process import Cost, DrawnDocument, Meter, Scored
from vlmsearch._util.batching import batches
from vlmsearch.bench.search import WidenedEncoder, draw_documents, queries_of
from vlmsearch.registry import open_encoder

_BATCH = 500
_DIMENSIONS, _NOISE = 48, 0.3
_TIE = 1e-5
"""Cosines that are equal but for rounding."""
_CODE = "(binary_quantize(vector)::bit({dim}))"
_KEYS = {"permille": 1000, "percent": 100, "tenth": 10, "half": 2, "whole": 1}
"""Keys of the metadata with the number of their values, each of which as many documents have."""
_OPERATORS = {"$lt": "<", "$eq": "="}
Where = dict[str, dict[str, int]]
Row = tuple[str, ...]
_FILTERS: dict[str, Where] = {
    **{f"{100 / values:g} %, equality": {key: {"$eq": 0}} for key, values in _KEYS.items()},
    **{f"{100 / values:g} %, range": {"permille": {"$lt": 1000 // values}} for values in _KEYS.values()},
}
_WORDS: dict[str, tuple[str, int, Where | None]] = {
    "2 usual": ("usual", 2, None),
    "4 usual": ("usual", 4, None),
    "2 frequent": ("frequent", 2, None),
    "2 rare": ("rare", 2, None),
    "2 usual, 1 %": ("usual", 2, {"percent": {"$eq": 0}}),
    "2 usual, 50 %": ("usual", 2, {"permille": {"$lt": 500}}),
}


class Contender(ABC):
    """A contender that can be asked for some calls.

    Attributes:
        can: The names of the calls.
        prefix: The beginning of the names of its tables.
    """

    can: Sequence[str]
    prefix: str

    @abstractmethod
    def ask(self, what: str, *values: object) -> tuple[Cost, Any]:
        """Make a call, and return its cost and its answer."""


class OtherProcess(Contender):
    """A build of vlmsearch in a process of its own."""

    can = ("write", "finish", "words", "search", "nearest")

    def __init__(self, requests: Any, prefix: str) -> None:
        self._requests, self.prefix = requests, prefix

    @classmethod
    @contextmanager
    def start(cls, folder: Path, url: str, prefix: str, dim: int) -> Iterator[OtherProcess]:
        """Start the process of the build in a folder."""
        ours, theirs = Pipe()
        command = [sys.executable, pgvector_process.__file__, str(theirs.fileno()), f"{url}{prefix}", str(dim)]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        with subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()]), ours:  # noqa: S603
            theirs.close()
            yield cls(ours, prefix)

    def ask(self, what: str, *values: object) -> tuple[Cost, Any]:
        """Send a request, and wait for the reply."""
        self._requests.send((what, *values))
        cost, answer = self._requests.recv()
        return Cost(*cost), answer


class Bare(Contender):
    """A table, and what the manuals of pgvector and PostgreSQL show for it."""

    can: Sequence[str] = ("write", "finish", "nearest")
    column = "vector vector({dim})"
    index = "hnsw (vector vector_ip_ops)"

    def __init__(self, meter: Meter, session: psycopg.Connection[Any], dim: int, ef_search: int) -> None:
        keys = "".join(f", {key} int NOT NULL" for key in _KEYS)
        columns = f"(id text PRIMARY KEY, {self.column.format(dim=dim)}{keys})"
        self._meter, self._session, self._dim, self._ef_search = meter, session, dim, ef_search
        self.prefix = type(self).__name__.lower()
        session.execute(f"CREATE TABLE {self.prefix} {columns}")
        for key in _KEYS:
            session.execute(f"CREATE INDEX ON {self.prefix} ({key})")

    def finish(self) -> None:
        """Make the index, unless it is there."""
        self._session.execute(f"CREATE INDEX {self.prefix}_i ON {self.prefix} USING {self.index.format(dim=self._dim)}")

    def ask(self, what: str, *values: object) -> tuple[Cost, Any]:
        """Call a method within a transaction."""

        def call() -> Any:
            with self._session.transaction():
                return getattr(self, what)(*values)

        return self._meter.measure(call)

    def write(self, documents: Sequence[DrawnDocument]) -> None:
        """Add documents."""
        keys = ", ".join(_KEYS)
        self._session.cursor().executemany(
            f"INSERT INTO {self.prefix} (id, vector, {keys}) VALUES (%s, %s{', %s' * len(_KEYS)})",
            [(id, Vector(vector), *(metadata[key] for key in _KEYS)) for id, _, metadata, vector in documents],
        )

    def nearest(self, vector: NDArray[np.float32], limit: int, where: Where | None, order: str = "+ 0") -> Scored:
        """Compare with all vectors, unless a subclass gives the order that its index has."""
        return self._scored(
            f"SELECT id, -(vector <#> %(q)s) AS cosine FROM {self.prefix} WHERE {_sql(where)} "
            f"ORDER BY (vector <#> %(q)s) {order} LIMIT {limit}",
            Vector(vector),
        )

    def _scored(self, query: str, value: object) -> Scored:
        return [(id, float(score)) for id, score in self._session.execute(query, {"q": value}, binary=True)]


class Hnsw(Bare):
    """Vectors by HNSW."""

    def nearest(self, vector: NDArray[np.float32], limit: int, where: Where | None, order: str = "") -> Scored:
        """Follow the index, as far as a filter needs."""
        self._session.execute(
            f"SET LOCAL hnsw.ef_search = {self._ef_search}; SET LOCAL hnsw.iterative_scan = relaxed_order"
        )
        return sorted(super().nearest(vector, limit, where, order), key=lambda hit: -hit[1])


class Bits(Bare):
    """Vectors by HNSW on one bit of each number, re-ranked."""

    index = f"hnsw ({_CODE} bit_hamming_ops)"

    def nearest(self, vector: NDArray[np.float32], limit: int, where: Where | None, order: str = "") -> Scored:
        """Find twenty times as many by their codes, and compare these."""
        candidates = 20 * limit
        self._session.execute(
            f"SET LOCAL hnsw.ef_search = {min(1000, max(candidates, self._ef_search))}; "
            "SET LOCAL hnsw.iterative_scan = relaxed_order"
        )
        return self._scored(
            f"SELECT id, -(vector <#> %(q)s) FROM (SELECT id, vector FROM {self.prefix} WHERE {_sql(where)} "
            f"ORDER BY {_CODE.format(dim=self._dim)} <~> binary_quantize(%(q)s) LIMIT {candidates}) c "
            f"ORDER BY vector <#> %(q)s LIMIT {limit}",
            Vector(vector),
        )


class TextSearch(Bare):
    """Texts by full text search."""

    can = ("write", "finish", "words")
    column = "words tsvector"
    index = "gin (words)"

    def write(self, documents: Sequence[DrawnDocument]) -> None:
        """Add documents without their vectors."""
        keys = ", ".join(_KEYS)
        self._session.cursor().executemany(
            f"INSERT INTO {self.prefix} (id, words, {keys}) "
            f"VALUES (%s, to_tsvector('english', %s){', %s' * len(_KEYS)})",
            [(id, text, *(metadata[key] for key in _KEYS)) for id, text, metadata, _ in documents],
        )

    def words(self, query: str, where: Where | None) -> Scored:
        """Rank the documents that have any of the words."""
        return self._scored(
            f"SELECT id, ts_rank(words, q) FROM {self.prefix}, to_tsquery('english', %(q)s) q "
            f"WHERE words @@ q AND {_sql(where)} ORDER BY 2 DESC LIMIT 100",
            " | ".join(query.split()),
        )


def _sql(where: Where | None) -> str:
    parts = [f"{key} {_OPERATORS[name]} {n}" for key, tests in (where or {}).items() for name, n in tests.items()]
    return " AND ".join(parts) or "true"


def drawn_documents(count: int, dim: int, *, seed: int = 0) -> Iterator[list[DrawnDocument]]:
    """Yield drawn documents whose vectors lie near a space of few dimensions, as those of models do."""
    plane, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((dim, _DIMENSIONS)))
    with WidenedEncoder(open_encoder("onnx:demo-minilm"), dim) as encoder:
        (field,) = encoder.spaces[0].fields
        numbers = iter(range(count))
        for records in draw_documents(count, encoder, seed=seed):
            rows = np.stack([record.vectors[field] for record in records])
            near = (rows @ plane) @ plane.T
            rows = near / np.linalg.norm(near, axis=1, keepdims=True) + _NOISE * rows
            rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
            drawn = [
                (
                    record.document.id,
                    record.document.text or "",
                    {key: n // (1000 // v) for key, v in _KEYS.items()},
                    row,
                )
                for record, row, n in zip(records, rows, (number * 7919 % 1000 for number in numbers))
            ]
            yield from batches(drawn, _BATCH)


class Measurement:
    """The contenders by name, in the order of the columns; the first is what is compared with the second."""

    def __init__(self, contenders: Mapping[str, Contender], limit: int) -> None:
        self._contenders, self._limit = contenders, limit

    def sizes(self, session: psycopg.Connection[Any], documents: int) -> Row:
        """Return what the tables of each take."""
        query = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname ^@ %s"
        sizes = {name: session.execute(query, (own.prefix,)).fetchone() for name, own in self._contenders.items()}
        bytes_each = {name: f"{size[0] / documents:,.0f}" for name, size in sizes.items() if size}
        return self._row("bytes a document", bytes_each)

    def _row(self, name: str, values: Mapping[str, str], ratio: float | None = None) -> Row:
        cells = [values.get(contender, "") for contender in self._contenders]
        return (name, *cells, "" if ratio is None else f"{ratio:.2f}")

    def _all(self, what: str, *values: object) -> Iterator[tuple[str, Cost, Any]]:
        for name, contender in self._contenders.items():
            if what in contender.can:
                yield name, *contender.ask(what, *values)

    def write(self, documents: Iterator[list[DrawnDocument]], count: int, timed: int) -> Iterator[Row]:
        """Write all documents, the last in turns once every contender has what it makes after the first."""
        for name, size, is_last in (("first load", count - timed, False), ("written", timed, True)):
            costs: dict[str, list[Cost]] = {}
            for batch in islice(documents, -(-size // _BATCH)):
                for contender, cost, _ in self._all("write", batch):
                    costs.setdefault(contender, []).append(cost)
            for contender, cost, _ in self._all("finish") if not is_last else ():
                costs[contender].append(cost)
            rates = {who: 1000 * size / sum(cost.wall for cost in own) for who, own in costs.items()}
            yield self._row(f"{name}, documents a second", {who: f"{rate:,.0f}" for who, rate in rates.items()})
            cells = {who: (sum(c.server or 0 for c in own) / size, sum(c.client for c in own) / size)
                     for who, own in costs.items()}  # fmt: skip
            yield self._row(f"{name}, ms a document", {who: f"{a:.2f} + {b:.2f}" for who, (a, b) in cells.items()})

    def times(self, name: str, what: str, calls: Sequence[tuple[object, ...]]) -> Iterator[Row]:
        """Make calls in turns, the first uncounted."""
        costs: dict[str, list[Cost]] = {}
        for place, call in enumerate(calls):
            for contender, cost, _ in self._all(what, *call):
                costs.setdefault(contender, []).extend([cost] if place else [])
        yield self._row(name, {who: _cell(own) for who, own in costs.items()}, _ratio(list(costs.values())))
        if what == "search":
            trips = {who: f"{median(cost.trips for cost in own):.0f}" for who, own in costs.items()}
            yield self._row(f"{name}, waits for the server", trips)

    def recalls(self, exact: Callable[..., Scored], vectors: Sequence[NDArray[np.float32]]) -> Iterator[Row]:
        """Compare pages with exact ones, under each filter."""
        filters: dict[str, Where | None] = {"all": None, **_FILTERS}
        for name, where in filters.items():
            costs: dict[str, list[Cost]] = {}
            right: dict[str, list[tuple[float, bool]]] = {}
            for vector in vectors:
                scores = [score for _, score in exact(vector, self._limit, where)]
                for who, cost, hits in self._all("nearest", vector, self._limit, where):
                    costs.setdefault(who, []).append(cost)
                    enough = sum(score >= scores[-1] - _TIE for _, score in hits) / len(scores)
                    right.setdefault(who, []).append((enough, bool(hits) and hits[0][1] >= scores[0] - _TIE))
            yield self._row(f"nearest, {name}", {who: _cell(own) for who, own in costs.items()},
                            _ratio(list(costs.values())))  # fmt: skip
            means = {who: np.mean(own, axis=0) for who, own in right.items()}
            yield self._row(f"recall, {name}", {who: f"{mean[0]:.3f}; {mean[1]:.1%}" for who, mean in means.items()})


def _used(cost: Cost) -> float:
    return cost.wall if cost.server is None else cost.server + cost.client


def _cell(costs: Sequence[Cost]) -> str:
    if any(cost.server is None for cost in costs):
        return f"{median(cost.wall for cost in costs):.1f}"
    return f"{median(cost.server or 0 for cost in costs):.1f} + {median(cost.client for cost in costs):.1f}"


def _ratio(costs: Sequence[Sequence[Cost]]) -> float | None:
    """Return how often the first fits into the second, if there is one."""
    first, *others = (median(map(_used, own)) for own in costs)
    return others[0] / first if others else None


@click.command()
@click.option("--url", required=True, metavar="URL", help="An empty database: postgresql://user@host/database.")
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER",
              help="Another checkout of vlmsearch, to compare with.")  # fmt: skip
@click.option("--documents", default=100_000, show_default=True, type=click.IntRange(2000), help="Drawn documents.")
@click.option("--timed", default=10_000, show_default=True, type=click.IntRange(500), help="Those written in turns.")
@click.option("--dim", default=384, show_default=True, type=click.IntRange(_DIMENSIONS), help="Numbers of a vector.")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1), help="Documents of a search.")
@click.option("--ef-search", default=100, show_default=True, type=click.IntRange(1, 1000), help="For all HNSW indexes.")
@click.option("--calls", default=16, show_default=True, type=click.IntRange(1), help="Timed calls of each kind.")
@click.option("--queries", default=50, show_default=True, type=click.IntRange(1), help="Queries for each recall.")
def main(
    url: str, against: Path | None, documents: int, timed: int, dim: int, limit: int, ef_search: int, calls: int,
    queries: int,
) -> None:  # fmt: skip
    """Measure writes, searches by words and by vectors, and recall under filters.

    Times are milliseconds of processors, server + client, in the middle; of the wall where the server is elsewhere. The
    ratio is the time of the second column as a multiple of the first's.
    """
    with psycopg.connect(url, autocommit=True) as session, ExitStack() as stack:
        if session.execute("SELECT 1 FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchone():
            raise click.UsageError("the database has tables already: take an empty one")
        for name in ("max_parallel_workers_per_gather", "max_parallel_maintenance_workers"):
            # workers are processes of their own, whose time is gone with them
            session.execute(f'ALTER DATABASE "{session.info.dbname}" SET {name} = 0; SET {name} = 0')
        session.execute("CREATE EXTENSION vector")
        register_vector(session)
        meter = Meter(session.info.backend_pid)
        builds = {"postgresql:": Path(vlmsearch.__file__).parents[1], **({str(against): against} if against else {})}
        bare = {
            "pgvector, hnsw": Hnsw(meter, session, dim, ef_search),
            "pgvector, bits": Bits(meter, session, dim, ef_search),
            "tsvector": TextSearch(meter, session, dim, ef_search),
        }
        contenders: dict[str, Contender] = {
            name: stack.enter_context(
                OtherProcess.start(folder, f"{url}?ef_search={ef_search}&table=", f"build{n}", dim)
            )
            for n, (name, folder) in enumerate(builds.items())
        }
        measurement = Measurement({**contenders, **bare}, limit)
        for (index,) in session.execute(
            "SELECT indexname FROM pg_indexes WHERE indexdef LIKE '%USING hnsw%'"
        ).fetchall():
            session.execute(f'DROP INDEX "{index}"')  # those that builds up to 0.3 keep up to date; "finish" makes them
        rows = list(measurement.write(drawn_documents(documents, dim), documents, timed))
        session.execute("VACUUM ANALYZE")
        for name, (kind, length, where) in _WORDS.items():
            asked = islice(cycle(queries_of(kind, length)), calls + 1)
            rows += measurement.times(f"words, {name}", "words", [(query, where) for query in asked])
        asked = islice(cycle(queries_of("usual", 2)), calls + 1)
        rows += measurement.times("Pipeline.search, 2 usual", "search", [(query,) for query in asked])
        strangers = next(drawn_documents(max(queries, _BATCH), dim, seed=1))[:queries]
        exact = partial(Bare.nearest, bare["pgvector, hnsw"])
        rows += measurement.recalls(exact, [vector for *_, vector in strangers])
        rows.append(measurement.sizes(session, documents))
    print_figures(f"{documents:,} x {dim}", ("figure", *contenders, *bare, "ratio"), rows)


if __name__ == "__main__":
    main()
