"""The store of PostgreSQL beside what a user would write: tables of pgvector, and full text search.

``python -m benchmarks.pgvector --url postgresql://postgres@127.0.0.1/empty`` writes the same drawn documents into each
of them, in the same batches, and asks each the same queries, in turns. ``--against FOLDER`` has another checkout of
vlmsearch take part, in a process of its own. Each cell has the processor time of the server and of the client.

* **pgvector, hnsw**: vectors alone with an HNSW index that is kept up to date, and iterative scans for filters.
* **pgvector, bits**: HNSW on binary codes, re-ranked by the vectors, as the manual of pgvector shows.
* **tsvector**: texts alone with a GIN index, ranked by ``ts_rank``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import click
import numpy as np
import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector

import vlmsearch
from benchmarks.build_process import Cost, DrawnDocument, Meter, Scored
from benchmarks.builds import Contender, build
from benchmarks.common import print_figures
from vlmsearch._util.batching import batches
from vlmsearch.bench.search import WidenedEncoder, draw_documents, queries_of
from vlmsearch.registry import open_encoder

_BATCH = 500
_DIMENSIONS, _NOISE = 48, 0.3
_TIE = 1e-5
"""Cosines that are equal but for rounding."""
_KEYS = {"permille": 1000, "percent": 100, "tenth": 10, "half": 2, "whole": 1}
"""Keys of the metadata, with the number of their values. All values of a key are equally frequent."""
_OPERATORS = {"$lt": "<", "$eq": "="}
_FILTERS: dict[str, dict[str, dict[str, int]] | None] = {
    "all": None,
    **{f"{100 / values:g} %, equality": {key: {"$eq": 0}} for key, values in _KEYS.items()},
    **{f"{100 / values:g} %, range": {"permille": {"$lt": 1000 // values}} for values in _KEYS.values()},
}
_WORDS = {
    **{f"{length} {kind}": (kind, length, "all") for kind, length in
       (("usual", 2), ("usual", 4), ("frequent", 2), ("rare", 2))},
    "2 usual, 1 %": ("usual", 2, "1 %, equality"),
    "2 usual, 50 %": ("usual", 2, "50 %, range"),
}  # fmt: skip
_EXACT = (
    "SELECT id, -(taken <#> %(q)s) AS cosine FROM {table} WHERE {where} ORDER BY (taken <#> %(q)s) + 0 LIMIT {limit}"
)
_NEAREST = _EXACT.replace(" + 0", "")
_CODE = "(binary_quantize(taken)::bit({dim}))"
_ITERATIVE = "SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = "


class Bare(NamedTuple):
    """A table, and what the manuals of pgvector and PostgreSQL show for it."""

    table: str
    column: str
    value: str
    """What is written into the column, as SQL has it."""
    made: str
    """The index, as SQL has it."""
    settings: str
    query: str
    call: str
    """The name of its one kind of search."""

    def open(self, session: psycopg.Connection[Any], **numbers: int) -> Contender:
        """Make the table."""
        meter, keys = Meter(session.info.backend_pid), ", ".join(_KEYS)
        text = self.call == "words"
        session.execute(
            f"CREATE TABLE {self.table} (id text PRIMARY KEY, taken {self.column.format(**numbers)}"
            f"{''.join(f', {key} int NOT NULL' for key in _KEYS)});"
            + "".join(f"CREATE INDEX ON {self.table} ({key});" for key in _KEYS)
        )

        def write(documents: Sequence[DrawnDocument]) -> None:
            session.cursor().executemany(
                f"INSERT INTO {self.table} (id, taken, {keys}) VALUES (%s, {self.value}{', %s' * len(_KEYS)})",
                [(id, words if text else Vector(vector), *(metadata[key] for key in _KEYS))
                 for id, words, metadata, vector in documents],
            )  # fmt: skip

        def finish() -> None:
            session.execute(f"CREATE INDEX ON {self.table} USING {self.made.format(**numbers)}")

        def search(asked: Any, where: Mapping[str, Mapping[str, int]] | None, asking: str = self.query) -> Scored:
            tests = [f"{k} {_OPERATORS[name]} {n}" for k, of in (where or {}).items() for name, n in of.items()]
            query = asking.format(table=self.table, where=" AND ".join(tests) or "true", **numbers)
            value = " | ".join(asked.split()) if text else Vector(asked)
            session.execute(self.settings.format(**numbers))
            return sorted(session.execute(query, {"q": value}, binary=True), key=lambda hit: -hit[1])

        calls: dict[str, Callable[..., Any]] = {"write": write, "finish": finish, self.call: search}
        calls["exact"] = partial(search, asking=_EXACT)

        def call(what: str, *values: object) -> Any:
            with session.transaction():
                return calls[what](*values)

        return Contender(lambda *asked: meter.measure(partial(call, *asked)), tuple(calls), self.table)


_BARE = {
    "pgvector, hnsw": Bare(
        "bare_hnsw", "vector({dim})", "%s", "hnsw (taken vector_ip_ops)",
        _ITERATIVE + "{ef_search}", _NEAREST, "nearest"
    ),
    "pgvector, bits": Bare(
        "bare_bits", "vector({dim})", "%s", f"hnsw ({_CODE} bit_hamming_ops)", _ITERATIVE + "{codes}",
        "SELECT id, -(taken <#> %(q)s) FROM (SELECT id, taken FROM {table} WHERE {where} "
        f"ORDER BY {_CODE} <~> binary_quantize(%(q)s) LIMIT {{codes}}) c ORDER BY taken <#> %(q)s LIMIT {{limit}}",
        "nearest",
    ),
    "tsvector": Bare(
        "bare_words", "tsvector", "to_tsvector('english', %s)", "gin (taken)", "",
        "SELECT id, ts_rank(taken, q) FROM {table}, to_tsquery('english', %(q)s) q WHERE taken @@ q AND {where} "
        "ORDER BY 2 DESC LIMIT 100",
        "words",
    ),
}  # fmt: skip


def drawn_documents(count: int, dim: int, *, seed: int = 0) -> Iterator[list[DrawnDocument]]:
    """Yield drawn documents whose vectors lie near a space of few dimensions, as models' do."""
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
                (record.document.id, record.document.text or "", {key: n * v // 1000 for key, v in _KEYS.items()}, row)
                for record, row, n in zip(records, rows, (number * 7919 % 1000 for number in numbers))
            ]
            yield from batches(drawn, _BATCH)


class Measurement(NamedTuple):
    """The contenders by name. A ratio is the cost of the second, as a multiple of the first's."""

    contenders: Mapping[str, Contender]

    def row(self, name: str, cells: Mapping[str, str], costs: Mapping[str, Sequence[Cost]] | None = None) -> list[str]:
        """Return a row of the table."""
        used = [median(cost.wall if cost.server is None else cost.server + cost.client for cost in own)
                for own in (costs or {}).values()]  # fmt: skip
        ratio = f"{used[1] / used[0]:.2f}" if len(used) > 1 else ""
        return [name, *(cells.get(contender, "") for contender in self.contenders), ratio]

    def ask(self, what: Any, *values: object) -> Iterator[tuple[str, Cost, Any]]:
        """Make a call of all who can."""
        for name, contender in self.contenders.items():
            if what in contender.can:
                yield name, *contender.ask(what, *values)

    def write(self, name: str, documents: Iterator[list[DrawnDocument]], count: int, ends: bool) -> Iterator[list[str]]:
        """Write documents in turns; at the end of a first load, make what is made then."""
        costs: dict[str, list[Cost]] = {contender: [] for contender in self.contenders}
        calls: Iterator[tuple[object, ...]] = (("write", batch) for batch in islice(documents, -(-count // _BATCH)))
        for call in chain(calls, [("finish",)] if ends else []):
            for contender, cost, _ in self.ask(*call):
                costs[contender].append(cost)
        seconds = {who: sum(cost.wall for cost in own) / 1000 for who, own in costs.items()}
        yield self.row(f"{name}, documents a second", {who: f"{count / wall:,.0f}" for who, wall in seconds.items()})
        each = {who: _cell(own, lambda times: sum(times) / count, 2) for who, own in costs.items()}
        yield self.row(f"{name}, ms a document", each)

    def times(self, name: str, what: str, calls: Sequence[tuple[object, ...]]) -> Iterator[list[str]]:
        """Make calls in turns. The first does not count."""
        costs: dict[str, list[Cost]] = {}
        for place, call in enumerate(calls):
            for who, cost, _ in self.ask(what, *call):
                costs.setdefault(who, []).extend([cost] if place else [])
        yield self.row(name, {who: _cell(own) for who, own in costs.items()}, costs)
        if what == "search":
            trips = {who: f"{median(cost.trips for cost in own):.0f}" for who, own in costs.items()}
            yield self.row(f"{name}, waits for the server", trips)

    def recalls(self, exact: Callable[..., tuple[Cost, Scored]], vectors: Sequence[Any]) -> Iterator[list[str]]:
        """Compare pages with exact ones under each filter: the share of them, and of first hits, that are as near."""
        for name, where in _FILTERS.items():
            costs: dict[str, list[Cost]] = {}
            shares: dict[str, list[tuple[float, bool]]] = {}
            for vector in vectors:
                scores = [score for _, score in exact("exact", vector, where)[1]]
                for who, cost, hits in self.ask("nearest", vector, where):
                    near = [score >= scores[-1] - _TIE for _, score in hits]
                    first = bool(hits) and hits[0][1] >= scores[0] - _TIE
                    costs.setdefault(who, []).append(cost)
                    shares.setdefault(who, []).append((sum(near) / len(scores), first))
            yield self.row(f"nearest, {name}", {who: _cell(own) for who, own in costs.items()}, costs)
            means = {who: [mean(map(float, column)) for column in zip(*own)] for who, own in shares.items()}
            yield self.row(f"recall, {name}", {who: f"{page:.3f}; {best:.1%}" for who, (page, best) in means.items()})


def _cell(costs: Sequence[Cost], of: Callable[[list[float]], float] = median, digits: int = 1) -> str:
    server = [cost.server for cost in costs if cost.server is not None]
    if len(server) < len(costs):
        return f"{of([cost.wall for cost in costs]):.{digits}f}"
    return f"{of(server):.{digits}f} + {of([cost.client for cost in costs]):.{digits}f}"


@click.command()
@click.option("--url", required=True, metavar="URL", help="An empty database: postgresql://user@host/database.")
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER",
              help="Another checkout of vlmsearch, to compare with.")  # fmt: skip
@click.option("--documents", default=100_000, show_default=True, type=click.IntRange(2000), help="Drawn documents.")
@click.option("--timed", default=10_000, show_default=True, type=click.IntRange(500), help="The last of them.")
@click.option("--dim", default=384, show_default=True, type=click.IntRange(_DIMENSIONS), help="Numbers of a vector.")
@click.option("--ef-search", default=400, show_default=True, type=click.IntRange(1, 1000), help="For all HNSW indexes.")
@click.option("--calls", default=16, show_default=True, type=click.IntRange(1, 500), help="Timed calls of each kind.")
def main(url: str, against: Path | None, documents: int, timed: int, dim: int, ef_search: int, calls: int) -> None:
    """Measure writes, searches by words and by vectors, and recall under filters.

    Times are milliseconds of processors, server + client, in the middle; on the wall where the server is elsewhere.
    """
    with psycopg.connect(url, autocommit=True) as session, ExitStack() as stack:
        if session.execute("SELECT 1 FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchone():
            raise click.UsageError("the database has tables already: take an empty one")
        for name in ("max_parallel_workers_per_gather", "max_parallel_maintenance_workers"):
            # workers are processes of their own, whose time is gone with them
            session.execute(f'ALTER DATABASE "{session.info.dbname}" SET {name} = 0; SET {name} = 0')
        session.execute("CREATE EXTENSION vector")
        register_vector(session)
        folders = [Path(vlmsearch.__file__).parents[1], *([against] if against else [])]
        contenders = {}
        for n, folder in enumerate(folders):
            started = build(folder, f"{url}?ef_search={ef_search}&table=build{n}", dim, f"build{n}")
            contenders[str(folder) if n else "postgresql:"] = stack.enter_context(started)
        numbers = {"dim": dim, "limit": 10, "ef_search": ef_search, "codes": 200}
        contenders |= {name: bare.open(session, **numbers) for name, bare in _BARE.items()}
        indexes = session.execute("SELECT indexname FROM pg_indexes WHERE indexdef LIKE '%USING hnsw%'").fetchall()
        for (index,) in indexes:
            session.execute(f'DROP INDEX "{index}"')  # an earlier build keeps it up to date; "finish" makes it again
        measurement = Measurement(contenders)
        drawn = drawn_documents(documents, dim)
        rows = list(measurement.write("first load", drawn, documents - timed, True))
        rows += measurement.write("written", drawn, timed, False)
        session.execute("VACUUM ANALYZE")
        for name, (kind, length, passing) in _WORDS.items():
            asked = islice(cycle(queries_of(kind, length)), calls + 1)
            rows += measurement.times(f"words, {name}", "words", [(query, _FILTERS[passing]) for query in asked])
        asked = islice(cycle(queries_of("usual", 2)), calls + 1)
        rows += measurement.times("Pipeline.search, 2 usual", "search", [(query, {}) for query in asked])
        strangers = next(drawn_documents(_BATCH, dim, seed=1))[: 3 * calls]
        rows += measurement.recalls(contenders["pgvector, hnsw"].ask, [vector for *_, vector in strangers])
        size = "SELECT sum(pg_total_relation_size(oid)) / %s FROM pg_class WHERE relkind = 'r' AND relname ^@ %s"
        sizes = {name: session.execute(size, (documents, own.prefix)) for name, own in contenders.items()}
        rows.append(measurement.row("bytes a document", {who: f"{n:,.0f}" for who, of in sizes.items() for (n,) in of}))
    print_figures(f"{documents:,} x {dim}", ("figure", *contenders, "ratio"), rows)


if __name__ == "__main__":
    main()
