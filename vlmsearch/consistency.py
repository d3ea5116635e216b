"""Reading the documents of hits, each in the version that was found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from vlmsearch.types import Document, Hit

if TYPE_CHECKING:
    from vlmsearch.stores.base import Store


@dataclass(frozen=True, eq=False)
class VersionedHit(Hit):
    """A hit that knows which version of the document it is of."""

    version: str = ""


@runtime_checkable
class Versioned(Protocol):
    """A store whose hits have a ``version``, and that can read documents by it."""

    def get_versions(self, versions: Mapping[str, str]) -> dict[str, Document]:
        """Those documents that are still of the version that is given for their id."""


def read_documents(store: Store, ids: Collection[str], hits: Iterable[Hit]) -> tuple[dict[str, Document], bool]:
    """The documents with these ids, and whether one of them was replaced or deleted since it was found.

    A store that is not `Versioned` is asked for what it has now.
    """
    if not isinstance(store, Versioned):
        documents = {document.id: document for document in store.get(list(ids))}
        return documents, False
    versions: dict[str, set[str]] = {id: set() for id in ids}
    for hit in hits:
        if hit.id in versions:
            versions[hit.id].add(getattr(hit, "version", ""))
    documents = store.get_versions({id: each.pop() for id, each in versions.items() if len(each) == 1})
    return documents, len(documents) < len(versions)
