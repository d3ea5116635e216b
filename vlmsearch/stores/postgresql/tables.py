"""The tables of an index, and what is written to them.

The table ``name_index`` says what built the index ``name``, and which generation is in use; ``name_rejects`` is its
reject list. Each generation has a table of documents, ``name_N``, and for each field a table of vectors, ``name_N_1``,
``name_N_2`` and so on. The comment on such a table says which field. Vectors are beside the documents, so that a change
of metadata or words makes nothing new in an index of vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector

from vlmsearch.stores.postgresql.connection import Session, all_rows, quoted
from vlmsearch.types import Field, Space

LARGEST_INDEXED = 2000
"""Numbers of a vector at most that an index compares in full."""
LARGEST_HALVED = 4000
"""Numbers of a vector at most that an index compares in half precision."""
SMALL = 1000
"""Rows up to which `rough_size` counts."""
_COLUMNS = (
    ("id", "text"),
    ("version", "text"),
    ("digest", "text"),
    ("source", "text"),
    ("fields", "text[]"),
    ("text", "text"),
    ("image", "text"),
    ("metadata", "jsonb"),
    ("draw", "integer"),
    ("terms", "bigint[]"),
    ("times", "smallint[]"),
    ("length", "integer"),
    ("language", "text"),
)
_NULLABLE = ("text", "image")
_ORDERED = ' COLLATE "C"'
"""The order of ids, by their characters in every database."""
_NAMES = ", ".join(name for name, _ in _COLUMNS)
_GIVEN = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)


def rough_size(session: Session, table: str) -> tuple[int, int]:
    """Return how many rows a table has, `SMALL` and one for more than `SMALL`, and its bytes on the disk."""
    rows = f"SELECT count(*) FROM (SELECT FROM {table} LIMIT {SMALL + 1}) few"
    few, size = all_rows(session, f"SELECT ({rows}), pg_relation_size(%s::regclass)", (table,))[0]
    return few, size


@dataclass(frozen=True)
class VectorTable:
    """The vectors of a field.

    Attributes:
        field: The field.
        table: The table, as SQL has it.
        index: The name of its HNSW index.
        schema: The schema that both are in.
        dim: Length of the vectors.
    """

    field: Field
    table: str
    index: str
    schema: str
    dim: int

    @property
    def operand(self) -> str:
        """Return the expression that an index is on: the column of vectors, halved where they are long."""
        return "vector" if self.dim <= LARGEST_INDEXED else f"(vector::halfvec({self.dim}))"

    @property
    def query(self) -> str:
        """Return the placeholder of a query that is compared with `operand`."""
        return "%s" if self.dim <= LARGEST_INDEXED else f"%s::halfvec({self.dim})"

    @property
    def can_be_indexed(self) -> bool:
        """Return whether pgvector has an index for vectors of this length."""
        return self.dim <= LARGEST_HALVED

    def create(self, documents: str) -> str:
        """Return the statements that make the table."""
        storage = "PLAIN" if self.dim <= LARGEST_INDEXED else "EXTERNAL"  # in the row, as far as a page has room
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table} (row bigint PRIMARY KEY REFERENCES {documents} "
            f"ON DELETE CASCADE, vector vector({self.dim}) NOT NULL);"
            f"ALTER TABLE {self.table} ALTER COLUMN vector SET STORAGE {storage};{self.create_index()}"
        )

    def create_index(self) -> str:
        """Return the statement that makes the index, if there can be one."""
        if not self.can_be_indexed:
            return ""
        operators = "vector_ip_ops" if self.dim <= LARGEST_INDEXED else "halfvec_ip_ops"
        return (
            f"CREATE INDEX IF NOT EXISTS {quoted(self.index)} ON {self.table} USING hnsw ({self.operand} {operators});"
        )

    def index_again(self, session: Session) -> None:
        """Make the index anew; writers wait meanwhile."""
        session.execute(f"DROP INDEX IF EXISTS {quoted(self.schema, self.index)};{self.create_index()}")


@dataclass(frozen=True)
class IndexTables:
    """The tables of one generation."""

    name: str
    documents: str
    vectors: Mapping[Field, VectorTable]

    @classmethod
    def of(cls, schema: str, index: str, generation: str, spaces: Sequence[Space]) -> IndexTables:
        """Return the tables of a generation of an index."""
        dims = {field: space.dim for space in spaces for field in space.fields}
        name = f"{index}_{generation}"
        vectors = {
            field: VectorTable(field, quoted(schema, f"{name}_{n}"), f"{name}_{n}_hnsw", schema, dims[field])
            for n, field in enumerate(sorted(dims, key=str), 1)
        }
        return cls(name, quoted(schema, name), vectors)

    @property
    def all(self) -> list[str]:
        """Return the tables, as SQL has them, in an order in which they can be dropped."""
        return [*(vectors.table for vectors in self.vectors.values()), self.documents]

    def create(self, session: Session) -> None:
        """Make the tables that are not there."""
        columns = ", ".join(
            f"{name} {kind}{_ORDERED if name == 'id' else ''}{'' if name in _NULLABLE else ' NOT NULL'}"
            for name, kind in _COLUMNS
        )
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {self.documents} "
            f"(row bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {columns}, UNIQUE (id));"
            f"CREATE INDEX IF NOT EXISTS {quoted(f'{self.name}_terms')} ON {self.documents} USING gin (terms);"
            f"CREATE INDEX IF NOT EXISTS {quoted(f'{self.name}_metadata')} ON {self.documents} "
            "USING gin (metadata jsonb_path_ops);"
            f"CREATE INDEX IF NOT EXISTS {quoted(f'{self.name}_draw')} ON {self.documents} (draw, id);"
            + "".join(vectors.create(self.documents) for vectors in self.vectors.values())
        )
        for field, vectors in self.vectors.items():
            comment = str(field).replace("'", "''").replace("\x00", "")
            session.execute(f"COMMENT ON TABLE {vectors.table} IS '{comment}'")

    def upsert(
        self, session: Session, rows: Mapping[str, str], vectors: Mapping[str, Mapping[Field, NDArray[np.float32]]]
    ) -> None:
        """Add or replace documents with their vectors.

        Rows are locked in the order of their ids, so that writers of the same documents wait for each other in turn.

        Args:
            session: The connection.
            rows: The documents by id, as `row_of` gives them.
            vectors: Their vectors by id.
        """
        changes = ", ".join(f"{name} = EXCLUDED.{name}" for name, _ in _COLUMNS if name != "id")
        written = all_rows(
            session,
            f"INSERT INTO {self.documents} AS d ({_NAMES}) SELECT {_NAMES} "
            f'FROM json_to_recordset(%s::json) AS given({_GIVEN}) ORDER BY id COLLATE "C" '
            f"ON CONFLICT (id) DO UPDATE SET {changes} RETURNING d.id, d.row, xmax = 0",
            (f"[{','.join(rows.values())}]",),
        )
        numbers = {id: number for id, number, _ in written}
        replaced = [number for _, number, is_new in written if not is_new]
        for field in self.vectors:
            given = {numbers[id]: own[field] for id, own in vectors.items() if field in own}
            self.put_vectors(session, field, given)
            if gone := [number for number in replaced if number not in given]:
                table = self.vectors[field].table
                session.execute(f"DELETE FROM {table} WHERE row = ANY(%s)", (gone,))

    def put_vectors(self, session: Session, field: Field, vectors: Mapping[int, NDArray[np.float32]]) -> None:
        """Add or replace vectors of a field, by the numbers of their documents; equal ones stay where they are."""
        if not vectors:
            return
        table = self.vectors[field].table
        numbers = sorted(vectors)
        session.execute(
            f"INSERT INTO {table} AS v SELECT * FROM unnest(%b::bigint[], %b::vector[]) "
            "ON CONFLICT (row) DO UPDATE SET vector = EXCLUDED.vector WHERE v.vector <> EXCLUDED.vector",
            (numbers, [Vector(vectors[number]) for number in numbers]),
        )

    def update(self, session: Session, rows: Sequence[str]) -> dict[str, int]:
        """Replace documents that are there, and return their numbers by id; vectors stay."""
        changes = ", ".join(f"{name} = given.{name}" for name, _ in _COLUMNS if name != "id")
        written = all_rows(
            session,
            f"UPDATE {self.documents} d SET {changes} FROM json_to_recordset(%s::json) AS given({_GIVEN}) "
            "WHERE d.id = given.id RETURNING d.id, d.row",
            (f"[{','.join(rows)}]",),
        )
        return dict(written)
