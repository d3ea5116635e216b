"""Making a file of an earlier schema one of this version."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from vlmsearch.stores.sqlite.checksums import checksum
from vlmsearch.stores.sqlite.schema import SCHEMA, run, tables_by_generation
from vlmsearch.stores.sqlite.tables import Tables
from vlmsearch.stores.terms import AUTO, NONE
from vlmsearch.types import Manifest

_ADDED = re.compile(r"CREATE TABLE (words|arrays)_\{g\}[^;]*;\s*")
_UNICODE = "unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
SECOND = replace(
    SCHEMA,
    of_a_generation=_ADDED.sub("", SCHEMA.of_a_generation),
    words=tuple(
        f"""CREATE VIRTUAL TABLE "words_{{g}}" USING fts5(body, content='', tokenize="{tokenizer}")"""
        for tokenizer in (f"porter {_UNICODE}", _UNICODE, "ascii")
    ),
)
"""The tables of version 2: words were in an index of FTS5."""
_ADDED_COLUMN = re.compile(r",\s+(crc INTEGER|stemmer TEXT) NOT NULL")
FIRST = replace(
    SECOND,
    shared=_ADDED_COLUMN.sub("", SECOND.shared),
    of_a_generation=_ADDED_COLUMN.sub("", SECOND.of_a_generation),
    of_a_field=_ADDED_COLUMN.sub("", SECOND.of_a_field),
)
"""The tables of version 1: rows had no checksums, and nothing said which stemmer made the words."""
EARLIER = {1: FIRST, 2: SECOND}
"""The schemas of earlier versions."""
_CHANGED = ("codes", "documents", "rejects", "slots", "state", "vectors")


def upgrade(db: sqlite3.Connection, version: int) -> None:
    """Take the steps from an earlier version to this one, within a transaction."""
    if version < 2:
        _add_checksums(db)
    _make_words(db)


def _add_checksums(db: sqlite3.Connection) -> None:
    """Take the step from version 1 to 2: every row gets a checksum."""
    db.create_function("checksum", -1, checksum, deterministic=True)
    tables = ["slots", "rejects", *(name for names in tables_by_generation(db).values() for name in names)]
    changed = {name: kind for name in tables if (kind := name.partition("_")[0]) in _CHANGED}
    for name in changed:
        db.execute(f"ALTER TABLE {name} RENAME TO was_{name}")
    run(db, SECOND.shared)
    for name, kind in changed.items():
        _, *numbers = name.split("_")
        if numbers:
            run(db, _statement(kind).format(g=numbers[0], n=numbers[-1]))
        added = "''" if kind == "state" else f"checksum({_columns(db, f'was_{name}')})"
        # in a damaged file, two documents may have one id: the later one is kept
        order = "ORDER BY row" if kind == "documents" else ""
        db.execute(f"INSERT OR REPLACE INTO {name} SELECT *, {added} FROM was_{name} {order}")
        db.execute(f"DROP TABLE was_{name}")
    db.execute("DELETE FROM slots WHERE slot NOT IN ('index', 'next')")  # of trials that were killed


def _make_words(db: sqlite3.Connection) -> None:
    """Take the step from version 2 to 3: words are groups of postings, and ``parts`` of words are ``auto``."""
    languages: dict[int, str] = {}
    for slot, text in db.execute("SELECT slot, row FROM slots").fetchall():
        row = json.loads(text)
        for generation in _generations(row):
            if generation.get("language") == "parts":
                generation["language"] = AUTO
            languages[int(generation["generation"])] = generation.get("language", NONE)
        values = slot, json.dumps(row)
        db.execute("INSERT OR REPLACE INTO slots VALUES (?, ?, ?)", [*values, checksum(*values)])
    for number, names in tables_by_generation(db).items():
        db.execute(f"DROP TABLE IF EXISTS words_{number}")
        for kind in ("words", "arrays"):
            run(db, _statement(kind).format(g=number))
        if number in languages and f"documents_{number}" in names:
            Tables(Manifest("", (), "", languages[number]), str(number)).make_words(db)


def _generations(row: Any) -> Iterator[dict[str, Any]]:
    """Yield what the row of a slot says of generations."""
    for generation in (row, row.get("old"), *row.get("garbage", ())):
        if isinstance(generation, Mapping) and "generation" in generation:
            yield generation  # type: ignore[misc]


def _columns(db: sqlite3.Connection, table: str) -> str:
    """Return the columns of a table as `checksum` takes them.

    All but the number of the row are bytes: strings of a damaged file may not be UTF-8.
    """
    columns = [(str(name), kind, key) for _, name, kind, _, _, key in db.execute(f"PRAGMA table_info({table})")]
    return ", ".join(name if key and kind == "INTEGER" else f"CAST({name} AS BLOB)" for name, kind, key in columns)


def _statement(kind: str) -> str:
    """Return the statement that makes one kind of table."""
    statements = f"{SCHEMA.of_a_generation};{SCHEMA.of_a_field}".split(";")
    return next(statement for statement in statements if statement.split()[2].startswith(f"{kind}_"))
