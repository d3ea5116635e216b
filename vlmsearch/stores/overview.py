"""All documents of an index at once, as arrays: for counts, facets and orders by a key of the metadata.

A store that has its index in memory can give what the fields of a query say of every document. It makes no object of a
document for that. Documents and passages have places, counted from 0, and every array has an entry for each place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vlmsearch.stores.filters import Filter
from vlmsearch.stores.versions import HitContent
from vlmsearch.types import Field, Scalar, Vectors

Places = NDArray[np.int64]


class Cosines(Protocol):
    """The cosines of a field with a query, as codes tell them. Places that are given rise."""

    def leading(self, count: int) -> Places:
        """Return the places of about so many documents, probably the nearest ones."""

    def above(self, cosines: NDArray[np.float64], kinds: NDArray[np.uint8]) -> Places:
        """Return the places of all documents whose cosine may be that of their kind, or more.

        ``kinds`` has the place in ``cosines`` of each document's.
        """

    def at(self, places: Places) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the cosines of documents and their errors at most. Those without a vector have NaN."""

    def ranks(self, places: Places) -> NDArray[np.int64]:
        """Return the rank of documents among those that pass, from 1. It is 0 where the field does not find them."""


class Overview(Protocol):
    """All documents of an index at one moment.

    Attributes:
        passing: For each place, whether its document or passage is there and passes the filter.
    """

    passing: NDArray[np.bool_]

    def narrow(self, passing: NDArray[np.bool_]) -> None:
        """Let those alone pass, of the places that pass, which these are."""

    def cosines(self, field: Field, query: Vectors) -> Cosines:
        """Return the cosines of a field with a query of shape (dim,)."""

    def has(self, fields: Collection[Field]) -> NDArray[np.bool_]:
        """Return for each place whether its document has a vector of any of these fields. Do not change it."""

    def exact(self, field: Field, query: Vectors, places: Places) -> NDArray[np.float32]:
        """Return the exact cosines of documents with a query. Those without a vector of the field have NaN."""

    def words(self, query: str) -> tuple[NDArray[np.float32], float]:
        """Return the BM25 of all documents, and the most that one could have. It is 0 where they share no word."""

    def places_of(self, ids: Collection[str]) -> Places:
        """Return the places of those documents that are there."""

    def ids(self, places: Sequence[int]) -> list[str]:
        """Return the ids of documents or passages."""

    def documents(self, places: Sequence[int]) -> list[HitContent]:
        """Return the documents or passages there."""

    def texts(self, places: Sequence[int]) -> list[str]:
        """Return the texts whose words are those of documents or passages."""

    def groups(self, *, by_file: bool) -> NDArray[np.int64] | None:
        """Return for each place the number of its document, or of its file: None where each is alone."""

    def documents_passing(self) -> Places:
        """Return the places of the documents that pass, without their passages."""

    def facet(self, key: str, places: Places) -> Mapping[Scalar, int]:
        """Count the values of a key of the metadata, the most frequent first, then by value."""

    def sort_keys(self, key: str, places: Places, *, falls: bool) -> list[NDArray[np.float64]]:
        """Return arrays by which documents are sorted by a key. `numpy.lexsort` takes them, the last one first."""


@runtime_checkable
class Preloads(Protocol):
    """A store that keeps in memory what it compares."""

    def preload(self) -> None:
        """Read that into memory: for the stores of this index that this process and those forked from it open next."""


@runtime_checkable
class HasOverview(Protocol):
    """A store that gives an `Overview`."""

    def overview(
        self, fields: Collection[Field | str], where: Filter | None, keys: Collection[str]
    ) -> AbstractContextManager[Overview]:
        """Give all documents of one moment.

        Args:
            fields: The fields that are asked, ``words`` among them.
            where: Filter on the metadata.
            keys: Keys of the metadata that facets and orders are asked of.
        """


@runtime_checkable
class OverviewsWithin(HasOverview, Protocol):
    """A store that gives an `Overview` of some documents, as an index of these alone would."""

    def overview_within(
        self, fields: Collection[Field | str], where: Filter | None, keys: Collection[str], scope: Filter
    ) -> AbstractContextManager[Overview]:
        """Give all documents of one moment that pass ``scope``; the words of others count nowhere.

        Args:
            fields: The fields that are asked, ``words`` among them.
            where: Filter on the metadata.
            keys: Keys of the metadata that facets and orders are asked of.
            scope: Filter that says which documents there are.
        """
