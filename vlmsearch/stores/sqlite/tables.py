"""The tables of one generation, and writing to them.

============  ============================================================================================
documents     id, stamp, fields, image path, metadata as JSON, text; a changed document gets another row
attributes    the metadata again, by key, as filters compare them
words         a full-text index, by row
vectors_N     the vectors of field N as float32, by row
codes_N       their codes and signs in groups, by the last row of each: those of one write, and later of many
deaths        rows that were removed, in the order in which that happened, until they are forgotten
state         one row: how far the generation has come, see `TableState`
============  ============================================================================================

Rows are numbered from 1 in the order in which they were written, and never change or come back. So whoever has read
everything up to a row and a death needs only what came after it.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import BackendError, one_line
from vlmsearch.stores.sqlite.codes import BLOCK, Coded, Places, find
from vlmsearch.stores.sqlite.columns import Stored, stored
from vlmsearch.stores.sqlite.schema import OF_A_FIELD, OF_A_GENERATION, run
from vlmsearch.stores.words import FullText, words_of
from vlmsearch.types import Document, Field, Manifest, Record, Scalar, Stamp, Vectors

_KEPT_DEATHS = 20_000
"""How many deaths are remembered beside one for each document."""
_LOOSE_GROUPS = 1000
"""How many groups of codes are written before they are merged, unless they have `BLOCK` rows before."""
_PAGE = 4096
_CACHED = 256
"""How many vectors are compared at a time."""


class TableState(NamedTuple):
    """How far a generation has come: the last row and the last death, and what there is.

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

    @property
    def document(self) -> Document:
        """The document."""
        with undamaged():
            image = None if self.image is None else Path(string(self.image))
            text = None if self.text is None else string(self.text)
            return Document(self.id, text, image, _metadata(self.metadata))

    @property
    def stamp(self) -> Stamp:
        """Where it came from."""
        return Stamp(string(self.digest), string(self.source))


class Tables:
    """One generation of an index; every method takes a connection that is within a transaction."""

    def __init__(self, manifest: Manifest, generation: str) -> None:
        self.generation = int(generation)
        self.fields = [field for space in manifest.spaces for field in space.fields]
        self.dims = {field: space.dim for space in manifest.spaces for field in space.fields}
        self.words = FullText(f"words_{self.generation}", manifest.language)

    def create(self, db: sqlite3.Connection) -> None:
        """Make the tables, unless they are there."""
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [f"state_{self.generation}"]).fetchone() is None:
            run(db, OF_A_GENERATION.format(g=self.generation))
            for n in range(len(self.fields)):
                run(db, OF_A_FIELD.format(g=self.generation, n=n))
            db.execute(f"INSERT INTO {self.name('state')} VALUES (0, 0, 0, 0, 0, 0, 1, x'')")
            self.words.create(db)

    def drop(self, db: sqlite3.Connection) -> None:
        """Remove the tables."""
        names = ["documents", "attributes", "deaths", "state"]
        names += [f"{kind}_{self.generation}_{n}" for kind in ("vectors", "codes") for n in range(len(self.fields))]
        for name in names:
            full = name if name[-1].isdigit() else f"{name}_{self.generation}"
            db.execute(f"DROP TABLE IF EXISTS {full}")
        self.words.drop(db)

    def name(self, kind: str, field: Field | None = None) -> str:
        """The name of a table, for parts that fields have one of each, of that of a field."""
        return f"{kind}_{self.generation}" + ("" if field is None else f"_{self.fields.index(field)}")

    # ---- reading

    def state(self, db: sqlite3.Connection) -> TableState:
        """How far it has come."""
        return TableState(*db.execute(f"SELECT {', '.join(TableState._fields)} FROM {self.name('state')}").fetchone())

    def rows(self, db: sqlite3.Connection, ids: Collection[str]) -> dict[str, Row]:
        """The rows of documents, by id."""
        found = db.execute(f"SELECT * FROM {self.name('documents')} WHERE id IN {_EACH}", [_names(ids)])
        return {row.id: row for row in map(Row._make, found)}

    def numbered(self, db: sqlite3.Connection, rows: Collection[int]) -> Iterator[Row]:
        """The documents that have these rows."""
        found = db.execute(f"SELECT * FROM {self.name('documents')} WHERE row IN {_EACH}", [_list(rows)])
        return map(Row._make, found)

    def columns(self, db: sqlite3.Connection, ids: Collection[str], names: str) -> Iterator[tuple[str, ...]]:
        """The ids of documents and the columns ``names`` of them."""
        yield from db.execute(
            f"SELECT id, {names} FROM {self.name('documents')} WHERE id IN {_EACH}",
            [_names(ids)],
        )

    def ids_of(self, db: sqlite3.Connection, rows: Collection[int]) -> list[tuple[int, str]]:
        """The rows that are there, each with its document's id."""
        return db.execute(
            f"SELECT row, id FROM {self.name('documents')} WHERE row IN {_EACH}",
            [_list(rows)],
        ).fetchall()

    def ids_after(self, db: sqlite3.Connection, id: str, count: int) -> list[str]:
        """The next so many ids, in their order."""
        found = db.execute(
            f"SELECT id FROM {self.name('documents')} WHERE id > ? ORDER BY id LIMIT ?",
            [id, count],
        )
        return [row[0] for row in found]

    def rows_after(self, db: sqlite3.Connection, id: str, wanted: Collection[int] | None) -> Iterator[int]:
        """The rows of the documents behind an id, in the order of their ids; of those that are ``wanted``, or all."""
        found = db.execute(f"SELECT row FROM {self.name('documents')} WHERE id > ? ORDER BY id", [id])
        return (row for (row,) in found if wanted is None or row in wanted)

    def rows_of_the_epoch(self, db: sqlite3.Connection, last: int) -> Places:
        """The rows up to the last one that were there when the epoch began or came since, in order.

        Those that were removed since are among them.
        """
        first, survivors = db.execute(f"SELECT first_row, survivors FROM {self.name('state')}").fetchone()
        return np.concatenate([np.frombuffer(survivors, "<i8"), np.arange(first, last + 1)])

    def deaths_after(self, db: sqlite3.Connection, death: int) -> Places:
        """The rows that were removed after this death."""
        found = db.execute(f"SELECT row FROM {self.name('deaths')} WHERE number > ?", [death])
        return np.fromiter((number for (number,) in found), np.int64)

    def values_after(self, db: sqlite3.Connection, key: str, row: int) -> list[tuple[int, float | int | bytes]]:
        """The rows written after this one that have a key, with its values."""
        return db.execute(
            f"SELECT row, value FROM {self.name('attributes')} WHERE key = ? AND row > ? ORDER BY row",
            [key, row],
        ).fetchall()

    def codes_after(self, db: sqlite3.Connection, field: Field, row: int) -> Iterator[Coded]:
        """The codes of a field that were written after this row."""
        found = db.execute(
            f"SELECT * FROM {self.name('codes', field)} WHERE last > ? ORDER BY last",
            [row],
        )
        for group in (self._group(field, *parts) for parts in found):  # one that was merged may begin before
            new = int(np.searchsorted(group.numbers, row, side="right"))
            yield group[new:] if new else group

    def _group(
        self, field: Field, last: int, count: int, rows: bytes, steps: bytes, codes: bytes, signs: bytes
    ) -> Coded:
        dim = self.dims[field]
        with undamaged():
            table = np.frombuffer(codes, np.int8).reshape(-1, dim)
            bits = np.frombuffer(signs, np.uint8).reshape(-1, -(-dim // 8))
            return Coded(np.frombuffer(rows, "<i8"), np.frombuffer(steps, "<f4"), table, bits)

    def vectors(self, db: sqlite3.Connection, field: Field, rows: Collection[int]) -> tuple[list[int], Vectors]:
        """Those of the rows that have a vector of a field, and their vectors, shape (n, dim)."""
        found = db.execute(
            f"SELECT row, vector FROM {self.name('vectors', field)} WHERE row IN {_EACH}",
            [_list(rows)],
        ).fetchall()
        with undamaged():
            table = np.frombuffer(b"".join(vector for _, vector in found), "<f4").reshape(-1, self.dims[field])
        return [row for row, _ in found], table

    def named_vectors(
        self, db: sqlite3.Connection, field: Field, rows: Collection[int]
    ) -> Iterator[tuple[Sequence[int], Sequence[str], Vectors]]:
        """Those of the rows that have a vector of a field, their documents' ids and vectors: some at a time.

        What is computed of some vectors finds them in the processor's cache.
        """
        found = db.execute(
            f"SELECT row, id, vector FROM {self.name('vectors', field)} JOIN {self.name('documents')} USING (row)"
            f" WHERE row IN {_EACH}",
            [_list(rows)],
        )
        while some := found.fetchmany(_CACHED):
            numbers, ids, vectors = zip(*some)
            with undamaged():
                table = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, self.dims[field])
            yield numbers, ids, table

    def all(self, db: sqlite3.Connection) -> Iterator[Row]:
        """All documents, in the order of their rows."""
        return map(Row._make, db.execute(f"SELECT * FROM {self.name('documents')} ORDER BY row"))

    def worded(self, db: sqlite3.Connection) -> Places:
        """The rows that the full-text index has, in order."""
        found = db.execute(f"SELECT id FROM {self.words.table}_docsize ORDER BY id")
        return np.fromiter((number for (number,) in found), np.int64)

    def attributes(self, db: sqlite3.Connection) -> Iterator[tuple[str, int, Stored]]:
        """The metadata of all documents, by key and row."""
        yield from db.execute(f"SELECT key, row, value FROM {self.name('attributes')}")

    def vector_rows(self, db: sqlite3.Connection, field: Field) -> Places:
        """The rows that have a vector of a field, in order."""
        found = db.execute(f"SELECT row FROM {self.name('vectors', field)} ORDER BY row")
        return np.fromiter((number for (number,) in found), np.int64)

    # ---- writing

    def write(self, db: sqlite3.Connection, records: Sequence[Record]) -> None:
        """Add records, or put them in the place of those with their ids."""
        self.remove(db, [record.document.id for record in records])
        state = self.state(db)
        numbers = range(state.last_row + 1, state.last_row + 1 + len(records))
        db.executemany(
            f"INSERT INTO {self.name('documents')} VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (_row(number, record) for number, record in zip(numbers, records)),
        )
        self._derive(db, [(number, record.document) for number, record in zip(numbers, records)])
        for field in self.fields:
            self._write_vectors(db, field, numbers, records)
        self._put(
            db,
            state._replace(
                last_row=state.last_row + len(records),
                documents=state.documents + len(records),
                loose_groups=state.loose_groups + 1,
                loose_rows=state.loose_rows + len(records),
            ),
        )

    def _derive(self, db: sqlite3.Connection, documents: Sequence[tuple[int, Document]]) -> None:
        """Write what follows from documents: their metadata by key, and their words."""
        db.executemany(
            f"INSERT INTO {self.name('attributes')} VALUES (?, ?, ?)",
            ((key, row, stored(value)) for row, document in documents for key, value in document.metadata.items()),
        )
        self.words.insert(db, ((row, words_of(document)) for row, document in documents))

    def _write_vectors(
        self, db: sqlite3.Connection, field: Field, numbers: Sequence[int], records: Sequence[Record]
    ) -> None:
        have = [(number, record.vectors[field]) for number, record in zip(numbers, records) if field in record.vectors]
        if not have:
            return
        rows, vectors = [row for row, _ in have], np.stack([vector for _, vector in have]).astype("<f4", copy=False)
        db.executemany(
            f"INSERT INTO {self.name('vectors', field)} VALUES (?, ?)",
            zip(rows, (vector.data for vector in vectors)),
        )
        self._write_codes(db, field, Coded.of(rows, vectors))

    def _write_codes(self, db: sqlite3.Connection, field: Field, group: Coded) -> None:
        parts = (group.numbers.astype("<i8"), group.steps.astype("<f4"), group.codes, group.signs)
        db.execute(
            f"INSERT INTO {self.name('codes', field)} VALUES (?, ?, ?, ?, ?, ?)",
            [int(group.numbers[-1]), len(group), *(np.ascontiguousarray(part).tobytes() for part in parts)],
        )

    def remove(self, db: sqlite3.Connection, ids: Collection[str]) -> int:
        """Remove documents and all that belongs to them; returns how many there were."""
        old = list(self.rows(db, ids).values())
        if not old:
            return 0
        numbers = [(row.row,) for row in old]
        self.words.delete(db, ((row.row, words_of(row.document)) for row in old))
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
        return len(old)

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
            self._put(db, state._replace(loose_groups=0, loose_rows=0))

    def forget(self, db: sqlite3.Connection) -> None:
        """Write all codes anew without those of the dead, and begin a new epoch."""
        found = db.execute(f"SELECT row FROM {self.name('documents')} ORDER BY row")
        live = np.fromiter((row for (row,) in found), np.int64)
        for field in self.fields:
            self._merge(db, field, sys.maxsize, live)
        self._begin_epoch(db, live)

    def _begin_epoch(self, db: sqlite3.Connection, live: Places) -> None:
        state = self.state(db)
        db.execute(f"DELETE FROM {self.name('deaths')}")
        db.execute(
            f"UPDATE {self.name('state')} SET first_row = ?, survivors = ?",
            [state.last_row + 1, live.astype("<i8").tobytes()],
        )
        self._put(db, state._replace(epoch=state.epoch + 1, documents=len(live), loose_groups=0, loose_rows=0))

    def _merge(self, db: sqlite3.Connection, field: Field, most: int, live: Places | None) -> None:
        """Merge the groups of at most so many rows; ``live`` are those to keep, None for all."""
        table = self.name("codes", field)
        pending: list[Coded] = []
        for (last,) in db.execute(f"SELECT last FROM {table} WHERE count <= ? ORDER BY last", [most]).fetchall():
            group = self._group(field, *db.execute(f"SELECT * FROM {table} WHERE last = ?", [last]).fetchone())
            pending.append(group if live is None else group[find(live, group.numbers)[1]])
            db.execute(f"DELETE FROM {table} WHERE last = ?", [last])
            if sum(map(len, pending)) >= BLOCK:
                pending = self._write_merged(db, field, pending)
        self._write_merged(db, field, pending)

    def _write_merged(self, db: sqlite3.Connection, field: Field, groups: Sequence[Coded]) -> list[Coded]:
        if any(map(len, groups)):
            self._write_codes(db, field, Coded.joined(groups))
        return []

    def rebuild(self, db: sqlite3.Connection, lost: Mapping[int, Collection[str]]) -> None:
        """Make all that follows from documents and vectors again, in a new epoch.

        ``lost`` are the fields of documents whose vectors are not there: such a document counts as changed.
        """
        for row, names in lost.items():
            have = db.execute(f"SELECT fields FROM {self.name('documents')} WHERE row = ?", [row]).fetchone()[0]
            left = json.dumps([name for name in parsed(have) if name not in names])
            db.execute(f"UPDATE {self.name('documents')} SET digest = '', fields = ? WHERE row = ?", [left, row])
        db.execute(f"DELETE FROM {self.name('attributes')}")
        self.words.drop(db)
        self.words.create(db)
        for some in _in_groups(self.all(db)):
            self._derive(db, [(row.row, row.document) for row in some])
        for field in self.fields:
            db.execute(f"DELETE FROM {self.name('codes', field)}")
            named, have = self._named(db, field), self.vector_rows(db, field)
            strays = [(row,) for row in have[~find(named, have)[1]].tolist()]
            db.executemany(f"DELETE FROM {self.name('vectors', field)} WHERE row = ?", strays)
            for start in range(0, len(named), _PAGE):
                rows, vectors = self.vectors(db, field, named[start : start + _PAGE].tolist())
                self._write_codes(db, field, Coded.of(rows, vectors))
        self.forget(db)

    def _named(self, db: sqlite3.Connection, field: Field) -> Places:
        """The documents that say that they have a vector of a field, in order."""
        found = db.execute(f"SELECT row, fields FROM {self.name('documents')} ORDER BY row")
        return np.array([row for row, names in found if str(field) in parsed(names)], np.int64)


_EACH = "(SELECT value FROM json_each(?))"


def _in_groups(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while some := list(islice(rows, _PAGE)):
        yield some


def _list(values: Collection[object]) -> str:
    return json.dumps(list(values))


def _names(ids: Collection[str]) -> str:
    """Ids as `_EACH` takes them, but for those with a NUL, where SQLite's JSON functions end a string."""
    return _list([id for id in ids if "\0" not in id])


def _row(number: int, record: Record) -> Row:
    document, stamp = record.document, record.stamp
    image = kept(str(document.image)) if isinstance(document.image, Path) else None
    text = None if document.text is None else kept(document.text)
    fields = _fields(tuple(record.vectors))
    metadata = json.dumps(dict(document.metadata))
    return Row(number, document.id, kept(stamp.digest), kept(stamp.source), fields, image, metadata, text)


def parsed(text: str) -> Any:
    """Return what JSON in a table says; BackendError where that is not JSON any more."""
    with undamaged():
        return parse_json(text)


def _metadata(text: str) -> dict[str, Scalar]:
    found = parse_json(text)
    if not isinstance(found, dict) or not all(isinstance(value, (str, int, float)) for value in found.values()):
        raise TypeError("metadata that are no JSON object of strings, numbers and bools")
    return found


@lru_cache(1024)
def fields_of(names: str) -> frozenset[Field]:
    """Return the fields that a document says that it has; BackendError where these are not fields any more."""
    with undamaged():
        return frozenset(map(Field.parse, parse_json(names)))


@contextmanager
def undamaged() -> Iterator[None]:
    """Raise BackendError where a table has what nobody wrote into it, such as a number in the place of a string."""
    try:
        yield
    except (AttributeError, TypeError, ValueError) as exc:
        raise BackendError(
            f"the index is damaged: {one_line(exc)}; restore a copy of the file, or index again under another name"
        ) from exc


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
