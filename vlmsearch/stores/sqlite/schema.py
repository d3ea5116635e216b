"""The tables, and whether a file has those that were made here and nothing else.

SQLite runs what a schema says: a view in the place of a table, or a trigger, is a program of whoever made the file.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from contextlib import closing

from vlmsearch.stores.words import FullText

SHARED = """
    CREATE TABLE slots (slot TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE rejects (
        id TEXT PRIMARY KEY, code TEXT NOT NULL, message TEXT NOT NULL, digest TEXT NOT NULL, source TEXT NOT NULL
    ) WITHOUT ROWID
"""
"""What a file has once."""
OF_A_GENERATION = """
    CREATE TABLE documents_{g} (
        row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, source TEXT NOT NULL,
        fields TEXT NOT NULL, image TEXT, metadata TEXT NOT NULL, text TEXT
    );
    CREATE TABLE attributes_{g} (
        key TEXT NOT NULL, row INTEGER NOT NULL, value NOT NULL, PRIMARY KEY (key, row)
    ) WITHOUT ROWID;
    CREATE TABLE deaths_{g} (number INTEGER PRIMARY KEY, row INTEGER NOT NULL);
    CREATE TABLE state_{g} (
        epoch INTEGER NOT NULL, last_row INTEGER NOT NULL, last_death INTEGER NOT NULL, documents INTEGER NOT NULL,
        loose_groups INTEGER NOT NULL, loose_rows INTEGER NOT NULL, first_row INTEGER NOT NULL, survivors BLOB NOT NULL
    )
"""
OF_A_FIELD = """
    CREATE TABLE vectors_{g}_{n} (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);
    CREATE TABLE codes_{g}_{n} (
        last INTEGER PRIMARY KEY, count INTEGER NOT NULL, rows BLOB NOT NULL, steps BLOB NOT NULL, codes BLOB NOT NULL,
        signs BLOB NOT NULL
    )
"""
VERSION = 1
"""The version of this schema."""
_TOKENIZERS = ("en", "none", "parts")
"""Languages whose tables of words differ."""
_NAME = re.compile(r"([a-z]+)_(\d+)(_\d+)?(_[a-z]+)?")
_PLACE = re.compile(r"_0(_0)?(?!\d)")


def run(db: sqlite3.Connection, statements: str) -> None:
    """Run statements within a transaction: `executescript` would end it."""
    for statement in statements.split(";"):
        db.execute(statement)


def stranger(db: sqlite3.Connection) -> str | None:
    """Return what of a file's schema this version does not make, such as ``view 'documents_1'``; None where nothing."""
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master"):
        if not _is_known(str(kind), str(name), sql):
            return f"{kind} {name!r}"
    return None


def _is_known(kind: str, name: str, sql: object) -> bool:
    if sql is None:  # the index of a constraint
        return kind == "index" and name.startswith("sqlite_autoindex_")
    parts = _NAME.fullmatch(name)
    if parts is None:
        return (kind, _normalised(sql)) in _known().get(name, ())
    table, generation, field, part = parts.groups("")
    numbers = f"_{generation}", f"_{generation}{field or '_0'}"
    known = _known().get(f"{table}_0{'_0' if field else ''}{part}", ())
    return any(
        kind == each and _normalised(sql) == _PLACE.sub(lambda place: numbers[bool(place[1])], made)
        for each, made in known
    )


def _normalised(sql: object) -> str:
    return " ".join(str(sql).split())


@functools.cache
def _known() -> dict[str, set[tuple[str, str]]]:
    """The kinds and statements of everything that is made here, by name, with 0 for generation and field."""
    found: dict[str, set[tuple[str, str]]] = {}
    for language in _TOKENIZERS:
        with closing(sqlite3.connect(":memory:")) as db:
            for part in (SHARED, OF_A_GENERATION, OF_A_FIELD):
                run(db, part.format(g=0, n=0))
            FullText("words_0", language).create(db)
            for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"):
                found.setdefault(name, set()).add((kind, _normalised(sql)))
    return found
