"""All documents of a store, page by page in the order of their ids."""

from __future__ import annotations

import heapq
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from vlmsearch.stores.filters import Filter
from vlmsearch.types import Document

if TYPE_CHECKING:
    from vlmsearch.stores.base import Store

_PAGE = 1000


@runtime_checkable
class Listed(Protocol):
    """A store that finds a page of its documents without reading the ids of all."""

    def documents_after(self, id: str, count: int, where: Filter | None = None) -> list[Document]:
        """Return the next documents behind an id that pass a filter, in the order of their ids."""


def documents_after(store: Store, id: str, count: int, where: Filter | None = None) -> list[Document]:
    """Return a page of all documents, in the order of their ids.

    Args:
        store: The store; all its ids are read unless it is `Listed`.
        id: The id at the end of the page before; "" for the first page.
        count: Documents at most.
        where: Filter on the metadata.

    Returns:
        The next documents; fewer than ``count`` where there are no more.
    """
    if isinstance(store, Listed):
        return store.documents_after(id, count, where)
    remaining = (other for other in store.ids() if other > id)
    if where is None:
        return _in_order(store, heapq.nsmallest(count, remaining))
    ids = sorted(remaining)
    some = (_in_order(store, ids[at : at + _PAGE]) for at in range(0, len(ids), _PAGE))
    return list(islice((document for page in some for document in page if where.matches(document.metadata)), count))


def _in_order(store: Store, ids: list[str]) -> list[Document]:
    return sorted(store.get(ids), key=attrgetter("id"))
