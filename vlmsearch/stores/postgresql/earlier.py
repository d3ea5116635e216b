"""Tables that earlier versions of vlmsearch made: they are read to renew an index, and removed after that.

Terms were in the rows of documents. Version 0.2 called the tables ``index_N`` and ``index_N_1``, which an index of the
name ``index_N`` may have, too: what has other columns is that one's.
"""

from __future__ import annotations

from collections.abc import Sequence

from vlmsearch.stores.postgresql.connection import Session, all_rows
from vlmsearch.stores.postgresql.tables import IndexTables
from vlmsearch.types import Space

_DOCUMENTS = (
    *("row", "id", "version", "digest", "source", "fields", "text", "image", "metadata", "draw"),
    *("terms", "times", "length", "language"),
)
_COLUMNS = (
    "SELECT ARRAY(SELECT attname::text FROM pg_attribute "
    "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped)"
)


class EarlierTables(IndexTables):
    """The tables of a generation that an earlier version made. Their columns prove it, for few have marks."""

    @property
    def columns(self) -> dict[str, Sequence[str]]:
        """Return the columns of the tables, by name."""
        vectors = {table.name: ("row", "vector") for table in self.vectors.values()}
        return {**vectors, self.name: _DOCUMENTS}

    @property
    def _marks(self) -> dict[str, str]:
        return {}

    def mark(self, session: Session, names: Sequence[str]) -> None:
        """Leave the tables as they are."""


def earlier_tables(
    session: Session, schema: str, name: str, generation: str, spaces: Sequence[Space], extension: str
) -> EarlierTables | None:
    """Return the tables of a generation of the index ``name``, if an earlier version made them."""
    for sign in "$_":
        tables = EarlierTables.of(schema, f"{name}{sign}{generation}", spaces, extension, sign)
        columns = all_rows(session, _COLUMNS, (tables.documents,))[0][0]
        if set(columns) == set(_DOCUMENTS):
            return tables
    return None
