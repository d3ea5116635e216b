"""A store in memory, with exact search and words."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.batching import batches
from vlmsearch.errors import ConfigError
from vlmsearch.stores.base import (
    CheckReport,
    Store,
    changed_records,
    check_changes,
    check_manifest,
    check_records,
    check_tuning,
    dim_of,
)
from vlmsearch.stores.documents import words_of_row
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.passages import rows_of
from vlmsearch.stores.postings import MAX_ROWS, Postings, WordTable, max_score
from vlmsearch.stores.readers import check_writable, keep_readers
from vlmsearch.stores.terms import AUTO, check_language, query_terms
from vlmsearch.types import (
    Field,
    Hit,
    Manifest,
    MetadataChange,
    MetadataValue,
    Record,
    Reject,
    Space,
    Vectors,
    WordHits,
)


class MemoryStore(Store):
    """Keeps everything in the object itself, as long as that lives; `close` takes nothing away.

    Search compares with every vector, so that it shows what an approximate store should find. ``language`` is how words
    are compared: see `vlmsearch.stores.terms`.
    """

    def __init__(self, location: str = "", *, language: str = AUTO) -> None:
        self.name = f"mock:{location}"
        self._language = check_language(language)
        self._parts: list[Postings] | None = None
        self._lock = threading.RLock()
        self._manifest: Manifest | None = None
        self._records: dict[str, Record] = {}
        self._rejects: dict[str, Reject] = {}
        self._table_of_rows: dict[str, Record] | None = None
        self._tables: dict[Field, tuple[list[str], Vectors]] = {}

    def bind(self, fingerprint: str, spaces: Sequence[Space]) -> None:
        """Make the store ready; IndexMismatchError if another encoder filled it."""
        with self._lock:
            if self._manifest is None:
                now = datetime.now(timezone.utc).isoformat()
                self._manifest = Manifest(fingerprint, tuple(spaces), now, self._language)
            check_manifest(self.name, self._manifest, fingerprint, spaces)

    def manifest(self) -> Manifest | None:
        """Return the manifest, or None before the first `bind`."""
        return self._manifest

    def tune(self, values: Mapping[str, float]) -> None:
        """Replace the tuning of the index."""
        with self._lock:
            manifest = self._needed()
            check_tuning(self.name, values, manifest.spaces)
            self._manifest = replace(manifest, tuning=dict(values))

    def upsert(self, records: Sequence[Record]) -> None:
        """Add or replace records, all at once."""
        check_records(records, self._needed().spaces)
        with self._lock:
            kept = {record.document.id: _copied(record) for record in keep_readers(records, self._metadata_of(records))}
            for id in kept:
                self._records.pop(id, None)  # what is replaced is the last that was written
            self._records.update(kept)
            self._changed()

    def upsert_within(self, records: Sequence[Record], scope: Filter) -> None:
        """Add or replace records that a restricted writer may write."""
        with self._lock:
            check_writable(records, self._metadata_of(records), scope)
            self.upsert(records)

    def delete_within(self, ids: Sequence[str], scope: Filter) -> int:
        """Remove documents that pass a filter; returns how many were there."""
        with self._lock:
            return self.delete([record.document.id for record in self.records(ids) if _passes(record, scope)])

    def _metadata_of(self, records: Sequence[Record]) -> dict[str, Mapping[str, MetadataValue]]:
        there = (self._records.get(record.document.id) for record in records)
        return {record.document.id: record.document.metadata for record in there if record is not None}

    def update_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace the metadata of documents that are still as they were read.

        All are replaced at once. Their ids are returned.
        """
        check_changes(changes)
        with self._lock:
            changed = changed_records(self.records([change.document.id for change in changes]), changes)
            self._records.update((record.document.id, record) for record in changed)
            self._table_of_rows = None
            if any(change.text is not None for change in changes):
                self._changed()
        return [record.document.id for record in changed]

    def _changed(self) -> None:
        self._table_of_rows = None
        self._tables.clear()
        self._parts = None

    @property
    def _by_row(self) -> dict[str, Record]:
        """Return documents and passages as records, by id."""
        if self._table_of_rows is None:
            self._table_of_rows = {row.document.id: row for row in rows_of(self._records.values())}
        return self._table_of_rows

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        """Find the nearest documents by cosine; equal cosines are in the order of the ids."""
        manifest = self._manifest
        if manifest is None or not len(vectors) or limit < 1:
            return [[] for _ in vectors]
        dim_of(self.name, manifest.spaces, field)
        with self._lock:
            ids, table = self._table(field)
            if where is not None:
                passing = [i for i, id in enumerate(ids) if _passes(self._by_row[id], where)]
                ids, table = [ids[i] for i in passing], table[passing]
        if not ids:
            return [[] for _ in vectors]
        cosines = np.stack([_cosines(table, vector) for vector in vectors])
        names = np.array(ids, dtype=object)
        return [[Hit(ids[i], float(row[i])) for i in np.lexsort((names, -row))[:limit]] for row in cosines]

    def _table(self, field: Field) -> tuple[list[str], Vectors]:
        if field not in self._tables:
            vectors = {id: row.vectors[field] for id, row in self._by_row.items() if field in row.vectors}
            self._tables[field] = list(vectors), np.array(list(vectors.values()), dtype=np.float32)
        return self._tables[field]

    def search_words(self, query: str, *, limit: int, where: Filter | None = None) -> WordHits:
        """Return the documents that share words with a query, best first.

        Equal scores are in the order of writing.
        """
        return self.words_within(None).search_words(query, limit=limit, where=where)

    def compare_words(self, query: str, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Return the documents that pass a filter and share words with a query.

        They come best first, then by id.
        """
        return self.words_within(None).compare_words(query, ids, where)

    def count_words(self, words: Sequence[str]) -> list[int]:
        """Return how many texts hold each word."""
        return self.words_within(None).count_words(words)

    def words_within(self, scope: Filter | None) -> _Words:
        """Return the words of the documents that pass a filter; those of others count nowhere."""
        with self._lock:
            rows = list(self._by_row.values())
            if self._parts is None:
                self._parts = [
                    Postings.of(some, (words_of_row(rows[at]) for at in some), self._language)
                    for some in batches(range(len(rows)), MAX_ROWS)
                ]
            alive = None if scope is None else np.array([_passes(row, scope) for row in rows], np.bool_)
            return _Words(rows, alive, WordTable(self._parts, alive), self._language)

    def records(self, ids: Sequence[str]) -> list[Record]:
        """Return the records of those documents among ``ids`` that are there, in the order of ``ids``."""
        with self._lock:
            records = [self._records[id] for id in ids if id in self._records]
        made_by = self._manifest.fingerprint if self._manifest else ""
        return [replace(_copied(record), fingerprint=made_by) for record in records]

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents; returns how many were there."""
        with self._lock:
            gone = [id for id in dict.fromkeys(ids) if id in self._records]
            for id in gone:
                del self._records[id]
            self._changed()
        return len(gone)

    def ids(self) -> Iterator[str]:
        """Return all ids, as they were when this was called."""
        with self._lock:
            return iter(list(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def rejects(self) -> list[Reject]:
        """Return the reject list, by id."""
        with self._lock:
            return [self._rejects[id] for id in sorted(self._rejects)]

    def reject(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the reject list, or replace their entries."""
        self._needed()
        with self._lock:
            self._rejects.update({reject.id: reject for reject in rejects})

    def release(self, ids: Sequence[str]) -> None:
        """Take inputs off the reject list; unknown ids are ignored."""
        with self._lock:
            for id in ids:
                self._rejects.pop(id, None)

    def check(self, *, repair: bool = False) -> CheckReport:
        """Return how much there is; nothing in a dictionary can disagree."""
        with self._lock:
            counts = Counter(str(field) for row in self._by_row.values() for field in row.vectors)
            return CheckReport(self.name, len(self._records), dict(sorted(counts.items())), repaired=repair)

    def _needed(self) -> Manifest:
        if self._manifest is None:
            raise ConfigError(f"{self.name} is not an index yet: bind it to an encoder before writing")
        return self._manifest


@dataclass(frozen=True, eq=False)
class _Words:
    """The words of some rows of one moment."""

    rows: Sequence[Record]
    alive: NDArray[np.bool_] | None
    table: WordTable
    language: str

    def search_words(self, query: str, *, limit: int, where: Filter | None = None) -> WordHits:
        passing = np.array([_passes(row, where) for row in self.rows], np.bool_)
        places, scores, terms = self.table.best(query_terms(query, self.language), max(limit, 1), passing)
        hits = [Hit(self.rows[place].document.id, score) for place, score in zip(places.tolist(), scores.tolist())]
        return WordHits(hits[: max(limit, 0)], max_score(terms, self.table.texts))

    def compare_words(self, query: str, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        wanted = set(ids)
        rows = [(at, row) for at, row in enumerate(self.rows) if self.alive is None or self.alive[at]]
        names = {at: id for at, row in rows if (id := row.document.id) in wanted and _passes(row, where)}
        scores, _ = self.table.scores(query_terms(query, self.language), np.array([*names], np.int64))
        hits = [Hit(id, score) for id, score in zip(names.values(), scores.tolist()) if score > 0]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))

    def count_words(self, words: Sequence[str]) -> list[int]:
        return self.table.counts(words, self.language)


def _passes(row: Record, where: Filter | None) -> bool:
    return where is None or where.matches(row.document.metadata)


def _copied(record: Record) -> Record:
    """Return a copy that shares nothing with the caller's.

    Its image is left out unless it is a path.
    """
    image = record.document.image if isinstance(record.document.image, Path) else None
    document = replace(record.document, image=image, metadata=dict(record.document.metadata))
    passages = tuple(replace(part, vectors=_copies(part.vectors)) for part in record.passages)
    return replace(record, document=document, vectors=_copies(record.vectors), passages=passages)


def _copies(vectors: Mapping[Field, NDArray[np.float32]]) -> dict[Field, NDArray[np.float32]]:
    return {field: vector.copy() for field, vector in vectors.items()}


def _cosines(table: Vectors, query: Vectors) -> NDArray[np.float32]:
    """Return cosines that do not depend on which vectors are compared together.

    Those of a sum in float32 do.
    """
    exact = table.astype(np.float64) @ query.astype(np.float64)
    return np.clip(exact.astype(np.float32), -1.0, 1.0)
