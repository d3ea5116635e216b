"""PostgreSQL with pgvector as a store of documents and their vectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from psycopg import errors

from vlmsearch._util.arguments import check_bounds
from vlmsearch._util.batching import PAGE, batches, groups, pages
from vlmsearch._util.cancellation import CancelToken
from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.stores.base import CheckReport, CountsWords, DiskUse, changed_records
from vlmsearch.stores.documents import (
    DatabaseStore,
    DocumentRow,
    RowCount,
    RowPart,
    records_of,
    with_passages,
    words_of_row,
)
from vlmsearch.stores.filters import Comparison, Filter
from vlmsearch.stores.generations import Slot
from vlmsearch.stores.listing import Outline
from vlmsearch.stores.passages import row_stamp, rows_of
from vlmsearch.stores.postgresql.connection import (
    DEFAULT_OPTIONS,
    READING,
    SNAPSHOT,
    PostgresAddress,
    PostgresConnection,
    PostgresOptions,
    Session,
    all_rows,
    check_name,
    connect,
    quoted,
    refuse_password,
)
from vlmsearch.stores.postgresql.earlier import earlier_tables
from vlmsearch.stores.postgresql.ownership import CheckedTable, check_tables, exposures, proof_of
from vlmsearch.stores.postgresql.segments import SegmentSize, is_due
from vlmsearch.stores.postgresql.tables import SEAL, IndexTables, measure, rough_size
from vlmsearch.stores.postgresql.values import (
    ALWAYS,
    COLUMNS,
    IS_DOCUMENT,
    STATE,
    Condition,
    RowNumbers,
    among,
    among_lists,
    check_size,
    compile_filter,
    document_row,
    escape,
    metadata_of,
    row_of,
    split_scope,
    unescape,
)
from vlmsearch.stores.postgresql.vectors import DAY, MAX_EF_SEARCH, FieldSearch, VectorTable, array_of
from vlmsearch.stores.postgresql.words import ONE_MOMENT, Scope, WordRanking
from vlmsearch.stores.postings import MAX_ROWS, Postings
from vlmsearch.stores.readers import check_writable, keep_readers
from vlmsearch.stores.recall import Recalls
from vlmsearch.stores.terms import AUTO, check_language
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.stores.writers import new_version
from vlmsearch.types import (
    READERS,
    Document,
    Field,
    Hit,
    Manifest,
    MetadataChange,
    MetadataValue,
    Record,
    Reject,
    Space,
    Stamp,
    Vectors,
    WordHits,
    document_of,
    possible_ids,
)

T = TypeVar("T")
_WRITES = 500
_OWN_POLICIES = "SET LOCAL row_security = on;"
"""The setting of transactions on tables with policies.

These hide nothing from a role that is in the owner's.
"""


class PostgresStore(DatabaseStore):
    """Documents and vectors in a database with pgvector: ``postgresql://user@host:5432/database``.

    Several hosts are separated by commas; without one, libpq's default or PGHOST. The password comes from PGPASSWORD or
    a passfile (PGPASSFILE, ~/.pgpass), the user from the URL or PGUSER. ``postgresql:env:DATABASE_URL`` reads all of
    these from the URL in that variable. `PostgresOptions` has all else about the
    connection. ``schema`` is a schema of the database, ``table`` the name with which the index's tables begin.

    A field is searched exactly up to ``exact_up_to`` documents, and by the signs of its vectors from then on.
    `vlmsearch info` measures its recall. A filter that few documents pass is answered exactly. ``graph_from`` vectors
    or more get an HNSW graph in the background. ``ef_search`` is the number of candidates that a search of it keeps,
    from 1 to 1,000: more find more, and take longer. ``language`` is that of a new index, by
    whose stems words are compared: see `vlmsearch.stores.terms`.

    HNSW is by Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical
    Navigable Small World graphs", IEEE TPAMI 42(4), 2020.
    """

    kind = "postgresql"
    format = 3
    default_language = AUTO
    is_served = True
    check_location = staticmethod(refuse_password)

    def __init__(
        self,
        location: str | PostgresConnection,
        *,
        schema: str = "public",
        table: str = "vlmsearch",
        exact_up_to: int = 20_000,
        ef_search: int = 400,
        graph_from: int = 200_000,
        language: str | None = None,
        options: PostgresOptions = DEFAULT_OPTIONS,
    ) -> None:
        check_name("schema", schema)
        check_name("table", table)
        if language is not None:
            check_language(language)
        check_bounds(0, 2**31 - 1, exact_up_to=exact_up_to, graph_from=graph_from)
        check_bounds(1, MAX_EF_SEARCH, ef_search=ef_search)
        connection = location
        if isinstance(connection, str):
            connection = connect(PostgresAddress.parse(connection), options)
        given = {"schema": (schema, "public"), "table": (table, "vlmsearch")}
        query = "&".join(f"{name}={value}" for name, (value, usual) in given.items() if value != usual)
        super().__init__(f"{connection.name}?{query}" if query else connection.name, language=language)
        self._connection = connection
        self._schema, self._table = schema, table
        self._slots, self._rejects = quoted(schema, f"{table}_index"), quoted(schema, f"{table}_rejects")
        self._exact_up_to, self._ef_search, self._graph_from = exact_up_to, ef_search, graph_from
        self._closing = CancelToken()
        self._vectors = self._search_of("", {})
        self._proof_of_slots = ""
        """Statements that prove that the tables beside the generations are those that were looked at."""
        self._known, self._open_by = _Known(), ""
        """The tables, and the proof of those in which no document has readers."""

    # ---- what it is made of

    def read_slot(self, slot: Slot) -> dict[str, Any] | None:
        """Read the row of a slot; None where it has none."""
        query = f"SELECT row FROM {self._slots} WHERE slot = %s"
        if self._proof_of_slots:
            try:
                return self._read_slot(slot, query)
            except BackendError as exc:
                if not isinstance(exc.__cause__, errors.UndefinedTable):
                    raise
                self._proof_of_slots = ""
        if not self._connection.run("look for the index", self._check_slots):
            return None
        return self._read_slot(slot, query)

    def _read_slot(self, slot: Slot, query: str) -> dict[str, Any] | None:
        rows = self._read_beside("look for the index", query, (slot,))
        return dict(rows[0][0].get("now", rows[0][0])) if rows else None

    def _check_slots(self, session: Session) -> bool:
        """Return whether the tables beside the generations are there; ConfigError where they are a stranger's."""
        tables = {f"{self._table}_index": _SLOTS, f"{self._table}_rejects": _REJECTS}
        checked = check_tables(session, self._schema, tables, self.name)
        if f"{self._table}_index" in checked:
            self._proof_of_slots = proof_of(self._schema, checked)
        return bool(self._proof_of_slots)

    def _read_beside(self, operation: str, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Read from the tables beside the generations."""
        return self._connection.run(
            operation, lambda session: all_rows(session, query, values), settings=READING, proof=self._proof_of_slots
        )

    def _change_beside(self, operation: str, query: str, values: Sequence[object]) -> int:
        """Change the tables beside the generations, and return how many rows it was about."""
        return self._connection.run(
            operation, lambda session: session.execute(query, values).rowcount, proof=self._proof_of_slots
        )

    def fill_slot(self, slot: Slot, row: Mapping[str, Any]) -> None:
        """Make the row of a slot, unless there is one."""
        query = f"INSERT INTO {self._slots} (slot, row) VALUES (%s, %s::json) ON CONFLICT DO NOTHING"
        self._change_beside("make the index", query, (slot, json.dumps(row)))

    def replace_slot(self, slot: Slot, row: Mapping[str, Any], revision: str | None) -> bool:
        """Put another row in the place of one of this revision, at one instant: False where there is none.

        While the index has an old generation that an earlier version made, processes of that version may have it open.
        They see it unchanged, so they go on reading, and frozen, so they write nothing.
        """
        old = row.get("old") or row
        is_alike = old["format"] == row["format"]
        shown = row if is_alike else {**old, "format": row["format"], "change": _LATER, "now": row}
        query = f"UPDATE {self._slots} SET row = %s::json WHERE slot = %s AND {_IS_OF_REVISION}"
        return self._change_beside("change the index", query, (json.dumps(shown), slot, revision)) == 1

    def clear_slot(self, slot: Slot, revision: str | None) -> None:
        """Remove the row of a slot, if it is of this revision."""
        query = f"DELETE FROM {self._slots} WHERE slot = %s AND {_IS_OF_REVISION}"
        self._change_beside("forget an index", query, (slot, revision))

    def prepare(self, spaces: Sequence[Space], generation: str) -> None:
        """Make the tables of a generation, and what is missing of the index beside them."""
        self._connection.install()
        tables = self._tables_of(generation, spaces)

        def check(session: Session) -> None:
            self._check_slots(session)
            tables.check(session, self.name)

        def create(session: Session) -> None:
            session.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self._slots,))
            check(session)
            if not all_rows(session, "SELECT FROM pg_namespace WHERE nspname = %s", (self._schema,)):
                session.execute(f"CREATE SCHEMA {quoted(self._schema)}")
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {self._slots} (slot text PRIMARY KEY, row json NOT NULL);"
                f'CREATE TABLE IF NOT EXISTS {self._rejects} (id text COLLATE "C" PRIMARY KEY, code text NOT NULL, '
                "message text NOT NULL, digest text NOT NULL, source text NOT NULL)"
            )
            tables.create(session)
            check(session)  # what another role made meanwhile was taken as it is
            if taken := tables.missing_indexes(session):
                raise ConfigError(
                    f"{self.name} cannot have its index {taken[0]}: something else in the schema {self._schema} has "
                    "that name"
                )

        self._connection.run("make its tables", create)

    def opened(self, manifest: Manifest, generation: str) -> None:
        """Note the tables of the generation; ConfigError where they are a stranger's."""
        self._tables = self._tables_there(generation, manifest.spaces)
        checked = self._prove(manifest.language)
        if unmarked := [name for name, table in checked.items() if not table.comment]:
            with suppress(BackendError):  # as it may not where it only reads
                self._connection.run("mark its tables", lambda session: self._tables.mark(session, unmarked))
        self._recalls = Recalls()
        self._vectors = self._search_of(self._tables.documents, self._tables.vectors)

    def _search_of(self, documents: str, tables: Mapping[Field, VectorTable]) -> FieldSearch:
        sizes = self._exact_up_to, self._ef_search, self._graph_from
        return FieldSearch(documents, tables, self._session, *sizes, self._closing)

    def _tables_of(self, generation: str, spaces: Sequence[Space]) -> IndexTables:
        extension = self._connection.needed_extension()
        return IndexTables.of(self._schema, f"{self._table}${generation}", spaces, extension)

    def _tables_there(self, generation: str, spaces: Sequence[Space]) -> IndexTables:
        """Return the tables of a generation, which an earlier version may have made."""
        usual = self._tables_of(generation, spaces)
        names = (self._schema, self._table, generation)
        earlier = self._connection.run(
            "look at its tables", lambda session: earlier_tables(session, *names, spaces, usual.extension)
        )
        return earlier or usual

    def _prove(self, language: str) -> dict[str, CheckedTable]:
        """Look at the tables of the generation, and note how later transactions know them."""
        tables = self._tables
        vector = quoted(tables.extension, "vector")

        def check(session: Session) -> tuple[dict[str, CheckedTable], int]:
            (number,) = all_rows(session, "SELECT to_regtype(%s)::oid::bigint", (vector,))[0]
            return tables.check(session, self.name), number

        checked, number = self._connection.run("look at its tables", check)
        has_lists = f"{tables.name}${READERS}" in checked
        proof = proof_of(self._schema, checked, (vector, number), "" if has_lists else tables.lists)
        self._words = WordRanking(tables, language)  # before the proof by which it is used
        self._known = _Known(proof, tables.documents, tables.lists if has_lists else "")
        return checked

    def _compiled(self, session: Session, documents: str, where: Filter | None) -> Condition:
        """Return a filter as a condition on a table of documents within a transaction."""
        return compile_filter(where, partial(self._readable, session, documents))

    def _readable(self, session: Session, documents: str, scope: Comparison) -> Condition:
        known = self._known
        if session.proof != known.proof or documents != known.documents:  # another generation is being opened
            return compile_filter(scope)
        if known.lists:
            return among_lists(scope, known.lists)
        if self._open_by != known.proof:  # readers may have been written by hand
            query = f"SELECT FROM {documents} WHERE metadata ? 'readers' LIMIT 1"
            if all_rows(session, query):
                return compile_filter(scope)
            self._open_by = known.proof
        return ALWAYS

    def _named(
        self, session: Session, documents: str, where: Filter | None, ids: Collection[str] | None = None
    ) -> tuple[Condition, RowNumbers | None]:
        """Return a filter in a transaction that sees one moment.

        What is readable may be by the numbers of its rows.
        """
        known, words, (scope, rest), named = self._known, self._words, split_scope(where), None
        if scope and known.lists and session.proof == known.proof and documents == words.documents:
            named = words.named_within(session, Scope(scope, among_lists(scope, known.lists)))
        condition = self._compiled(session, documents, rest if named else where)
        return condition if ids is None else among(ids, condition), named

    def describe(self) -> dict[str, str]:
        """Return how the store searches, for people; the recall of an index of vectors is measured."""
        self.needed()
        described = {"search": "exact"}
        for field, size in self._vectors.approximate().items():
            described["search"] = "approximate"
            described[f"search {field}"] = self._recalls.of(self, field, size, partial(self._find_exactly, field))
        return {**described, **super().describe()}

    def _find_exactly(
        self, field: Field, vectors: Vectors, limit: int, where: Filter | None
    ) -> list[list[VersionedHit]]:
        return self._vectors.find_nearest(field, vectors, limit, partial(self._named, where=where), exact_for=DAY)

    def drop(self, generation: str, spaces: Sequence[Space]) -> None:
        """Remove everything that a generation has."""
        tables = self._tables_there(generation, spaces)
        self._connection.run("drop its tables", lambda session: tables.drop(session, self.name))

    # ---- writing

    def check_keepable(self, row: Record) -> None:
        """Raise InvalidInputError for a row that PostgreSQL cannot keep."""
        check_size(row)

    def write(self, records: Sequence[Record], scope: Filter | None = None) -> None:
        """Add or replace records, up to 500 rows in one transaction. Those of a document are in the same one.

        Within a scope, all are written in one transaction.
        """
        self._make_lists(record.document for record in records)
        sizes = [1 + len(record.passages) for record in records]
        total = _WRITES if scope is None else sum(sizes)  # all are checked before any is written
        for (batch,) in self.batches(list(groups(records, sizes, total=total)), 1):
            self._merge(self._session("write documents", self._writer(batch, new_version(), scope)))
        self._vectors.maintain()

    def _make_lists(self, documents: Iterable[Document]) -> None:
        """Make the lists of readers that the index has from its first document with readers on."""
        if self._known.lists or not any(READERS in document.metadata for document in documents):
            return

        def create(session: Session) -> None:
            session.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self._slots,))
            self._tables.check(session, self.name)
            self._tables.create_lists(session)

        self._connection.run("keep readers", create, timeout=DAY)
        self._prove(self.needed().language)

    def _writer(
        self, records: Sequence[Record], version: str, scope: Filter | None = None, *, keeps: bool = True
    ) -> Callable[[Session], list[SegmentSize]]:
        """Return a function that adds or replaces records. It returns the sizes of all segments of words.

        Args:
            records: The records.
            version: Their version.
            scope: What their writer may read.
            keeps: Whether those without readers keep the ones that the index has.
        """
        rows = sorted(rows_of(records), key=lambda row: row.document.id)
        words, language = list[Postings](), self.needed().language
        for places in batches(range(len(rows)), MAX_ROWS):
            words.append(Postings.of(places, (words_of_row(rows[place]) for place in places), language))
        lengths = {place: n for part in words for place, n in zip(part.rows.tolist(), part.lengths.tolist())}
        prepared = {row.document.id: row_of(row, version, lengths.get(n, 0)) for n, row in enumerate(rows)}
        vectors = {row.document.id: row.vectors for row in rows}

        def upsert(session: Session) -> list[SegmentSize]:
            if scope is not None:
                known = self._lock(session, [record.document.id for record in records])
                check_writable(records, known, scope)
            sizes, replaced = self._tables.upsert(session, prepared, words, vectors, keeps=keeps)
            if scope is not None and replaced.keys() - known.keys():
                raise errors.SerializationFailure("another writer added a document of this batch: it is checked again")
            stored = {id: metadata_of({READERS: own}) for id, own in replaced.items() if own is not None}
            kept = [new for record, new in zip(records, keep_readers(records, stored)) if new is not record]
            return (self._tables.change_metadata(session, kept, version) if kept else []) or sizes

        return upsert

    def _merge(self, sizes: Sequence[SegmentSize]) -> None:
        """Merge segments of words after a write, where some are due. What fails then is left to the next one."""
        if is_due(sizes):
            with suppress(BackendError):
                self._session("merge words", self._tables.words.merge)

    def change_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace metadata and texts of documents that are still as they were read, in one step."""
        changed: list[str] = []
        self._make_lists(change.of(change.document) for change in changes)
        for batch in self.batches(changes, _WRITES):
            ids, sizes = self._session("change metadata", lambda session: self._change_rows(session, batch))  # noqa: B023
            self._merge(sizes)
            changed += ids
        return changed

    def _change_rows(self, session: Session, changes: Sequence[MetadataChange]) -> tuple[list[str], list[SegmentSize]]:
        ids = [change.document.id for change in changes]
        texts = {change.document.id for change in changes if change.text is not None}
        rows = self._read_rows(session, [*self._lock(session, ids)], ["document"])
        known = {id: replace(row.record(), stamp=row_stamp(row.stamp).stamp) for id, row in rows.items()}
        if texts:  # their vectors are written anew, with those of images, which are with passages
            known |= self._whole_records(session, texts & rows.keys())
        changed = {record.document.id: record for record in changed_records(known.values(), changes)}
        version = new_version()
        sizes = self._tables.change_metadata(session, [changed[id] for id in changed.keys() - texts], version)
        sizes = self._writer([changed[id] for id in changed.keys() & texts], version, keeps=False)(session) or sizes
        return [id for id in ids if id in changed], sizes

    def _whole_records(self, session: Session, ids: Collection[str]) -> dict[str, Record]:
        rows = with_passages(lambda some: self._read_rows(session, list(some), ("document", "vectors")), ids)
        return records_of(rows, ids)

    def _write_again(self, ids: Collection[str]) -> None:
        """Write documents as they are, with their passages, so that they have words again."""

        def write(session: Session, ids: list[str]) -> None:
            records = self._whole_records(session, self._lock(session, ids).keys())
            self._writer(list(records.values()), new_version())(session)

        for batch in pages(ids):
            self._session("index words", lambda session: write(session, batch))  # noqa: B023

    def remove(self, ids: list[str], scope: Filter | None = None) -> int:
        """Remove some documents with their passages and vectors: those that pass a filter, where one is given."""

        def delete(session: Session) -> tuple[int, list[SegmentSize]]:
            locked = self._lock(session, ids)
            there = [id for id, metadata in locked.items() if scope is None or scope.matches(metadata)]
            return len(there), self._tables.remove(session, there)

        count, sizes = self._session("delete documents", delete)
        self._merge(sizes)
        return count

    def _lock(self, session: Session, ids: list[str]) -> dict[str, dict[str, MetadataValue]]:
        """Lock those documents that are there, in the order of writers; return their metadata by id."""
        query = (
            f"SELECT id, metadata FROM {self._tables.documents} WHERE id = ANY(%s) AND {IS_DOCUMENT} ORDER BY id "
            "FOR UPDATE"
        )
        return {id: metadata_of(metadata) for id, metadata in all_rows(session, query, (ids,))}

    # ---- vectors

    def find_nearest(
        self, field: Field, vectors: Vectors, limit: int, where: Filter | None
    ) -> list[list[VersionedHit]]:
        """Find the nearest documents of each query: see `FieldSearch`."""
        return self._vectors.find_nearest(field, vectors, limit, partial(self._named, where=where))

    def compare_vectors(
        self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None
    ) -> list[VersionedHit]:
        """Compare documents with one query."""
        return self._vectors.find_nearest(
            field, vectors[:1], len(ids), partial(self._named, where=where, ids=ids), exact_for=0
        )[0]

    def vectors_of(self, field: Field, ids: Collection[str]) -> list[NDArray[np.float32]]:
        """Read the vectors of a field that documents have."""
        query = (
            f"SELECT v.vector FROM {self._tables.vectors[field].table} v JOIN {self._tables.documents} d USING (row)"
        )
        rows = self._run("read vectors", f"{query} WHERE d.id = ANY(%s)", (list(ids),))
        return [array_of(vector) for (vector,) in rows]

    # ---- words

    def words_within(self, scope: Filter | None) -> CountsWords:
        """Return the words of the documents that pass a filter; those of others count nowhere."""
        return _Words(self, scope)

    def search_words(self, query: str, *, limit: int, where: Filter | None = None) -> WordHits:
        """Find the documents that share words with a query, best first. Equal scores are in the order of writing."""
        return self.words_within(None).search_words(query, limit=limit, where=where)

    def compare_words(self, query: str, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Score given documents by their words, best first, then by id."""
        return self.words_within(None).compare_words(query, ids, where)

    def count_words(self, words: Sequence[str]) -> list[int]:
        """Count the texts that hold each word."""
        return self.words_within(None).count_words(words)

    def rank_words(
        self,
        scope: Filter | None,
        where: Filter | None,
        rank: Callable[[WordRanking, Session, Condition, Scope | None], T],
    ) -> T | None:
        """Rank documents by their words at one moment; None where the index has no words.

        Args:
            scope: Filter that says which documents there are.
            where: Filter on these.
            rank: What ranks those that pass both.
        """
        manifest = self.as_opened()
        if manifest is None or not manifest.language:
            return None

        def ranked(session: Session) -> T:
            words = self._words
            compiled = partial(self._compiled, session, words.documents)
            within = compiled(scope)
            inner = None if scope is None or within is ALWAYS else Scope(scope, within)
            return rank(words, session, compiled(where), inner)

        return self._session("search words", ranked, ONE_MOMENT)

    # ---- reading

    def read_rows(self, ids: Collection[str], *parts: RowPart, wanted: str = "%s") -> dict[str, DocumentRow]:
        """Read the rows of documents or passages, by id."""
        rows: dict[str, DocumentRow] = {}
        for page in pages(ids):
            rows |= self._session(
                "read documents", partial(self._read_rows, ids=page, parts=parts, wanted=wanted), READING
            )
        return rows

    def read_whole(self, ids: Collection[str], *parts: RowPart) -> dict[str, DocumentRow]:
        """Read the rows of documents, and those of their passages, by id: each with its passages of one moment."""
        return self.read_rows(ids, *parts, wanted=f"%s::text[] || {self._tables.passages}")

    def _read_rows(
        self, session: Session, ids: list[str], parts: Collection[RowPart], wanted: str = "%s"
    ) -> dict[str, DocumentRow]:
        tables = list(self._tables.vectors.items()) if "vectors" in parts else []
        columns = "".join(f", v{n}.vector" for n in range(len(tables)))
        joined = " ".join(f"LEFT JOIN {vectors.table} v{n} USING (row)" for n, (_, vectors) in enumerate(tables))
        stored = COLUMNS if parts else STATE
        query = f"SELECT {stored}{columns} FROM {self._tables.documents} d {joined} WHERE d.id = ANY({wanted})"
        rows: dict[str, DocumentRow] = {}
        for id, *values in all_rows(session, query, [ids] * wanted.count("%s")):
            vectors = values[len(values) - len(tables) :]
            given = {field: array_of(vector) for (field, _), vector in zip(tables, vectors) if vector is not None}
            rows[id] = document_row(id, *values[: len(values) - len(tables)], vectors=given if tables else None)
        return rows

    def ids(self) -> Iterator[str]:
        """Yield all ids, in the order of their characters."""
        for page in self._scan("id"):
            yield from (id for (id,) in page)

    def _scan(
        self, columns: str, values: Sequence[object] = (), where: Filter | None = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of the documents that pass a filter, some at a time, by id. Ids come first."""
        last = ""
        while self.as_opened() is not None:
            rest = f"AND id > %s AND {IS_DOCUMENT} ORDER BY id LIMIT {PAGE}"
            page = self._read_passing("list documents", columns, where, rest, (last,), values)
            if page:
                yield page
            if len(page) < PAGE:
                return
            last = page[-1][0]

    def documents_after(self, id: str, count: int, where: Filter | None = None) -> list[Document]:
        """Return the next documents behind an id that pass a filter, by id."""
        if self.as_opened() is None:
            return []
        rest = f"AND id > %s AND {IS_DOCUMENT} ORDER BY id LIMIT %s"
        rows = self._read_passing("list documents", COLUMNS, where, rest, (id, count))
        return [document_row(*row).document for row in rows]

    def outlines(self, keys: Collection[str], where: Filter | None = None) -> Iterator[Outline]:
        """Read the outlines of the documents that pass a filter."""
        wanted = [escape(key) for key in keys]
        own = (
            "coalesce((SELECT jsonb_object_agg(k, d.metadata->k) FROM unnest(%s::text[]) k WHERE d.metadata ? k), '{}')"
        )
        for page in self._scan(f"id, image IS NOT NULL, {own}", (wanted,), where):
            yield from (Outline(id, has_image, metadata_of(own)) for id, has_image, own in page)

    def count(self) -> RowCount:
        """Count the rows."""
        query = f"SELECT count(*) FILTER (WHERE {IS_DOCUMENT}), count(*) FROM {self._tables.documents}"
        documents, rows = self._run("count documents", query)[0]
        return RowCount(documents, rows - documents)

    def count_within(self, scope: Filter) -> int:
        """Return how many documents pass a filter."""
        if self.as_opened() is None:
            return 0
        return int(self._read_passing("count documents", "count(*)", scope, f"AND {IS_DOCUMENT}")[0][0])

    def sampled_state(self) -> Hashable:
        """Return a value that differs when a sample may have changed."""
        documents = self._tables.documents
        size = self._session("measure it", lambda session: rough_size(session, documents), READING)
        return self.generation, self.writes_here, *size

    def sample_ids(self, field: Field, count: int) -> list[str]:
        """Return ids of documents that are chosen at random."""
        return self.sample_ids_within(field, count, None)

    def sample_ids_within(self, field: Field, count: int, scope: Filter | None) -> list[str]:
        """Return ids of documents that pass a filter and are chosen at random."""
        if self.as_opened() is None or count < 1:
            return []
        rest = "AND %s = ANY(fields) ORDER BY draw, id LIMIT %s"
        return [id for (id,) in self._read_passing("sample", "id", scope, rest, (str(field), count))]

    # ---- the reject list

    def read_rejects(self) -> list[Reject]:
        """Read the reject list."""
        rows = self._read_beside("list failed inputs", f"SELECT id, code, message, digest, source FROM {self._rejects}")
        return [
            Reject(id, code, unescape(message), Stamp(unescape(digest), unescape(source)))
            for id, code, message, digest, source in rows
        ]

    def write_rejects(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the reject list, or replace their entries."""
        rows = [
            {
                "id": reject.id,
                "code": reject.code,
                "message": escape(reject.message),
                "digest": escape(reject.stamp.digest),
                "source": escape(reject.stamp.source),
            }
            for reject in sorted(rejects, key=lambda reject: reject.id)
        ]
        query = (
            f"INSERT INTO {self._rejects} SELECT * FROM json_to_recordset(%s::json) AS given(id text, code text, "
            "message text, digest text, source text) ON CONFLICT (id) DO UPDATE SET code = EXCLUDED.code, "
            "message = EXCLUDED.message, digest = EXCLUDED.digest, source = EXCLUDED.source"
        )
        self._change_beside("note failed inputs", query, (json.dumps(rows),))

    def remove_rejects(self, ids: list[str]) -> None:
        """Take some inputs off the reject list."""
        self._change_beside("release inputs", f"DELETE FROM {self._rejects} WHERE id = ANY(%s)", (ids,))

    # ---- the server

    def check(self, *, repair: bool = False) -> CheckReport:
        """Compare documents with the vectors, words and passages that there are, and look for their indexes.

        A document and all that belongs to it are written in one transaction, so they agree unless somebody else wrote.
        A repair makes indexes, words, signs and graphs anew that somebody removed. It merges words that are due.
        """
        self.needed()
        tables = self._tables
        counts = {str(field): self._count_rows(vectors.table) for field, vectors in tables.vectors.items()}
        missing: set[str] = set()
        strays: dict[int, str] = {}
        for field, vectors in tables.vectors.items():
            query = (
                f"SELECT row FROM {vectors.table} v WHERE NOT EXISTS (SELECT FROM {tables.documents} WHERE row = v.row)"
            )
            strays |= {number: f"{field} of row {number}" for (number,) in self._run("check it", query)}
            query = (
                f"SELECT d.id FROM {tables.documents} d LEFT JOIN {vectors.table} v USING (row) "
                "WHERE (v.row IS NOT NULL) <> (%s = ANY(d.fields))"
            )
            missing |= {document_of(id) for (id,) in self._run("check it", query, (str(field),))}
        disagreeing = self._run("check it", tables.wrong_passages)
        missing |= {id for id, _ in disagreeing if id is not None}
        orphans = sorted(id for document, ids in disagreeing if document is None for id in ids)
        unindexed = self._session("check it", tables.missing_indexes)
        wordless, wrong = self._session(
            "check it", lambda session: tables.words.compare(session, tables.documents), SNAPSHOT, DAY
        )
        mislaid = {field: count for field in tables.vectors if (count := self._count_mislaid(field))}
        query = f"SELECT id FROM {tables.documents} WHERE row = ANY(%s)"
        unsaid = [id for some in batches(wordless, PAGE) for (id,) in self._run("check it", query, (some,))]
        lost = self._run(
            "check it", f"SELECT DISTINCT segment FROM {tables.words.pages} p WHERE {tables.words.stray_pages}"
        )
        has_lists = bool(self._known.lists)
        query = f"SELECT id FROM {tables.documents} WHERE {tables.unlisted}"
        unlisted = self._run("check it", query) if has_lists else []
        if repair and has_lists:
            self._session("mend lists of readers", tables.mend_lists, "", DAY)
        if repair and missing:
            query = f"UPDATE {tables.documents} SET digest = {SEAL} WHERE id = ANY(%s)"
            self._do("repair documents", query, (sorted(missing),))
        if repair and unsaid:  # first, with the vectors that these documents have by their numbers of now
            self._write_again(sorted(set(map(document_of, unsaid))))
        if repair and (orphans or strays or wrong or lost):
            self._session(
                "remove what no document has", lambda session: tables.remove_strays(session, list(strays), wrong)
            )
        while repair and self._session("merge words", tables.words.merge):
            continue
        for field in mislaid if repair else ():
            self._session("index vectors", tables.vectors[field].mend, "", DAY)
        due = self._vectors.due()
        for field in due if repair else ():
            self._vectors.build(field)
        if repair and unindexed:
            self._session("index its documents", tables.create, "", DAY)
        return CheckReport(
            self.name,
            self.count().documents,
            counts,
            orphans=tuple(orphans),
            missing=tuple(sorted(missing)),
            unindexed=(
                *(tables.indexes[name] for name in unindexed),
                *(f"readers of {id}" for (id,) in unlisted),
                *(f"words of {id}" for id in unsaid),
                *(strays[number] for number in sorted(strays)),
                *(f"words of row {number}" for number in wrong),
                *(
                    f"{count:,} vectors of {field}, which have no signs or no place in a graph"
                    for field, count in mislaid.items()
                ),
                *(f"pages of segment {number}" for (number,) in lost),
                *(f"vectors of {field}: more than {self._graph_from:,} have no graph" for field in due),
            ),
            repaired=repair,
            exposed=self.exposures(),
        )

    def exposures(self) -> tuple[str, ...]:
        """Say who else may create in the schemas of the index and of pgvector. Those who may make triggers count."""
        self.needed()
        names = [*self._tables.names, f"{self._table}_index", f"{self._table}_rejects"]
        extension = self._connection.needed_extension()
        return self._connection.run(
            "look at its schemas", lambda session: exposures(session, self._schema, names, extension)
        )

    def _count_mislaid(self, field: Field) -> int:
        return self._session("check it", self._tables.vectors[field].count_mislaid, SNAPSHOT, DAY)

    def _count_rows(self, table: str) -> int:
        return int(self._run("count vectors", f"SELECT count(*) FROM {table}")[0][0])

    def disk_use(self) -> DiskUse:
        """Measure the tables and indexes of all generations. The server does not say how much room is left."""
        self.needed()
        size = documents = 0
        for generation in self.kept_generations():
            tables = self._tables_there(generation, ())
            there, rows = self._connection.run("measure it", lambda session: measure(session, tables, self.name))  # noqa: B023
            size, documents = size + there, documents + rows
        return DiskUse(size, documents, None)

    def vector_bytes(self, dim: int) -> int:
        """Return about how many bytes a vector takes, in its rows and in a graph."""
        return 8 * dim + dim // 8 + 600

    def close(self) -> None:
        """Let go of the connections. A graph that is being made is given up."""
        self._vectors.close()
        self._connection.close()

    def _run(self, operation: str, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._session(operation, lambda session: all_rows(session, query, values), READING)

    def _read_passing(
        self,
        operation: str,
        columns: str,
        where: Filter | None,
        rest: str,
        values: Sequence[object] = (),
        of_columns: Sequence[object] = (),
    ) -> list[tuple[Any, ...]]:
        """Read the rows ``d`` of documents that pass a filter, and the rest of the query."""

        def read(session: Session) -> list[tuple[Any, ...]]:
            documents = self._tables.documents
            condition = self._compiled(session, documents, where)
            query = f"SELECT {columns} FROM {documents} d WHERE {condition.text} {rest}"
            return all_rows(session, query, (*of_columns, *condition.values, *values))

        return self._session(operation, read, READING)

    def _do(self, operation: str, query: str, values: Sequence[object] = ()) -> int:
        """Run a statement, and return how many rows it was about."""
        return self._session(operation, lambda session: session.execute(query, values).rowcount)

    def _session(self, operation: str, call: Callable[[Session], T], settings: str = "", timeout: float = 0) -> T:
        def run(proof: str) -> T:
            own = settings + (_OWN_POLICIES if self._known.lists else "")
            return self._connection.run(operation, call, settings=own, proof=proof, timeout=timeout)

        if self._row is None:
            return run(self._proof_of_slots)
        proof = self._known.proof
        try:
            return run(proof)
        except BackendError as exc:
            if not isinstance(exc.__cause__, errors.UndefinedTable):
                raise
            # its tables may have been dropped with the generation, or be others: a stranger's, or restored ones, or
            # with lists of readers by now
            self.check_in_use(to_read=True)
            self._prove(self.needed().language)
            if self._known.proof == proof:
                raise
        return run(self._known.proof)


_SLOTS = ("slot", "row")
_REJECTS = ("id", "code", "message", "digest", "source")
_IS_OF_REVISION = "coalesce(row->'now', row)->>'revision' IS NOT DISTINCT FROM %s"
_LATER = {"run": "", "fingerprint": "a later version of vlmsearch"}
"""The change that an earlier version sees in the row of an index that was renewed."""


class _Known(NamedTuple):
    """The tables of a generation as they were last looked at.

    Attributes:
        proof: Statements that prove that they are the same ones.
        documents: The table of documents, as SQL has it.
        lists: That of lists of readers; "" where there is none.
    """

    proof: str = ""
    documents: str = ""
    lists: str = ""


@dataclass(frozen=True)
class _Words:
    """The words of the documents of a store that pass a filter."""

    store: PostgresStore
    scope: Filter | None

    def search_words(self, query: str, *, limit: int, where: Filter | None = None) -> WordHits:
        def rank(own: WordRanking, session: Session, where: Condition, scope: Scope | None) -> WordHits:
            hits, bound = own.search(session, query, limit, where, scope)
            return WordHits(list(hits), bound)

        return (self.store.rank_words(self.scope, where, rank) if limit > 0 else None) or WordHits([], 0.0)

    def compare_words(self, query: str, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        def rank(own: WordRanking, session: Session, where: Condition, scope: Scope | None) -> list[VersionedHit]:
            return own.compare(session, query, known, where, scope)

        known = possible_ids(ids)
        return list(self.store.rank_words(self.scope, where, rank) or ()) if known else []

    def count_words(self, words: Sequence[str]) -> list[int]:
        def rank(own: WordRanking, session: Session, _: Condition, scope: Scope | None) -> list[int]:
            return own.count(session, words, scope)

        return self.store.rank_words(self.scope, None, rank) or [0] * len(words)
