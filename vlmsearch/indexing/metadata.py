"""Change the metadata of documents that are in an index: their vectors stay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from vlmsearch._util.batching import pages
from vlmsearch._util.plain import plain_value
from vlmsearch.errors import BackendUnavailableError, ConfigError
from vlmsearch.indexing.containers import with_parts
from vlmsearch.stores.base import Store
from vlmsearch.stores.label_keys import with_labels
from vlmsearch.types import READERS, MetadataChange, MetadataValue, check_metadata, part_of, reader_names

_TRIES = 20
"""Tries to change a document that others change meanwhile."""


def change_metadata(store: Store, ids: Sequence[str], values: Mapping[str, object], unset: Collection[str] = ()) -> int:
    """Set and take off keys of documents' metadata.

    Indexing the source of a document again keeps what was changed while nothing of the source changes, as with labels.
    A document that others change meanwhile is read again, and the keys are set in what they wrote.

    Readers belong to a file: where ``readers`` are set or taken off, so they are on the file and on all of its parts.

    Args:
        store: Where the documents are.
        ids: The ids of the documents; unknown ids are passed over.
        values: Values by their keys.
        unset: Keys to take off; keys that a document lacks are passed over.

    Returns:
        The number of documents that have changed.

    Raises:
        ConfigError: A key is both set and taken off.
        InvalidInputError: A document cannot have such metadata.
        BackendUnavailableError: Others kept changing the documents: some may have their new metadata already.
        BackendError: The store failed.
    """
    both = sorted(values.keys() & unset)
    if both:
        raise ConfigError(f"the key {both[0]!r} is in `set` and in `unset`: give it in one of them")
    new: dict[str, MetadataValue] = {key: plain_value(value) for key, value in values.items()}
    if isinstance(names := values.get(READERS), (list, tuple, set, frozenset)):
        new[READERS] = reader_names(names)
    check_metadata(new)
    given = frozenset(ids)
    if READERS in new or READERS in unset:
        ids = with_parts(store, [*ids, *(part.of for id in given if (part := part_of(id)))])

    def changes(some: Sequence[str]) -> list[MetadataChange]:
        changed: list[MetadataChange] = []
        for record in store.records(some):
            before = record.document.metadata
            keys = new.keys() | set(unset) if record.document.id in given else {READERS}
            chosen = {key: value for key, value in new.items() if key in keys}
            after = {key: value for key, value in {**before, **chosen}.items() if key not in keys.intersection(unset)}
            if _form(after) != _form(before):
                digest = with_labels(record.stamp.digest, after)
                changed.append(MetadataChange(record.document, record.stamp, after, digest))
        return changed

    return update_documents(store, ids, changes)


def update_documents(store: Store, ids: Sequence[str], changes: Callable[[Sequence[str]], list[MetadataChange]]) -> int:
    """Change the metadata of documents as they are now.

    Where others changed them in between, they are changed again.

    Args:
        store: Where the documents are.
        ids: The ids of the documents; unknown ids are passed over.
        changes: Reads some documents and returns the changes.

    Returns:
        The number of documents that have changed.

    Raises:
        BackendUnavailableError: Others kept changing the documents: some may have their new metadata already.
        BackendError: The store failed.
    """
    return sum(_update(store, some, changes) for some in pages(ids))


def _update(store: Store, ids: Sequence[str], changes: Callable[[Sequence[str]], list[MetadataChange]]) -> int:
    count = 0
    for _ in range(_TRIES):
        wanted = changes(ids)
        changed = set(store.update_metadata(wanted)) if wanted else set()
        count += len(changed)
        ids = [change.document.id for change in wanted if change.document.id not in changed]
        if not ids:
            return count
    raise BackendUnavailableError(
        f"others changed {ids[0]!r} in {store.name} each time before its metadata were: try again when they are done"
    )


def _form(metadata: Mapping[str, MetadataValue]) -> dict[str, tuple[type, MetadataValue]]:
    """Metadata in which 1, 1.0 and True are not equal."""
    return {key: (type(value), value) for key, value in metadata.items()}
