"""A check whether the tables of a generation agree. A repair makes again what it can."""

from __future__ import annotations

import dataclasses
import re
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vlmsearch._util.batching import batches
from vlmsearch.errors import BackendError
from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.documents import DocumentRow
from vlmsearch.stores.passages import compare_passages, has_own_words
from vlmsearch.stores.postings import Postings
from vlmsearch.stores.sqlite.checksums import is_whole
from vlmsearch.stores.sqlite.codes import Places, find, quantise, signs_of
from vlmsearch.stores.sqlite.columns import StoredValue, stored
from vlmsearch.stores.sqlite.schema import tables_by_generation
from vlmsearch.stores.sqlite.tables import Row, Tables, drop_tables, make_ids, parsed
from vlmsearch.stores.terms import other_rules
from vlmsearch.types import PASSAGE, Field, document_of

_PAGE = 4096
_TURNED = 4
"""Signs that may differ where another machine computed them: those of numbers next to nothing."""
_LINES = 100
"""Lines of SQLite's integrity check at most."""
_OF_AN_INDEX = re.compile(r"(missing from|entries in|entry in|of) index|inverted index")
"""Messages of SQLite on an index, which is made again from its table."""


@dataclass
class _StoredContent:
    """The content of the table of documents."""

    ids: dict[int, str] = dataclasses.field(default_factory=dict)
    """By row, in order."""
    damaged: dict[int, Row | None] = dataclasses.field(default_factory=dict)
    """The rows whose values are not those that were written, with what is left of them."""
    metadata: int = 0
    """A sum over all keys and values: that of the table of attributes is the same where it agrees."""
    named: dict[Field, list[int]] = dataclasses.field(default_factory=dict)
    """The documents that say that they have a vector, by field."""
    passages: dict[str, DocumentRow] = dataclasses.field(default_factory=dict)
    """The passages that can be read, and the documents that have some, by id."""


def check_index(
    db: sqlite3.Connection, tables: Tables, name: str, named: Collection[int], *, repair: bool
) -> CheckReport:
    """Check what is there and what does not agree; BackendError for a file that is damaged.

    ``named`` are the generations that have a slot: tables of others belong to nobody. With ``repair``, the connection
    is one that writes. Vectors of no document are removed. Documents that are damaged or lack vectors count as changed.
    All that follows from documents and vectors is made again, whether it agrees or not.
    """
    said = _integrity(db)
    if not repair and not all(map(_OF_AN_INDEX.search, said)):
        raise _damaged(name, said, "run `vlmsearch check --repair`, which puts right what it can, or ")
    strays = sorted(set(tables_by_generation(db)) - set(named))
    try:
        db.text_factory = _string_or_bytes
        report = _compare(db, tables, name, has_errors=bool(said), repair=repair)
    except (IndexError, KeyError, TypeError, ValueError) as exc:  # a table has what nobody wrote into it
        raise sqlite3.DatabaseError(f"malformed content: {exc!r}") from exc
    finally:
        db.text_factory = str
    if repair:
        for generation in strays:
            drop_tables(db, generation)
        if said and (left := _integrity(db)):
            raise _damaged(name, left)
    orphans = (*report.orphans, *(f"tables of generation {generation}" for generation in strays))
    return replace(report, orphans=orphans, unindexed=(*report.unindexed, *said))


def _integrity(db: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds wrong with the structure of the file."""
    messages = [str(said) for (said,) in db.execute(f"PRAGMA integrity_check({_LINES})")]
    return [line for said in messages if said != "ok" for line in said.splitlines() if not line.startswith("***")]


def _damaged(name: str, said: Sequence[str], advice: str = "") -> BackendError:
    return BackendError(
        f"{name} is damaged: {said[-1]}; {advice}restore a copy of the file, or index again under another name"
    )


def _string_or_bytes(value: bytes) -> str | bytes:
    """Decode a string; one that is not UTF-8 stays bytes, and is no error."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _compare(db: sqlite3.Connection, tables: Tables, name: str, *, has_errors: bool, repair: bool) -> CheckReport:
    documents = _look(db, tables)
    orphans, unindexed = list[str](), list[str]()
    counts: dict[str, int] = {}
    lost: dict[int, list[str]] = {}
    for field in tables.fields:
        named, have = np.array(documents.named[field], np.int64), tables.vector_rows(db, field)
        damaged, groups = tables.damaged_vectors(db, field), tables.whole_codes(db, field)
        coded = np.sort(np.concatenate([np.empty(0, np.int64), *(group.numbers for group in groups)]))
        counts[str(field)] = len(have)
        orphans += [f"{field} of row {row}" for row in _without(have, named)]
        unindexed += [f"{field} of row {row}" for row in _without(have, coded)]
        if not tables.has_whole_codes(db, field):
            unindexed.append(f"codes of {field}, which are not what was written")
        wrong = {*damaged.tolist(), *_differing(db, tables, field, damaged)}
        for row in (row for row in documents.named[field] if row in wrong or not find(have, np.array([row]))[1][0]):
            lost.setdefault(row, []).append(str(field))
    strays, lacking = compare_passages(documents.passages)
    disagreeing = {row: id for row, id in documents.ids.items() if id in strays or id in lacking}
    cut = set(map(document_of, lacking))
    orphans += [id for row, id in disagreeing.items() if row not in documents.damaged]
    missing = [f"{names} of {documents.ids[row]}" for row in sorted(lost) for names in lost[row]]
    missing += [f"passages of {id}" for id in sorted(cut)]
    for what, agrees in (
        ("words", _words_agree(db, tables)),
        ("metadata", _attributes_sum(db, tables) == documents.metadata),
        ("the number of documents", _state_agrees(db, tables, np.array([*documents.ids], np.int64))),
    ):
        if not agrees:
            unindexed.append(f"{what}, which documents do not agree with")
    if other := other_rules(tables.words_by(db), tables.language):
        unindexed.append(f"words, {other}")
    rejects = [row for row in db.execute("SELECT * FROM rejects") if not is_whole(row)]
    if repair:
        tables.clear(db)  # first: where something of it is damaged, SQLite makes and removes no other tables
        if has_errors:
            for generation in tables_by_generation(db):
                make_ids(db, generation, documents.damaged if generation == tables.generation else ())
        cut |= {document_of(documents.ids[row]) for row in lost}
        lost = {**{row: [] for row, id in documents.ids.items() if id in cut}, **lost}
        tables.rebuild(db, documents.damaged, lost, disagreeing)
        db.executemany("DELETE FROM rejects WHERE id = ?", [row[:1] for row in rejects])
    return CheckReport(
        name,
        sum(PASSAGE not in id for id in documents.ids.values()),
        counts,
        orphans=tuple(orphans),
        missing=tuple(missing),
        unindexed=tuple(unindexed),
        damaged=(
            *(documents.ids[row] for row in documents.damaged),
            *(f"{row[0]} on the reject list" for row in rejects),
        ),
        repaired=repair,
    )


def _look(db: sqlite3.Connection, tables: Tables) -> _StoredContent:
    documents = _StoredContent(named={field: [] for field in tables.fields})
    by_name = {str(field): rows for field, rows in documents.named.items()}
    for row in tables.all(db):
        left = row if is_whole(row) else row.legible()
        documents.ids[row.row] = str(row.id) if left is None else left.id
        if left is not row:
            documents.damaged[row.row] = left
        if left is not None:
            values = left.document.metadata.items()
            documents.metadata += sum(_hash((key, row.row, stored(value))) for key, value in values)
            for name in parsed(left.fields):
                by_name[name].append(row.row)
            if PASSAGE in left.id or not has_own_words(left.stamp):
                documents.passages[left.id] = DocumentRow(left.stamp, "", frozenset())
    return documents


def _attributes_sum(db: sqlite3.Connection, tables: Tables) -> int | None:
    """Return the sum over all metadata in the table for filters: None for a table that cannot be read."""
    try:
        return sum(map(_hash, tables.attributes(db)))
    except sqlite3.DatabaseError as exc:
        if str(exc) == "interrupted":
            raise
        return None


def _hash(value: tuple[str, int, StoredValue]) -> int:
    return hash((*value, type(value[-1])))


def _words_agree(db: sqlite3.Connection, tables: Tables) -> bool:
    """Return whether the words are whole and those of all documents that can be read."""
    expected, kept = 0, 0
    rows = list[int]()
    for some in batches(tables.texts(tables.all(db)), _PAGE):
        rows += (row for row, _ in some)
        expected += Postings.of([row for row, _ in some], [text for _, text in some], tables.language).digest()
    there = np.array(rows, np.int64)
    try:
        for group in tables.whole_words(db):
            if (group.rows[1:] <= group.rows[:-1]).any():
                return False
            kept += group.only(find(there, group.rows)[1]).digest()
    except BackendError:
        return False
    return (expected - kept) % 2**64 == 0


def _state_agrees(db: sqlite3.Connection, tables: Tables, rows: Places) -> bool:
    """Return whether the documents are those of the beginning and of later writes, without the dead."""
    state = tables.state(db)
    try:
        there, dead = tables.rows_of_the_epoch(db, state), tables.deaths(db)
        return np.array_equal(np.setdiff1d(there, list(dead.values())), rows) and (
            [*dead] == [*range(state.last_death + 1 - len(dead), state.last_death + 1)]
        )
    except (BackendError, OverflowError, TypeError, ValueError):
        return False


def _differing(db: sqlite3.Connection, tables: Tables, field: Field, damaged: Places) -> list[int]:
    """Return the rows whose codes are not those of their vectors: nobody knows which of the two is wrong."""
    differing = list[int]()
    for group in tables.whole_codes(db, field):
        order = np.argsort(group.numbers)
        wanted = _without(group.numbers, damaged)
        for start in range(0, len(wanted), _PAGE):
            rows, vectors = tables.vectors(db, field, wanted[start : start + _PAGE].tolist())
            places = order[np.searchsorted(group.numbers, rows, sorter=order)]
            steps, codes = quantise(vectors)
            turned = np.unpackbits(signs_of(vectors) ^ group.signs[places], axis=1).sum(axis=1)
            near = (
                np.isclose(steps, group.steps[places])
                & (np.abs(codes.astype(np.int16) - group.codes[places]).max(axis=1, initial=0) <= 1)
                & (turned <= _TURNED)
            )
            differing += [row for row, is_near in zip(rows, near) if not is_near]
    return differing


def _without(rows: Places, others: Places) -> Places:
    """Return the rows that are not among the others, which are in order."""
    return rows[~find(others, rows)[1]]
