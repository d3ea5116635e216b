"""Making a file of an earlier schema one of this version."""

from __future__ import annotations

import re
import sqlite3

from vlmsearch.stores.sqlite.checksums import checksum
from vlmsearch.stores.sqlite.schema import SCHEMA, Schema, run, tables_by_generation

_ADDED_COLUMN = re.compile(r",\s+(crc INTEGER|stemmer TEXT) NOT NULL")
FIRST = Schema(*(_ADDED_COLUMN.sub("", part) for part in (SCHEMA.shared, SCHEMA.of_a_generation, SCHEMA.of_a_field)))
"""The tables of version 1: rows had no checksums, and nothing said which stemmer made the words."""
_CHANGED = ("codes", "documents", "rejects", "slots", "state", "vectors")


def upgrade(db: sqlite3.Connection) -> None:
    """Take the step from version 1 to 2, within a transaction: every row gets a checksum."""
    db.create_function("checksum", -1, checksum, deterministic=True)
    tables = ["slots", "rejects", *(name for names in tables_by_generation(db).values() for name in names)]
    changed = {name: kind for name in tables if (kind := name.partition("_")[0]) in _CHANGED}
    for name in changed:
        db.execute(f"ALTER TABLE {name} RENAME TO was_{name}")
    run(db, SCHEMA.shared)
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
