"""The vectors of a field in PostgreSQL: their tables, and how they are searched.

A vector is kept whole, and as one bit a number: its sign. A search of a large field takes the rows that have the most
signs in common with the query, and compares their vectors. Writers keep no index of vectors up to date: a graph is made
of many rows at once, and never changed. The rows that came later are looked for by their bits.

HNSW is by Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable
Small World graphs", IEEE TPAMI 42(4), 2020.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field as attribute
from math import sqrt
from statistics import fmean
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector

from vlmsearch._util.batching import batches
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import BackendError, VlmsearchError
from vlmsearch.stores.postgresql.connection import READING, SNAPSHOT, Session, all_rows, quoted
from vlmsearch.stores.postgresql.values import ALWAYS, Condition, RowNumbers, escape, hit_of
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.types import Field, Vectors

T = TypeVar("T")
MAX_EF_SEARCH = 1000
DAY = 86_400.0
"""Seconds that work on a whole index may take."""
BITMAP = f"{READING}SET LOCAL work_mem = '64MB';"
"""Memory in which half a million rows of an index fit one by one: else all rows of their pages are looked at."""
_MIN_BITS, _MAX_IN_GRAPH = 64, 4000
"""The fewest numbers of a vector with bits, and the most of one in a graph."""
_MAX_IN_ROW = 2000
"""Numbers of a vector at most for which a page has room."""
_AT_ONCE = 500
"""Vectors that one statement writes."""
_RERANKED, _SIGNS = 1000, 400_000
"""The fewest vectors that a search by bits compares in full, and their fewest signs."""
_DEVIATIONS = 2
"""Standard deviations of the signs in common that a filtered search allows for."""
_SAMPLED, _EXACT_SHARE = 500, 0.02
"""Documents on which a filter is tried. Up to this share that passes, all are compared."""
_FRESH_SECONDS, _PAUSE = 10.0, 3600.0
"""Seconds for which a size is remembered, and until a graph that failed is tried again."""
_REACH = "c.far, max(c.far) OVER () AS reach, count(*) OVER () AS compared"
_ALL = "0 AS far, 0 AS reach, 0 AS compared"
"""Columns beside the distance: of vectors that were chosen by their signs, and of all."""
_BUILD = (  # by one process, since shared memory is short in many containers
    "SELECT set_config(name, '5s', true) FROM pg_settings WHERE name = 'client_connection_check_interval';"
    "SET LOCAL max_parallel_maintenance_workers = 0;"
    "SELECT set_config('maintenance_work_mem', '1GB', true) "
    "WHERE pg_size_bytes(current_setting('maintenance_work_mem')) < pg_size_bytes('1GB');"
)
"""Settings to build a graph: where it does not fit into this memory, that takes far longer."""


@dataclass(frozen=True)
class VectorTable:
    """The tables of the vectors of a field.

    Attributes:
        field: The field.
        name: The name of the table of whole vectors.
        schema: The schema that they are in.
        dim: Length of the vectors.
        extension: The schema of pgvector.
    """

    field: Field
    name: str
    schema: str
    dim: int
    extension: str

    @property
    def table(self) -> str:
        """Return the table of whole vectors, as SQL has it."""
        return quoted(self.schema, self.name)

    @property
    def bits(self) -> str:
        """Return the table of signs, as SQL has it."""
        return quoted(self.schema, f"{self.name}$bits")

    @property
    def graph(self) -> str:
        """Return the table of graphs, as SQL has it. Each segment of it has the rows up to its number."""
        return quoted(self.schema, f"{self.name}$graph")

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the tables, with their columns."""
        columns: dict[str, tuple[str, ...]] = {self.name: ("row", "vector")}
        if self.has_bits:
            columns[f"{self.name}$bits"] = ("row", "bits")
        if self.can_have_graphs:
            columns[f"{self.name}$graph"] = ("segment", "rows", "vector")
        return columns

    @property
    def mark(self) -> str:
        """Return the comment on the tables."""
        return f"vlmsearch: vectors of {escape(str(self.field))}"

    @property
    def has_bits(self) -> bool:
        """Return whether the signs of a vector say enough of it."""
        return self.dim >= _MIN_BITS

    @property
    def can_have_graphs(self) -> bool:
        """Return whether pgvector has an index for vectors of this length."""
        return _MIN_BITS <= self.dim <= _MAX_IN_GRAPH

    def operator(self, name: str) -> str:
        """Return an operator of pgvector, as SQL has it. ``<#>`` is the negative inner product."""
        return f"OPERATOR({quoted(self.extension)}.{name})"

    def _signs(self, vector: str) -> str:
        return f"{quoted(self.extension, 'binary_quantize')}({vector})::bit({self.dim})"

    @property
    def _vector(self) -> str:
        return quoted(self.extension, "vector")

    @property
    def _halved(self) -> str:
        return f"{quoted(self.extension, 'halfvec')}({self.dim})"

    def create(self) -> str:
        """Return the statements that make the tables."""
        storage = "PLAIN" if self.dim <= _MAX_IN_ROW else "EXTERNAL"  # in the row, as far as a page has room
        statements = (
            f"CREATE TABLE IF NOT EXISTS {self.table} (row bigint PRIMARY KEY, "
            f"vector {self._vector}({self.dim}) NOT NULL);"
            f"ALTER TABLE {self.table} ALTER COLUMN vector SET STORAGE {storage};"
        )
        if self.has_bits:
            statements += (
                f"CREATE TABLE IF NOT EXISTS {self.bits} (row bigint PRIMARY KEY, bits bit({self.dim}) NOT NULL);"
            )
        if self.can_have_graphs:
            statements += (
                f"CREATE TABLE IF NOT EXISTS {self.graph} "
                f"(segment bigint NOT NULL, rows bigint[] NOT NULL, vector {self._halved} NOT NULL);"
            )
        return statements

    def put(self, session: Session, vectors: Mapping[int, NDArray[np.float32]]) -> None:
        """Add vectors, by the new numbers of their documents."""
        given = f"unnest(%b::bigint[], %b::{self._vector}[]) AS given(row, vector)"
        query = f"INSERT INTO {self.table} SELECT * FROM {given}"
        if self.has_bits:
            query = (
                f"WITH given AS (SELECT * FROM {given}), kept AS (INSERT INTO {self.table} SELECT * FROM given) "
                f"INSERT INTO {self.bits} SELECT row, {self._signs('vector')} FROM given"
            )
        for numbers in batches(sorted(vectors), _AT_ONCE):
            session.deadline.renew()  # triggers and slow disks have time for each
            session.execute(query, (numbers, [Vector(vectors[number]) for number in numbers]))

    def forget(self, session: Session, numbers: list[int]) -> None:
        """Remove the vectors of rows. Graphs keep their numbers, which no row has again."""
        for table in (self.table, *([self.bits] if self.has_bits else [])):
            session.execute(f"DELETE FROM {table} WHERE row = ANY(%s)", (numbers,))

    # ---- the queries of candidates, nearest first; a placeholder is for the vector

    def by_bits(self, limit: int, condition: str) -> str:
        """Return the query of rows with many signs of a vector, where a condition holds."""
        common = f"bits {self.operator('<~>')} {self._signs('%s')}"
        return f"SELECT row, {common} AS far FROM {self.bits} WHERE {condition} ORDER BY far LIMIT {limit}"

    def by_graph(self, segment: int, limit: int) -> str:
        """Return the query of the rows of a graph that are still there."""
        return (
            f"SELECT unnest(rows) AS row, NULL FROM (SELECT rows FROM {self.graph} g WHERE segment = {segment} "
            f"AND (SELECT true FROM {self.table} v WHERE v.row = ANY(g.rows) LIMIT 1) "
            f"ORDER BY vector {self.operator('<#>')} %s::{self._halved} LIMIT {limit}) entries"
        )

    # ---- graphs

    def graphs(self, session: Session) -> dict[int, str]:
        """Return the segments that have a graph, lowest first, each with the name of its index."""
        query = (
            "SELECT substring(pg_get_expr(indpred, indrelid) FROM '[0-9]+')::bigint, indexrelid::regclass::text "
            "FROM pg_index WHERE indrelid = %s::regclass AND indisvalid AND indpred IS NOT NULL ORDER BY 1"
        )
        return dict(all_rows(session, query, (self.graph,))) if self.can_have_graphs else {}

    def is_due(self, session: Session, graph_from: int) -> bool:
        """Return whether more vectors than a number are in no graph."""
        above = max(self.graphs(session), default=0)
        query = f"SELECT FROM {self.bits} WHERE row > {above} OFFSET %s LIMIT 1"
        return self.can_have_graphs and bool(all_rows(session, query, (graph_from,)))

    def count_mislaid(self, session: Session) -> int:
        """Return how many vectors an approximate search cannot find: somebody else removed their signs or graphs."""
        count = 0
        if self.has_bits:
            query = f"SELECT count(*) FROM (SELECT row FROM {self.table} EXCEPT SELECT row FROM {self.bits}) lost"
            count += all_rows(session, query)[0][0]
        if graphs := list(self.graphs(session)):
            query = (
                f"SELECT count(*) FROM (SELECT row FROM {self.table} WHERE row <= {graphs[-1]} "
                f"EXCEPT SELECT unnest(rows) FROM {self.graph} WHERE segment = ANY(%s)) lost"
            )
            count += all_rows(session, query, (graphs,))[0][0]
        return count

    def mend(self, session: Session) -> None:
        """Make the signs that vectors lack, and remove the graphs."""
        session.execute(
            f"INSERT INTO {self.bits} SELECT row, {self._signs('vector')} FROM {self.table} ON CONFLICT DO NOTHING"
        )
        for index in self.graphs(session).values():
            session.execute(f"DROP INDEX {index}")
        if self.can_have_graphs:
            session.execute(f"DELETE FROM {self.graph}")

    def build(self, session: Session, bound: int, waits: bool) -> list[int]:
        """Make a graph of the rows up to a bound, unless somebody else does.

        It takes in the graphs that have less than twice as many rows. So there are few, and each row is in a new one a
        few times at most.

        Args:
            session: The connection.
            bound: The number of a row below which no transaction is writing.
            waits: Whether it waits for somebody else, and makes what is left then.

        Returns:
            The segments that it has taken in, which are of no more use.
        """
        lock = f"pg_{'' if waits else 'try_'}advisory_xact_lock(hashtextextended(%s, 0))"
        is_busy = all_rows(session, f"SELECT {lock}", (self.graph,))[0][0] is False
        bounds, merged = [0, *self.graphs(session)], list[int]()
        if is_busy or bound <= bounds[-1]:
            return []
        while len(bounds) > 1 and bounds[-1] - bounds[-2] < 2 * (bound - bounds[-1]):
            merged.append(bounds.pop())
        half = f"vector::{self._halved}"
        session.execute(
            f"INSERT INTO {self.graph} SELECT %s, array_agg(row ORDER BY row), {half} FROM {self.table} "
            f"WHERE row > %s AND row <= %s GROUP BY {half}",
            (bound, bounds[-1], bound),
        )
        operators = quoted(self.extension, "halfvec_ip_ops")
        session.execute(f"CREATE INDEX ON {self.graph} USING hnsw (vector {operators}) WHERE segment = {bound}")
        return merged

    def drop(self, session: Session, segments: Collection[int]) -> None:
        """Remove graphs. Searches wait while this waits for others to end, so it soon gives up."""
        session.execute("SET LOCAL lock_timeout = '2s'")
        for segment, index in self.graphs(session).items():
            if segment in segments:
                session.execute(f"DROP INDEX {index}")
        session.execute(f"DELETE FROM {self.graph} WHERE segment = ANY(%s)", (list(segments),))


class Transaction(Protocol):
    """Something that calls a function within a transaction, such as `PostgresConnection.run`."""

    def __call__(self, operation: str, call: Callable[[Session], T], settings: str = "", timeout: float = 0) -> T:
        """Call the function, and return what it does."""


@dataclass
class FieldSearch:
    """The search for vectors of one generation.

    Attributes:
        documents: The table of documents, as SQL has it.
        tables: The tables of vectors.
        run: Calls a function within a transaction.
        exact_up_to: Vectors of a field up to which all are compared.
        ef_search: Candidates of a graph.
        graph_from: Vectors without a graph above which one is made.
        closing: Is cancelled when the store is closed.
    """

    documents: str
    tables: Mapping[Field, VectorTable]
    run: Transaction
    exact_up_to: int
    ef_search: int
    graph_from: int
    closing: CancelToken
    _sizes: dict[Field, tuple[int, float]] = attribute(default_factory=dict)
    _shares: dict[int, tuple[float, float]] = attribute(default_factory=dict)
    _builder: threading.Thread | None = None
    _next: float = 0.0

    # ---- searching

    def find_nearest(
        self,
        field: Field,
        vectors: Vectors,
        limit: int,
        compiled: Callable[[Session, str], tuple[Condition, RowNumbers | None]],
        *,
        exact_for: float | None = None,
    ) -> list[list[VersionedHit]]:
        """Find the nearest documents of each query. Where they are few, or few pass the filter, all are compared.

        Args:
            field: The field.
            vectors: The queries.
            limit: Documents at most.
            compiled: Gives the condition of a filter within the transaction, and the rows among which it counts.
            exact_for: Seconds in which to compare all in any case; 0 for those of the options.
        """
        table = self.tables[field]
        depth = max(_RERANKED, _SIGNS // table.dim, 5 * limit)
        candidates = max(self.ef_search, limit)

        def search(session: Session) -> list[list[VersionedHit]]:
            condition, named = compiled(session, self.documents)
            has_filter = condition is not ALWAYS
            rows = self._rows(session, field) if exact_for is None else 0
            if named and rows:  # they are searched as an index of them alone
                rows = named.total if named.total > self.exact_up_to else 0
            wanted = self._wanted(session, condition, rows, depth)
            among = "row + 0 = ANY(%s::bigint[])" if has_filter else "row = ANY(%s::bigint[])"  # one index at a time
            own, documents = (
                f"(SELECT * FROM {name} WHERE {among})" if named else name for name in (table.table, self.documents)
            )
            exactly = f"{own} v"
            if has_filter and rows and not wanted:  # the planner expects many
                lookup = f"SELECT * FROM {table.table} t WHERE t.row = d.row OFFSET 0"
                exactly = f"{documents} d CROSS JOIN LATERAL ({lookup}) v WHERE {condition.text}"
            elif has_filter:
                exactly = f"{own} v JOIN {self.documents} d USING (row) WHERE {condition.text}"
            graphs = list(table.graphs(session)) if not has_filter and not named and rows > self.graph_from else []
            of_bits = among if named else f"row > {max(graphs)}" if graphs else "true"
            near = " UNION ".join(
                [f"({table.by_bits(wanted, of_bits)})", *(table.by_graph(n, candidates) for n in graphs)]
            )
            if has_filter:
                near = (
                    f"SELECT row, far FROM ({near}) near CROSS JOIN LATERAL (SELECT FROM {self.documents} d "
                    f"WHERE d.row = near.row AND {condition.text} OFFSET 0) passing ORDER BY far LIMIT {depth}"
                )
            near = f"({near}) c CROSS JOIN LATERAL (SELECT * FROM {table.table} t WHERE t.row = c.row OFFSET 0) v"

            def compared(vector: Vector, vectors: str, count: int, reach: str = _ALL) -> list[tuple[Any, ...]]:
                """Compare vectors ``v`` in full. Behind each hit is what `_may_miss` takes, and how many there were."""
                session.deadline.renew()  # each may read all signs, or all vectors
                nearest = (
                    f"SELECT v.row, v.vector {table.operator('<#>')} %s AS distance, {reach} "
                    f"FROM {vectors} ORDER BY distance FETCH FIRST {limit} ROWS WITH TIES"
                )
                query = (
                    "SELECT d.id, least(1, greatest(-1, -n.distance)), d.version, d.fields, n.far, n.reach, n.compared "
                    f"FROM ({nearest}) n CROSS JOIN LATERAL (SELECT * FROM {self.documents} own WHERE own.row = n.row "
                    f"OFFSET 0) d ORDER BY n.distance, d.id LIMIT {limit}"
                )
                return all_rows(session, query, [*[vector] * count, *values, *condition.values])

            values = (named.rows,) if named else ()
            pages = []
            for vector in map(Vector, vectors):
                hits = compared(vector, near, 2 + len(graphs), _REACH) if wanted else []
                is_short = not hits or hits[0][-1] < (limit if graphs else depth)
                if is_short or (has_filter and _may_miss([far for *_, far, _, _ in hits], hits[0][-2], table.dim)):
                    hits = compared(vector, exactly, 1)
                pages.append([hit_of(*row) for *row, _, _, _ in hits])
            return pages

        settings = (
            f"{BITMAP}{SNAPSHOT}SET LOCAL hnsw.iterative_scan = relaxed_order;"
            f"SET LOCAL hnsw.max_scan_tuples = {min(10 * candidates, 2**31 - 1)};"
            f"SET LOCAL hnsw.ef_search = {min(candidates, MAX_EF_SEARCH)};"
        )
        return self.run("search", search, settings, exact_for or 0)

    def _wanted(self, session: Session, condition: Condition, rows: int, depth: int) -> int:
        """Return how many rows to take by their bits, 0 to compare all that pass.

        Documents drawn at random tell the share: the planner knows nothing of most conditions on metadata. It is
        remembered for some seconds.
        """
        wanted, share = depth, 1.0
        if rows and condition is not ALWAYS:
            key = hash((condition.text, repr(condition.values)))
            share, end = self._shares.get(key, (1.0, 0.0))
            if time.monotonic() > end:
                drawn = f"SELECT * FROM {self.documents} ORDER BY draw, id LIMIT {_SAMPLED}"
                query = f"SELECT count(*) FILTER (WHERE {condition.text}), count(*) FROM ({drawn}) d"
                passing, count = all_rows(session, query, condition.values)[0]
                share = passing / max(count, 1)
                if len(self._shares) > _SAMPLED:
                    self._shares.clear()
                self._shares[key] = share, time.monotonic() + _FRESH_SECONDS
            wanted = int(2 * depth / max(share, _EXACT_SHARE))
        return wanted if 2 * wanted < rows and share >= _EXACT_SHARE else 0

    def _rows(self, session: Session, field: Field) -> int:
        """Return about how many vectors a field has, 0 where all are compared. It is remembered for some seconds."""
        table, (rows, end) = self.tables[field], self._sizes.get(field, (0, 0.0))
        if table.has_bits and time.monotonic() > end:
            is_large = f"EXISTS (SELECT FROM {table.bits} OFFSET {self.exact_up_to})"
            query = f"SELECT CASE WHEN {is_large} THEN pg_relation_size(%s::regclass) ELSE 0 END"
            rows = all_rows(session, query, (table.bits,))[0][0] // (44 + table.dim // 8)
            self._sizes[field] = rows, time.monotonic() + _FRESH_SECONDS
        return rows

    def approximate(self) -> dict[Field, int]:
        """Return the fields searched approximately, with a size that differs once they have graphs."""
        self._sizes.clear()
        return self.run(
            "measure it",
            lambda session: {
                field: rows + max(table.graphs(session), default=0)
                for field, table in self.tables.items()
                if (rows := self._rows(session, field))
            },
        )

    # ---- graphs

    def maintain(self) -> None:
        """Make the graphs that are due, in the background."""
        if time.monotonic() > self._next and not (self._builder and self._builder.is_alive()):
            self._next = time.monotonic() + _FRESH_SECONDS
            self._builder = threading.Thread(target=self._build_due, name="graphs", daemon=True)
            self._builder.start()

    def _build_due(self) -> None:
        try:
            with running_under(self.closing):
                for field in self.due():
                    self.build(field, waits=False)
        except VlmsearchError:  # a check says what is due, and a repair why it fails
            self._next = time.monotonic() + _PAUSE

    def due(self) -> list[Field]:
        """Return the fields for which a graph is due."""
        return self.run(
            "check it",
            lambda session: [f for f, table in self.tables.items() if table.is_due(session, self.graph_from)],
        )

    def build(self, field: Field, *, waits: bool = True) -> None:
        """Make a graph of the vectors of a field that are in none. Searches and writers go on."""
        table = self.tables[field]

        def settled(session: Session) -> int:
            """Return a number up to which no row is being written. Whoever writes rows has ended, or begins later."""
            session.execute(f"LOCK TABLE {self.documents} IN SHARE MODE")
            return int(all_rows(session, f"SELECT coalesce(max(row), 0) FROM {table.table}")[0][0])

        bound = self.run("make a graph", settled)
        if merged := self.run("make a graph", lambda session: table.build(session, bound, waits), _BUILD, DAY):
            with suppress(BackendError):  # they do no harm, and the next graph takes them in again
                self.run("remove a graph", lambda session: table.drop(session, merged))

    def close(self) -> None:
        """Give up a graph that is being made."""
        self.closing.cancel()
        if self._builder:
            self._builder.join()


def _may_miss(far: Sequence[float], reach: float, dim: int) -> bool:
    """Return whether documents as near as the hits may not have been compared.

    So it is where a filter keeps the documents near a query away: the signs hardly tell the remaining ones apart.

    Args:
        far: Of each hit, the signs that it has not in common with the query.
        reach: The most of all that were compared.
        dim: All signs.
    """
    usual = fmean(far)
    return reach < usual + _DEVIATIONS * sqrt(usual * (1 - usual / dim))


def array_of(vector: Any) -> NDArray[np.float32]:
    """Return a vector that was read."""
    return np.asarray(vector.to_numpy() if isinstance(vector, Vector) else vector, np.float32)
