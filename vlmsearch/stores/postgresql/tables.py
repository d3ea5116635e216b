"""The tables of an index, and what is written to them.

The table ``name_index`` says what built the index ``name``, and which generation is in use; ``name_rejects`` is its
reject list. Each generation has a table of documents, ``name$N``, and for each field a table of vectors, ``name$N$1``,
``name$N$2`` and so on. Words are in ``name$N$words`` and ``name$N$pages``, and the lists of readers in
``name$N$readers``, once a document has readers. No name of an index has a ``$``, so no two
indexes mean the same table. The comment on such a table is its mark: it says what the table holds, and what has none is
never dropped. Vectors are beside the documents, so that a change of metadata writes none of them. Passages have rows in
the same tables. Whoever writes or removes those of a document has locked its own row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from typing_extensions import Self

from vlmsearch.errors import ConfigError
from vlmsearch.stores.postgresql.connection import Session, all_rows, quoted
from vlmsearch.stores.postgresql.ownership import CheckedTable, check_tables
from vlmsearch.stores.postgresql.segments import NOTHING, SegmentSize, WordTables
from vlmsearch.stores.postgresql.values import DOCUMENT_OF, IS_DOCUMENT, escape, metadata_json
from vlmsearch.stores.postgresql.vectors import VectorTable
from vlmsearch.stores.postings import Postings
from vlmsearch.types import PASSAGE, READERS, Field, Record, Space

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
    ("length", "integer"),
)
_NULLABLE = ("text", "image")
_DOCUMENTS = ("row", "replaced", *(name for name, _ in _COLUMNS))
_READERS = ("list", "value", "names")
_INDEXED = ("metadata", "draw")
"""The columns of documents that have an index."""
_MARK = "vlmsearch: documents"
_MARK_OF_WORDS = "vlmsearch: words"
_MARK_OF_READERS = "vlmsearch: readers"
_LISTS = (
    "INSERT INTO {lists} (value, names) SELECT value, ARRAY(SELECT name FROM jsonb_array_elements_text(CASE "
    "jsonb_typeof(value) WHEN 'array' THEN value WHEN 'string' THEN jsonb_build_array(value) ELSE '[]' END) name "
    "WHERE octet_length(name) < 1000) FROM (SELECT DISTINCT metadata->'readers' AS value FROM {given}) given "
    "WHERE value IS NOT NULL AND NOT EXISTS (SELECT FROM {lists} l WHERE l.value = given.value)"
)
"""The statement that adds the lists of readers in some metadata. A value that is no names is a list of nobody."""
_KEPT = (
    "EXCLUDED.metadata || CASE WHEN EXCLUDED.metadata ? 'readers' OR NOT d.metadata ? 'readers' THEN '{}' "
    "ELSE jsonb_build_object('readers', d.metadata->'readers') END"
)
"""The metadata that replace those of a row: they keep its readers where they name none."""
_LIST_OF = (
    "CASE WHEN {new} ? 'readers' THEN coalesce((SELECT max(list) FROM {lists} WHERE value = {new}->'readers'), -1) END"
)
"""The number of the list of readers in metadata: null for everyone, and -1, which no list has, for an unknown one."""
_VALID = (
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_index i ON "
    "i.indexrelid = c.oid JOIN pg_class t ON t.oid = i.indrelid "
    "WHERE n.nspname = %s AND c.relname = ANY(%s) AND t.relname = ANY(%s) AND i.indisvalid"
)
_SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n "
    "ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname = %s AND (c.relname = %s OR c.relname ^@ %s)"
)
_ORDERED = ' COLLATE "C"'
"""The order of ids, by their characters in every database."""
SEAL = "coalesce(substring(digest FROM '#(?:passages=[0-9]+|characters=[0-9]+-[0-9]+)$'), '')"
"""The end of a digest: which characters a passage has, or how many passages a document has."""
_NAMES = ", ".join(name for name, _ in _COLUMNS)
_GIVEN = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS)


def rough_size(session: Session, table: str) -> tuple[int, int]:
    """Return how many rows a table has, and its bytes. It is `SMALL` and one for more than `SMALL`."""
    rows = f"SELECT count(*) FROM (SELECT FROM {table} LIMIT {SMALL + 1}) few"
    few, size = all_rows(session, f"SELECT ({rows}), pg_relation_size(%s::regclass)", (table,))[0]
    return few, size


@dataclass(frozen=True)
class IndexTables:
    """The tables of one generation.

    Attributes:
        name: The name of the table of documents.
        schema: The schema that all are in.
        vectors: The tables of vectors.
        extension: The schema of pgvector.
    """

    name: str
    schema: str
    vectors: Mapping[Field, VectorTable]
    extension: str

    @classmethod
    def of(cls, schema: str, name: str, spaces: Sequence[Space], extension: str, sign: str = "$") -> Self:
        """Return the tables of a generation, whose table of documents has a name.

        ``sign`` is before the numbers of fields.
        """
        dims = {field: space.dim for space in spaces for field in space.fields}
        vectors = {
            field: VectorTable(field, f"{name}{sign}{n}", schema, dims[field], extension)
            for n, field in enumerate(sorted(dims, key=str), 1)
        }
        return cls(name, schema, vectors, extension)

    @property
    def documents(self) -> str:
        """Return the table of documents, as SQL has it."""
        return quoted(self.schema, self.name)

    @property
    def names(self) -> list[str]:
        """Return the names of the tables."""
        return list(self.columns)

    @property
    def columns(self) -> dict[str, Sequence[str]]:
        """Return the columns of the tables, by name."""
        vectors = {name: own for table in self.vectors.values() for name, own in table.columns.items()}
        return {**vectors, **self.words.columns, self.name: _DOCUMENTS, f"{self.name}${READERS}": _READERS}

    @property
    def lists(self) -> str:
        """Return the table of lists of readers, as SQL has it."""
        return quoted(self.schema, f"{self.name}${READERS}")

    @property
    def words(self) -> WordTables:
        """Return the tables of words."""
        return WordTables(self.schema, self.name)

    @property
    def indexes(self) -> dict[str, str]:
        """Return the names of the indexes, each with what it finds."""
        return {f"{self.name}${column}": f"{column} of documents" for column in _INDEXED}

    @property
    def _marks(self) -> dict[str, str]:
        words = dict.fromkeys(self.words.columns, _MARK_OF_WORDS)
        return {
            **{name: table.mark for table in self.vectors.values() for name in table.columns},
            **words,
            self.name: _MARK,
            f"{self.name}${READERS}": _MARK_OF_READERS,
        }

    def check(self, session: Session, index: str) -> dict[str, CheckedTable]:
        """Return the tables that are there; ConfigError where one is not as `create` makes it."""
        checked = check_tables(session, self.schema, self.columns, index)
        return {name: checked[name] for name in self.names if name in checked}

    def mark(self, session: Session, names: Sequence[str]) -> None:
        """Put their marks on tables, such as those that were restored without comments."""
        for name in names:
            _mark(session, quoted(self.schema, name), self._marks[name])

    def drop(self, session: Session, index: str) -> None:
        """Remove the tables that are there; ConfigError where one lacks its mark."""
        for name, table in self.check(session, index).items():
            if table.comment != self._marks.get(name, table.comment):
                raise ConfigError(
                    f"{self.schema}.{name} has no comment {self._marks[name]!r}, so it is not dropped: if it is one of "
                    f"{index}, drop it by hand"
                )
            session.execute(f"DROP TABLE {quoted(self.schema, name)}")

    def missing_indexes(self, session: Session) -> list[str]:
        """Return the names of indexes that are not there, or are another's."""
        valid = {name for (name,) in all_rows(session, _VALID, (self.schema, list(self.indexes), self.names))}
        return [name for name in self.indexes if name not in valid]

    def create(self, session: Session) -> None:
        """Make the tables that are not there."""
        columns = ", ".join(
            f"{name} {kind}{_ORDERED if name == 'id' else ''}{'' if name in _NULLABLE else ' NOT NULL'}"
            for name, kind in _COLUMNS
        )
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {self.documents} "
            f"(row bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, replaced bigint, {columns}, UNIQUE (id));"
            f"CREATE INDEX IF NOT EXISTS {quoted(f'{self.name}$metadata')} ON {self.documents} "
            "USING gin (metadata jsonb_path_ops);"
            f"CREATE INDEX IF NOT EXISTS {quoted(f'{self.name}$draw')} ON {self.documents} (draw, id);"
            + self.words.create()
            + "".join(vectors.create() for vectors in self.vectors.values())
        )
        self.mark(session, [name for name in self.names if name != f"{self.name}${READERS}"])

    def create_lists(self, session: Session) -> None:
        """Make the table of lists of readers and the column of their numbers, unless there.

        A role that is not in their owner's sees what everyone may read, and what some principals may. The setting
        ``vlmsearch.principals`` has their names, one a line. Such a role cannot write.
        """
        if self.has_lists(session):
            return
        asked = "array_append(string_to_array(current_setting('vlmsearch.principals', true), E'\\n'), '*')"
        own = sql.Literal(self.documents).as_string(None)
        trusted = f"(SELECT pg_has_role(relowner, 'MEMBER') FROM pg_class WHERE oid = {own}::regclass)"
        session.execute(
            f"CREATE TABLE {self.lists} (list bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value jsonb NOT NULL, "
            f"names text[] NOT NULL); CREATE INDEX ON {self.lists} USING hash (value);"
            f"CREATE INDEX ON {self.lists} USING gin (names) WITH (fastupdate = off);"  # each search has many look-ups
            f"ALTER TABLE {self.documents} ADD COLUMN readers bigint;"
            f"CREATE POLICY readers ON {self.lists} FOR SELECT USING ({trusted} OR names && {asked});"
            f"CREATE POLICY readers ON {self.documents} FOR SELECT USING ({trusted} OR CASE WHEN readers IS NULL "
            f"THEN NOT metadata ? 'readers' ELSE readers IN (SELECT list FROM {self.lists}) END);"
            f"ALTER TABLE {self.lists} ENABLE ROW LEVEL SECURITY;"
            f"ALTER TABLE {self.documents} ENABLE ROW LEVEL SECURITY"
        )
        _mark(session, self.lists, _MARK_OF_READERS)
        self.mend_lists(session)

    def has_lists(self, session: Session) -> bool:
        """Return whether the index has lists of readers."""
        return bool(all_rows(session, "SELECT to_regclass(%s) IS NOT NULL", (self.lists,))[0][0])

    @property
    def unlisted(self) -> str:
        """Return the condition of documents whose readers are others than those of their lists."""
        listed = f"SELECT FROM {self.lists} l WHERE l.list = readers AND l.value = metadata->'readers'"
        return f"CASE WHEN metadata ? 'readers' THEN NOT EXISTS ({listed}) ELSE readers IS NOT NULL END"

    def mend_lists(self, session: Session) -> None:
        """Give all documents the lists that their metadata say, and remove those that no document has."""
        session.execute(f"LOCK TABLE {self.lists} IN SHARE ROW EXCLUSIVE MODE")
        unused = f"NOT EXISTS (SELECT FROM {self.documents} d WHERE d.readers = l.list)"
        session.execute(f"DELETE FROM {self.lists} l WHERE {unused}")
        session.execute(_LISTS.format(lists=self.lists, given=self.documents))
        session.execute(f"UPDATE {self.documents} SET readers = {self._list_of('metadata')} WHERE {self.unlisted}")
        self._note_readers(session)

    def _list_of(self, metadata: str) -> str:
        return _LIST_OF.format(new=metadata, lists=self.lists)

    def _keep_lists(self, session: Session, given: str, values: Sequence[object]) -> bool:
        """Add the lists of readers in metadata; return whether the index has lists."""
        if not self.has_lists(session):
            return False
        session.execute(_LISTS.format(lists=self.lists, given=given), values)
        return True

    @property
    def passages(self) -> str:
        """Return the array of the ids of all passages of documents, as SQL has it. Its placeholder is for their ids.

        A range of the index has those of a document. ``OFFSET`` and the array keep the planner from joining whole
        tables, since it knows nothing of how many there are.
        """
        return (
            "ARRAY(SELECT passage.id FROM unnest(%s::text[]) AS of(id) CROSS JOIN LATERAL (SELECT id "
            f"FROM {self.documents} WHERE id > of.id || '#passage=' AND id < of.id || '#passage=:' OFFSET 0) passage)"
        )

    def upsert(
        self,
        session: Session,
        rows: Mapping[str, str],
        words: Sequence[Postings],
        vectors: Mapping[str, Mapping[Field, NDArray[np.float32]]],
        *,
        keeps: bool,
    ) -> tuple[list[SegmentSize], dict[str, Any]]:
        """Add or replace the rows of documents with their words and vectors. Each gets a new number.

        Passages that these had before and that are not among the rows are removed. Rows are locked in the order of
        their ids, so that writers of the same documents wait for each other in turn. That of a document comes before
        those of its passages.

        Args:
            session: The connection.
            rows: The rows by id, as `row_of` gives them.
            words: Their postings. A row is known there by its place among all ids in order.
            vectors: Their vectors by id.
            keeps: Whether rows without readers keep those that they had.

        Returns:
            The sizes of all segments of words; and the readers, as JSON, of the documents that were replaced, by id.
        """
        given, values = f"json_to_recordset(%s::json) AS given({_GIVEN})", (f"[{','.join(rows.values())}]",)
        columns = selected = _NAMES
        has_lists = self._keep_lists(session, given, values)
        if has_lists:
            columns, selected = f"{_NAMES}, readers", f"{_NAMES}, {self._list_of('metadata')}"
        others = (name for name in columns.split(", ") if name not in ("id", "metadata"))
        changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        kept = _KEPT if keeps else "EXCLUDED.metadata"
        written = all_rows(
            session,
            f'INSERT INTO {self.documents} AS d ({columns}) SELECT {selected} FROM {given} ORDER BY id COLLATE "C" '
            f"ON CONFLICT (id) DO UPDATE SET row = DEFAULT, replaced = d.row, metadata = {kept}, {changes} "
            "RETURNING d.id, d.row, d.replaced, d.metadata->'readers'",
            values,
        )
        gone = [replaced for _, _, replaced, _ in written if replaced is not None]
        documents = {id: own for id, _, replaced, own in written if replaced is not None and PASSAGE not in id}
        if documents:
            condition = f"id = ANY({self.passages}) AND NOT id = ANY(%s)"
            gone += self._delete(session, condition, (list(documents), list(rows)))
        numbers = np.array([number for _, number, _, _ in written], np.int64)  # they rise, as the ids do
        sizes = self._forget(session, gone, [replace(part, rows=numbers[part.rows]) for part in words])
        if has_lists and not sizes:
            sizes = self._note_readers(session)
        for field, table in self.vectors.items():
            table.put(session, {number: vectors[id][field] for id, number, *_ in written if field in vectors[id]})
        return sizes, documents

    def remove(self, session: Session, ids: list[str]) -> list[SegmentSize]:
        """Remove documents with their passages, words and vectors, and return as `upsert` does. They are locked."""
        return self._forget(session, self._delete(session, f"id = ANY(%s::text[] || {self.passages})", (ids, ids)))

    def remove_strays(self, session: Session, numbers: Sequence[int], words: Sequence[int]) -> None:
        """Remove the passages of no document, and what there is of numbers that no row has. ``words`` have words alone.

        A document may have such a number: its vectors stay.
        """
        stray = f"SELECT unnest(w.ids) FROM ({self.wrong_passages}) w WHERE w.id IS NULL"
        self._forget(session, [*numbers, *self._delete(session, f"id IN ({stray})", ())])
        self.words.append(session, (), words)
        session.execute(f"DELETE FROM {self.words.pages} p WHERE {self.words.stray_pages}")

    def _delete(self, session: Session, condition: str, values: Sequence[object]) -> list[int]:
        """Remove rows of documents, and return their numbers."""
        query = f"DELETE FROM {self.documents} WHERE {condition} RETURNING row"
        return [number for (number,) in all_rows(session, query, values)]

    def _forget(self, session: Session, numbers: list[int], words: Sequence[Postings] = ()) -> list[SegmentSize]:
        """Remove what other tables have of rows that are gone, and add words of new ones."""
        for table in self.vectors.values() if numbers else ():
            table.forget(session, numbers)
        return self.words.append(session, words, numbers)

    def change_metadata(self, session: Session, records: Sequence[Record], version: str) -> list[SegmentSize]:
        """Replace metadata and digests of documents that are there, and of their passages; all else stays.

        Returns:
            The sizes of all segments of words, where there is another one now.
        """
        ids = [record.document.id for record in records]
        given = ", ".join(
            f"{json.dumps(record.document.id)}: "
            f"[{json.dumps(escape(record.stamp.digest))}, {metadata_json(record.document.metadata)}]"
            for record in records
        )
        new = f"given.rows->{DOCUMENT_OF}"  # looked up, since a join may compare each row with each document
        changed = "(SELECT value->1 AS metadata FROM jsonb_each(%s::jsonb)) m"
        has_lists = self._keep_lists(session, changed, (f"{{{given}}}",))
        listed = f", readers = {self._list_of(f'({new}->1)')}" if has_lists else ""
        session.execute(
            f"UPDATE {self.documents} SET version = %s, metadata = {new}->1, digest = ({new}->>0) || {SEAL}{listed} "
            f"FROM (SELECT %s::jsonb AS rows) given WHERE id = ANY(%s::text[] || {self.passages})",
            (version, f"{{{given}}}", ids, ids),
        )
        return self._note_readers(session) if has_lists else []

    def _note_readers(self, session: Session) -> list[SegmentSize]:
        """Add an empty segment of words: restricted handles look anew at what is readable."""
        return self.words.add(session, NOTHING, NOTHING.rows)

    @property
    def wrong_passages(self) -> str:
        """Return the query of what is wrong with passages.

        A row of it has the id of a document that lacks some, or None and the ids of passages of no document.
        """
        return (
            "SELECT d.id, p.ids FROM (SELECT id, version, digest, "
            "substring(digest FROM '#passages=([0-9]+)$')::int AS passages "
            f"FROM {self.documents} WHERE {IS_DOCUMENT} AND strpos(digest, '#passages=') > 0) d "
            f"FULL JOIN (SELECT {DOCUMENT_OF} AS id, version, array_agg(id) AS ids "
            f"FROM {self.documents} WHERE NOT {IS_DOCUMENT} GROUP BY 1, 2) p USING (id, version) "
            "WHERE d.passages IS DISTINCT FROM cardinality(p.ids) AND strpos(coalesce(d.digest, ''), '#passages=') <> 1"
        )


def measure(session: Session, tables: IndexTables, index: str) -> tuple[int, int]:
    """Return the bytes on the disk of a generation, and the number of its documents. Its fields may be any.

    Args:
        session: A connection within a transaction.
        tables: Its tables, without those of fields; a build that was cut off may not have them yet.
        index: Name of the index, for messages.
    """
    size = int(all_rows(session, _SIZE, (tables.schema, tables.name, f"{tables.name}$"))[0][0])
    if tables.name not in tables.check(session, index):
        return size, 0
    query = f"SELECT count(*) FROM {tables.documents} WHERE {IS_DOCUMENT}"
    return size, int(all_rows(session, query)[0][0])


def _mark(session: Session, table: str, mark: str) -> None:
    session.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.SQL(table), sql.Literal(mark)))
