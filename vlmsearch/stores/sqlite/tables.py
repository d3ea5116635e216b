"""The tables of one generation, and writing to them.

* ``documents``: id, stamp, fields, image path, metadata as JSON, text. A changed document gets another row.
* ``attributes``: the metadata again, by key, as filters compare them.
* ``words``: the terms of documents in groups, by the last row of each, as `Postings` has them.
* ``vectors_N``: the vectors of field N as float32, by row.
* ``codes_N``: their codes and signs in groups, by the last row of each. A group is of one write, and later of many.
* ``deaths``: rows that were removed, in the order of their removal, until they are forgotten.
* ``state``: one row. It says how far the generation has come, see `TableState`, and which stemmer made the words.

Rows are numbered from 1 in the order in which they were written, and never change or come back. So whoever has read
everything up to a row and a death needs only what came after it.

Documents, vectors and codes have checksums. Whoever shows a document, or writes anew what was read, looks at these
first: what is damaged is refused, not shown and not made to look whole. Searching takes vectors and codes as they are.
`check_index` looks at everything. Attributes, words, deaths and state follow from documents, and are compared with
them.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.batching import batches, pages
from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import BackendError, one_line
from vlmsearch.stores.documents import DocumentRow, RowCount, RowPart, StoredDocument, words_of_row
from vlmsearch.stores.listing import Outline
from vlmsearch.stores.passages import blanked, passage_ids
from vlmsearch.stores.postings import Postings
from vlmsearch.stores.sqlite.checksums import checksum, is_whole, vector_checksum
from vlmsearch.stores.sqlite.codes import BLOCK, CodeRows, Places, find
from vlmsearch.stores.sqlite.columns import StoredValue, restored, stored
from vlmsearch.stores.sqlite.schema import SCHEMA, run, tables_by_generation
from vlmsearch.stores.terms import rules_of
from vlmsearch.types import PASSAGE, READERS, Document, Field, Manifest, MetadataValue, Record, Stamp, Vectors

_KEPT_DEATHS = 20_000
"""Deaths that are remembered beside one for each document."""
_LOOSE_GROUPS = 1000
"""Groups of codes that are written before they are merged, unless they have `BLOCK` rows before."""
_PAGE = 4096
_CACHED = 256
"""Vectors that are compared at a time."""
Buffer: TypeAlias = bytes | NDArray[np.uint8]


class TableState(NamedTuple):
    """The progress of a generation: the last row, the last death, and counts of what there is.

    A new epoch begins when deaths are forgotten: whoever knows an older one reads everything again. ``loose_groups``
    and ``loose_rows`` count what was written since groups of codes were merged.
    """

    epoch: int = 0
    last_row: int = 0
    last_death: int = 0
    documents: int = 0
    loose_groups: int = 0
    loose_rows: int = 0


class Row(NamedTuple):
    """A document as its table keeps it."""

    row: int
    id: str
    digest: str | bytes
    source: str | bytes
    fields: str
    image: str | bytes | None
    metadata: str
    text: str | bytes | None
    crc: int = -1

    def sealed(self) -> Row:
        """Return the row with the checksum that it should have."""
        return self._replace(crc=checksum(*self[:-1]))

    def whole(self) -> Row:
        """Return the row; BackendError where the checksum is of other values."""
        if not is_whole(self):
            raise BackendError(
                f"the document {self.id!r} is damaged in the index: run `vlmsearch check --repair`, and index its "
                "source again"
            )
        return self

    def legible(self) -> Row | None:
        """Return what is left of a damaged row, as a document that counts as changed: None for no document."""
        strings = (_legible(value) for value in self[1:-1])
        id, _, source, fields, image, metadata, text = strings
        try:
            names = json.dumps([name for name in parse_json(fields or "") if Field.parse(name)])
        except (AttributeError, TypeError, ValueError):
            names = "[]"
        try:
            values = json.dumps(_metadata(metadata or ""))
        except (TypeError, ValueError):
            values = "{}"
        row = Row(self.row, id or "", "", source or "", names, image, values, text).sealed()
        try:
            return row if row.id and row.document else None
        except (BackendError, ValueError):
            return None

    @property
    def document(self) -> Document:
        """Return the document."""
        with undamaged():
            text, image = (None if value is None else string(value) for value in (self.text, self.image))
            return StoredDocument(self.id, text, image, _metadata(self.metadata)).document

    @property
    def stamp(self) -> Stamp:
        """Return the stamp: where the document came from."""
        return Stamp(string(self.digest), string(self.source))


class Tables:
    """One generation of an index; every method takes a connection that is within a transaction."""

    def __init__(self, manifest: Manifest, generation: str) -> None:
        self.generation = int(generation)
        self.fields = [field for space in manifest.spaces for field in space.fields]
        self.dims = {field: space.dim for space in manifest.spaces for field in space.fields}
        self.language = manifest.language

    def create(self, db: sqlite3.Connection) -> None:
        """Make the tables, unless they are there."""
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [f"state_{self.generation}"]).fetchone() is None:
            run(db, SCHEMA.of_a_generation.format(g=self.generation))
            for n in range(len(self.fields)):
                run(db, SCHEMA.of_a_field.format(g=self.generation, n=n))
            made_by = [rules_of(self.language)]
            db.execute(f"INSERT INTO {self.name('state')} VALUES (0, 0, 0, 0, 0, 0, 1, x'', ?)", made_by)

    def name(self, kind: str, field: Field | None = None) -> str:
        """Return the name of a table of the generation, or of one of its fields."""
        return f"{kind}_{self.generation}" + ("" if field is None else f"_{self.fields.index(field)}")

    # ---- reading

    def state(self, db: sqlite3.Connection) -> TableState:
        """Read how far the generation has come."""
        return TableState(*db.execute(f"SELECT {', '.join(TableState._fields)} FROM {self.name('state')}").fetchone())

    def arrays(self, db: sqlite3.Connection, state: TableState) -> str | None:
        """Read the number of the file of arrays that belongs to the generation; None for none."""
        row = db.execute(f"SELECT token, epoch FROM {self.name('arrays')}").fetchone()
        return str(row[0]) if row and row[1] == state.epoch else None

    def put_arrays(self, db: sqlite3.Connection, token: str, epoch: int, last_row: int) -> None:
        """Write the number of the file of arrays."""
        db.execute(f"DELETE FROM {self.name('arrays')}")
        db.execute(f"INSERT INTO {self.name('arrays')} VALUES (?, ?, ?)", [token, epoch, last_row])

    def rows(self, db: sqlite3.Connection, ids: Collection[str]) -> dict[str, Row]:
        """Read the rows of documents, by id."""
        rows = db.execute(f"SELECT * FROM {self.name('documents')} WHERE id IN {_VALUES}", [_names(ids)])
        return {row.id: row.whole() for row in map(Row._make, rows)}

    def document_rows(
        self, db: sqlite3.Connection, ids: Collection[str], parts: Collection[RowPart]
    ) -> dict[str, DocumentRow]:
        """Read the rows of documents, by id.

        Only a row whose document is read is compared with its checksum.
        """
        rows: dict[str, DocumentRow] = {}
        for some in pages(sorted(ids)):  # neighbours are in the same pages of the file
            if parts:
                whole = self.rows(db, some)
                vectors = self._vectors_by_row(db, {row.row for row in whole.values()} if "vectors" in parts else ())
                for id, row in whole.items():
                    fields = fields_of(row.fields)
                    rows[id] = DocumentRow(row.stamp, str(row.row), fields, row.document, vectors.get(row.row))
            else:
                for id, number, digest, source, names in self.columns(db, some, "row, digest, source, fields"):
                    rows[id] = DocumentRow(Stamp(string(digest), string(source)), str(number), fields_of(names))
        return rows

    def _vectors_by_row(
        self, db: sqlite3.Connection, rows: Collection[int]
    ) -> dict[int, dict[Field, NDArray[np.float32]]]:
        vectors: dict[int, dict[Field, NDArray[np.float32]]] = {row: {} for row in rows}
        for field in self.fields if rows else ():
            for row, vector in zip(*self.vectors(db, field, rows)):
                vectors[row][field] = vector
        return vectors

    def numbered(self, db: sqlite3.Connection, rows: Collection[int]) -> Iterator[Row]:
        """Read the documents that have these rows."""
        cursor = db.execute(f"SELECT * FROM {self.name('documents')} WHERE row IN {_VALUES}", [_list(rows)])
        return (Row._make(values).whole() for values in cursor)

    def readers(self, db: sqlite3.Connection, ids: Collection[str]) -> dict[str, Mapping[str, MetadataValue]]:
        """Read the metadata of documents, by id: those that have readers, and nothing of others."""
        rows = (row for some in pages(sorted(ids)) for row in self.columns(db, some, "metadata"))
        with undamaged():  # whoever removes a row looks at its checksum
            return {id: _metadata(text) if READERS in text else {} for id, text in rows}

    def columns(self, db: sqlite3.Connection, ids: Collection[str], names: str) -> Iterator[tuple[str, ...]]:
        """Read the ids of documents and the columns ``names`` of them."""
        yield from db.execute(
            f"SELECT id, {names} FROM {self.name('documents')} WHERE id IN {_VALUES}",
            [_names(ids)],
        )

    def ids_of(self, db: sqlite3.Connection, rows: Collection[int]) -> list[tuple[int, str]]:
        """Read the rows that are there, each with its document's id."""
        return db.execute(
            f"SELECT row, id FROM {self.name('documents')} WHERE row IN {_VALUES}",
            [_list(rows)],
        ).fetchall()

    def named_rows(self, db: sqlite3.Connection, row: int, like: str) -> Iterator[tuple[int, str]]:
        """Read the rows behind a row, each with its id: of all rows, those whose ids match a pattern.

        For all rows, SQLite reads the index of the ids, which is much smaller than the table with their texts.
        """
        condition = "row > ?" if row else f"id GLOB '{like}' AND ? = 0"
        yield from db.execute(f"SELECT row, id FROM {self.name('documents')} WHERE {condition}", [row])

    def ids_after(self, db: sqlite3.Connection, id: str, count: int) -> list[str]:
        """Read the next ids behind one, in their order."""
        cursor = db.execute(
            f"SELECT id FROM {self.name('documents')} WHERE id > ? AND {_IS_DOCUMENT} ORDER BY id LIMIT ?",
            [id, count],
        )
        ids = [row[0] for row in cursor]
        with undamaged():
            if any(next <= last for last, next in pairwise((id, *ids))):  # going on from there would never end
                raise ValueError("its ids are out of order")
        return ids

    def rows_after(self, db: sqlite3.Connection, id: str, wanted: Collection[int] | None) -> Iterator[int]:
        """Read the rows of documents behind an id, in the order of the ids: those that are ``wanted``, or all."""
        table = self.name("documents")
        cursor = db.execute(f"SELECT row FROM {table} WHERE id > ? AND {_IS_DOCUMENT} ORDER BY id", [id])
        return (row for (row,) in cursor if wanted is None or row in wanted)

    def count(self, db: sqlite3.Connection) -> RowCount:
        """Count the rows. SQLite reads the index of the ids for it."""
        (documents,) = db.execute(f"SELECT count(*) FROM {self.name('documents')} WHERE {_IS_DOCUMENT}").fetchone()
        return RowCount(documents, self.state(db).documents - documents)

    def outlines(self, db: sqlite3.Connection, keys: Collection[str]) -> Iterator[Outline]:
        """Read the outlines of all documents."""
        values: dict[int, dict[str, MetadataValue]] = {}
        for key in keys:
            for row, value in self.values_after(db, key, 0):
                values.setdefault(row, {})[key] = restored(value)
        cursor = db.execute(f"SELECT row, id, image IS NOT NULL FROM {self.name('documents')} WHERE {_IS_DOCUMENT}")
        return (Outline(id, bool(has_image), values.get(row, {})) for row, id, has_image in cursor)

    def rows_of_the_epoch(self, db: sqlite3.Connection, state: TableState) -> Places:
        """Read the rows that were there when the epoch began or came since, in order.

        Rows that were removed since are among them.
        """
        first, survivors = db.execute(f"SELECT first_row, survivors FROM {self.name('state')}").fetchone()
        (deaths,) = db.execute(f"SELECT count(*) FROM {self.name('deaths')}").fetchone()
        with undamaged():
            begun = np.frombuffer(survivors, "<i8")
            if len(begun) + state.last_row + 1 - first != state.documents + deaths:
                raise ValueError("the number of its documents is not that of its rows")
        return np.concatenate([begun, np.arange(first, state.last_row + 1)])

    def deaths_after(self, db: sqlite3.Connection, death: int) -> Places:
        """Read the rows that were removed after a death."""
        cursor = db.execute(f"SELECT row FROM {self.name('deaths')} WHERE number > ?", [death])
        with undamaged():
            return np.fromiter((number for (number,) in cursor), np.int64)

    def deaths(self, db: sqlite3.Connection) -> dict[int, int]:
        """Read the rows that were removed in this epoch, by their deaths, in order."""
        return dict(db.execute(f"SELECT number, row FROM {self.name('deaths')} ORDER BY number"))

    def values_after(self, db: sqlite3.Connection, key: str, row: int) -> list[tuple[int, StoredValue]]:
        """Read the rows written after another that have a key, with its values."""
        return db.execute(
            f"SELECT row, value FROM {self.name('attributes')} WHERE key = ? AND row > ? ORDER BY row",
            [key, row],
        ).fetchall()

    def codes_after(self, db: sqlite3.Connection, field: Field, row: int) -> Iterator[CodeRows]:
        """Read the codes of a field that were written after a row."""
        cursor = db.execute(
            f"SELECT * FROM {self.name('codes', field)} WHERE last > ? ORDER BY last",
            [row],
        )
        for group in (self.code_rows(field, *values[2:-1]) for values in cursor):  # a merged one may begin before
            new = int(np.searchsorted(group.numbers, row, side="right"))
            yield group[new:] if new else group

    def code_rows(self, field: Field, rows: Buffer, steps: Buffer, codes: Buffer, signs: Buffer) -> CodeRows:
        """Return a group of codes; BackendError where it cannot be one."""
        dim = self.dims[field]
        with undamaged():
            numbers, table = np.frombuffer(rows, "<i8"), np.frombuffer(codes, np.int8).reshape(-1, dim)
            bits = np.frombuffer(signs, np.uint8).reshape(-1, -(-dim // 8))
            group = CodeRows(numbers, np.frombuffer(steps, "<f4"), table, bits)
            if {*map(len, group.arrays)} != {len(numbers)}:
                raise ValueError("its codes do not fit together")
            return group

    def words_after(self, db: sqlite3.Connection, row: int) -> Iterator[Postings]:
        """Read the words of the documents that were written after a row."""
        cursor = db.execute(f"SELECT * FROM {self.name('words')} WHERE last > ? ORDER BY last", [row])
        for group in (postings(*values[2:-1]) for values in cursor):  # one that was merged may begin before
            yield group.only(group.rows > row)

    def whole_words(self, db: sqlite3.Connection) -> Iterator[Postings]:
        """Read the groups of words; BackendError for one that has not the checksum that it should."""
        for values in db.execute(f"SELECT * FROM {self.name('words')} ORDER BY last"):
            if not is_whole(values):
                raise BackendError("the words are damaged in the index: run `vlmsearch check --repair`")
            yield postings(*values[2:-1])

    def vectors(self, db: sqlite3.Connection, field: Field, rows: Collection[int]) -> tuple[list[int], Vectors]:
        """Read which rows have a vector of a field, and the vectors, shape (n, dim)."""
        stored_rows = db.execute(
            f"SELECT row, vector, crc FROM {self.name('vectors', field)} WHERE row IN {_VALUES}",
            [_list(rows)],
        ).fetchall()
        with undamaged():
            for row, vector, crc in stored_rows:
                if vector_checksum(row, vector) != crc:
                    raise ValueError(f"the vector {field} of row {row} is not what was written: run `vlmsearch check`")
            table = np.frombuffer(b"".join(vector for _, vector, _ in stored_rows), "<f4").reshape(-1, self.dims[field])
        return [row for row, _, _ in stored_rows], table

    def damaged_vectors(self, db: sqlite3.Connection, field: Field) -> Places:
        """Find the rows whose vectors of a field have a wrong checksum, in order."""
        length = 4 * self.dims[field]

        def is_damaged(row: int, vector: object, crc: object) -> bool:
            return not isinstance(vector, bytes) or len(vector) != length or vector_checksum(row, vector) != crc

        cursor = db.execute(f"SELECT row, vector, crc FROM {self.name('vectors', field)} ORDER BY row")
        return np.fromiter((values[0] for values in cursor if is_damaged(*values)), np.int64)

    def has_whole_codes(self, db: sqlite3.Connection, field: Field) -> bool:
        """Check whether all groups of codes of a field have the checksum that they should."""
        return all(map(is_whole, db.execute(f"SELECT * FROM {self.name('codes', field)}")))

    def whole_codes(self, db: sqlite3.Connection, field: Field) -> Iterator[CodeRows]:
        """Read the groups of codes of a field that have the checksum that they should."""
        cursor = db.execute(f"SELECT * FROM {self.name('codes', field)} ORDER BY last")
        return (self.code_rows(field, *values[2:-1]) for values in cursor if is_whole(values))

    def words_by(self, db: sqlite3.Connection) -> str:
        """Read which rules made the words."""
        return next((str(name) for (name,) in db.execute(f"SELECT stemmer FROM {self.name('state')}")), "")

    def named_vectors(
        self, db: sqlite3.Connection, field: Field, rows: Collection[int]
    ) -> Iterator[tuple[Sequence[int], Sequence[str], Vectors]]:
        """Read rows, ids and vectors of documents that have a field, some at a time.

        So few are at once in the processor's cache when they are compared.
        """
        cursor = db.execute(
            f"SELECT row, id, vector FROM {self.name('vectors', field)} JOIN {self.name('documents')} USING (row)"
            f" WHERE row IN {_VALUES}",
            [_list(rows)],
        )
        while some := cursor.fetchmany(_CACHED):
            numbers, ids, vectors = zip(*some)
            with undamaged():
                table = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, self.dims[field])
            yield numbers, ids, table

    def all(self, db: sqlite3.Connection) -> Iterator[Row]:
        """Read all documents, in the order of their rows, damaged ones among them."""
        return map(Row._make, db.execute(f"SELECT * FROM {self.name('documents')} ORDER BY row"))

    def attributes(self, db: sqlite3.Connection) -> Iterator[tuple[str, int, StoredValue]]:
        """Read the metadata of all documents, by key and row."""
        yield from db.execute(f"SELECT key, row, value FROM {self.name('attributes')}")

    def vector_rows(self, db: sqlite3.Connection, field: Field) -> Places:
        """Read the rows that have a vector of a field, in order."""
        cursor = db.execute(f"SELECT row FROM {self.name('vectors', field)} ORDER BY row")
        return np.fromiter((number for (number,) in cursor), np.int64)

    # ---- writing

    def write(self, db: sqlite3.Connection, records: Sequence[Record]) -> None:
        """Add the rows of records; those with their ids, and passages of these, are removed."""
        for some in batches(records, BLOCK - 1):  # so that small groups are behind the large ones
            self.remove(db, [record.document.id for record in some])
            state = self.state(db)
            numbers = range(state.last_row + 1, state.last_row + 1 + len(some))
            db.executemany(
                f"INSERT INTO {self.name('documents')} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                map(_values, numbers, some, _metadata_texts(some)),
            )
            self._write_attributes(db, [(number, record.document) for number, record in zip(numbers, some)])
            self._put_words(db, Postings.of(numbers, map(words_of_row, some), self.language))
            for field in self.fields:
                self._write_vectors(db, field, numbers, some)
            self._put(
                db,
                state._replace(
                    last_row=state.last_row + len(some),
                    documents=state.documents + len(some),
                    loose_groups=state.loose_groups + 1,
                    loose_rows=state.loose_rows + len(some),
                ),
            )

    def _write_attributes(self, db: sqlite3.Connection, documents: Sequence[tuple[int, Document]]) -> None:
        db.executemany(
            f"INSERT INTO {self.name('attributes')} VALUES (?, ?, ?)",
            ((key, row, stored(value)) for row, document in documents for key, value in document.metadata.items()),
        )

    def _put_words(self, db: sqlite3.Connection, group: Postings) -> None:
        if not len(group):
            return
        values: list[int | bytes | str] = [int(group.rows[-1]), len(group)]
        *arrays, languages = arrays_of(group)
        values += (array.tobytes() for array in arrays)
        values.append(languages.tobytes().decode())
        table = self.name("words")
        db.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [*values, checksum(*values)])

    def _write_vectors(
        self, db: sqlite3.Connection, field: Field, numbers: Sequence[int], records: Sequence[Record]
    ) -> None:
        pairs = ((number, record.vectors.get(field)) for number, record in zip(numbers, records))
        have = {number: vector for number, vector in pairs if vector is not None}
        if not have:
            return
        rows, vectors = list(have), np.array(list(have.values()), "<f4")
        content, length = vectors.data.cast("B"), vectors.itemsize * vectors.shape[1]
        parts = (content[start : start + length] for start in range(0, len(content), length))
        db.executemany(
            f"INSERT INTO {self.name('vectors', field)} VALUES (?, ?, ?)",
            ((row, vector, vector_checksum(row, vector)) for row, vector in zip(rows, parts)),
        )
        self._write_codes(db, field, CodeRows.of(rows, vectors))

    def _write_codes(self, db: sqlite3.Connection, field: Field, group: CodeRows) -> None:
        values: list[int | bytes] = [int(group.numbers[-1]), len(group)]
        values += (part.tobytes() for part in arrays_of(group))
        db.execute(
            f"INSERT INTO {self.name('codes', field)} VALUES (?, ?, ?, ?, ?, ?, ?)", [*values, checksum(*values)]
        )

    def remove(self, db: sqlite3.Connection, ids: Collection[str]) -> int:
        """Remove documents and all that belongs to them, and return how many there were."""
        named = self.rows(db, ids)
        old = list({**named, **self.rows(db, passage_ids(named))}.values())
        if not old:
            return 0
        numbers = [(row.row,) for row in old]
        for field in self.fields:
            db.executemany(f"DELETE FROM {self.name('vectors', field)} WHERE row = ?", numbers)
        db.executemany(
            f"DELETE FROM {self.name('attributes')} WHERE key = ? AND row = ?",
            ((key, row.row) for row in old for key in row.document.metadata),
        )
        db.executemany(f"DELETE FROM {self.name('documents')} WHERE row = ?", numbers)
        state = self.state(db)
        deaths = range(state.last_death + 1, state.last_death + 1 + len(old))
        db.executemany(
            f"INSERT INTO {self.name('deaths')} VALUES (?, ?)",
            zip(deaths, (row.row for row in old)),
        )
        self._put(db, state._replace(last_death=state.last_death + len(old), documents=state.documents - len(old)))
        return sum(PASSAGE not in id for id in named)

    def _put(self, db: sqlite3.Connection, state: TableState) -> None:
        db.execute(f"UPDATE {self.name('state')} SET {', '.join(f'{name} = ?' for name in TableState._fields)}", state)

    # ---- housekeeping

    def tidy(self, db: sqlite3.Connection) -> None:
        """Merge small groups of codes, and forget the dead, once there are many."""
        state = self.state(db)
        first = db.execute(f"SELECT min(number) FROM {self.name('deaths')}").fetchone()[0]
        if first is not None and state.last_death - first > _KEPT_DEATHS + state.documents:
            self.forget(db)
        elif state.loose_groups >= _LOOSE_GROUPS or state.loose_rows >= BLOCK:
            for field in self.fields:
                self._merge(db, field, BLOCK - 1, None)
            self._merge_words(db, BLOCK - 1, None)
            self._put(db, state._replace(loose_groups=0, loose_rows=0))

    def forget(self, db: sqlite3.Connection) -> None:
        """Write all codes anew without those of the dead, and begin a new epoch."""
        cursor = db.execute(f"SELECT row FROM {self.name('documents')} ORDER BY row")
        live = np.fromiter((row for (row,) in cursor), np.int64)
        for field in self.fields:
            self._merge(db, field, sys.maxsize, live)
        self._merge_words(db, sys.maxsize, live)
        self._begin_epoch(db, live)

    def _begin_epoch(self, db: sqlite3.Connection, live: Places) -> None:
        state = self.state(db)
        db.execute(f"DELETE FROM {self.name('deaths')}")
        db.execute(
            f"UPDATE {self.name('state')} SET first_row = ?, survivors = ?",
            [state.last_row + 1, live.astype("<i8").tobytes()],
        )
        self._put(db, state._replace(epoch=state.epoch + 1, documents=len(live), loose_groups=0, loose_rows=0))

    def _merge(self, db: sqlite3.Connection, field: Field, max_count: int, live: Places | None) -> None:
        """Merge the groups of codes of at most so many rows.

        ``live`` are those to keep, None for all.
        """
        pending: list[CodeRows] = []
        for values in self._taken(db, self.name("codes", field), max_count):
            group = self.code_rows(field, *values[2:-1])
            pending.append(group if live is None else group[find(live, group.numbers)[1]])
            if sum(map(len, pending)) >= BLOCK:
                self._write_codes(db, field, CodeRows.joined(pending))
                pending = []
        if any(map(len, pending)):
            self._write_codes(db, field, CodeRows.joined(pending))

    def _merge_words(self, db: sqlite3.Connection, max_count: int, live: Places | None) -> None:
        """Merge the groups of words of at most so many documents. ``live`` are those to keep, None for all."""
        pending: list[Postings] = []
        for values in self._taken(db, self.name("words"), max_count):
            group = postings(*values[2:-1])
            pending.append(group if live is None else group.only(find(live, group.rows)[1]))
            if sum(map(len, pending)) >= BLOCK:
                self._put_words(db, Postings.joined(pending))
                pending = []
        if pending:
            self._put_words(db, Postings.joined(pending))

    def _taken(self, db: sqlite3.Connection, table: str, max_count: int) -> Iterator[tuple[Any, ...]]:
        """Take the groups of at most so many rows out of a table, one by one: BackendError for a damaged one."""
        for (last,) in db.execute(f"SELECT last FROM {table} WHERE count <= ? ORDER BY last", [max_count]).fetchall():
            values = db.execute(f"SELECT * FROM {table} WHERE last = ?", [last]).fetchone()
            if not is_whole(values):
                raise BackendError(f"{table} is damaged in the index: run `vlmsearch check --repair`")
            db.execute(f"DELETE FROM {table} WHERE last = ?", [last])
            yield values

    def make_words(self, db: sqlite3.Connection) -> None:
        """Make the words of all documents again, of damaged ones those that can be read."""
        for table in ("words", "arrays"):
            db.execute(f"DELETE FROM {self.name(table)}")
        for some in batches(self.texts(self.all(db)), BLOCK):
            self._put_words(db, Postings.of([row for row, _ in some], [text for _, text in some], self.language))
        db.execute(f"UPDATE {self.name('state')} SET stemmer = ?", [rules_of(self.language)])

    def texts(self, documents: Iterable[Row]) -> Iterator[tuple[int, str]]:
        """Return the words of documents, with their rows. Damaged ones give what is left."""
        rows = (row if is_whole(row) else row.legible() for row in documents)
        return ((row.row, words_of_row(Record(row.document, {}, row.stamp))) for row in rows if row is not None)

    def clear(self, db: sqlite3.Connection) -> None:
        """Remove what follows from documents and vectors: metadata by key, codes and words."""
        codes = (self.name("codes", field) for field in self.fields)
        for name in (self.name("attributes"), self.name("words"), *codes):
            db.execute(f"DELETE FROM {name}")

    def rebuild(
        self,
        db: sqlite3.Connection,
        damaged: Mapping[int, Row | None],
        lost: Mapping[int, Collection[str]],
        strays: Collection[int] = (),
    ) -> None:
        """Make all that `clear` removed again, in a new epoch.

        ``damaged`` are the rows to put what is left of them in the place of; ``lost`` are the fields of documents whose
        vectors are not there: such documents count as changed, and so do damaged ones. ``strays`` are rows to remove.
        """
        table = self.name("documents")
        for number, left in damaged.items():
            db.execute(f"DELETE FROM {table} WHERE row = ?", [number])
            if left is not None:
                db.execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", left)
        db.execute(f"DELETE FROM {table} WHERE row IN {_VALUES}", [_list(strays)])
        for row in list(self.numbered(db, lost)):
            names = json.dumps([name for name in parsed(row.fields) if name not in lost[row.row]])
            changed = row._replace(digest=blanked(row.stamp.digest), fields=names).sealed()
            db.execute(
                f"UPDATE {table} SET digest = ?, fields = ?, crc = ? WHERE row = ?",
                [changed.digest, changed.fields, changed.crc, changed.row],
            )
        (last,) = db.execute(f"SELECT coalesce(max(row), 0) FROM {table}").fetchone()
        state = TableState(*(value if isinstance(value, int) else 0 for value in self.state(db)))
        self._put(db, state._replace(last_row=max(state.last_row, last)))
        for some in batches(self.all(db), _PAGE):
            self._write_attributes(db, [(row.row, row.document) for row in some])
        self.make_words(db)
        for field in self.fields:
            named, have = self._named(db, field), self.vector_rows(db, field)
            unnamed = [(row,) for row in have[~find(named, have)[1]].tolist()]
            db.executemany(f"DELETE FROM {self.name('vectors', field)} WHERE row = ?", unnamed)
            for start in range(0, len(named), _PAGE):
                rows, vectors = self.vectors(db, field, named[start : start + _PAGE].tolist())
                self._write_codes(db, field, CodeRows.of(rows, vectors))
        self.forget(db)

    def _named(self, db: sqlite3.Connection, field: Field) -> Places:
        """Read the rows of documents that claim a vector of a field, in order."""
        cursor = db.execute(f"SELECT row, fields FROM {self.name('documents')} ORDER BY row")
        return np.array([row for row, names in cursor if str(field) in parsed(names)], np.int64)


def make_ids(db: sqlite3.Connection, generation: int, damaged: Collection[int]) -> None:
    """Make the index of ids again. Of documents with the same id, the last whole one is kept."""
    table, make = f"documents_{generation}", SCHEMA.of_a_generation.partition(";")[0]
    db.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM {table} NOT INDEXED")
    db.execute(f"DROP TABLE {table}")
    run(db, make.format(g=generation))
    db.execute(
        f"INSERT OR REPLACE INTO {table} SELECT * FROM temp.kept ORDER BY row NOT IN {_VALUES}, row", [_list(damaged)]
    )
    db.execute("DROP TABLE temp.kept")


def drop_tables(db: sqlite3.Connection, generation: int) -> None:
    """Remove the tables of a generation, those that are there."""
    for name in tables_by_generation(db).get(generation, ()):
        db.execute(f"DROP TABLE {name}")


_IS_DOCUMENT = f"instr(id, '{PASSAGE}') = 0"
_VALUES = "(SELECT value FROM json_each(?))"


def _list(values: Collection[object]) -> str:
    return json.dumps(list(values))


def _names(ids: Collection[str]) -> str:
    """Return ids as `_VALUES` takes them.

    Those with a NUL are left out: SQLite's JSON functions end a string there.
    """
    return _list([id for id in ids if "\0" not in id])


def _values(number: int, record: Record, metadata: str) -> tuple[object, ...]:
    """Return the columns of a `Row`."""
    id, text, image, _ = StoredDocument.of(record.document)
    stamp, fields = record.stamp, _fields(tuple(record.vectors))
    strings = kept(stamp.digest), kept(stamp.source), fields, image and kept(image), metadata, text and kept(text)
    return number, id, *strings, checksum(number, id, *strings)


def _metadata_texts(records: Iterable[Record]) -> list[str]:
    """Return the metadata of records as JSON: all at once, as that takes a fifth of the time.

    Strings in JSON have no line ends, so that these tell where an object ends.
    """
    objects = _LINES.encode([dict(record.document.metadata) for record in records])[1:-1]
    return objects.replace("},\n{", "}\n{").replace(",\n", ", ").split("\n")


def _legible(value: object) -> str | None:
    """Return what can be read of a value that should be a string or None."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


def parsed(text: str) -> Any:
    """Parse JSON in a table; BackendError where it is not JSON any more."""
    with undamaged():
        return parse_json(text)


def _metadata(text: str) -> dict[str, MetadataValue]:
    content = parse_json(text)
    if not isinstance(content, dict) or not all(map(_is_value, content.values())):
        raise TypeError("metadata that are no JSON object of strings, numbers, bools and lists of strings")
    return content


def _is_value(value: object) -> bool:
    is_list = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    return is_list or isinstance(value, (str, int, float))


@lru_cache(1024)
def fields_of(names: str) -> frozenset[Field]:
    """Return the fields that a document says that it has: BackendError where they are none any more."""
    with undamaged():
        return frozenset(map(Field.parse, parse_json(names)))


def arrays_of(group: CodeRows | Postings) -> list[NDArray[Any]]:
    """Return the arrays of a group as they are stored, least significant bytes first."""
    if isinstance(group, CodeRows):
        arrays: tuple[NDArray[Any], ...] = group.arrays
    else:
        languages = np.frombuffer(" ".join(sorted(group.languages)).encode(), np.uint8)
        arrays = group.rows, group.lengths, group.keys, group.starts, group.places, group.times, languages
    return [np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for array in arrays]


def postings(
    rows: Buffer, lengths: Buffer, keys: Buffer, starts: Buffer, places: Buffer, times: Buffer, languages: str | Buffer
) -> Postings:
    """Return a group of words; BackendError where it cannot be one."""
    with undamaged():
        of_documents = np.frombuffer(rows, "<i8"), np.frombuffer(lengths, "<u4")
        terms, begins = np.frombuffer(keys, "<u8"), np.frombuffer(starts, "<u4")
        held = np.frombuffer(places, "<u2")
        counts = np.frombuffer(times, np.uint8 if len(times) == len(held) else "<u2")
        if not (
            len(of_documents[0]) == len(of_documents[1]) > int(held.max(initial=0))
            and len(begins) == len(terms) + 1
            and len(held) == len(counts) == int(begins[-1])
            and (begins[1:] >= begins[:-1]).all()
        ):
            raise ValueError("its words do not fit together")
        names = languages if isinstance(languages, str) else bytes(languages).decode()
        return Postings(*of_documents, terms, begins, held, counts, frozenset(names.split()))


@contextmanager
def undamaged() -> Iterator[None]:
    """Raise BackendError where a table has what nobody wrote. A number in the place of a string is such."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        raise BackendError(
            f"the index is damaged: {one_line(exc)}; restore a copy of the file, or index again under another name"
        ) from exc


_LINES = json.JSONEncoder(separators=(",\n", ": "))


@lru_cache(maxsize=1000)
def _fields(fields: tuple[Field, ...]) -> str:
    return json.dumps(sorted(map(str, fields)))


def kept(value: str) -> str | bytes:
    """Return a string as SQLite takes it: as bytes where it has half a surrogate pair."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def string(value: str | bytes) -> str:
    """Return the string that `kept` took."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")
