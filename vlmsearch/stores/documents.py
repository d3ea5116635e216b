"""Documents in a database: the part that all stores over a database share.

A back end reads and writes rows, of documents and of passages, and compares vectors. Here are the checks before that,
and the answers while there is no index yet. See `vlmsearch.stores.passages` for the rows of passages: what replaces or
removes the row of a document also removes the rows of the passages that it had.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.batching import PAGE, batches, pages
from vlmsearch.errors import apply_to_each
from vlmsearch.stores.base import check_changes, check_records, dim_of
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.generations import GenerationalStore, Slot
from vlmsearch.stores.passages import (
    has_own_words,
    is_of,
    passage_ids,
    passage_of,
    passages_of,
    record_of,
    row_stamp,
    rows_of,
    shown_document,
)
from vlmsearch.stores.samples import VectorSamples
from vlmsearch.stores.terms import words_of
from vlmsearch.stores.versions import HitContent, VersionedHit
from vlmsearch.types import (
    PASSAGE,
    Document,
    Field,
    Hit,
    MetadataChange,
    MetadataValue,
    Passage,
    Record,
    Reject,
    Stamp,
    Vectors,
    document_of,
    possible_ids,
)

Item = TypeVar("Item")
_ATTEMPTS = 3


RowPart: TypeAlias = Literal["document", "vectors"]
"""A part of a row that is read when it is asked for."""


class RowCount(NamedTuple):
    """Numbers of rows in a database."""

    documents: int
    passages: int


class DocumentRow(NamedTuple):
    """Row of a document or a passage in a database, all of one moment."""

    stamp: Stamp
    """The stamp of the row: see `vlmsearch.stores.passages.row_stamp`."""
    version: str
    """Another one after every write of the document."""
    fields: frozenset[Field]
    """The fields that the document has a vector of."""
    content: Document | None = None
    """The document, where it was asked for."""
    vectors: Mapping[Field, NDArray[np.float32]] | None = None
    """Its vectors, where they were asked for."""

    @property
    def document(self) -> Document:
        """Return the document, which was asked for."""
        if self.content is None:
            raise LookupError("the document was not read")
        return self.content

    def record(self, fingerprint: str = "") -> Record:
        """Return the record. One that lacks a vector that was asked for has no digest: it counts as changed."""
        is_whole = self.vectors is None or self.vectors.keys() == self.fields
        stamp = self.stamp if is_whole else replace(self.stamp, digest="")
        return Record(self.document, self.vectors or {}, stamp, fingerprint)


class StoredDocument(NamedTuple):
    """A document as databases and files keep it: its image is a path, and keys with ``$`` in front are its own."""

    id: str
    text: str | None
    image: str | None
    metadata: Mapping[str, MetadataValue]

    @classmethod
    def of(cls, document: Document) -> StoredDocument:
        """Return the form of a document; an image that is no path is left out."""
        image = str(document.image) if isinstance(document.image, Path) else None
        return cls(document.id, document.text, image, document.metadata)

    @property
    def document(self) -> Document:
        """Return the document."""
        return Document(self.id, self.text, None if self.image is None else Path(self.image), self.metadata)


class DatabaseStore(GenerationalStore):
    """A store of documents in a database, each in one version at a time."""

    def start_at(self, slot: Slot) -> None:
        """Begin without an open index."""
        super().start_at(slot)
        self._samples = VectorSamples()

    # ---- for the back end; there is an index when these are called

    @abstractmethod
    def read_rows(self, ids: Collection[str], *parts: RowPart) -> Mapping[str, DocumentRow]:
        """Read the rows of documents, by id; with vectors comes the document."""

    @abstractmethod
    def find_nearest(
        self, field: Field, vectors: Vectors, limit: int, where: Filter | None
    ) -> Sequence[Sequence[VersionedHit]]:
        """Find the nearest rows of each query, best first. Equal cosines are in the order of the ids."""

    @abstractmethod
    def compare_vectors(
        self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None
    ) -> Sequence[VersionedHit]:
        """Compare rows with one query, best first; equal cosines are in the order of the ids."""

    @abstractmethod
    def count(self) -> RowCount:
        """Count the rows."""

    @abstractmethod
    def vectors_of(self, field: Field, ids: Collection[str]) -> Iterable[NDArray[np.float32]]:
        """Read the vectors of a field that rows have, in no particular order."""

    @abstractmethod
    def write(self, records: Sequence[Record], scope: Filter | None = None) -> None:
        """Add or replace at least one record; the rows of all of them have passed `check_keepable`.

        The rows of passages come before that of their document. Passages that it had before and that the record does
        not have are removed. ``scope`` is what a restricted writer may read: see `check_writable`.
        """

    @abstractmethod
    def change_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace the metadata of documents that are still as they were read, and return their ids.

        The rows of their passages get the same metadata and digest.
        """

    @abstractmethod
    def remove(self, ids: list[str], scope: Filter | None = None) -> int:
        """Remove some documents that pass with their passages, and return how many documents were there."""

    @abstractmethod
    def read_rejects(self) -> Iterable[Reject]:
        """Read the reject list."""

    @abstractmethod
    def write_rejects(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the reject list, or replace their entries; ids are distinct."""

    @abstractmethod
    def remove_rejects(self, ids: list[str]) -> None:
        """Take some inputs off the reject list."""

    def check_keepable(self, row: Record) -> None:
        """Raise InvalidInputError for a row that this database cannot keep."""

    def draw(self, field: Field, count: int) -> Iterable[NDArray[np.float32]]:
        """Read the vectors of documents that are chosen at random."""
        return self.vectors_of(field, self.sample_ids(field, count))

    def sampled_state(self) -> Hashable:
        """Return a value that differs when a sample may have changed."""
        return self.generation, self.writes_here, self.count()

    # ---- writing

    def upsert(self, records: Sequence[Record]) -> None:
        """Add or replace records."""
        self.upsert_within(records, None)

    def upsert_within(self, records: Sequence[Record], scope: Filter | None) -> None:
        """Add or replace records, where `check_writable` lets them pass in the step that writes."""
        with self.in_use(records):
            check_records(records, self.needed().spaces)
            self.check_all_keepable(records)
            if records:
                self.write(records, scope)

    def check_all_keepable(self, records: Sequence[Record]) -> None:
        """Raise InvalidBatchError that names the records which this database cannot keep."""

        def check(record: Record) -> None:
            for row in rows_of([record]):
                self.check_keepable(row)

        apply_to_each(check, records)

    def update_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace the metadata of documents that are still as they were read, and return their ids."""
        self.check_all_keepable(check_changes(changes))
        if self.as_opened() is None:
            return []
        with self.in_use():
            return self.change_metadata([change for change in changes if PASSAGE not in change.document.id])

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents, and return how many were there; others may write between two pages of them."""
        return self.delete_within(ids, None)

    def delete_within(self, ids: Sequence[str], scope: Filter | None) -> int:
        """Remove documents that pass a filter, and return how many were there."""
        if self.as_opened() is None:
            return 0
        count = 0
        known = [id for id in possible_ids(ids) if PASSAGE not in id]  # a passage goes with its document alone
        for page in pages(known):
            with self.in_use():
                count += self.remove(page, scope)
        return count

    def batches(self, items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
        """Yield batches, as long as the index is the one that is open here."""
        for start in range(0, len(items), size):
            if start:
                self.check_in_use()
            yield items[start : start + size]

    # ---- the reject list

    def rejects(self) -> list[Reject]:
        """Return the reject list, in the order of the ids."""
        return sorted(self.read_rejects(), key=attrgetter("id")) if self.as_opened() else []

    def reject(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the reject list, or replace their entries."""
        self.needed()
        if latest := {reject.id: reject for reject in rejects}:
            self.write_rejects(list(latest.values()))

    def release(self, ids: Sequence[str]) -> None:
        """Take inputs off the reject list; unknown ids are ignored."""
        for page in pages(possible_ids(ids)) if self.as_opened() else ():
            self.remove_rejects(page)

    # ---- searching

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        """Find the nearest documents by cosine; equal cosines are in the order of the ids."""
        manifest = self.as_opened()
        if manifest is None or not len(vectors) or limit < 1:
            return [[] for _ in vectors]
        dim_of(self.name, manifest.spaces, field)
        return list(map(list, self.find_nearest(field, vectors, limit, where)))

    def compare(self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Compare given documents with a query, as they are now. Equal cosines are in the order of the ids."""
        manifest = self.as_opened()
        if manifest is None or not (known := possible_ids(ids)):
            return []
        dim_of(self.name, manifest.spaces, field)
        return list(self.compare_vectors(field, vectors, known, where))

    def sample(self, field: Field, count: int) -> Vectors:
        """Return vectors of documents that are chosen at random. They stay while the index does not change."""
        manifest = self.as_opened()
        if manifest is None:
            return np.empty((0, 0), np.float32)
        dim = dim_of(self.name, manifest.spaces, field)

        def draw() -> Vectors:
            return np.array(list(self.draw(field, count)), np.float32).reshape(-1, dim)

        return self._samples.get(field, count, self.sampled_state(), draw)

    # ---- reading

    def get(self, ids: Sequence[str]) -> list[Document]:
        """Return documents or passages, in the order of ``ids``; unknown ids are left out."""
        rows = self.rows(ids, "document")
        return [shown_document(rows[id].record()) for id in ids if id in rows]

    def records(self, ids: Sequence[str]) -> list[Record]:
        """Return the records of documents, in the order of ``ids``; unknown ids are left out."""
        manifest = self.as_opened()
        if manifest is None:
            return []
        records, ids = dict[str, Record](), [id for id in possible_ids(ids) if PASSAGE not in id]
        unread = ids
        for _ in range(_ATTEMPTS):  # others may replace a document before its passages are read
            records |= records_of(self.read_whole(unread, "document", "vectors"), unread, manifest.fingerprint)
            unread = [id for id, record in records.items() if record.passages and not record.stamp.digest]
            if not unread:
                break
        if not records.keys() >= set(ids):
            self.check_in_use(to_read=True)  # of a collection that was dropped, a database says nothing
        return [records[id] for id in ids if id in records]

    def passages(self, ids: Sequence[str]) -> dict[str, tuple[Passage, ...]]:
        """Return the passages of documents, by the ids of those that have any."""
        ids = possible_ids(ids)
        rows = self.read_whole(ids, "document") if self.as_opened() else {}
        return passages_of(records_of(rows, ids).values())

    def get_versions(self, versions: Mapping[str, str]) -> dict[str, HitContent]:
        """Return the contents, by id, of the hits that are still of their version.

        A passage is read after its document. Both have the same digest where neither was replaced meanwhile.
        """
        documents = self.rows({document_of(id) for id in versions}, "document")
        rows = {**documents, **self.rows(versions.keys() - documents.keys(), "document")}
        return {
            id: HitContent(own.document, passage_of(row.document, row.stamp))
            for id, row in rows.items()
            if row.version == versions.get(id) and (own := documents.get(document_of(id))) and is_of(own, row)
        }

    def read_whole(self, ids: Collection[str], *parts: RowPart) -> Mapping[str, DocumentRow]:
        """Read the rows of documents, and those of their passages, by id."""
        return with_passages(lambda some: self.read_rows(some, *parts), ids)

    def rows(self, ids: Collection[str], *parts: RowPart) -> Mapping[str, DocumentRow]:
        """Return the rows of documents or passages, by id; none where there is no index yet."""
        return self.read_rows(possible_ids(ids), *parts) if self.as_opened() else {}

    def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
        """Return the stamps of documents, by id."""
        return {id: row_stamp(row.stamp).stamp for id, row in self.rows(ids).items()}

    def fields(self, ids: Sequence[str]) -> dict[str, frozenset[Field]]:
        """Return the fields that documents or passages have a vector of, by id."""
        rows = self.rows(ids)
        firsts = [f"{id}{PASSAGE}1" for id, row in rows.items() if not has_own_words(row.stamp)]
        own = {document_of(id): row.fields for id, row in (self.rows(firsts) if firsts else {}).items()}
        images = {id: frozenset(field for field in some if field.modality == "image") for id, some in own.items()}
        return {id: images.get(id, row.fields) for id, row in rows.items()}

    def row_ids(self) -> Iterator[str]:
        """Yield the ids of all documents without passages, and of all passages."""
        for rows in map(self.rows, batches(self.ids(), PAGE)):
            yield from (*(id for id, row in rows.items() if has_own_words(row.stamp)), *passage_ids(rows))

    def __len__(self) -> int:
        return self.count().documents if self.as_opened() else 0

    def count_passages(self) -> int:
        """Count the passages of all documents."""
        return self.count().passages if self.as_opened() else 0


def with_passages(
    read: Callable[[Collection[str]], Mapping[str, DocumentRow]], ids: Collection[str]
) -> Mapping[str, DocumentRow]:
    """Read the rows of documents with a function, and then those of their passages."""
    rows = read(ids)
    return {**rows, **read(passage_ids(rows))}


def records_of(rows: Mapping[str, DocumentRow], ids: Iterable[str], fingerprint: str = "") -> dict[str, Record]:
    """Return the records of documents, by id.

    Args:
        rows: Rows with documents and vectors, of the documents and of their passages.
        ids: Ids of the documents.
        fingerprint: The fingerprint of the index, where it is asked for.
    """
    records: dict[str, Record] = {}
    for id in ids:
        if row := rows.get(id):
            parts = [rows[part].record() for part in passage_ids({id: row}) if part in rows]
            records[id] = record_of(row.record(fingerprint), parts)
    return records


def words_of_row(row: Record) -> str:
    """Return the words that a row is found by: those of a document with passages are in these."""
    return words_of(row.document) if has_own_words(row.stamp) else ""
