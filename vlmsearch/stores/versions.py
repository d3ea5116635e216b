"""Reading the documents of hits, each in the version that was found, while others may write."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from vlmsearch.types import PASSAGE, Document, Field, Hit, Passage, document_of

if TYPE_CHECKING:
    from vlmsearch.stores.base import Store


@dataclass(frozen=True, eq=False)
class VersionedHit(Hit):
    """A hit that knows which version of the document it is of.

    Attributes:
        version: The version; "" where the store tells none.
        fields: The fields that this version has a vector of; None where the hit does not tell.
    """

    version: str = ""
    fields: frozenset[Field] | None = None


class HitContent(NamedTuple):
    """The content of a hit.

    Attributes:
        document: The document, whole.
        passage: The passage of it that was hit; None for a document without passages.
    """

    document: Document
    passage: Passage | None = None


@runtime_checkable
class ReadsVersions(Protocol):
    """A store whose hits have a ``version``, and that can read documents by it."""

    def get_versions(self, versions: Mapping[str, str]) -> dict[str, HitContent]:
        """Return the contents, by id, of the hits that are still of their version."""


def read_documents(store: Store, ids: Collection[str], hits: Iterable[Hit]) -> dict[str, HitContent]:
    """Return the contents, by id, of those hits that were not replaced or deleted since.

    A store that is not `ReadsVersions` gives what it has now.
    """
    if not isinstance(store, ReadsVersions):
        return read_current(store, ids)
    wanted, versions, several = set(ids), dict[str, str](), set[str]()
    for hit in hits:
        if hit.id in wanted:
            version = getattr(hit, "version", "")
            if versions.setdefault(hit.id, version) != version:
                several.add(hit.id)
    return store.get_versions({id: version for id, version in versions.items() if id not in several})


def read_current(store: Store, ids: Collection[str]) -> dict[str, HitContent]:
    """Return documents or passages as they are now, each with its whole document."""
    documents = {document.id: document for document in store.get(list(dict.fromkeys(map(document_of, ids))))}
    passages = named_passages(store, ids)
    there = [id for id in ids if document_of(id) in documents and (id in documents or id in passages)]
    return {id: HitContent(documents[document_of(id)], passages.get(id)) for id in there}


def named_passages(store: Store, ids: Iterable[str]) -> dict[str, Passage]:
    """Return those passages of a store that ids name, by their ids."""
    named = {id for id in ids if PASSAGE in id}
    known = store.passages(list({document_of(id) for id in named})) if named else {}
    return {own: part for id, some in known.items() for part in some if (own := f"{id}{PASSAGE}{part.number}") in named}


def compare_again(
    hits: Sequence[Hit], changed: Collection[str], compare: Callable[[Collection[str]], list[Hit]], *, is_full: bool
) -> list[Hit]:
    """Replace the hits of documents that have changed by what ``compare`` finds now.

    Where the ranking ``is_full``, there may be more documents than hits: one behind the last hit has no known rank.
    """
    min_score = hits[-1].score if is_full else -math.inf
    kept = [hit for hit in hits if hit.id not in changed]
    kept += [hit for hit in compare(changed) if hit.score >= min_score]
    return sorted(kept, key=lambda hit: (-hit.score, hit.id))
