"""All documents of a store: by their ids, or as people look through them, page by page; and their counts."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from vlmsearch._util.batching import pages
from vlmsearch._util.plain import check_keys
from vlmsearch._util.tables import suggest
from vlmsearch.stores.filters import Filter, keys_of, values_of
from vlmsearch.types import Document, MetadataValue, Scalar, part_of

if TYPE_CHECKING:
    from vlmsearch.stores.base import Store

_PAGE = 1000
_MAX_READ = 10_000
"""The highest number of documents that are read whole.

They are read to put them in another order, or to count what they have.
"""


@runtime_checkable
class ListsPages(Protocol):
    """A store that finds a page of its documents without reading the ids of all."""

    def documents_after(self, id: str, count: int, where: Filter | None = None) -> list[Document]:
        """Return the next documents behind an id that pass a filter, by id."""


class Outline(NamedTuple):
    """A document without its content.

    Attributes:
        id: Id of the document.
        has_image: Whether it has an image.
        metadata: Values of the keys that were asked for, where it has them. Numbers compare as doubles.
    """

    id: str
    has_image: bool
    metadata: Mapping[str, MetadataValue]


@runtime_checkable
class ReadsKeys(Protocol):
    """A store that reads some keys of all documents without reading the documents."""

    def outlines(self, keys: Collection[str], where: Filter | None = None) -> Iterator[Outline]:
        """Yield the outlines of documents that pass a filter, and perhaps of others."""


class GalleryPlace(NamedTuple):
    """The place of a document among those that people look through. It orders by its fields.

    Attributes:
        group: 0 for a document with an image, 1 for one without, 2 for a part of a file, which is shown with the file.
        older: The key of the metadata by which the newest come first, as a falling number; 0 without one.
        id: Id of the document.
    """

    group: int
    older: float
    id: str


@dataclass(frozen=True)
class Counts:
    """The numbers of documents that pass a filter.

    Attributes:
        total: Number of documents; None where the store cannot count without reading too many of them.
        values: Number of documents by value, for each key that was asked for; the most frequent first.
    """

    total: int | None
    values: Mapping[str, Mapping[Scalar, int]]


def documents_after(store: Store, id: str, count: int, where: Filter | None = None) -> list[Document]:
    """Return a page of all documents, in the order of their ids.

    Args:
        store: The store; all its ids are read unless it is `ListsPages`.
        id: The id at the end of the page before; "" for the first page.
        count: Documents at most.
        where: Filter on the metadata.

    Returns:
        The next documents; fewer than ``count`` where there are no more.
    """
    if isinstance(store, ListsPages):
        return store.documents_after(id, count, where)
    remaining = (other for other in store.ids() if other > id)
    if where is None:
        return _in_order(store, heapq.nsmallest(count, remaining))
    ids = sorted(remaining)
    some = (_in_order(store, ids[at : at + _PAGE]) for at in range(0, len(ids), _PAGE))
    return list(islice((document for page in some for document in page if where.matches(document.metadata)), count))


def all_documents(store: Store, where: Filter | None = None) -> Iterator[Document]:
    """Yield the documents that pass a filter, by id. They are read page by page."""
    last = ""
    while page := documents_after(store, last, _PAGE, where):
        yield from page
        last = page[-1].id


def gallery_after(
    store: Store, after: GalleryPlace | None, count: int, newest: str, where: Filter | None = None
) -> list[tuple[GalleryPlace, Document]]:
    """Return a page of all documents as people look through them: pictures first, and the newest first.

    A store that is not `ReadsKeys` and has more than 10,000 documents gives them in the order of their ids.

    Args:
        store: The store.
        after: The place at the end of the page before; None for the first page.
        count: Documents at most.
        newest: The key of the metadata by which the newest come first.
        where: Filter on the metadata.

    Returns:
        The next documents with their places; fewer than ``count`` where there are no more.
    """
    if not _reads_outlines(store):
        page = documents_after(store, after.id if after else "", count, where)
        return [(GalleryPlace(0, 0.0, document.id), document) for document in page]
    outlines = outlines_of(store, {newest}, where)
    places = (_place(outline, newest) for outline in outlines)
    first = heapq.nsmallest(count, places if after is None else (place for place in places if place > after))
    documents = {document.id: document for document in store.get([place.id for place in first])}
    return [(place, documents[place.id]) for place in first if place.id in documents]


def count_documents(store: Store, keys: Collection[str], where: Filter | None = None) -> Counts:
    """Count the documents that pass a filter, and the values that they have.

    Args:
        store: The store; nothing is counted where it is not `ReadsKeys` and has more than 10,000 documents.
        keys: Keys of the metadata whose values are counted.
        where: Filter on the metadata.
    """
    from vlmsearch.stores.overview import HasOverview  # loads numpy, which what prints an index may not need

    check_keys("a facet", *keys)
    if isinstance(store, HasOverview):
        with store.overview((), where, keys) as overview:
            places = overview.documents_passing()
            return Counts(len(places), {key: overview.facet(key, places) for key in keys})
    if not _reads_outlines(store):
        return Counts(None if where else len(store), {key: {} for key in keys})
    total, counters = 0, {key: Counter[Scalar]() for key in keys}
    for outline in outlines_of(store, keys, where):
        total += 1
        for key in counters.keys() & outline.metadata.keys():
            counters[key].update(values_of(outline.metadata[key]))
    return Counts(total, {key: dict(counts.most_common()) for key, counts in counters.items()})


def unknown_keys(store: Store, where: Filter) -> dict[str, str]:
    """Return the keys of a filter that no document has, each with a line about it.

    The line names the keys of the first documents.
    """
    if not _reads_outlines(store):
        return {}
    known = {key for document in documents_after(store, "", _PAGE) for key in document.metadata}
    unknown = keys_of(where) - known
    if unknown:
        unknown -= {key for outline in outlines_of(store, unknown) for key in outline.metadata}
    listed = f"there are {', '.join(sorted(known)[:10])}" if known else "documents have no metadata"
    return {key: f"No document has the key {key!r}; {suggest(key, known)}{listed}" for key in sorted(unknown)}


def _reads_outlines(store: Store) -> bool:
    return isinstance(store, ReadsKeys) or len(store) <= _MAX_READ


def outlines_of(store: Store, keys: Collection[str], where: Filter | None = None) -> Iterator[Outline]:
    """Yield the outlines of the documents that pass a filter."""
    wanted = {*keys, *(keys_of(where) if where else ())}
    if isinstance(store, ReadsKeys):
        outlines = store.outlines(wanted, where)
    else:
        documents = (document for some in pages(list(store.ids())) for document in store.get(some))
        outlines = (Outline(read.id, read.image is not None, read.metadata) for read in documents)
    return (outline for outline in outlines if where is None or where.matches(outline.metadata))


def _place(outline: Outline, newest: str) -> GalleryPlace:
    value = outline.metadata.get(newest)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_part = "#" in outline.id and part_of(outline.id) is not None
    group = 2 if is_part else 0 if outline.has_image else 1
    return GalleryPlace(group, -float(value) if is_number else 0.0, outline.id)  # type: ignore[arg-type]


def _in_order(store: Store, ids: list[str]) -> list[Document]:
    return sorted(store.get(ids), key=attrgetter("id"))
