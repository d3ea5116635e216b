"""An index of PostgreSQL as earlier versions of vlmsearch had it: terms were in the rows of documents."""

import json
from typing import Literal

import psycopg

Sign = Literal["$", "_"]
"""The sign before the numbers in the names of tables: version 0.2 had an underscore there."""
_DOCUMENTS = (
    "row, id, version, digest, source, fields, text, image, metadata, draw, '{}'::bigint[] AS terms, "
    "'{}'::smallint[] AS times, 6 AS length, 'en'::text AS language"
)


def make_earlier(url: str, table: str, sign: Sign = "$") -> None:
    """Turn an index of this version with one generation into one of an earlier version. Its terms are not kept."""
    with psycopg.connect(url) as session:
        query = "SELECT relname, obj_description(oid, 'pg_class') FROM pg_class WHERE relkind = 'r' AND relname ^@ %s"
        marks: dict[str, str] = dict(session.execute(query, (f"{table}$1",)).fetchall())
        vectors = [name for name in sorted(marks) if name.removeprefix(f"{table}$1$").isdigit()]
        for name in (f"{table}$1", *vectors):
            columns = "row, vector" if name in vectors else _DOCUMENTS
            session.execute(f'CREATE TABLE "{name}$new" AS SELECT {columns} FROM "{name}"'.encode())
        for name in marks:
            session.execute(f'DROP TABLE "{name}" CASCADE'.encode())
        documents = f"{table}{sign}1"
        for name in (f"{table}$1", *vectors):
            new = name.replace("$", sign)
            session.execute(f'ALTER TABLE "{name}$new" RENAME TO "{new}"'.encode())
            session.execute(f'ALTER TABLE "{new}" ADD PRIMARY KEY (row)'.encode())
            if name in vectors:
                reference = f'ADD FOREIGN KEY (row) REFERENCES "{documents}" (row) ON DELETE CASCADE'
                session.execute(f'ALTER TABLE "{new}" {reference}'.encode())
                session.execute(f'CREATE INDEX ON "{new}" USING hnsw (vector vector_ip_ops)'.encode())
            mark = marks[name] if sign == "$" else marks[name].partition(" of ")[2]  # the field, or nothing
            session.execute(f"COMMENT ON TABLE \"{new}\" IS '{mark}'".encode())
        [(row,)] = session.execute(f"SELECT row FROM {table}_index WHERE slot = 'index'".encode()).fetchall()
        session.execute(f"UPDATE {table}_index SET row = %s".encode(), (json.dumps({**row, "format": 1}),))
