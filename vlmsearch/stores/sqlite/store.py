"""SQLite as a store: documents, words, filters and vectors in one file, changed in one transaction."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from vlmsearch._util.arguments import check_bounds
from vlmsearch._util.batching import pages
from vlmsearch._util.files import expand_home
from vlmsearch._util.retry import MAX_SECONDS
from vlmsearch.errors import BackendError, ConfigError, VlmsearchError
from vlmsearch.stores.base import CheckReport, CountsWords, DiskUse, changed_records
from vlmsearch.stores.documents import DatabaseStore, DocumentRow, RowCount, RowPart, records_of, with_passages
from vlmsearch.stores.filters import Filter, keys_of
from vlmsearch.stores.generations import Slot
from vlmsearch.stores.listing import Outline
from vlmsearch.stores.passages import rows_of
from vlmsearch.stores.postings import max_score
from vlmsearch.stores.readers import check_writable, keep_readers
from vlmsearch.stores.samples import sampling_key
from vlmsearch.stores.sqlite.arrays import ArraysFile, may_remove
from vlmsearch.stores.sqlite.checksums import checksum, is_whole
from vlmsearch.stores.sqlite.database import BlankError, Database, Turns, bytes_in_page, is_sparse, page_bytes
from vlmsearch.stores.sqlite.overview import SqliteOverview
from vlmsearch.stores.sqlite.tables import Tables, TableState, drop_tables, kept, parsed, string, undamaged
from vlmsearch.stores.sqlite.view import GROUPS, SAMPLES, View, Views
from vlmsearch.stores.terms import AUTO, check_language, query_terms
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.types import (
    WORDS,
    Document,
    Field,
    Hit,
    Manifest,
    MetadataChange,
    Record,
    Reject,
    Space,
    Stamp,
    Vectors,
    WordHits,
    possible_ids,
)

_IDS = 1000


class SqliteStore(DatabaseStore):
    """Documents and vectors in one file, ``sqlite:./index``. Two more are beside it while it is in use.

    Any number of processes read while one writes; writers take turns. Search is exact: bits and INT8 codes of all
    vectors, in memory, rule out documents that cannot be among the nearest. The vectors of the others are compared.

    Args:
        location: The file.
        language: The language of a new index, by whose stems words are compared: that of each document (``auto``, the
            default), one for all (``en``, ``de``, ...), or none (``none``). An index keeps the language that it was
            made with.
        timeout: Seconds that a writer waits for others, from 0 to 1,000,000.

    Raises:
        ConfigError: There is no such language.
    """

    kind = "sqlite"
    default_language = AUTO
    _tables: Tables
    _views: Views

    def __init__(self, location: str, *, language: str | None = None, timeout: float = 60.0) -> None:
        if not location.strip():
            raise ConfigError("a SQLite store needs a file, such as sqlite:./index")
        check_bounds(0, MAX_SECONDS, timeout=timeout)
        if language is not None:
            check_language(language)
        self._database = Database(expand_home(location), timeout=timeout)
        super().__init__(self._database.name, language=language)

    # ---- generations

    def read_slot(self, slot: Slot) -> dict[str, Any] | None:
        """Read the row of a slot; None where it has none."""
        if not self._database.exists():
            return None
        try:
            with self._database.reading("look for the index") as db:
                return _slot_row(db, slot)
        except BlankError:
            return None

    def fill_slot(self, slot: Slot, row: Mapping[str, Any]) -> None:
        """Make the row of a slot and the tables of its generation, unless there is one."""
        self._database.create()
        with self._database.writing("make the index") as db:
            if _slot_row(db, slot) is None:
                self._put_slot(db, slot, row)
        self._database.write_back()  # so that a copy of the file alone is an index

    def replace_slot(self, slot: Slot, row: Mapping[str, Any], revision: str | None) -> bool:
        """Put another row in the place of one of this revision: False where there is no such row."""
        with self._database.writing("change the index") as db:
            old = _slot_row(db, slot)
            if old is None or old.get("revision") != revision:
                return False
            self._put_slot(db, slot, row)
            return True

    def _put_slot(self, db: sqlite3.Connection, slot: Slot, row: Mapping[str, Any]) -> None:
        Tables(self._read(row), row["generation"]).create(db)
        values = slot, json.dumps(row)
        db.execute("INSERT OR REPLACE INTO slots VALUES (?, ?, ?)", [*values, checksum(*values)])

    def clear_slot(self, slot: Slot, revision: str | None) -> None:
        """Remove the row of a slot, if it is of this revision."""
        with self._database.writing("forget an index") as db:
            row = _slot_row(db, slot)
            if row is not None and row.get("revision") == revision:
                db.execute("DELETE FROM slots WHERE slot = ?", [slot])

    def prepare(self, spaces: Sequence[Space], generation: str) -> None:
        """Do nothing: the tables are made together with the row of the slot."""

    def opened(self, manifest: Manifest, generation: str) -> None:
        """Name the tables of the generation."""
        self._tables = Tables(manifest, generation)
        self._views = Views(self._tables, self._arrays_path(self._tables.generation), manifest.created)

    def drop(self, generation: str, spaces: Sequence[Space]) -> None:
        """Remove the tables of a generation, and make the file smaller."""
        with self._database.writing("remove an index") as db:
            drop_tables(db, int(generation))
            self._remove_arrays(generation)
        self._database.shrink()

    def _reading(self, operation: str) -> AbstractContextManager[tuple[sqlite3.Connection, Tables]]:
        return self._within(self._database.reading(operation))

    @contextmanager
    def _viewing(
        self, operation: str, *asked: Field | str, where: Filter | None = None, scope: Filter | None = None
    ) -> Iterator[tuple[sqlite3.Connection, Tables, View]]:
        """Give a transaction, and the view of what it sees. The view is read first: see `Views.now`."""
        with self._reading(operation) as (db, tables):
            yield db, tables, self._views.now(db, asked, () if where is None else keys_of(where), scope)
        self._views.keep(self._database)

    def _arrays_path(self, generation: int | str) -> Path:
        path = self._database.path.resolve()  # one file, whatever links lead to the index, as with the log
        return path.with_name(f"{path.name}-arrays-{generation}")

    def _array_files(self, generation: str = r"\d+") -> dict[Path, int]:
        """Return the sizes of the files of arrays, and of what killed writers left of some."""
        first = self._arrays_path("")
        name = re.compile(rf"{re.escape(first.name)}{generation}(-new|-[0-9a-f]{{16}})?")
        sizes: dict[Path, int] = {}
        with suppress(OSError):  # a folder that this user may not list, or none
            for path in first.parent.iterdir():
                if name.fullmatch(path.name) and may_remove(path):
                    with suppress(FileNotFoundError):
                        sizes[path] = path.lstat().st_size
        return sizes

    def _remove_arrays(self, generation: str = r"\d+") -> None:
        for path in self._array_files(generation):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _wrong_arrays(self, db: sqlite3.Connection) -> list[str]:
        """Name the files of arrays that are damaged, and those that belong to nothing."""
        wrong = []
        for path in self._array_files():
            table = f"arrays_{path.name.rpartition('-')[2]}"
            try:
                file = ArraysFile.open(path, *db.execute(f"SELECT token FROM {table}").fetchone())
                for name in file.parts:
                    file.read(name)
            except (OSError, TypeError, sqlite3.OperationalError, BackendError):  # there may be no such table
                wrong.append(f"{path.name}, which is not used")
        return wrong

    def _writing(self, operation: str) -> AbstractContextManager[tuple[sqlite3.Connection, Tables]]:
        return self._within(self._database.writing(operation))

    @contextmanager
    def _within(
        self, transaction: AbstractContextManager[sqlite3.Connection]
    ) -> Iterator[tuple[sqlite3.Connection, Tables]]:
        """Give a transaction and the tables of the generation; IndexMismatchError where these were removed."""
        self.needed()
        try:
            with transaction as db:
                yield db, self._tables
        except BackendError as exc:
            if "no such table" in str(exc):
                self.check_in_use(to_read=True)
            raise

    # ---- writing

    def write(self, records: Sequence[Record], scope: Filter | None = None) -> None:
        """Add or replace records, in one transaction; ``scope`` is what a restricted writer may read."""
        with self._writing("write documents") as (db, tables):
            is_first = not tables.state(db).last_row
            there = {} if is_first else tables.readers(db, [record.document.id for record in records])
            if scope is not None:
                check_writable(records, there, scope)
            tables.write(db, rows_of(keep_readers(records, there)))
            tables.tidy(db)
        if is_first:
            self._database.write_back()

    def change_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace metadata, in one transaction.

        A changed document gets another row, with its vectors bit for bit: rows never change.
        """
        with self._writing("change metadata") as (db, tables):
            ids = [change.document.id for change in changes]
            rows = with_passages(lambda some: tables.document_rows(db, some, ("document", "vectors")), ids)
            changed = changed_records(records_of(rows, ids).values(), changes)
            if changed:
                tables.write(db, rows_of(changed))
                tables.tidy(db)
        done = {record.document.id for record in changed}
        return [id for id in ids if id in done]

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents; where many pages of the file are not used any more, it becomes smaller."""
        count, turns = 0, Turns()
        for page in pages(ids):
            count += super().delete(page)
            turns.pause()
        if count:
            with suppress(BackendError):  # they are deleted, and the file can become smaller at another time
                with self._database.reading("measure the file") as db:
                    is_large = is_sparse(db)
                if is_large:
                    self._database.shrink()
        return count

    def remove(self, ids: list[str], scope: Filter | None = None) -> int:
        """Remove some documents, those that pass a filter, in one transaction."""
        with self._writing("delete documents") as (db, tables):
            count = tables.remove(db, ids if scope is None else [*_passing(db, tables, ids, scope).values()])
            tables.tidy(db)
        return count

    # ---- searching

    def find_nearest(
        self, field: Field, vectors: Vectors, limit: int, where: Filter | None
    ) -> list[list[VersionedHit]]:
        """Find the nearest documents of each query."""
        with self._viewing("search", field, where=where) as (db, tables, view):
            passing, (_, codes) = view.passing(where), view.codes[field]
            candidates = [view.rows[codes.nearest(query, limit, passing)].tolist() for query in vectors]
            return [_ranked(db, tables, field, query, rows, limit) for query, rows in zip(vectors, candidates)]

    def compare_vectors(
        self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None
    ) -> list[VersionedHit]:
        """Compare documents with one query."""
        with self._reading("search") as (db, tables):
            return _ranked(db, tables, field, vectors[0], _passing(db, tables, ids, where))

    def sampled_state(self) -> TableState:
        """Return a value that differs when a sample may have changed."""
        with self._reading("sample") as (db, tables):
            return tables.state(db)

    def draw(self, field: Field, count: int) -> Vectors:
        """Read the vectors of documents that are chosen at random, by their ids."""
        with self._viewing("sample", field, SAMPLES) as (db, tables, view):
            order = {row: at for at, row in enumerate(_drawn(db, tables, view, field, count))}
            rows, vectors = tables.vectors(db, field, order)
            return vectors[np.argsort([order[row] for row in rows])]

    def sample_ids(self, field: Field, count: int) -> list[str]:
        """Return the ids of the documents that `draw` reads the vectors of."""
        return self.sample_ids_within(field, count, None)

    def sample_ids_within(self, field: Field, count: int, scope: Filter | None) -> list[str]:
        """Return the ids with the smallest sampling keys among the rows that pass."""
        if self.as_opened() is None:
            return []
        with self._viewing("sample", field, SAMPLES, scope=scope) as (db, tables, view):
            return list(_drawn(db, tables, view, field, count).values())

    def vectors_of(self, field: Field, ids: Collection[str]) -> Vectors:
        """Read the vectors of a field that documents have."""
        with self._reading("read vectors") as (db, tables):
            return tables.vectors(db, field, _passing(db, tables, ids, None))[1]

    def words_within(self, scope: Filter) -> CountsWords:
        """Return the words of the documents that pass a filter; those of others count nowhere."""
        return _WordsWithin(self, scope)

    def search_words(
        self, query: str, *, limit: int, where: Filter | None = None, scope: Filter | None = None
    ) -> WordHits:
        """Find the documents whose words fit a query best, by BM25. Equal scores are in the order of writing."""
        if self.as_opened() is None or limit < 1:
            return WordHits([], 0.0)
        with self._viewing("search words", WORDS, where=where, scope=scope) as (db, tables, view):
            table, asked = view.words, query_terms(query, tables.language)
            places, scores, terms = table.best(asked, limit, None if where is None else view.passing(where))
            rows = view.rows[places].tolist()
            names = dict(tables.ids_of(db, rows))
        hits = [VersionedHit(names[row], score, str(row)) for row, score in zip(rows, scores.tolist()) if row in names]
        return WordHits(list(hits), max_score(terms, table.texts))

    def compare_words(
        self, query: str, ids: Collection[str], where: Filter | None = None, scope: Filter | None = None
    ) -> list[Hit]:
        """Score given documents by their words, best first, then by id."""
        if self.as_opened() is None:
            return []
        with self._viewing("search words", WORDS, scope=scope) as (db, tables, view):
            names = _passing(db, tables, possible_ids(ids), where)
            places = view.places_of(sorted(names))
            scores, _ = view.words.scores(query_terms(query, tables.language), places)
            rows = view.rows[places].tolist()
        hits = [VersionedHit(names[row], score, str(row)) for row, score in zip(rows, scores.tolist()) if score > 0]
        return list(_in_order(hits))

    def count_words(self, words: Sequence[str], scope: Filter | None = None) -> list[int]:
        """Count the texts that hold each word."""
        if self.as_opened() is None:
            return [0] * len(words)
        with self._viewing("count words", WORDS, scope=scope) as (_, tables, view):
            return view.words.counts(words, tables.language)

    def overview(
        self, fields: Collection[Field | str], where: Filter | None, keys: Collection[str]
    ) -> AbstractContextManager[SqliteOverview]:
        """Give all documents of one moment as arrays."""
        return self.overview_within(fields, where, keys, None)

    @contextmanager
    def overview_within(
        self, fields: Collection[Field | str], where: Filter | None, keys: Collection[str], scope: Filter | None
    ) -> Iterator[SqliteOverview]:
        """Give all documents of one moment that pass ``scope``; the words of others count nowhere."""
        with self._reading("search") as (db, tables):
            wanted = {*keys, *(() if where is None else keys_of(where))}
            yield SqliteOverview(db, tables, self._views.now(db, (*fields, GROUPS), wanted, scope), where)
        self._views.keep(self._database)

    def preload(self) -> None:
        """Read the arrays into memory: see `vlmsearch.stores.overview.Preloads`."""
        manifest = self.as_opened()
        if manifest is not None:
            fields = [field for space in manifest.spaces for field in space.fields]
            with self._reading("read the index") as (db, _):
                self._views.now(db, (*fields, GROUPS, *([WORDS] if manifest.language else [])))
            self._views.hand_on()

    # ---- reading

    def read_rows(self, ids: Collection[str], *parts: RowPart) -> dict[str, DocumentRow]:
        """Read the rows of documents, by id."""
        with self._reading("read documents") as (db, tables):
            return tables.document_rows(db, ids, parts)

    def ids(self) -> Iterator[str]:
        """Yield all ids, in their order. Ids that are added or removed meanwhile may be among them or not."""
        if self.as_opened() is None:
            return
        last = ""
        while True:
            with self._reading("list the ids") as (db, tables):
                page = tables.ids_after(db, last, _IDS)
            if not page:
                return
            yield from page
            last = page[-1]

    def documents_after(self, id: str, count: int, where: Filter | None = None) -> list[Document]:
        """Return the next documents behind an id that pass a filter, by id."""
        if self.as_opened() is None:
            return []
        with self._viewing("list documents", where=where) as (db, tables, view):
            passing = None if where is None else view.passing(where)
            wanted = None if passing is None else set(view.rows[passing].tolist())
            rows = list(islice(tables.rows_after(db, id, wanted), count))
            return sorted((row.document for row in tables.numbered(db, rows)), key=attrgetter("id"))

    def outlines(self, keys: Collection[str], where: Filter | None = None) -> Iterator[Outline]:
        """Read the outlines of all documents, as they are at one instant. An overview filters them."""
        if self.as_opened() is not None:
            with self._reading("list documents") as (db, tables):
                yield from tables.outlines(db, keys)

    def count(self) -> RowCount:
        """Count the rows."""
        with self._reading("count documents") as (db, tables):
            return tables.count(db)

    def size(self) -> int:
        """Return the number of documents up to 1000, and beyond that of rows: the state has it."""
        with self._reading("count documents") as (db, tables):
            first = tables.ids_after(db, "", 1000)
            return tables.state(db).documents if len(first) == 1000 else len(first)

    def places(self) -> tuple[Path, ...]:
        """Return the file, and those of arrays."""
        return (self._database.path, *self._array_files())

    def disk_use(self) -> DiskUse:
        """Measure what all generations take of the file, and what is left on its disk."""
        from shutil import disk_usage

        manifest, generations = self.needed(), self.kept_generations()
        with self._database.reading("measure the file") as db:
            documents = sum(Tables(manifest, generation).count(db).documents for generation in generations)
            used, unused = page_bytes(db)
        used += sum(self._array_files().values())
        return DiskUse(used, documents, unused + disk_usage(self._database.path.parent).free)

    def vector_bytes(self, dim: int) -> int:
        """Estimate how many bytes a vector takes: in a page beside others, and as its codes and signs."""
        return bytes_in_page(4 * dim) + dim + -(-dim // 8)

    def describe(self) -> dict[str, str]:
        """Describe to people how the store searches."""
        self.needed()
        size = self._database.path.stat().st_size + sum(self._array_files().values())
        return {"search": "exact", "size": f"{size / 2**20:.1f} MiB", **super().describe()}

    def words_by(self) -> str:
        """Read which rules made the words: a repair changes that, too."""
        with suppress(VlmsearchError), self._reading("look for the rules of words") as (db, tables):
            return tables.words_by(db)
        return super().words_by()  # of a damaged file, which `check` reports

    # ---- the reject list

    def read_rejects(self) -> list[Reject]:
        """Read the reject list."""
        with self._reading("read the reject list") as (db, _):
            rows = db.execute("SELECT id, code, message, digest, source, crc FROM rejects").fetchall()
        for row in rows:
            if not is_whole(row):
                raise BackendError(f"{row[0]!r} on the reject list is damaged: run `vlmsearch check --repair`")
        return [Reject(id, code, string(message), Stamp(*map(string, stamp))) for id, code, message, *stamp, _ in rows]

    def write_rejects(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the reject list, or replace their entries."""
        rows = [(r.id, r.code, *map(kept, (r.message, r.stamp.digest, r.stamp.source))) for r in rejects]
        with self._database.writing("write the reject list") as db:
            db.executemany(
                "INSERT OR REPLACE INTO rejects VALUES (?, ?, ?, ?, ?, ?)", ((*row, checksum(*row)) for row in rows)
            )

    def remove_rejects(self, ids: list[str]) -> None:
        """Take some inputs off the reject list."""
        with self._database.writing("write the reject list") as db:
            db.executemany("DELETE FROM rejects WHERE id = ?", [(id,) for id in ids])

    # ---- checking

    def check(self, *, repair: bool = False) -> CheckReport:
        """Check whether the file is whole and its parts agree. With ``repair``, make again what can be."""
        from vlmsearch.stores.sqlite.check import check_index

        wrong = list[str]()
        with suppress(BackendError), self._database.writing("check the arrays", waits=repair) as db:  # nobody makes one
            wrong = self._wrong_arrays(db)
            if repair:
                self._remove_arrays()
        transaction = self._writing if repair else self._reading
        with transaction("check the index") as (db, tables):
            rows = [row for slot in ("index", "next") if (row := _slot_row(db, slot)) is not None]
            named = {int(generation["generation"]) for row in rows for generation in _generations(row)}
            report = check_index(db, tables, self.name, named, repair=repair)
        if repair:
            self._database.shrink()
        return replace(report, unindexed=(*report.unindexed, *wrong))

    def close(self) -> None:
        """Let go of the file. What the searches read of a large index is kept for the next process."""
        if "_views" in vars(self) and os.getpid() == self._database.pid:
            self._views.keep(self._database, is_last=True)
        self._database.close()


class _WordsWithin:
    """The words of some documents of a store."""

    def __init__(self, store: SqliteStore, scope: Filter) -> None:
        self.search_words = partial(store.search_words, scope=scope)
        self.compare_words = partial(store.compare_words, scope=scope)
        self.count_words = partial(store.count_words, scope=scope)


def _generations(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List all generations that the row of a slot names."""
    return [row, *([row["old"]] if row.get("old") else []), *row.get("garbage", ())]


def _slot_row(db: sqlite3.Connection, slot: Slot) -> dict[str, Any] | None:
    row = db.execute("SELECT * FROM slots WHERE slot = ?", [slot]).fetchone()
    if row is None:
        return None
    if not is_whole(row):
        raise BackendError(
            f"the index is damaged: its slot {slot!r} is not what was written; restore a copy of the file, or index "
            "again under another name"
        )
    content = parsed(row[1])
    if not isinstance(content, dict):
        raise BackendError(f"the index is damaged: its slot {slot!r} holds no JSON object")
    return content


def _passing(db: sqlite3.Connection, tables: Tables, ids: Collection[str], where: Filter | None) -> dict[int, str]:
    """Read the rows of the documents that pass a filter, each with its id."""
    names: dict[int, str] = {}
    for some in pages(sorted(ids)):  # neighbours are in the same pages of the file
        for id, row, *metadata in tables.columns(db, some, "row" if where is None else "row, metadata"):
            if where is None or where.matches(parsed(metadata[0])):
                names[int(row)] = id
    return names


def _drawn(db: sqlite3.Connection, tables: Tables, view: View, field: Field, count: int) -> dict[int, str]:
    """Read the rows of a sample with their ids, in the order of the sampling keys."""
    named = sorted((sampling_key(id), id, row) for row, id in tables.ids_of(db, view.sample(field, count).tolist()))
    return {row: id for _, id, row in named[:count]}


def _ranked(
    db: sqlite3.Connection,
    tables: Tables,
    field: Field,
    query: Vectors,
    rows: Collection[int],
    limit: int | None = None,
) -> list[VersionedHit]:
    """Rank the documents of some rows by their cosines with the query, then by id."""
    numbers, names, cosines = list[int](), list[str](), [np.empty(0)]
    exact = query.astype(np.float64)
    for some, ids, vectors in tables.named_vectors(db, field, rows):
        numbers += some
        names += ids
        cosines.append(vectors.astype(np.float64) @ exact)
    scores = np.clip(np.concatenate(cosines).astype(np.float32), -1, 1)
    wanted = range(len(scores))
    if limit is not None and len(scores) > limit:  # those as good as the last of them are among them
        wanted = np.flatnonzero(scores >= np.partition(scores, -limit)[-limit]).tolist()
    values = scores.tolist()
    return _in_order([VersionedHit(names[at], values[at], str(numbers[at])) for at in wanted])[:limit]


def _in_order(hits: list[VersionedHit]) -> list[VersionedHit]:
    with undamaged():
        hits.sort(key=attrgetter("id"))
    hits.sort(key=attrgetter("score"), reverse=True)  # which leaves equal ones in the order of their ids
    return hits
