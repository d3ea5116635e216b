"""Build an index anew with another model, beside the old one, and then switch.

The switch is one step. An index of an earlier format is renewed in the same way, with the vectors that it has. With the
model that built the index, long texts are encoded anew in their places: a search meets each document as it was or as it
is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from vlmsearch._util.batching import batches
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError, VlmsearchError
from vlmsearch.indexing.containers import kind_of
from vlmsearch.indexing.copy import copy_documents
from vlmsearch.indexing.flow import BATCH, Flow, IndexOptions
from vlmsearch.indexing.items import SourceDocument
from vlmsearch.indexing.metadata import update_documents
from vlmsearch.indexing.passages import Splitter, with_passages, without_passages
from vlmsearch.indexing.records import Ready, encode
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.search.relevance import Backgrounds
from vlmsearch.stores.base import OnDisk, Replaceable, Store, needed_manifest, reject_list_of
from vlmsearch.stores.generations import GenerationalStore
from vlmsearch.types import Document, Field, Manifest, MetadataChange, Stamp, encodes_images

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
        switched: Whether the new index is in use; False where documents would have been lost, or the model is the same.
        seconds: The time of the run.
        bytes_added: The growth of both indexes together; None where the server does not say.
        files: The number of documents in the new index that are no parts of files.
        image_only: Lost documents that have no text, where the encoder takes no images.
        text_only: Documents with an image that the new index finds by their texts alone, since it takes no images.
    """

    documents: int
    encoded: int
    lost: tuple[str, ...]
    switched: bool
    seconds: float = 0.0
    bytes_added: int | None = None
    files: int = 0
    image_only: int = 0
    text_only: int = 0


def reindex(
    store: Store,
    encoder: Encoder,
    *,
    allow_missing: bool = False,
    on_progress: Callable[[int], None] | None = None,
    image_limits: ImageLimits = DEFAULT_LIMITS,
    passages: bool = True,
) -> ReindexReport:
    """Encode all documents of ``store`` with ``encoder`` into an index beside it, and switch to that.

    The old index answers until then and is kept until `drop_old`. What an interrupted run did is not done again.
    Where documents would be lost, it does not switch unless ``allow_missing``. What others write to the old index
    meanwhile is in the new one too. At the end the two are compared once more while nobody can write: from then on
    writes fail with BackendUnavailableError, and with IndexMismatchError once it has switched. A process that is killed
    in between leaves the old index so; reindexing again, with any model, goes on from there, and with the one that the
    index was built with takes that back. ``image_limits`` is how large an image may be, and ``passages`` whether long
    texts are encoded in passages.

    With the encoder that built the index, an index of an earlier format, or with words of other rules, is renewed as by
    `renew`. Beside any other, nothing is built then: texts that are longer than the model reads are encoded in
    passages, or without ``passages`` as wholes, where they are not. What others write meanwhile stays. To the next run
    over unchanged sources all documents are unchanged.
    """
    options = IndexOptions(
        retry_rejects=True, on_progress=on_progress, image_limits=image_limits, keep_labels=False, passages=passages
    )
    is_earlier = opened_earlier(store)
    if needed_manifest(store).fingerprint != encoder.fingerprint:
        fill = partial(_copy, store, encoder=encoder, options=options)
        return _measured(store, lambda: _replace(store, encoder, fill, allow_missing))
    if is_earlier:
        return renew(store, on_progress=on_progress)
    return _measured(store, lambda: _renew(store, encoder, options))


def opened_earlier(store: Store) -> bool:
    """Return whether an index is of an earlier format, or has words of other rules. Both are opened to be renewed."""
    return isinstance(store, GenerationalStore) and store.open_earlier()


def renew(store: Store, *, on_progress: Callable[[int], None] | None = None) -> ReindexReport:
    """Copy an index that `opened_earlier` is true of into one beside it, and switch to that.

    It does so as `reindex`, and encodes nothing. Processes of the earlier version that have the old index open go on
    searching it until `drop_old`.
    """

    def fill(new: Store) -> tuple[int, set[str]]:
        copied, _, refused = copy_documents(store, new, on_progress)
        gone = _gone(store, new)
        if gone:
            new.delete(gone)
        return copied, {reject.id for reject in refused}

    return replace(_measured(store, lambda: _replace(store, needed_manifest(store), fill)), encoded=0)


def _measured(store: Store, work: Callable[[], ReindexReport]) -> ReindexReport:
    """Return the report of some work with its time, and the growth of the store."""
    started, before = time.monotonic(), _used_bytes(store)
    report, after = work(), _used_bytes(store)
    added = None if before is None or after is None else after - before
    return replace(report, seconds=time.monotonic() - started, bytes_added=added)


def _replace(
    store: Store, model: Encoder | Manifest, fill: Callable[[Store], tuple[int, set[str]]], allow_missing: bool = False
) -> ReindexReport:
    """Build an index beside a store, and switch to it.

    ``fill`` makes it equal to the old one, and returns how many documents it encoded, and those that it cannot.
    """
    beside = replaceable(store)
    new = beside.beside(model.fingerprint, model.spaces)
    encoded, lost, switched, image_only, text_only = 0, set[str](), False, 0, 0
    for _ in range(_ROUNDS):
        done, lost = fill(new)
        encoded += done
        if not done:
            break
    if not encodes_images(model.spaces):
        image_only = sum(not document.text for document in store.get(sorted(lost)))
    if allow_missing or not lost:
        text_only = 0 if encodes_images(model.spaces) else _count_images(store, lost)
        Backgrounds().keep(new, encoded, None if isinstance(model, Manifest) else model)
        try:
            beside.freeze(new)
            done, lost = fill(new)
            encoded += done
            if allow_missing or not lost:
                beside.switch(new)
                switched = True
        finally:
            if not switched:
                with suppress(VlmsearchError):  # what went wrong before is what has to be said
                    beside.unfreeze(new)
    used, missing = store if switched else new, tuple(sorted(lost))
    return ReindexReport(
        len(used), encoded, missing, switched, 0.0, None, used.count_files(), image_only, text_only if switched else 0
    )


def _count_images(store: Store, lost: Collection[str]) -> int:
    """Count the documents that are found by their images, without those that are lost."""
    kept = (id for id in store.ids() if id not in lost)
    return sum(_has_image(own) for ids in batches(kept, _BATCH) for own in store.fields(ids).values())


def _has_image(fields: Collection[Field]) -> bool:
    return any(field.modality == "image" for field in fields)


def _renew(store: Store, encoder: Encoder, options: IndexOptions) -> ReindexReport:
    """Encode the long texts that are not in passages, or those that are."""
    splitter, done, encoded, passages = Splitter.of(encoder), 0, set[str](), options.passages
    if isinstance(store, Replaceable):
        store.unfreeze()

    def changes(some: Sequence[str]) -> list[MetadataChange]:
        stamps = store.stamps(some)  # before the documents: what others write from here on stays
        wanted, ready = dict[str, MetadataChange](), []
        for document in store.get(list(stamps)):
            id, text, stamp = document.id, document.text or "", stamps[document.id]
            digest = _digest(document, stamp, splitter, passages)
            if digest != stamp.digest:
                wanted[id] = MetadataChange(document, stamp, document.metadata, digest)
                if splitter.is_long(text):
                    ready.append(Ready(document, None, stamp, True, False, splitter.split(text) if passages else ()))
        for record in encode(encoder, ready)[0]:
            id, text = record.document.id, record.document.text or ""
            wanted[id] = replace(wanted[id], text=text, vectors=record.vectors, passages=record.passages)
            encoded.add(id)
        return list(wanted.values())

    for some in batches(sorted(store.ids()), BATCH):
        update_documents(store, some, changes)
        done += len(some)
        if options.on_progress:
            options.on_progress(done)
    return ReindexReport(len(store), len(encoded), (), False, files=store.count_files())


def _digest(document: Document, stamp: Stamp, splitter: Splitter, passages: bool) -> str:
    """Return the digest of a document as a run over its source will make it."""
    kind = kind_of(document.id) if document.id == stamp.source else None
    is_whole = kind is not None and kind.has_texts and (bool(kind.option) or "parts" in document.metadata)
    is_marked = passages and (splitter.is_long(document.text) or is_whole)
    return with_passages(stamp.digest) if is_marked else without_passages(stamp.digest)


def _copy(store: Store, new: Store, encoder: Encoder, options: IndexOptions) -> tuple[int, set[str]]:
    """Make the new index equal to the old one.

    Returns how many documents were encoded, and those that cannot be and are in none of it.
    """
    lost = set[str]()
    rejects = reject_list_of(new)
    before = {reject.id for reject in rejects.rejects()}
    digest = partial(_digest, splitter=Splitter.of(encoder), passages=options.passages)
    options = replace(options, on_progress=_beside(new, options.on_progress))
    report = Flow(encoder, new, options).run(
        _to_encode(store, new, lost, digest, needs_images=encodes_images(encoder.spaces))
    )
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


def _to_encode(
    store: Store, new: Store, lost: set[str], digest: Callable[[Document, Stamp], str], needs_images: bool
) -> Iterator[SourceDocument]:
    """Yield the documents that the new index lacks or has otherwise.

    ``lost`` gets those that cannot be encoded: with ``needs_images``, those whose images are not kept.
    """
    for batch in batches(store.ids(), _BATCH):
        stamps, there = store.stamps(batch), new.stamps(batch)
        changed = [id for id in batch if id in stamps and _unmarked(stamps[id]) != _unmarked(there.get(id))]
        fields = store.fields(changed) if changed else {}
        for document in store.get(changed):
            if needs_images and document.image is None and _has_image(fields.get(document.id, ())):
                lost.add(document.id)
            elif _is_indexable(document):
                stamp = stamps[document.id]
                yield SourceDocument(document, stamp.source, digest=digest(document, stamp))
            else:
                lost.add(document.id)


def _unmarked(stamp: Stamp | None) -> Stamp | None:
    return stamp and replace(stamp, digest=without_passages(stamp.digest))


def _gone(store: Store, new: Store) -> list[str]:
    """Return what the new index has and the old one no longer."""
    gone = list[str]()
    for batch in batches(new.ids(), _BATCH):
        there = store.stamps(batch)
        gone += [id for id in batch if id not in there]
    return gone


def _is_indexable(document: Document) -> bool:
    return bool(document.text) or document.image is not None
