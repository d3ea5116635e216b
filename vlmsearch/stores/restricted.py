"""A store as those see it who may read some of its documents alone.

There is one wrapper for all stores. It puts its condition under every method of `Store`, and under every protocol that
it knows; a protocol that it does not know is not there. What has no condition of its own, such as `Store.fields`, is
asked for readable ids alone. A document that is not readable is one that is not there.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from vlmsearch._util.batching import PAGE, batches
from vlmsearch.errors import InvalidInputError, apply_to_each
from vlmsearch.stores.base import CountsWords, Store, drawn_ids
from vlmsearch.stores.filters import Filter, both, keys_of
from vlmsearch.stores.listing import ListsPages, Outline, ReadsKeys, all_documents, count_documents, documents_after
from vlmsearch.stores.overview import Overview, OverviewsWithin
from vlmsearch.stores.readers import ChecksWrites, CountsWithin, RanksWithin, SamplesWithin, check_writable, passing
from vlmsearch.stores.versions import HitContent, ReadsVersions
from vlmsearch.types import (
    Document,
    Field,
    Hit,
    Manifest,
    MetadataChange,
    Record,
    Space,
    Vectors,
    WordHits,
    document_of,
    possible_ids,
)


class RestrictedStore(Store):
    """The readable documents of a store. Closing it closes nothing.

    Args:
        store: The store.
        scope: The filter that readable documents pass.
    """

    def __init__(self, store: Store, scope: Filter) -> None:
        self.name = store.name
        self.is_served = store.is_served
        self._store = store
        self._scope = scope

    def _within(self, where: Filter | None) -> Filter:
        return both(self._scope, where) or self._scope

    # ---- the index

    def as_opened(self) -> Manifest | None:
        """Return the manifest of the open index, without what is computed of all texts."""
        return _without_statistics(self._store.as_opened())

    def bind(self, fingerprint: str, spaces: Sequence[Space]) -> None:
        """Make the store ready."""
        self._store.bind(fingerprint, spaces)

    def manifest(self) -> Manifest | None:
        """Return the manifest of the index, without what is computed of all its texts."""
        return _without_statistics(self._store.manifest())

    def places(self) -> tuple[Path, ...]:
        """Return the files and folders of this machine that hold the index."""
        return self._store.places()

    # ---- writing

    def upsert(self, records: Sequence[Record]) -> None:
        """Add or replace records; InvalidBatchError for those that the writer could not read before or after.

        So it is with new parts of a file that the writer cannot read: they would have other readers than the file.
        """
        self._check_parts(
            {record.document.id: part.of for record in records if (part := record.document.part)}, records
        )
        if isinstance(self._store, ChecksWrites):
            self._store.upsert_within(records, self._scope)
            return
        there = self._store.get(possible_ids(record.document.id for record in records))
        check_writable(records, {document.id: document.metadata for document in there}, self._scope)
        self._store.upsert(records)

    def _check_parts(self, files: Mapping[str, str], records: Sequence[Record]) -> None:
        stored = {document.id: document for document in self._store.get(possible_ids({*files, *files.values()}))}
        hidden = {id for id, document in stored.items() if not self._scope.matches(document.metadata)}

        def check(record: Record) -> None:
            id = record.document.id
            if files.get(id) in hidden and id not in stored:
                raise InvalidInputError("invalid", f"{id!r} is a part of another document: choose another id")

        apply_to_each(check, records if hidden else ())

    def update_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace the metadata of readable documents that are still as they were read."""
        changes = [change for change in changes if self._scope.matches(change.document.metadata)]
        check_writable([Record(change.of(change.document), {}) for change in changes], {}, self._scope)
        return self._store.update_metadata(changes)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove readable documents, and return how many were there."""
        if isinstance(self._store, ChecksWrites):
            return self._store.delete_within(ids, self._scope)
        return self._store.delete(self._readable(ids))

    # ---- searching

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        """Find the nearest readable documents or passages."""
        return self._store.search(field, vectors, limit=limit, where=self._within(where))

    def compare(self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Compare given documents or passages, where they are readable."""
        return self._store.compare(field, vectors, ids, self._within(where))

    def sample_ids(self, field: Field, count: int) -> list[str]:
        """Return ids of readable documents or passages that are chosen at random, by their ids."""
        if isinstance(self._store, SamplesWithin):
            return self._store.sample_ids_within(field, count, self._scope)
        return drawn_ids(self, field, count)

    # ---- reading

    def get(self, ids: Sequence[str]) -> list[Document]:
        """Return the readable ones of documents or passages."""
        return passing(self._store.get(ids), self._scope)

    def _readable(self, ids: Sequence[str]) -> list[str]:
        readable = {document.id for document in self.get(list(dict.fromkeys(map(document_of, ids))))}
        return [id for id in ids if document_of(id) in readable]

    def records(self, ids: Sequence[str]) -> list[Record]:
        """Return the records of readable documents."""
        return [record for record in self._store.records(ids) if self._scope.matches(record.document.metadata)]

    def fields(self, ids: Sequence[str]) -> dict[str, frozenset[Field]]:
        """Return the fields that readable documents or passages have a vector in."""
        return self._store.fields(self._readable(ids))

    def ids(self) -> Iterator[str]:
        """Iterate over the ids of readable documents."""
        if isinstance(self._store, ReadsKeys):
            outlines = self._store.outlines(keys_of(self._scope), self._scope)
            yield from (outline.id for outline in outlines if self._scope.matches(outline.metadata))
        else:
            yield from (document.id for document in all_documents(self._store, self._scope))

    def row_ids(self) -> Iterator[str]:
        """Iterate over the ids of readable documents without passages, and of their passages."""
        for ids in batches(self._store.row_ids(), PAGE):
            yield from self._readable(ids)

    def __len__(self) -> int:
        if isinstance(self._store, CountsWithin):
            return self._store.count_within(self._scope)
        total = count_documents(self._store, (), self._scope).total
        return sum(1 for _ in self.ids()) if total is None else total


class _WithWords:
    """The words of readable documents."""

    _store: Any
    _scope: Filter

    @property
    def _words(self) -> CountsWords:
        words: CountsWords = self._store.words_within(self._scope)
        return words

    def search_words(self, query: str, *, limit: int, where: Filter | None = None) -> WordHits:
        """Find the readable documents whose words fit a query best."""
        return self._words.search_words(query, limit=limit, where=where)

    def compare_words(self, query: str, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Score given documents by their words, where they are readable."""
        return self._words.compare_words(query, ids, where)

    def count_words(self, words: Sequence[str]) -> list[int]:
        """Count the readable texts that hold words."""
        return self._words.count_words(words)


class _WithVersions:
    """The versions of readable documents."""

    _store: Any
    _scope: Filter

    def get_versions(self, versions: Mapping[str, str]) -> dict[str, HitContent]:
        """Return the contents of readable hits that are still of their version."""
        contents: dict[str, HitContent] = self._store.get_versions(versions)
        return {id: hit for id, hit in contents.items() if self._scope.matches(hit.document.metadata)}


class _WithOverview:
    """All readable documents at once."""

    _store: Any
    _scope: Filter

    def overview(
        self, fields: Collection[Field | str], where: Filter | None, keys: Collection[str]
    ) -> AbstractContextManager[Overview]:
        """Give all readable documents of one moment."""
        looking: AbstractContextManager[Overview] = self._store.overview_within(fields, where, keys, self._scope)
        return looking


class _WithPages:
    """Pages of readable documents."""

    _store: Any
    _scope: Filter

    def documents_after(self, id: str, count: int, where: Filter | None = None) -> list[Document]:
        """Return the next readable documents behind an id that pass a filter, by id."""
        return documents_after(self._store, id, count, both(self._scope, where))


class _WithKeys:
    """Some keys of readable documents."""

    _store: Any
    _scope: Filter

    def outlines(self, keys: Collection[str], where: Filter | None = None) -> Iterator[Outline]:
        """Yield the outlines of readable documents that pass a filter, and perhaps of other readable ones."""
        for outline in self._store.outlines({*keys, *keys_of(self._scope)}, both(self._scope, where)):
            if self._scope.matches(outline.metadata):
                yield outline


def restricted_store(store: Store, scope: Filter) -> Store:
    """Return a store with the documents alone that pass a filter.

    Args:
        store: The store. Its words are ranked where it is `RanksWithin`.
        scope: The filter.

    Returns:
        The store over the same connections, with those protocols of the other that keep to the filter.

    Example:
        >>> from vlmsearch.registry import open_store
        >>> from vlmsearch.stores.readers import readable
        >>> with open_store("mock:") as store:
        ...     store.bind("tiny:1", [Space("tiny", 2, frozenset({"text"}))])
        ...     store.upsert([Record(Document("a", readers=["group:hr"]), {}), Record(Document("b"), {})])
        ...     len(store), list(restricted_store(store, readable([])).ids())
        (2, ['b'])
    """
    return _kind_of(tuple(part for protocol, part in _PARTS if isinstance(store, protocol)))(store, scope)


_PARTS: tuple[tuple[type, type], ...] = (
    (RanksWithin, _WithWords),
    (ReadsVersions, _WithVersions),
    (OverviewsWithin, _WithOverview),
    (ListsPages, _WithPages),
    (ReadsKeys, _WithKeys),
)
"""The protocols that keep to a filter, and what has them."""


@functools.cache
def _kind_of(parts: tuple[type, ...]) -> type[RestrictedStore]:
    return type("RestrictedStore", (*parts, RestrictedStore), {})


def _without_statistics(manifest: Manifest | None) -> Manifest | None:
    return None if manifest is None else replace(manifest, statistics={})
