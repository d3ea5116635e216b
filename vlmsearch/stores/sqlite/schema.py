"""The tables, and the check that a file has these and nothing else.

SQLite runs what a schema says: a view in the place of a table, or a trigger, is a program of whoever made the file.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass


@dataclass(frozen=True)
class Schema:
    """The statements that make the tables, with ``{g}`` for the generation and ``{n}`` for the field."""

    shared: str
    """The tables that a file has once."""
    of_a_generation: str
    of_a_field: str
    words: tuple[str, ...] = ("",)
    """Statements for the words of a generation beside these tables; a file has one of them."""


SCHEMA = Schema(
    shared="""
    CREATE TABLE slots (slot TEXT PRIMARY KEY, row TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE rejects (
        id TEXT PRIMARY KEY, code TEXT NOT NULL, message TEXT NOT NULL, digest TEXT NOT NULL, source TEXT NOT NULL,
        crc INTEGER NOT NULL
    ) WITHOUT ROWID
""",
    of_a_generation="""
    CREATE TABLE documents_{g} (
        row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, source TEXT NOT NULL,
        fields TEXT NOT NULL, image TEXT, metadata TEXT NOT NULL, text TEXT, crc INTEGER NOT NULL
    );
    CREATE TABLE attributes_{g} (
        key TEXT NOT NULL, row INTEGER NOT NULL, value NOT NULL, PRIMARY KEY (key, row)
    ) WITHOUT ROWID;
    CREATE TABLE words_{g} (
        last INTEGER PRIMARY KEY, count INTEGER NOT NULL, rows BLOB NOT NULL, lengths BLOB NOT NULL,
        keys BLOB NOT NULL, starts BLOB NOT NULL, places BLOB NOT NULL, times BLOB NOT NULL, languages TEXT NOT NULL,
        crc INTEGER NOT NULL
    );
    CREATE TABLE arrays_{g} (token TEXT NOT NULL, epoch INTEGER NOT NULL, last_row INTEGER NOT NULL);
    CREATE TABLE deaths_{g} (number INTEGER PRIMARY KEY, row INTEGER NOT NULL);
    CREATE TABLE state_{g} (
        epoch INTEGER NOT NULL, last_row INTEGER NOT NULL, last_death INTEGER NOT NULL, documents INTEGER NOT NULL,
        loose_groups INTEGER NOT NULL, loose_rows INTEGER NOT NULL, first_row INTEGER NOT NULL, survivors BLOB NOT NULL,
        stemmer TEXT NOT NULL
    )
""",
    of_a_field="""
    CREATE TABLE vectors_{g}_{n} (row INTEGER PRIMARY KEY, vector BLOB NOT NULL, crc INTEGER NOT NULL);
    CREATE TABLE codes_{g}_{n} (
        last INTEGER PRIMARY KEY, count INTEGER NOT NULL, rows BLOB NOT NULL, steps BLOB NOT NULL, codes BLOB NOT NULL,
        signs BLOB NOT NULL, crc INTEGER NOT NULL
    )
""",
)
"""The tables of this version."""
VERSION = 3
"""The version of this schema."""
_NAME = re.compile(r"([a-z]+)_(\d+)(_\d+)?(_[a-z]+)?")
_PLACE = re.compile(r"_0(_0)?(?!\d)")


def run(db: sqlite3.Connection, statements: str) -> None:
    """Run statements within a transaction: `executescript` would end it."""
    for statement in statements.split(";"):
        db.execute(statement)


def stranger(db: sqlite3.Connection, schema: Schema) -> str | None:
    """Return a part of a file that is not of this schema, such as ``view 'documents_1'``: None for none."""
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master"):
        if not _is_known(schema, str(kind), str(name), sql):
            return f"{kind} {name!r}"
    return None


def tables_by_generation(db: sqlite3.Connection) -> dict[int, list[str]]:
    """Return the names of the tables that belong to a generation, by its number."""
    tables: dict[int, list[str]] = {}
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        parts = _NAME.fullmatch(name)
        if parts is not None and not parts[4]:  # what FTS5 makes beside its table goes with that
            tables.setdefault(int(parts[2]), []).append(name)
    return tables


def _is_known(schema: Schema, kind: str, name: str, sql: object) -> bool:
    if sql is None:  # the index of a constraint
        return kind == "index" and name.startswith("sqlite_autoindex_")
    parts = _NAME.fullmatch(name)
    if parts is None:
        return (kind, _normalised(sql)) in _known(schema).get(name, ())
    table, generation, field, part = parts.groups("")
    numbers = f"_{generation}", f"_{generation}{field or '_0'}"
    known = _known(schema).get(f"{table}_0{'_0' if field else ''}{part}", ())
    return any(
        kind == known_kind and _normalised(sql) == _PLACE.sub(lambda place: numbers[bool(place[1])], made)
        for known_kind, made in known
    )


def _normalised(sql: object) -> str:
    return " ".join(str(sql).split())


@functools.cache
def _known(schema: Schema) -> dict[str, set[tuple[str, str]]]:
    """Return kinds and statements of all that a schema makes, by name. Generation and field are 0."""
    statements: dict[str, set[tuple[str, str]]] = {}
    for words in schema.words:
        with closing(sqlite3.connect(":memory:")) as db:
            for part in (schema.shared, schema.of_a_generation, schema.of_a_field, words):
                run(db, part.format(g=0, n=0))
            for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"):
                statements.setdefault(name, set()).add((kind, _normalised(sql)))
    return statements
