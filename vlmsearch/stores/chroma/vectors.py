"""The vectors of an index in Chroma: rows that are written once and never change.

A row's id is a version of the document, 16 characters, and the document's id. Writing a document again adds a row
beside the old one, so whoever keeps the documents decides which version counts, at one instant; a row of any other
version is never found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.batching import pages
from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.chroma.collections import (
    EXACT_UP_TO,
    VERSION_CHARS,
    ChromaCollection,
    HnswOptions,
    best_first,
    field_collection,
)
from vlmsearch.stores.chroma.connection import ChromaConnection
from vlmsearch.stores.chroma.filters import Where, compile_filter, filterable
from vlmsearch.stores.documents import DocumentRow
from vlmsearch.stores.filters import Filter, has_scope
from vlmsearch.stores.passages import AnyRow
from vlmsearch.stores.recall import SAMPLE, Recalls, identical_share
from vlmsearch.stores.rows import RowByRowStore
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.stores.writers import WriteJournal
from vlmsearch.types import Field, Record, Space, Vectors, document_of

Key = tuple[str, str]
"""A document's id and a version."""
Versions = Callable[[Collection[str]], Mapping[str, str]]
_SPARE = 8
_ROW_BYTES = 600
"""Bytes of a vector beside its numbers: its row, the document's id and metadata, and its links in the graph."""
_MAX_LOOKS = 20
_MEASURED_UP_TO = 20_000
"""Vectors of a field whose recall is measured: all of them are read for that."""
_IDENTICAL = (
    "of the vectors are equal, so a search may miss others that are near: remove blank pages and the like, or copy the "
    "index to `sqlite:`"
)


def row_bytes(dim: int) -> int:
    """Return about how many bytes a vector takes on the disk: it is in the graph and in Chroma's log."""
    return 2 * 4 * dim + _ROW_BYTES


class VectorRows:
    """The vectors of one generation of an index, by field."""

    def __init__(self, connection: ChromaConnection, generation: str, spaces: Sequence[Space]) -> None:
        fields = [field for space in spaces for field in space.fields]
        self.fields = {field: field_collection(connection, generation, field) for field in fields}
        self._is_small = dict.fromkeys(fields, True)
        self.recalls = Recalls()

    def create(self, hnsw: HnswOptions) -> None:
        """Make the collections."""
        for collection in self.fields.values():
            collection.create(hnsw)

    def open(self, name: str) -> None:
        """Find the collections; ConfigError where one is missing."""
        for collection in self.fields.values():
            collection.needed(name)

    def drop(self) -> None:
        """Remove the collections."""
        for collection in self.fields.values():
            collection.drop()

    def write(self, records: Sequence[Record], versions: Mapping[str, str]) -> None:
        """Add the vectors of all records, each under the version of its document's id."""
        for field, collection in self.fields.items():
            some = [record for record in records if field in record.vectors]
            if some:
                ids = [record.document.id for record in some]
                rows = [{"id": r.document.id, **filterable(r.document.metadata)} for r in some]
                vectors = np.stack([record.vectors[field] for record in some]).astype(np.float32, copy=False)
                collection.upsert([versions[id] + id for id in ids], vectors, rows)

    def remove(self, keys: Collection[Key]) -> None:
        """Remove the vectors of these versions of documents from every field; unknown ones are ignored."""
        for field in self.fields if keys else ():
            self.remove_from(field, keys)

    def remove_from(self, field: Field, keys: Collection[Key]) -> None:
        """Remove the vectors of these versions of documents from a field."""
        self.fields[field].delete([version + id for id, version in keys])

    def keys(self, field: Field) -> Iterator[Key]:
        """Return the keys of all vectors."""
        return map(_key, self.fields[field].ids())

    def keys_of(self, field: Field, ids: Collection[str]) -> set[Key]:
        """Return the versions of documents that have a vector."""
        return {_key(row) for some in pages(ids) for row in self.fields[field].ids({"id": {"$in": some}})}

    def among(self, field: Field, keys: Collection[Key]) -> set[Key]:
        """Return the keys that have a vector."""
        return set(map(_key, self.fields[field].there([version + id for id, version in keys])))

    def read(self, keys: Mapping[Key, Collection[Field]]) -> dict[Key, dict[Field, NDArray[np.float32]]]:
        """Return the vectors of versions of documents, of the fields that are given for each."""
        vectors: dict[Key, dict[Field, NDArray[np.float32]]] = {key: {} for key in keys}
        for field, collection in self.fields.items():
            wanted = [version + id for (id, version), fields in keys.items() if field in fields]
            for row, vector in collection.vectors(wanted).items():
                vectors[_key(row)][field] = vector
        return vectors

    def complete(
        self, ids: Collection[str], rows_of: Callable[[Collection[str]], Mapping[str, DocumentRow]]
    ) -> dict[str, DocumentRow]:
        """Return the rows that ``rows_of`` gives with their vectors, each of one version.

        What lacks a vector is looked at again, for it may have been replaced meanwhile. If it is still of the same
        version, its vector is lost.
        """
        whole: dict[str, DocumentRow] = {}
        left, versions = set(ids), dict[str, str]()
        while left:
            rows = rows_of(left)
            read = self.read({(id, row.version): row.fields for id, row in rows.items()})
            left = {
                id
                for id, row in rows.items()
                if read[id, row.version].keys() != row.fields and versions.get(id) != row.version
            }
            whole |= {id: row._replace(vectors=read[id, row.version]) for id, row in rows.items() if id not in left}
            versions = {id: rows[id].version for id in left}
        return whole

    def search(
        self, field: Field, vectors: Vectors, limit: int, where: Filter | None, versions: Versions
    ) -> list[list[VersionedHit]]:
        """Find the nearest documents of each vector, by the version that ``versions`` gives for each.

        More rows are asked for until there are enough or no more, and again where a document was replaced meanwhile.
        """
        compiled = None if where is None else compile_filter(where)
        rows = self.fields[field]
        self._is_small[field] = self._is_small[field] and len(rows) <= EXACT_UP_TO
        is_exact = self._is_small[field] or has_scope(where)  # as an index of the few readable documents would be
        count = max(limit + _SPARE, EXACT_UP_TO if is_exact else 0)
        looks = 0
        while True:
            hits, is_short, is_outdated = _look(rows, vectors, count, limit, compiled, versions)
            looks += not is_short
            if not is_short and (not is_outdated or looks >= _MAX_LOOKS):
                return hits
            count *= 4 if is_short else 1

    def compare(
        self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None, versions: Versions
    ) -> list[VersionedHit]:
        """Return documents by the versions in ``versions``, compared with the one query vector, best first."""
        compiled = None if where is None else compile_filter(where)
        hits: list[VersionedHit] = []
        for _ in range(_MAX_LOOKS):
            current = versions(ids)
            rows = [version + id for id, version in current.items()]
            cosines = self.fields[field].cosines(rows, vectors, compiled)
            hits += [
                VersionedHit(row[VERSION_CHARS:], values[0], row[:VERSION_CHARS]) for row, values in cosines.items()
            ]
            ids = [row[VERSION_CHARS:] for row in rows if row not in cosines]
            if not ids or where is not None:
                break  # otherwise those were replaced after their versions were read
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))


class ChromaVectorStore(RowByRowStore):
    """A store whose vectors are in Chroma. Where the documents are is for the class below to say."""

    _vectors: VectorRows

    def vectors(self) -> VectorRows:
        """Return the vectors; ConfigError where there is no index yet."""
        self.needed()
        return self._vectors

    def versions_of(self, field: Field, where: Filter | None = None) -> Versions:
        """Return what gives the versions of documents that have a field and pass a scope."""

        def versions(ids: Collection[str]) -> dict[str, str]:
            rows = self.rows_within(ids, where) if where is not None and has_scope(where) else self.rows(ids)
            return {id: row.version for id, row in rows.items() if field in row.fields}

        return versions

    def rows_within(self, ids: Collection[str], scope: Filter) -> Mapping[str, DocumentRow]:
        """Return the rows of those documents or passages that pass a filter, passages with their document.

        A writer that read a document before it had readers may write its passages after those that have them.
        """
        rows = self.rows(ids, "document")
        wholes = {**rows, **self.rows({document_of(id) for id in rows} - rows.keys(), "document")}
        passing = {id for id, row in wholes.items() if scope.matches(row.document.metadata)}
        return {id: row for id, row in rows.items() if {id, document_of(id)} <= passing}

    def find_nearest(
        self, field: Field, vectors: Vectors, limit: int, where: Filter | None
    ) -> list[list[VersionedHit]]:
        """Find the nearest documents of each query."""
        return self.vectors().search(field, vectors, limit, where, self.versions_of(field, where))

    def compare_vectors(
        self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None
    ) -> list[VersionedHit]:
        """Compare documents with one query."""
        return self.vectors().compare(field, vectors, ids, where, self.versions_of(field, where))

    def describe(self) -> dict[str, str]:
        """Return how the store searches, for people. Recall is measured where there are not too many vectors."""
        texts = {f"search {field}": self._recall(field) for field in self._approximate()}
        texts |= {f"identical {field}": text for field, text in self._identical().items()}
        return {"search": "approximate" if texts else "exact", **texts, **super().describe()}

    def _recall(self, field: Field) -> str:
        rows, recalls = self.vectors().fields[field], self._vectors.recalls
        return recalls.of(self, field, len(rows), rows.exact) if len(rows) <= _MEASURED_UP_TO else "approximate"

    def _approximate(self) -> list[Field]:
        return [field for field, rows in self.vectors().fields.items() if len(rows) > EXACT_UP_TO]

    def _identical(self) -> dict[Field, str]:
        """Say which fields have so many equal vectors that searches may miss others."""
        shares = {field: identical_share(self.sample(field, SAMPLE)) for field in self._approximate()}
        return {field: f"{100 * share:.0f} % {_IDENTICAL}" for field, share in shares.items() if share}

    def with_rows(self, report: CheckReport, rows: Mapping[str, AnyRow], journal: WriteJournal) -> CheckReport:
        """Return the report of a check with its documents, passages and equal vectors."""
        identical = tuple(f"{field}: {text}" for field, text in self._identical().items())
        return replace(super().with_rows(report, rows, journal), identical=identical)

    def vectors_of(self, field: Field, ids: Collection[str]) -> list[NDArray[np.float32]]:
        """Read the vectors of a field that documents have."""
        keys = [version + id for id, version in self.versions_of(field)(ids).items()]
        return list(self.vectors().fields[field].vectors(keys).values())


def _key(row: str) -> Key:
    return row[VERSION_CHARS:], row[:VERSION_CHARS]


def _look(
    rows: ChromaCollection, vectors: Vectors, count: int, limit: int, where: Where | None, versions: Versions
) -> tuple[list[list[VersionedHit]], bool, bool]:
    """Return hits, whether they are too few, and whether a document was replaced meanwhile."""
    rankings = rows.nearest(vectors, count, where)
    current: dict[str, str] = {}
    asked: set[str] = set()
    window = limit + _SPARE

    def hits() -> list[list[VersionedHit]]:
        return [
            [
                VersionedHit(row[VERSION_CHARS:], cosine, row[:VERSION_CHARS])
                for row, cosine in some[:window]
                if current.get(row[VERSION_CHARS:]) == row[:VERSION_CHARS]
            ][:limit]
            for some in rankings
        ]

    while True:
        new = {row[VERSION_CHARS:] for some in rankings for row, _ in some[:window]} - asked
        if new:
            asked |= new
            current |= versions(new)
        if all(len(page) >= limit or len(some) <= window for page, some in zip(hits(), rankings)):
            break
        window *= 2
    is_short = any(len(page) < limit and len(some) >= count for page, some in zip(hits(), rankings))
    shown = {row for some in rankings for row, _ in some[:window]}
    behind = {version + id for id, version in current.items()} - shown
    if not behind:
        return hits(), is_short, False
    cosines = rows.cosines(behind, vectors, where)
    rankings = [
        _insert(some, {row: values[i] for row, values in cosines.items()}, count) for i, some in enumerate(rankings)
    ]
    window += len(behind)  # what was in it has moved back by as many rows at most
    gone = dict(map(_key, behind - cosines.keys()))
    again = versions(gone) if gone else {}
    return hits(), is_short, any(again.get(id) != version for id, version in gone.items())


def _insert(some: list[tuple[str, float]], cosines: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    """Put rows among the nearest ``count``, best first. Rows before which there may be others are left out."""
    min_cosine = some[-1][1] if len(some) >= count else -1.0
    here = {row for row, _ in some}
    new = [(row, cosine) for row, cosine in cosines.items() if cosine >= min_cosine and row not in here]
    return sorted([*some, *new], key=best_first)
