"""Build an index anew with another model, beside the old one, and then switch.

The switch is one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from vlmsearch._util.batching import batches
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError, VlmsearchError
from vlmsearch.indexing.flow import Flow, IndexOptions
from vlmsearch.indexing.items import SourceDocument
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.stores.base import OnDisk, Replaceable, Store, needed_manifest, reject_list_of
from vlmsearch.types import Document

_BATCH = 500
_ROUNDS = 3
"""Passes over the old index for changes, while others may write."""


@dataclass(frozen=True)
class ReindexReport:
    """A report of `reindex`.

    Attributes:
        documents: The number of documents in the new index.
        encoded: The number of documents that this run encoded.
        lost: The ids of documents that cannot be encoded again, since their images are not kept or not there.
        switched: Whether the new index is in use; False where documents would have been lost.
        seconds: The time of the run.
        bytes_added: The growth of both indexes together; None where the server does not say.
    """

    documents: int
    encoded: int
    lost: tuple[str, ...]
    switched: bool
    seconds: float
    bytes_added: int | None


def reindex(
    store: Store,
    encoder: Encoder,
    *,
    allow_missing: bool = False,
    on_progress: Callable[[int], None] | None = None,
    image_limits: ImageLimits = DEFAULT_LIMITS,
) -> ReindexReport:
    """Encode all documents of ``store`` with ``encoder`` into an index beside it, and switch to that.

    The old index answers until then and is kept until `drop_old`. What an interrupted run did is not done again.
    Where documents would be lost, it does not switch unless ``allow_missing``. What others write to the old index
    meanwhile is in the new one too. At the end the two are compared once more while nobody can write: from then on
    writes fail with BackendUnavailableError, and with IndexMismatchError once it has switched. A process that is killed
    in between leaves the old index so; reindexing again, with any model, goes on from there, and with the one that the
    index was built with only takes that back. ``image_limits`` is how large an image may be.
    """
    started = time.monotonic()
    beside, manifest = replaceable(store), needed_manifest(store)
    if manifest.fingerprint == encoder.fingerprint:
        also = ", stays so and takes writes again" if beside.unfreeze() else ""
        raise ConfigError(f"{store.name} was built with {encoder.fingerprint} already{also}")
    before = _used_bytes(store)
    new = beside.beside(encoder.fingerprint, encoder.spaces)
    options = IndexOptions(retry_rejects=True, image_limits=image_limits, keep_labels=False)
    encoded, lost, switched = 0, set[str](), False
    for _ in range(_ROUNDS):
        done, lost = _copy(store, new, encoder, replace(options, on_progress=_beside(new, on_progress)))
        encoded += done
        if not done:
            break
    if allow_missing or not lost:
        try:
            beside.freeze(new)
            done, lost = _copy(store, new, encoder, options)
            encoded += done
            if allow_missing or not lost:
                beside.switch(new)
                switched = True
        finally:
            if not switched:
                with suppress(VlmsearchError):  # what went wrong before is what has to be said
                    beside.unfreeze(new)
    seconds, after = time.monotonic() - started, _used_bytes(store)
    return ReindexReport(
        documents=len(store if switched else new),
        encoded=encoded,
        lost=tuple(sorted(lost)),
        switched=switched,
        seconds=seconds,
        bytes_added=None if before is None or after is None else after - before,
    )


def _copy(store: Store, new: Store, encoder: Encoder, options: IndexOptions) -> tuple[int, set[str]]:
    """Make the new index equal to the old one.

    Returns how many documents were encoded, and those that cannot be and are in none of it.
    """
    lost = set[str]()
    rejects = reject_list_of(new)
    before = {reject.id for reject in rejects.rejects()}
    report = Flow(encoder, new, options).run(to_encode(store, new, lost, store.ids()))
    failed = {reject.id for reject in report.rejects}
    rejects.release(list(failed - before))
    lost |= failed
    unwanted = [*_gone(store, new), *lost]
    if unwanted:
        new.delete(unwanted)
    return report.added + report.updated, lost


def _beside(new: Store, on_progress: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """Count what the new index has already as done."""
    if on_progress is None:
        return None
    there = len(new)
    return lambda done: on_progress(there + done)


def drop_old(store: Store) -> bool:
    """Remove the index that `reindex` replaced; False where there is none."""
    return replaceable(store).drop_old()


def replaceable(store: Store) -> Replaceable:
    """Return the store as one that can have another index beside its own.

    ConfigError where it cannot.
    """
    if not isinstance(store, Replaceable):
        raise ConfigError(
            f"{store.name} cannot have another index beside its own; build one with "
            "`vlmsearch index PATHS --store NEW --encoder URL`"
        )
    return store


def _used_bytes(store: Store) -> int | None:
    """Return how many bytes an index takes with what stands beside it; None where nobody says."""
    use = store.disk_use() if isinstance(store, OnDisk) else None
    return None if use is None else use.bytes


def to_encode(store: Store, new: Store | None, lost: set[str], ids: Iterable[str]) -> Iterator[SourceDocument]:
    """Yield the documents that the new index lacks or has otherwise.

    ``lost`` gets those that cannot be encoded.
    """
    for batch in batches(ids, _BATCH):
        stamps, there = store.stamps(batch), {} if new is None else new.stamps(batch)
        changed = [id for id in batch if id in stamps and stamps[id] != there.get(id)]
        fields = store.fields(changed) if changed else {}
        for document in store.get(changed):
            if document.image is None and any(field.modality == "image" for field in fields.get(document.id, ())):
                lost.add(document.id)
            elif _is_indexable(document):
                yield SourceDocument(document, stamps[document.id].source, digest=stamps[document.id].digest)
            else:
                lost.add(document.id)


def _gone(store: Store, new: Store) -> list[str]:
    """Return what the new index has and the old one no longer."""
    gone = list[str]()
    for batch in batches(new.ids(), _BATCH):
        there = store.stamps(batch)
        gone += [id for id in batch if id not in there]
    return gone


def _is_indexable(document: Document) -> bool:
    return bool(document.text) or document.image is not None
