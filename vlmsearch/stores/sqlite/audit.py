"""Whether the tables of a generation agree, and making again what can be."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field

import numpy as np

from vlmsearch.errors import BackendError
from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.sqlite.codes import Places, find
from vlmsearch.stores.sqlite.tables import Tables
from vlmsearch.types import Field


@dataclass
class _Found:
    """What is in the tables, by row."""

    documents: int = 0
    attributes: int = 0
    named: dict[Field, list[int]] = field(default_factory=dict)
    """The documents that say that they have a vector, by field."""


def audit(db: sqlite3.Connection, tables: Tables, name: str, *, repair: bool) -> CheckReport:
    """Return what is there and what does not agree; BackendError for a file that is damaged.

    With ``repair``, the connection is one that writes: vectors of no document are removed, documents without theirs
    count as changed, and all that follows from documents and vectors is made again.
    """
    said = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if said != "ok":
        raise BackendError(f"{name} is damaged: {said}; restore a copy of the file, or index again under another name")
    found = _look(db, tables)
    orphans, missing, unindexed = list[str](), list[str](), list[str]()
    counts: dict[str, int] = {}
    lost: dict[int, list[str]] = {}
    for each in tables.fields:
        named = np.array(found.named[each], np.int64)
        have = tables.vector_rows(db, each)
        coded = np.sort(np.concatenate([np.empty(0, np.int64), *(g.rows for g in tables.codes_after(db, each, 0))]))
        counts[str(each)] = len(have)
        orphans += [f"{each} of row {row}" for row in _without(have, named)]
        unindexed += [f"{each} of row {row}" for row in _without(have, coded)]
        for row in _without(named, have).tolist():
            lost.setdefault(row, []).append(str(each))
    missing += [f"{names} of {id}" for row, id in tables.ids_of(db, lost) for names in lost[row]]
    state = tables.state(db)
    for what, there, wanted in (
        ("words", tables.worded(db), found.documents),
        ("metadata", tables.count(db, "attributes"), found.attributes),
        ("documents", state.documents, found.documents),
    ):
        if there != wanted:
            unindexed.append(f"{what}: {there} instead of {wanted}")
    if repair and (orphans or missing or unindexed):
        tables.rebuild(db, lost)
    return CheckReport(
        name,
        found.documents,
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
        found.documents += 1
        found.attributes += len(row.document.metadata)
        for name in json.loads(row.fields):
            by_name[name].append(row.row)
    return found


def _without(rows: Places, others: Places) -> Places:
    """Those rows that are not among the others, which are in order."""
    return rows[~find(others, rows)[1]]
