"""Reading the documents of hits, each in the version that was found, while others may write."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from vlmsearch.stores.filters import Filter
from vlmsearch.types import Document, Field, Hit, Vectors

if TYPE_CHECKING:
    from vlmsearch.stores.base import Store, WordSearch


@dataclass(frozen=True, eq=False)
class VersionedHit(Hit):
    """A hit that knows which version of the document it is of."""

    version: str = ""


@runtime_checkable
class Versioned(Protocol):
    """A store whose hits have a ``version``, and that can read documents by it and compare some of them again."""

    def get_versions(self, versions: Mapping[str, str]) -> dict[str, Document]:
        """Those documents that are still of the version that is given for their id."""

    def hits_of(self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None) -> list[VersionedHit]:
        """Those of the documents ``ids`` that pass ``where``, compared with the one query vector as they are now."""


def read_documents(store: Store, ids: Collection[str], hits: Iterable[Hit]) -> dict[str, Document]:
    """The documents with these ids that were not replaced or deleted since they were found.

    A store that is not `Versioned` is asked for what it has now.
    """
    if not isinstance(store, Versioned):
        return {document.id: document for document in store.get(list(ids))}
    versions: dict[str, set[str]] = {id: set() for id in ids}
    for hit in hits:
        if hit.id in versions:
            versions[hit.id].add(getattr(hit, "version", ""))
    return store.get_versions({id: each.pop() for id, each in versions.items() if len(each) == 1})


def compare_again(
    store: Store,
    field: Field,
    vectors: Vectors,
    hits: Sequence[Hit],
    changed: Collection[str],
    where: Filter | None,
    *,
    is_full: bool,
) -> list[Hit]:
    """``hits`` with those of the documents that have ``changed`` as they are now.

    ``is_full``: there may be more documents than hits, so that nobody knows the rank of one that comes after the last.
    """
    kept = [hit for hit in hits if hit.id not in changed]
    if isinstance(store, Versioned):
        least = hits[-1].score if is_full else -math.inf
        kept += [hit for hit in store.hits_of(field, vectors, changed, where) if hit.score >= least]
    return sorted(kept, key=lambda hit: (-hit.score, hit.id))


def rank_again(
    store: WordSearch, query: str, hits: Sequence[Hit], changed: Collection[str], where: Filter | None, *, limit: int
) -> list[Hit]:
    """``hits`` of words with those of the documents that have ``changed`` as they are now."""
    kept = [hit for hit in hits if hit.id not in changed]
    kept += [hit for hit in store.search_words(query, limit=limit, where=where).hits if hit.id in changed]
    return sorted(kept, key=lambda hit: (-hit.score, hit.id))
