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
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector

from vlmsearch._util.batching import batches
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import VlmsearchError
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.postgresql.connection import Session, all_rows, quoted
from vlmsearch.stores.postgresql.values import ALWAYS, Condition, compile_filter, escape, hit_of
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.types import Field, Vectors

T = TypeVar("T")
MAX_EF_SEARCH = 1000
DAY = 86_400.0
"""Seconds that work on a whole index may take."""
BITMAP = "SET LOCAL work_mem = '64MB';"
"""Memory in which half a million rows of an index fit one by one: else all rows of their pages are looked at."""
_MIN_BITS, _MAX_IN_GRAPH = 64, 4000
"""The fewest numbers of a vector with bits, and the most of one in a graph."""
_MAX_IN_ROW = 2000
"""Numbers of a vector at most for which a page has room."""
_AT_ONCE = 500
"""Vectors that one statement writes."""
_RERANKED, _SIGNS = 1000, 400_000
"""The fewest vectors that a search by bits compares in full, and their fewest signs."""
_SAMPLED, _EXACT_SHARE, _EXACT_MATCHES = 500, 0.02, 10_000
"""Documents on which a filter is tried. Up to this share or number that pass, all are compared."""
_FRESH_SECONDS = 10.0
"""Seconds for which the size of a field is remembered."""
_NESTED = f"{BITMAP}SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;"
"""Settings with which rows are looked up in the order of their bits until enough pass."""
_BUILD = (
    "SET LOCAL client_connection_check_interval = 5000;"
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

    @property
    def distance(self) -> str:
        """Return the operator of the negative inner product."""
        return self._operator("<#>")

    def _operator(self, name: str) -> str:
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
            session.execute(query, (numbers, [Vector(vectors[number]) for number in numbers]))

    def forget(self, session: Session, numbers: list[int]) -> None:
        """Remove the vectors of rows. Graphs keep their numbers, which no row has again."""
        for table in (self.table, *([self.bits] if self.has_bits else [])):
            session.execute(f"DELETE FROM {table} WHERE row = ANY(%s)", (numbers,))

    # ---- the queries of candidates, nearest first; a placeholder each for the query and the number of rows

    def by_bits(self, above: int = 0) -> str:
        """Return the query of rows with many signs of a vector, of those above a number."""
        common = f"bits {self._operator('<~>')} {self._signs('%s')}"
        later = f" WHERE row > {above}" if above else ""
        return f"SELECT row, {common} AS far FROM {self.bits}{later} ORDER BY far LIMIT %s"

    def by_graph(self, segment: int) -> str:
        """Return the query of the rows of a graph that are still there."""
        return (
            f"SELECT unnest(rows) AS row FROM (SELECT rows FROM {self.graph} g WHERE segment = {segment} "
            f"AND (SELECT true FROM {self.table} v WHERE v.row = ANY(g.rows) LIMIT 1) "
            f"ORDER BY vector {self.distance} %s::{self._halved} LIMIT %s) entries"
        )

    # ---- graphs

    def graphs(self, session: Session) -> dict[int, str]:
        """Return the segments that have a graph, lowest first, each with the name of its index."""
        query = (
            "SELECT substring(pg_get_expr(indpred, indrelid) FROM '[0-9]+')::bigint, indexrelid::regclass::text "
            "FROM pg_index WHERE indrelid = %s::regclass AND indisvalid AND indpred IS NOT NULL ORDER BY 1"
        )
        return dict(all_rows(session, query, (self.graph,))) if self.can_have_graphs else {}

    def count_without(self, session: Session, limit: int) -> int:
        """Return how many vectors are in no graph, counting no further than to a limit."""
        above = max(self.graphs(session), default=0)
        query = f"SELECT count(*) FROM (SELECT FROM {self.table} WHERE row > {above} LIMIT %s) few"
        return int(all_rows(session, query, (limit,))[0][0])

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

    def build(self, session: Session, bound: int) -> None:
        """Make a graph of the rows up to a bound, unless somebody else does.

        Graphs that have less than twice as many rows are taken into it: so there are few, and each row is in a new one
        a few times at most.

        Args:
            session: The connection.
            bound: The number of a row below which no transaction is writing.
        """
        (is_free,) = all_rows(session, "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", (self.graph,))[0]
        graphs = self.graphs(session) if is_free else {}
        bounds = [0, *graphs]
        while len(bounds) > 1 and bounds[-1] - bounds[-2] < 2 * (bound - bounds[-1]):
            bounds.pop()
        if not is_free or bound <= max(graphs, default=0):
            return
        merged = {segment: index for segment, index in graphs.items() if segment > bounds[-1]}
        half = f"vector::{self._halved}"
        session.execute(f"DELETE FROM {self.graph} WHERE segment > %s", (bounds[-1],))
        session.execute(
            f"INSERT INTO {self.graph} SELECT %s, array_agg(row ORDER BY row), {half} FROM {self.table} "
            f"WHERE row > %s AND row <= %s GROUP BY {half}",
            (bound, bounds[-1], bound),
        )
        operators = quoted(self.extension, "halfvec_ip_ops")
        session.execute(f"CREATE INDEX ON {self.graph} USING hnsw (vector {operators}) WHERE segment = {bound}")
        for index in merged.values():  # last, since searches wait for the end from here on
            session.execute(f"DROP INDEX {index}")


class Transaction(Protocol):
    """Something that calls a function within a transaction, such as `PostgresConnection.run`."""

    def __call__(self, operation: str, call: Callable[[Session], T], settings: str = "", timeout: float = 0) -> T:
        """Call the function, and return what it does."""


class _Size(NamedTuple):
    rows: int
    has_graphs: bool
    end: float


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
    _sizes: dict[Field, _Size] = attribute(default_factory=dict)
    _builder: threading.Thread | None = None
    _looked: float = 0.0

    # ---- searching

    def find_nearest(
        self, field: Field, vectors: Vectors, limit: int, where: Filter | None
    ) -> list[list[VersionedHit]]:
        """Find the nearest documents of each query: exactly in a small field, or where few pass the filter."""
        size, condition = self._size(field), compile_filter(where)
        if size.rows <= self.exact_up_to:
            return self.find_exactly(field, vectors, limit, where)
        table = self.tables[field]
        depth = max(_RERANKED, _SIGNS // table.dim, 5 * limit) * (1 if condition is ALWAYS else 4)

        def search(session: Session) -> list[list[VersionedHit]]:
            wanted = depth if condition is ALWAYS else self._wanted(session, condition, size.rows, depth)
            graphs = list(table.graphs(session)) if size.has_graphs and condition is ALWAYS else []
            pages = []
            for vector in map(Vector, vectors):
                session.deadline.renew()  # each query may read all bits
                hits, passed = list[VersionedHit](), 0
                if wanted:
                    hits, passed = self._approximate(session, table, vector, limit, condition, depth, wanted, graphs)
                is_short = passed < (min(depth, size.rows) if not graphs else limit) and wanted < size.rows
                pages.append(self._exact(session, table, vector, limit, condition) if is_short else hits)
            return pages

        return self.run("search", search, self._settings(max(self.ef_search, limit)))

    def find_exactly(
        self, field: Field, vectors: Vectors, limit: int, where: Filter | None, timeout: float = 0
    ) -> list[list[VersionedHit]]:
        """Compare all documents that pass a filter with each query."""
        return self.compare(field, vectors, limit, compile_filter(where), timeout)

    def compare(
        self, field: Field, vectors: Vectors, limit: int, condition: Condition, timeout: float = 0
    ) -> list[list[VersionedHit]]:
        """Compare all documents for which a condition holds with each query."""
        table = self.tables[field]
        return self.run(
            "search",
            lambda session: [self._exact(session, table, Vector(vector), limit, condition) for vector in vectors],
            BITMAP,
            timeout,
        )

    def _settings(self, candidates: int) -> str:
        ef_search = min(candidates, MAX_EF_SEARCH)
        return f"{_NESTED}SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = {ef_search};"

    def _wanted(self, session: Session, condition: Condition, rows: int, depth: int) -> int:
        """Return how many rows to take by their bits, 0 to compare all that pass.

        Documents drawn at random tell the share: the planner knows nothing of most conditions on metadata.
        """
        drawn = f"SELECT * FROM {self.documents} ORDER BY draw, id LIMIT {_SAMPLED}"
        query = f"SELECT count(*) FILTER (WHERE {condition.text}), count(*) FROM ({drawn}) d"
        passing, count = all_rows(session, query, condition.values)[0]
        share = passing / max(count, 1)
        return 0 if share < _EXACT_SHARE or share * rows <= _EXACT_MATCHES else int(4 * depth / share)

    def _approximate(
        self,
        session: Session,
        table: VectorTable,
        vector: Vector,
        limit: int,
        condition: Condition,
        depth: int,
        wanted: int,
        graphs: Sequence[int],
    ) -> tuple[list[VersionedHit], int]:
        """Compare the candidates of a query, and return how many there were, too."""
        values: list[object] = [vector, vector, wanted]
        if condition is not ALWAYS:
            candidates = (
                f"SELECT row FROM ({table.by_bits()}) near JOIN {self.documents} d USING (row) "
                f"WHERE {condition.text} ORDER BY far LIMIT %s"
            )
            values += [*condition.values, depth]
        else:
            later = f"SELECT row FROM ({table.by_bits(max(graphs, default=0))}) near"
            candidates = " UNION ALL ".join([later, *map(table.by_graph, graphs)])
            values += [vector, max(self.ef_search, limit)] * len(graphs)
        nearest = (
            f"(SELECT v.row, v.vector {table.distance} %s AS distance, count(*) OVER () AS passed "
            f"FROM ({candidates}) c JOIN {table.table} v USING (row) ORDER BY distance FETCH FIRST %s ROWS WITH TIES) v"
        )
        rows = self._hits(session, nearest, "v.passed", [*values, limit, limit])
        return [hit_of(*row) for *row, _ in rows], rows[0][-1] if rows else 0

    def _exact(
        self, session: Session, table: VectorTable, vector: Vector, limit: int, condition: Condition
    ) -> list[VersionedHit]:
        session.deadline.renew()  # each query may read all vectors
        joined, cut, values = f"JOIN {self.documents} d USING (row) WHERE {condition.text}", "", [*condition.values]
        if condition is ALWAYS:
            joined, cut, values = "", "ORDER BY distance FETCH FIRST %s ROWS WITH TIES", [limit]
        nearest = f"(SELECT row, v.vector {table.distance} %s AS distance FROM {table.table} v {joined} {cut}) v"
        return [hit_of(*row) for row in self._hits(session, nearest, "", [vector, *values, limit])]

    def _hits(self, session: Session, nearest: str, more: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        query = (
            f"SELECT d.id, least(1, greatest(-1, -v.distance)), d.version, d.fields{more and f', {more}'} "
            f"FROM {nearest} JOIN {self.documents} d USING (row) ORDER BY v.distance, d.id LIMIT %s"
        )
        return all_rows(session, query, values)

    # ---- sizes

    def forget_sizes(self) -> None:
        """Look at the sizes anew at the next search, as after a write."""
        self._sizes.clear()

    def _size(self, field: Field) -> _Size:
        """Return about how many vectors a field has. It is 0 for one that can only be searched exactly."""
        table, size = self.tables[field], self._sizes.get(field)
        if not table.has_bits:
            return _Size(0, False, 0)
        if size is None or time.monotonic() > size.end:

            def look(session: Session) -> _Size:
                few = f"SELECT count(*) FROM (SELECT FROM {table.bits} LIMIT {self.exact_up_to + 1}) few"
                count, size = all_rows(session, f"SELECT ({few}), pg_relation_size(%s::regclass)", (table.bits,))[0]
                rows = count if count <= self.exact_up_to else max(count, size // (44 + table.dim // 8))
                return _Size(rows, bool(table.graphs(session)), time.monotonic() + _FRESH_SECONDS)

            size = self._sizes[field] = self.run("measure it", look)
        return size

    # ---- graphs

    def maintain(self) -> None:
        """Make the graphs that are due, in the background."""
        if time.monotonic() < self._looked + _FRESH_SECONDS or (self._builder and self._builder.is_alive()):
            return
        self._looked = time.monotonic()
        if due := self.due():
            self._builder = threading.Thread(target=self._build_all, args=(due,), name="graphs", daemon=True)
            self._builder.start()

    def _build_all(self, fields: Collection[Field]) -> None:
        with suppress(VlmsearchError), running_under(self.closing):  # the next write, or a check, does it again
            for field in fields:
                self.build(field)

    def due(self) -> dict[Field, int]:
        """Return the fields for which a graph is due, with the number of vectors without one."""
        due: dict[Field, int] = {}
        for field, table in self.tables.items():
            if table.can_have_graphs:
                limit = 2**62 if self._size(field).rows > self.graph_from else 0
                count = self.run("check it", lambda session: table.count_without(session, limit))  # noqa: B023
                due |= {field: count} if count > self.graph_from else {}
        return due

    def build(self, field: Field) -> None:
        """Make a graph of the vectors of a field that are in none. Searches and writers go on."""
        table = self.tables[field]

        def settled(session: Session) -> int:
            """Return a number up to which no row is being written. Whoever writes rows has ended, or begins later."""
            session.execute(f"LOCK TABLE {self.documents} IN SHARE MODE")
            return int(all_rows(session, f"SELECT coalesce(max(row), 0) FROM {table.table}")[0][0])

        bound = self.run("make a graph", settled)
        self.run("make a graph", lambda session: table.build(session, bound), _BUILD, DAY)
        self.forget_sizes()

    def close(self) -> None:
        """Give up a graph that is being made."""
        self.closing.cancel()
        if self._builder:
            self._builder.join()

    def approximate(self) -> dict[Field, int]:
        """Return the fields that are not searched exactly. Their sizes differ once they have graphs."""
        self.forget_sizes()
        sizes = {field: self._size(field) for field in self.tables}
        large = {field: size for field, size in sizes.items() if size.rows > self.exact_up_to}
        return {field: size.rows * (2 if size.has_graphs else 1) for field, size in large.items()}


def array_of(vector: Any) -> NDArray[np.float32]:
    """Return a vector that was read."""
    return np.asarray(vector.to_numpy() if isinstance(vector, Vector) else vector, np.float32)
