"""All documents of one transaction as arrays: see `vlmsearch.stores.overview`."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vlmsearch.stores.filters import Filter
from vlmsearch.stores.overview import Cosines
from vlmsearch.stores.passages import passage_of
from vlmsearch.stores.postings import max_score
from vlmsearch.stores.sqlite.codes import Places
from vlmsearch.stores.sqlite.tables import Tables, string
from vlmsearch.stores.sqlite.view import View
from vlmsearch.stores.terms import query_terms, words_of
from vlmsearch.stores.versions import HitContent
from vlmsearch.types import Field, Scalar, Vectors, document_of


class SqliteOverview:
    """The documents that a transaction sees."""

    def __init__(self, db: sqlite3.Connection, tables: Tables, view: View, where: Filter | None) -> None:
        self._db = db
        self._tables = tables
        self._view = view
        self._some = view.passing(where)
        self.passing = np.ones(len(view.rows), np.bool_) if self._some is None else self._some

    def narrow(self, passing: NDArray[np.bool_]) -> None:
        """Let those alone pass, of the places that pass, which these are."""
        self.passing = self._some = self.passing & passing

    def cosines(self, field: Field, query: Vectors) -> Cosines:
        """Return the cosines of a field with a query."""
        return self._view.codes[field][1].compared(query, len(self.passing), self._some)

    def has(self, fields: Collection[Field]) -> NDArray[np.bool_]:
        """Return for each place whether its document has a vector of any of these fields. Do not change it."""
        count = len(self.passing)
        masks = [self._view.codes[field][1].steps(count) > 0 for field in fields]
        return functools.reduce(np.logical_or, masks) if masks else np.zeros(count, np.bool_)

    def exact(self, field: Field, query: Vectors, places: Places) -> NDArray[np.float32]:
        """Return the exact cosines of documents with a query. Those without a vector of the field have NaN."""
        rows = self._view.rows[places]
        numbers, vectors = self._tables.vectors(self._db, field, rows.tolist())
        cosines = np.full(len(places), np.nan, np.float32)
        order = np.argsort(rows)
        at = order[np.searchsorted(rows, numbers, sorter=order)]
        cosines[at] = np.clip((vectors.astype(np.float64) @ query.astype(np.float64)).astype(np.float32), -1, 1)
        return cosines

    def words(self, query: str) -> tuple[NDArray[np.float32], float]:
        """Return the BM25 of all documents, and the most that one could have."""
        table = self._view.words
        scores, terms = table.all_scores(query_terms(query, self._tables.language), len(self.passing))
        return scores, max_score(terms, table.texts)

    def places_of(self, ids: Collection[str]) -> Places:
        """Return the places of those documents that are there."""
        return self._view.places_of(sorted(row.row for row in self._tables.rows(self._db, ids).values()) if ids else ())

    def ids(self, places: Sequence[int]) -> list[str]:
        """Return the ids of documents."""
        rows = self._view.rows[np.array(places, np.int64)].tolist()
        names = dict(self._tables.ids_of(self._db, rows))
        return [names[row] for row in rows]

    def documents(self, places: Sequence[int]) -> list[HitContent]:
        """Return the documents or passages there; BackendError where one is damaged."""
        numbers = self._view.rows[np.array(places, np.int64)].tolist()
        rows = {row.row: row for row in self._tables.numbered(self._db, numbers)}
        known = {row.id: row for row in rows.values()}
        known |= self._tables.rows(self._db, {document_of(id) for id in known} - known.keys())
        made = {id: row.document for id, row in known.items()}
        ordered = [rows[number] for number in numbers]
        return [HitContent(made[document_of(row.id)], passage_of(made[row.id], row.stamp)) for row in ordered]

    def texts(self, places: Sequence[int]) -> list[str]:
        """Return the texts whose words are those of documents or passages; BackendError where one is damaged."""
        numbers = self._view.rows[np.array(places, np.int64)].tolist()
        rows = self._tables.numbered(self._db, numbers)
        texts = {row.row: string(row.text) if row.text else words_of(row.document) for row in rows}
        return [texts[number] for number in numbers]

    def groups(self, *, by_file: bool) -> Places | None:
        """Return for each place the number of its document, or of its file: None where each is alone."""
        groups = self._view.groups[self._view.state.last_row]
        return (groups.files if by_file else groups.documents) if groups.numbers else None

    def documents_passing(self) -> Places:
        """Return the places of the documents that pass, without their passages."""
        return np.flatnonzero(self.passing & ~self._view.groups[self._view.state.last_row].are_passages)

    def facet(self, key: str, places: Places) -> Mapping[Scalar, int]:
        """Count the values of a key of the metadata, the most frequent first, then by value."""
        return self._view.columns[key][1].counts(places)

    def sort_keys(self, key: str, places: Places, *, falls: bool) -> list[NDArray[np.float64]]:
        """Return arrays by which documents are sorted by a key."""
        return self._view.columns[key][1].sort_keys(places, falls=falls)
