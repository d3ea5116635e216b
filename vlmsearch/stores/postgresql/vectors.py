"""The vectors of a field in PostgreSQL: their table, and how it is searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector

from vlmsearch._util.batching import batches
from vlmsearch.stores.postgresql.connection import Session, quoted
from vlmsearch.stores.postgresql.values import escape
from vlmsearch.types import Field

MAX_INDEXED = 2000
"""Numbers of a vector at most that an index compares in full."""
MAX_HALVED = 4000
"""Numbers of a vector at most that an index compares in half precision."""
_AT_ONCE = 500
"""Vectors that one statement writes."""


@dataclass(frozen=True)
class VectorTable:
    """The vectors of a field.

    Attributes:
        field: The field.
        name: The name of the table.
        schema: The schema that it is in.
        dim: Length of the vectors.
        extension: The schema of pgvector.
    """

    field: Field
    name: str
    schema: str
    dim: int
    extension: str

    @property
    def table(self) -> str:
        """Return the table, as SQL has it."""
        return quoted(self.schema, self.name)

    @property
    def index(self) -> str:
        """Return the name of the HNSW index."""
        return f"{self.name}$hnsw"

    @property
    def mark(self) -> str:
        """Return the comment on the table."""
        return f"vlmsearch: vectors of {escape(str(self.field))}"

    @property
    def distance(self) -> str:
        """Return the operator of the negative inner product."""
        return f"OPERATOR({quoted(self.extension)}.<#>)"

    @property
    def _halved(self) -> str:
        return f"{quoted(self.extension, 'halfvec')}({self.dim})"

    @property
    def operand(self) -> str:
        """Return the expression that an index is on: the column of vectors, halved where they are long."""
        return "vector" if self.dim <= MAX_INDEXED else f"(vector::{self._halved})"

    @property
    def query(self) -> str:
        """Return the placeholder of a query that is compared with `operand`."""
        return "%s" if self.dim <= MAX_INDEXED else f"%s::{self._halved}"

    @property
    def can_be_indexed(self) -> bool:
        """Return whether pgvector has an index for vectors of this length."""
        return self.dim <= MAX_HALVED

    def create(self) -> str:
        """Return the statements that make the table."""
        storage = "PLAIN" if self.dim <= MAX_INDEXED else "EXTERNAL"  # in the row, as far as a page has room
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table} (row bigint PRIMARY KEY, "
            f"vector {quoted(self.extension, 'vector')}({self.dim}) NOT NULL);"
            f"ALTER TABLE {self.table} ALTER COLUMN vector SET STORAGE {storage};{self.create_index()}"
        )

    def create_index(self) -> str:
        """Return the statement that makes the index, if there can be one."""
        if not self.can_be_indexed:
            return ""
        kind = "vector" if self.dim <= MAX_INDEXED else "halfvec"
        operators = quoted(self.extension, f"{kind}_ip_ops")
        return (
            f"CREATE INDEX IF NOT EXISTS {quoted(self.index)} ON {self.table} USING hnsw ({self.operand} {operators});"
        )

    def index_again(self, session: Session) -> None:
        """Make the index anew; writers wait meanwhile."""
        session.execute(f"DROP INDEX IF EXISTS {quoted(self.schema, self.index)};{self.create_index()}")

    def put(self, session: Session, vectors: Mapping[int, NDArray[np.float32]]) -> None:
        """Add vectors, by the new numbers of their documents."""
        kind = quoted(self.extension, "vector")
        for numbers in batches(sorted(vectors), _AT_ONCE):
            session.deadline.renew()  # an index of vectors takes its time for each
            session.execute(
                f"INSERT INTO {self.table} SELECT * FROM unnest(%b::bigint[], %b::{kind}[])",
                (numbers, [Vector(vectors[number]) for number in numbers]),
            )
