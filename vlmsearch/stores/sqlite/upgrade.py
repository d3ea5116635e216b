"""Making a file of an earlier schema one of this version."""

from __future__ import annotations

import sqlite3

from vlmsearch.stores.sqlite.checksums import checksum
from vlmsearch.stores.sqlite.schema import SCHEMA, Schema, run, tables_by_generation

FIRST = Schema(
    shared="""
    CREATE TABLE slots (slot TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE rejects (
        id TEXT PRIMARY KEY, code TEXT NOT NULL, message TEXT NOT NULL, digest TEXT NOT NULL, source TEXT NOT NULL
    ) WITHOUT ROWID
""",
    of_a_generation="""
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
""",
    of_a_field="""
    CREATE TABLE vectors_{g}_{n} (row INTEGER PRIMARY KEY, vector BLOB NOT NULL);
    CREATE TABLE codes_{g}_{n} (
        last INTEGER PRIMARY KEY, count INTEGER NOT NULL, rows BLOB NOT NULL, steps BLOB NOT NULL, codes BLOB NOT NULL,
        signs BLOB NOT NULL
    )
""",
)
"""The tables of version 1: rows had no checksums."""
_COLUMNS = {
    "slots": "slot row",
    "rejects": "id code message digest source",
    "documents": "row id digest source fields image metadata text",
    "vectors": "row vector",
    "codes": "last count rows steps codes signs",
}
_NUMBERS = ("row", "last")
_ADDED = {
    kind: "checksum({})".format(
        ", ".join(name if kind != "slots" and name in _NUMBERS else f"CAST({name} AS BLOB)" for name in columns.split())
    )
    for kind, columns in _COLUMNS.items()
} | {"state": "''"}
"""What the tables that changed have as their last column now. Which stemmer made the words was not noted.

As bytes, strings are read that are not UTF-8 because the file is damaged.
"""


def upgrade(db: sqlite3.Connection) -> None:
    """Take the step from version 1 to 2, within a transaction: every row gets a checksum."""
    db.create_function("checksum", -1, checksum, deterministic=True)
    made = {"slots": "slots", "rejects": "rejects"}
    changed = [name for names in tables_by_generation(db).values() for name in names]
    made |= {name: kind for name in changed if (kind := name.partition("_")[0]) in _ADDED}
    for name in made:
        db.execute(f"ALTER TABLE {name} RENAME TO was_{name}")
    run(db, SCHEMA.shared)
    for name, kind in made.items():
        _, *numbers = name.split("_")
        if numbers:
            run(db, _statement(kind).format(g=numbers[0], n=numbers[-1]))
        # in a damaged file, two documents may have one id: the later one is kept
        order = "ORDER BY row" if kind == "documents" else ""
        db.execute(f"INSERT OR REPLACE INTO {name} SELECT *, {_ADDED[kind]} FROM was_{name} {order}")
        db.execute(f"DROP TABLE was_{name}")
    db.execute("DELETE FROM slots WHERE slot NOT IN ('index', 'next')")  # of trials that were killed


def _statement(kind: str) -> str:
    """The statement that makes one kind of table."""
    statements = f"{SCHEMA.of_a_generation};{SCHEMA.of_a_field}".split(";")
    return next(each for each in statements if each.split()[2].startswith(f"{kind}_"))
