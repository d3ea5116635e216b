"""Documents in a database: what all stores over one share, whatever the database is.

A back end says how rows are read and vectors are compared. What is checked beforehand, and what is answered while there
is no index yet, stands here once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlmsearch.stores.base import dim_of, drawn_ids
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.generations import GenerationalStore, Slot
from vlmsearch.stores.samples import VectorSamples
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.types import Document, Field, Hit, Stamp, Vectors


@dataclass(frozen=True)
class DocumentState:
    """What a database says of a document beside its content."""

    stamp: Stamp
    version: str
    """Another one after every write of the document."""
    fields: frozenset[Field]
    """The fields that the document has a vector of."""


@dataclass(frozen=True)
class DocumentRow(DocumentState):
    """A document with its state, both of one moment."""

    document: Document


class DatabaseStore(GenerationalStore):
    """A store of documents in a database, each in one version at a time."""

    def start_at(self, slot: Slot) -> None:
        """Begin without an open index."""
        super().start_at(slot)
        self._samples = VectorSamples()

    # ---- what a back end has; there is an index when these are called

    @abstractmethod
    def read_states(self, ids: Collection[str]) -> Mapping[str, DocumentState]:
        """Read the states of documents, by id."""

    @abstractmethod
    def read_rows(self, ids: Collection[str]) -> Mapping[str, DocumentRow]:
        """Read documents, by id."""

    @abstractmethod
    def find_nearest(
        self, field: Field, vectors: Vectors, limit: int, where: Filter | None
    ) -> Sequence[Sequence[VersionedHit]]:
        """Find the nearest documents of each query, best first; equal cosines are in the order of the ids."""

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

    def draw(self, field: Field, count: int) -> Iterable[NDArray[np.float32]]:
        """Read the vectors of documents that are chosen at random."""
        return self.vectors_of(field, drawn_ids(self, field, count))

    def sampled_state(self) -> Hashable:
        """Return a value that differs when a sample may have changed."""
        return self.generation, self.writes_here, self.count()

    # ---- searching

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        """Find the nearest documents by cosine; equal cosines are in the order of the ids."""
        manifest = self.as_opened()
        if manifest is None or not len(vectors) or limit < 1:
            return [[] for _ in vectors]
        dim_of(self.name, manifest.spaces, field)
        return list(map(list, self.find_nearest(field, vectors, limit, where)))

    def compare(self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Compare given documents with a query, as they are now; equal cosines are in the order of the ids."""
        manifest = self.as_opened()
        if manifest is None or not ids:
            return []
        dim_of(self.name, manifest.spaces, field)
        return list(self.compare_vectors(field, vectors, ids, where))

    def sample(self, field: Field, count: int) -> Vectors:
        """Return vectors of documents that are chosen at random, the same ones while the index does not change."""
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
        rows = self.read_rows(ids) if self.as_opened() else {}
        return [rows[id].document for id in ids if id in rows]

    def get_versions(self, versions: Mapping[str, str]) -> dict[str, Document]:
        """Return the documents that are still of the version given for their ids."""
        rows = self.read_rows(list(versions)) if self.as_opened() else {}
        return {id: row.document for id, row in rows.items() if row.version == versions[id]}

    def states(self, ids: Collection[str]) -> Mapping[str, DocumentState]:
        """Return the states of documents, by id; none where there is no index yet."""
        return self.read_states(ids) if self.as_opened() else {}

    def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
        """Return the stamps of documents, by id."""
        return {id: state.stamp for id, state in self.states(ids).items()}

    def fields(self, ids: Sequence[str]) -> dict[str, frozenset[Field]]:
        """Return the fields that documents have a vector of, by id."""
        return {id: state.fields for id, state in self.states(ids).items()}

    def __len__(self) -> int:
        return self.count() if self.as_opened() else 0
