"""MongoDB as a store of documents and their vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from pymongo.operations import ReplaceOne, UpdateOne

from vlmsearch._util.arguments import check_bounds
from vlmsearch._util.retry import check_seconds
from vlmsearch.stores.base import CheckReport, changed_records
from vlmsearch.stores.documents import RowPart, records_of
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.mongodb.atlas import VectorSearch
from vlmsearch.stores.mongodb.cache import VectorCache
from vlmsearch.stores.mongodb.connection import (
    DEFAULT_OPTIONS,
    MongoConnection,
    MongoOptions,
    Row,
    Rows,
    bulk,
)
from vlmsearch.stores.mongodb.index import STATE, MongoIndex
from vlmsearch.stores.mongodb.journal import ChangeCounter
from vlmsearch.stores.mongodb.scan import VectorBlock, nearest, read_blocks
from vlmsearch.stores.mongodb.values import (
    compile_filter,
    document_row,
    escape,
    metadata_row,
    pack,
    row_of,
    unchanged_readers,
    unpack,
    vector_path,
)
from vlmsearch.stores.passages import rows_of
from vlmsearch.stores.rows import ANY_READERS, StoredReaders
from vlmsearch.stores.terms import NONE
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.types import PASSAGE, Field, Manifest, MetadataChange, Record, Space, Vectors, document_of

_WRITES = 500
_VECTOR_HEAD = 64
"""Bytes of a vector beside its numbers: the name of its field, twice, and its head in BSON."""


class MongoStore(MongoIndex):
    """Documents and vectors in a database: ``mongodb://host:27017/database``, hosts separated by commas.

    A user and password come from VLMSEARCH_MONGO_USER and VLMSEARCH_MONGO_PASSWORD, unless the option
    ``auth_mechanism`` says otherwise; `MongoOptions` has this and all else about the connection. ``index`` names the
    index in the database. Servers with ``$vectorSearch`` are searched by it, unless a query has a filter. Others are
    searched exactly: from vectors in memory while the index does not change and they take no more than ``cache`` MiB.
    ``index_timeout`` is the time to wait for a new vector index, in seconds. ``language`` is that of a new index, by
    whose stems words are compared: see `vlmsearch.stores.terms`.
    """

    kind = "mongodb"
    is_served = True

    def __init__(
        self,
        location: str | MongoConnection,
        *,
        index: str = "vlmsearch",
        index_timeout: float = 600.0,
        cache: int = 1024,
        language: str | None = None,
        options: MongoOptions = DEFAULT_OPTIONS,
    ) -> None:
        check_seconds(index_timeout=index_timeout)
        check_bounds(0, 2**20, cache=cache)
        super().__init__(location, options, index, language=language)
        self._index_timeout = index_timeout
        self._cache_bytes = cache * 2**20

    def prepare(self, spaces: Sequence[Space], generation: str) -> None:
        """Do nothing: nothing is to be made beforehand."""

    def opened(self, manifest: Manifest, generation: str) -> None:
        """Note the fields, and find out how the server can search."""
        self._changes = ChangeCounter(lambda operation, call: self.run(operation, call, part="changes"))
        self._cache = VectorCache(self._changes, self._cache_bytes)
        self._dims = {field: space.dim for space in manifest.spaces for field in space.fields}
        self._vector_search = self.run(
            "ask for its indexes", lambda rows: VectorSearch.on(rows, self._dims), generation=generation
        )

    def wait_until_ready(self) -> None:
        """Return when the text index is there. The server's own vector indexes can be queried then, too."""
        super().wait_until_ready()
        search = self._vector_search
        if search is not None:
            self.run("make its vector indexes", search.create)
            search.wait(lambda call: self.run("ask for its indexes", call), self._index_timeout, self.name)

    def describe(self) -> dict[str, str]:
        """Return how the store searches, for people."""
        self.needed()
        search = "exact" if self._vector_search is None else "$vectorSearch, exact where there is a filter"
        return {"search": search, **super().describe()}

    def words_state(self, condition: Row) -> Hashable:
        """Return the count of changes, None while somebody writes."""
        return self._changes.count()

    def vector_bytes(self, dim: int) -> int:
        """Return about how many bytes a vector takes in its document's row."""
        return 4 * dim + _VECTOR_HEAD

    def write_rows(self, rows: Sequence[Record], readers: StoredReaders = ANY_READERS) -> Collection[str]:
        """Add or replace rows, each at one instant."""
        again: set[str] = set()
        for batch in self.batches(rows, _WRITES):
            ids = [row.document.id for row in batch]
            with self._changes.writing("write", ids) as version:
                writes = [
                    ReplaceOne({"_id": id, **unchanged_readers(id, readers)}, self._kept(row, version), upsert=True)
                    for id, row in zip(ids, batch)
                ]
                if self._write(writes) < len(writes):  # another writer inserted one at the same moment, or its readers
                    again.update(map(document_of, ids))
        return again

    def _kept(self, record: Record, version: str) -> Row:
        row = row_of(record, version, self.needed().language or NONE)
        vectors = {escape(str(field)): pack(vector) for field, vector in record.vectors.items()}
        return {**row, "vectors": vectors}

    def change_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace metadata, of each row at one instant; vectors and words stay where they are."""
        changed: list[str] = []
        for batch in self.batches(changes, _WRITES):
            with self._changes.writing("change", [change.document.id for change in batch]) as version:
                changed += self._change_page(batch, version)
        return changed

    def _change_page(self, changes: Sequence[MetadataChange], version: str) -> list[str]:
        """Change documents, then the passages of those that were still as they were read."""
        ids = [change.document.id for change in changes]
        other_texts = {change.document.id for change in changes if change.text is not None}
        parts: Sequence[RowPart] = ("document", "vectors") if other_texts else ("document",)
        there = self.read_whole(ids, *parts)
        rows = rows_of(changed_records(records_of(there, ids).values(), changes))

        def update(row: Record) -> ReplaceOne[Row] | UpdateOne:
            id = row.document.id
            now = {"_id": id, "version": there[id].version} if id in there else {"_id": id}
            if document_of(id) in other_texts:
                return ReplaceOne(now, self._kept(row, version), upsert=PASSAGE in id)
            return UpdateOne(now, {"$set": metadata_row(row, version)})

        self._write([update(row) for row in rows if PASSAGE not in row.document.id])
        after = self.kept_rows(ids, {"version": 1}, {"version": version})
        passages = [row for row in rows if PASSAGE in row.document.id and document_of(row.document.id) in after]
        self._write(list(map(update, passages)))
        self.remove_strays(other_texts & after.keys())
        return [change.document.id for change in changes if change.document.id in after]

    def _write(self, writes: Sequence[ReplaceOne[Row] | UpdateOne]) -> int:
        return self.run("write documents", lambda rows: bulk(rows, writes)) if writes else 0

    def find_nearest(
        self, field: Field, vectors: Vectors, limit: int, where: Filter | None
    ) -> list[list[VersionedHit]]:
        """Find the nearest documents of each query."""
        hits = self._nearest(field, vectors, limit, where)
        if any(len(page) < limit for page in hits):
            self.check_in_use(to_read=True)  # of a collection that was dropped, a database says nothing
        return hits

    def _nearest(self, field: Field, vectors: Vectors, limit: int, where: Filter | None) -> list[list[VersionedHit]]:
        search = self._vector_search
        if search is not None and where is None:
            return self.run("search", lambda rows: search.find(rows, field, vectors, limit))
        kept = self._cache.find(field) if where is None else None
        if kept is not None:
            return nearest(kept, vectors, limit)
        condition: Row = {} if where is None else compile_filter(where)
        return self.run("search", lambda rows: self._scan(rows, field, vectors, limit, condition))

    def _scan(self, rows: Rows, field: Field, vectors: Vectors, limit: int, condition: Row) -> list[list[VersionedHit]]:
        def read() -> Iterator[VectorBlock]:
            return read_blocks(rows, field, self._dims[field], condition)

        return nearest(read() if condition else self._cache.load(field, read), vectors, limit)

    def compare_vectors(
        self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None
    ) -> list[VersionedHit]:
        """Compare documents with one query."""
        condition: Row = {"_id": {"$in": list(ids)}, **(compile_filter(where) if where else {})}
        return self.run("search", lambda rows: self._scan(rows, field, vectors, len(ids), condition))[0]

    def vectors_of(self, field: Field, ids: Collection[str]) -> list[NDArray[np.float32]]:
        """Read the vectors of a field that documents have."""
        rows = self.kept_rows(ids, {vector_path(field): 1}).values()
        return [unpack(row["vectors"][escape(str(field))]) for row in rows if row.get("vectors")]

    def remove_rows(self, ids: Collection[str], scope: Filter | None = None) -> int:
        """Remove rows that pass, with their vectors."""
        gone: Row = {"_id": {"$in": list(ids)}, **(compile_filter(scope) if scope else {})}
        with self._changes.writing("delete", ids):
            return self.run("delete documents", lambda rows: rows.delete_many(gone)).deleted_count

    def check(self, *, repair: bool = False) -> CheckReport:
        """Count documents and vectors, and list what was cut off.

        What is encoded and its vectors are one row, so they agree.
        """
        self.needed()
        entries = self._changes.entries()
        unfinished = [entry for entry in entries if entry.is_gone]
        if repair:
            self._changes.remove([entry.version for entry in unfinished])
            self.renew_words()
        rows = {row["_id"]: document_row(row) for page in self.scan(STATE) for row in page}
        named = Counter(field for row in rows.values() for field in row.fields)
        counts = {str(field): named[field] for field in self._dims}
        names, others = tuple(map(str, unfinished)), len(entries) - len(unfinished)
        report = CheckReport(self.name, 0, counts, unfinished=names, in_progress=others, repaired=repair)
        return self.with_rows(report, rows, self._changes)

    def drop(self, generation: str, spaces: Sequence[Space]) -> None:
        """Remove everything that a generation has."""
        for part in ("documents", "changes"):
            self.run(f"drop its {part}", lambda rows: rows.drop(), part=part, generation=generation)
