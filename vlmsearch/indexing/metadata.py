"""Change the metadata of documents that are in an index: their vectors stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from vlmsearch._util.batching import pages
from vlmsearch.errors import ConfigError
from vlmsearch.search.label_keys import with_labels
from vlmsearch.stores.base import Store
from vlmsearch.types import Record, Scalar, check_metadata


def change_metadata(store: Store, ids: Sequence[str], values: Mapping[str, Scalar], unset: Collection[str] = ()) -> int:
    """Set and take off keys of documents' metadata.

    Indexing the source of a document again keeps what was changed while nothing of the source changes, as with labels.
    A document that others replace meanwhile is not written to.

    Args:
        store: Where the documents are.
        ids: Theirs; those that are not there are passed over.
        values: Values by their keys.
        unset: Keys to take off; those that a document lacks are passed over.

    Returns:
        How many documents have other metadata now.

    Raises:
        ConfigError: A key is both set and taken off.
        InvalidInputError: A document cannot have such metadata.
        BackendError: The store failed.
    """
    both = sorted(values.keys() & unset)
    if both:
        raise ConfigError(f"the key {both[0]!r} is in `set` and in `unset`: give it in one of them")
    check_metadata(values)
    changed = 0
    for some in pages(ids):
        stamps = store.stamps(some)
        records: list[Record] = []
        for record in store.records(some):
            before = record.document.metadata
            after = {key: value for key, value in {**before, **values}.items() if key not in unset}
            if _form(after) == _form(before) or record.stamp != stamps.get(record.document.id):
                continue  # as it is already, or another version by now
            check_metadata(after)
            stamp = replace(record.stamp, digest=with_labels(record.stamp.digest, after))
            records.append(replace(record, document=replace(record.document, metadata=after), stamp=stamp))
        if records:
            store.upsert(records)
        changed += len(records)
    return changed


def _form(metadata: Mapping[str, Scalar]) -> dict[str, tuple[type, Scalar]]:
    """Metadata in which 1, 1.0 and True are not equal."""
    return {key: (type(value), value) for key, value in metadata.items()}
