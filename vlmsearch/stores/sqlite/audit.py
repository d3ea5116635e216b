"""Whether the tables of a generation agree, and making again what can be."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

import numpy as np

from vlmsearch.errors import BackendError
from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.sqlite.codes import Places, find, quantise, signs_of
from vlmsearch.stores.sqlite.columns import stored
from vlmsearch.stores.sqlite.tables import Tables, parsed
from vlmsearch.types import Field

_PAGE = 4096
_TURNED = 4
"""How many signs may differ where another machine computed them: those of numbers next to nothing."""


@dataclass
class _Found:
    """What is in the tables, by row."""

    rows: list[int] = field(default_factory=list)
    metadata: int = 0
    """A sum over all keys and values: that of the table of attributes is the same where it agrees."""
    named: dict[Field, list[int]] = field(default_factory=dict)
    """The documents that say that they have a vector, by field."""


def audit(db: sqlite3.Connection, tables: Tables, name: str, *, repair: bool) -> CheckReport:
    """Return what is there and what does not agree; BackendError for a file that is damaged.

    With ``repair``, the connection is one that writes: vectors of no document are removed, documents without theirs
    count as changed, and all that follows from documents and vectors is made again.
    """
    said = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if said != "ok":
        raise BackendError(
            f"{name} is damaged: {said.splitlines()[-1]}; restore a copy of the file, or index again under another name"
        )
    try:
        return _compare(db, tables, name, repair=repair)
    except (IndexError, KeyError, TypeError, ValueError) as exc:  # a table has what nobody wrote into it
        raise sqlite3.DatabaseError(f"malformed content: {exc!r}") from exc


def _compare(db: sqlite3.Connection, tables: Tables, name: str, *, repair: bool) -> CheckReport:
    found = _look(db, tables)
    orphans, missing, unindexed = list[str](), list[str](), list[str]()
    counts: dict[str, int] = {}
    lost: dict[int, list[str]] = {}
    for each in tables.fields:
        named = np.array(found.named[each], np.int64)
        have = tables.vector_rows(db, each)
        coded = np.sort(np.concatenate([np.empty(0, np.int64), *(g.numbers for g in tables.codes_after(db, each, 0))]))
        counts[str(each)] = len(have)
        orphans += [f"{each} of row {row}" for row in _without(have, named)]
        unindexed += [f"{each} of row {row}" for row in _without(have, coded)]
        damaged = have[find(np.array(_differing(db, tables, each), np.int64), have)[1]]
        for row in [*_without(named, have).tolist(), *damaged.tolist()]:
            lost.setdefault(row, []).append(str(each))
    missing += [f"{names} of {id}" for row, id in tables.ids_of(db, lost) for names in lost[row]]
    state = tables.state(db)
    rows, worded = np.array(found.rows, np.int64), tables.worded(db)
    for what, agrees in (
        ("words", np.array_equal(rows, worded)),
        ("metadata", found.metadata == sum(map(hash, tables.attributes(db)))),
        ("the number of documents", state.documents == len(rows)),
    ):
        if not agrees:
            unindexed.append(f"{what}, which documents do not agree with")
    if repair and (orphans or missing or unindexed):
        tables.rebuild(db, lost)
    return CheckReport(
        name,
        len(found.rows),
        counts,
        orphans=tuple(orphans),
        missing=tuple(missing),
        unindexed=tuple(unindexed),
        repaired=repair,
    )


def _look(db: sqlite3.Connection, tables: Tables) -> _Found:
    found = _Found(named={each: [] for each in tables.fields})
    by_name = {str(each): rows for each, rows in found.named.items()}
    for row in tables.all(db):
        found.rows.append(row.row)
        found.metadata += sum(hash((key, row.row, stored(value))) for key, value in row.document.metadata.items())
        for name in parsed(row.fields):
            by_name[name].append(row.row)
    return found


def _differing(db: sqlite3.Connection, tables: Tables, each: Field) -> list[int]:
    """The rows whose codes are not those of their vectors, in order: which of the two is damaged cannot be told."""
    found = list[int]()
    for group in tables.codes_after(db, each, 0):
        order = np.argsort(group.numbers)
        for start in range(0, len(group.numbers), _PAGE):
            rows, vectors = tables.vectors(db, each, group.numbers[start : start + _PAGE].tolist())
            places = order[np.searchsorted(group.numbers, rows, sorter=order)]
            steps, codes = quantise(vectors)
            turned = np.unpackbits(signs_of(vectors) ^ group.signs[places], axis=1).sum(axis=1)
            near = (
                np.isclose(steps, group.steps[places])
                & (np.abs(codes.astype(np.int16) - group.codes[places]).max(axis=1, initial=0) <= 1)
                & (turned <= _TURNED)
            )
            found += [row for row, is_near in zip(rows, near) if not is_near]
    return sorted(found)


def _without(rows: Places, others: Places) -> Places:
    """Those rows that are not among the others, which are in order."""
    return rows[~find(others, rows)[1]]
