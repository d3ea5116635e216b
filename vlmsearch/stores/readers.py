"""Who may read a document: the condition that a restricted handle puts on everything, and what stores do for it.

The readers of a document are names in its metadata: see `vlmsearch.types.Document.readers`. So every store keeps them,
and every filter sees them. What a search says of the documents that pass must not depend on the others: words have to
be counted, samples drawn and writes checked among the readable ones alone. That is what the protocols here are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from vlmsearch.errors import InvalidInputError, apply_to_each
from vlmsearch.principals import principal_names
from vlmsearch.stores.base import CountsWords, Store
from vlmsearch.stores.filters import Comparison, Filter
from vlmsearch.stores.label_keys import split_labels, with_labels
from vlmsearch.types import READERS, Document, Field, MetadataValue, Record


def readable(principals: Iterable[str]) -> Comparison:
    """Return the filter that passes the documents which some principals may read.

    Args:
        principals: Names, such as ``user:ann`` and ``group:hr``; without any, documents of everyone pass.

    Returns:
        The filter.

    Raises:
        TypeError: They are no strings.
        ConfigError: A name is too long, or there are more than 10,000.

    Example:
        >>> hr = readable(["user:ann", "group:hr"])
        >>> hr.matches(Document("a", readers=["group:hr"]).metadata), hr.matches(Document("b", readers=[]).metadata)
        (True, False)
    """
    return Comparison(READERS, "$in", principal_names(principals), or_absent=True)


def keep_readers(records: Sequence[Record], stored: Mapping[str, Mapping[str, MetadataValue]]) -> list[Record]:
    """Return records with the readers that an index has for those which name none.

    Args:
        records: The records that are written.
        stored: The metadata that the index has now, by id.

    Returns:
        The records, with the digests that belong to their readers.
    """
    return [_keeping(record, stored.get(record.document.id, {}).get(READERS)) for record in records]


def _keeping(record: Record, readers: MetadataValue | None) -> Record:
    metadata = record.document.metadata
    if readers is None or READERS in metadata:
        return record
    metadata = {**metadata, READERS: readers}
    stamp = replace(record.stamp, digest=with_labels(record.stamp.digest, split_labels(metadata)[1]))
    return replace(record, document=replace(record.document, metadata=metadata), stamp=stamp)


def keep_file_readers(records: Sequence[Record], store: Store) -> list[Record]:
    """Return records in which new parts have the readers of their files.

    Parts that name readers have these.

    Args:
        records: The records that are written.
        store: Where the files are that are not among them.

    Returns:
        The records, with the digests that belong to their readers.
    """
    files = {record.document.id: part.of for record in records if (part := record.document.part)}
    stored = {document.id: document.metadata for document in store.get(list({*files, *files.values()}))}
    there = stored | {record.document.id: record.document.metadata for record in keep_readers(records, stored)}
    return keep_readers(records, {id: there[of] for id, of in files.items() if id not in stored and of in there})


def check_writable(records: Sequence[Record], stored: Mapping[str, Mapping[str, MetadataValue]], scope: Filter) -> None:
    """Raise InvalidBatchError that names the records which a restricted writer may not write.

    Args:
        records: The records.
        stored: The metadata that the index has now of their ids.
        scope: What the writer may read: what is replaced, and what comes in its place.
    """

    def check(record: Record) -> None:
        document = record.document
        if document.id in stored and not scope.matches(stored[document.id]):
            raise InvalidInputError("invalid", f"{document.id!r} is the id of another document: choose another id")
        if not scope.matches(document.metadata):
            raise InvalidInputError("invalid", f"{document.id!r} has readers, and its writer is none of them")

    apply_to_each(check, keep_readers(records, stored))


@runtime_checkable
class RanksWithin(Protocol):
    """A store that ranks words among some documents as an index of these alone would."""

    def words_within(self, scope: Filter) -> CountsWords:
        """Return the words of the documents that pass a filter; those of others count nowhere."""


@runtime_checkable
class SamplesWithin(Protocol):
    """A store that draws samples of some documents without reading the ids of all."""

    def sample_ids_within(self, field: Field, count: int, scope: Filter) -> list[str]:
        """Return ids of rows that pass and have a field, the smallest sampling keys first."""


@runtime_checkable
class CountsWithin(Protocol):
    """A store that counts some documents without reading all."""

    def count_within(self, scope: Filter) -> int:
        """Return how many documents pass a filter."""


@runtime_checkable
class ChecksWrites(Protocol):
    """A store that checks, in the step that writes, what it replaces."""

    def upsert_within(self, records: Sequence[Record], scope: Filter) -> None:
        """Add or replace records as `Store.upsert` does, where `check_writable` lets them pass."""

    def delete_within(self, ids: Sequence[str], scope: Filter) -> int:
        """Remove the documents among ``ids`` that pass a filter, and return how many there were."""


def passing(documents: Iterable[Document], scope: Filter) -> list[Document]:
    """Return the documents that pass a filter."""
    return [document for document in documents if scope.matches(document.metadata)]
