"""Documents in a database: the part that all stores over a database share.

A back end reads and writes rows, and compares vectors. Here are the checks before that, and the answers while there is
no index yet.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.batching import pages
from vlmsearch.stores.base import check_changes, check_records, dim_of
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.generations import GenerationalStore, Slot
from vlmsearch.stores.samples import VectorSamples
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.types import Document, Field, Hit, MetadataChange, Record, Reject, Scalar, Stamp, Vectors

Item = TypeVar("Item")


RowPart: TypeAlias = Literal["document", "vectors"]
"""A part of a row that is read when it is asked for."""


class DocumentRow(NamedTuple):
    """Row of a document in a database, all of one moment."""

    stamp: Stamp
    version: str
    """Another one after every write of the document."""
    fields: frozenset[Field]
    """The fields that the document has a vector of."""
    content: Document | None = None
    """The document, where it was asked for."""
    vectors: Mapping[Field, NDArray[np.float32]] = MappingProxyType({})
    """Its vectors, where they were asked for."""

    @property
    def document(self) -> Document:
        """Return the document, which was asked for."""
        if self.content is None:
            raise LookupError("the document was not read")
        return self.content

    def record(self, fingerprint: str) -> Record:
        """Return the record. One that lacks a vector has no digest, so that it counts as changed."""
        stamp = self.stamp if self.vectors.keys() == self.fields else replace(self.stamp, digest="")
        return Record(self.document, self.vectors, stamp, fingerprint)


class StoredDocument(NamedTuple):
    """A document as databases and files keep it: its image is a path, and keys with ``$`` in front are its own."""

    id: str
    text: str | None
    image: str | None
    metadata: Mapping[str, Scalar]

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
        """Find the nearest documents of each query, best first. Equal cosines are in the order of the ids."""

    @abstractmethod
    def compare_vectors(
        self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None
    ) -> Sequence[VersionedHit]:
        """Compare documents with one query, best first; equal cosines are in the order of the ids."""

    @abstractmethod
    def count(self) -> int:
        """Count the documents."""

    @abstractmethod
    def vectors_of(self, field: Field, ids: Collection[str]) -> Iterable[NDArray[np.float32]]:
        """Read the vectors of a field that documents have, in no particular order."""

    @abstractmethod
    def write(self, records: Sequence[Record]) -> None:
        """Add or replace at least one record; all of them have passed `check_keepable`."""

    @abstractmethod
    def change_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace the metadata of documents that are still as they were read, and return their ids."""

    @abstractmethod
    def remove(self, ids: list[str]) -> int:
        """Remove some documents, and return how many were there."""

    @abstractmethod
    def read_rejects(self) -> Iterable[Reject]:
        """Read the reject list."""

    @abstractmethod
    def write_rejects(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the reject list, or replace their entries; ids are distinct."""

    @abstractmethod
    def remove_rejects(self, ids: list[str]) -> None:
        """Take some inputs off the reject list."""

    def check_keepable(self, records: Sequence[Record]) -> None:
        """Raise InvalidBatchError that names the records that this database cannot keep."""

    def draw(self, field: Field, count: int) -> Iterable[NDArray[np.float32]]:
        """Read the vectors of documents that are chosen at random."""
        return self.vectors_of(field, self.sample_ids(field, count))

    def sampled_state(self) -> Hashable:
        """Return a value that differs when a sample may have changed."""
        return self.generation, self.writes_here, self.count()

    # ---- writing

    def upsert(self, records: Sequence[Record]) -> None:
        """Add or replace records."""
        with self.in_use(records):
            check_records(records, self.needed().spaces)
            self.check_keepable(records)
            if records:
                self.write(records)

    def update_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace the metadata of documents that are still as they were read, and return their ids."""
        self.check_keepable(check_changes(changes))
        if self.as_opened() is None:
            return []
        with self.in_use():
            return self.change_metadata(changes)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents, and return how many were there; others may write between two pages of them."""
        if self.as_opened() is None:
            return 0
        count = 0
        for page in pages(ids):
            with self.in_use():
                count += self.remove(page)
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
        for page in pages(ids) if self.as_opened() else ():
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
        if manifest is None or not ids:
            return []
        dim_of(self.name, manifest.spaces, field)
        return list(self.compare_vectors(field, vectors, ids, where))

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
        """Return documents, in the order of ``ids``; unknown ids are left out."""
        rows = self.rows(ids, "document")
        return [rows[id].document for id in ids if id in rows]

    def records(self, ids: Sequence[str]) -> list[Record]:
        """Return the records of documents, in the order of ``ids``; unknown ids are left out."""
        manifest = self.as_opened()
        if manifest is None:
            return []
        rows = self.read_rows(ids, "document", "vectors")
        if not rows.keys() >= set(ids):
            self.check_in_use(to_read=True)  # of a collection that was dropped, a database says nothing
        return [rows[id].record(manifest.fingerprint) for id in ids if id in rows]

    def get_versions(self, versions: Mapping[str, str]) -> dict[str, Document]:
        """Return the documents that are still of the version given for their ids."""
        rows = self.rows(versions, "document")
        return {id: row.document for id, row in rows.items() if row.version == versions[id]}

    def rows(self, ids: Collection[str], *parts: RowPart) -> Mapping[str, DocumentRow]:
        """Return the rows of documents, by id; none where there is no index yet."""
        return self.read_rows(ids, *parts) if self.as_opened() else {}

    def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
        """Return the stamps of documents, by id."""
        return {id: row.stamp for id, row in self.rows(ids).items()}

    def fields(self, ids: Sequence[str]) -> dict[str, frozenset[Field]]:
        """Return the fields that documents have a vector of, by id."""
        return {id: row.fields for id, row in self.rows(ids).items()}

    def __len__(self) -> int:
        return self.count() if self.as_opened() else 0
