"""Telling beforehand how long `reindex` takes with a model, and how large the index gets."""

from __future__ import annotations

import heapq
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from vlmsearch._util.machine import available_cores
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError
from vlmsearch.indexing.flow import LEAST_WORKERS, Examiner, IndexOptions
from vlmsearch.indexing.records import Ready, encode
from vlmsearch.indexing.reindex import replaceable, to_encode
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.stores.base import OnDisk, Store, needed_manifest, reject_list_of
from vlmsearch.stores.samples import sampling_key
from vlmsearch.types import Field, Reject, Space

_SAMPLE = 4096
"""The largest number of documents in a trial."""
_FIRST = 8
"""Documents in the first round, which is not timed since models are slow at first; each round has twice as many."""


@dataclass(frozen=True)
class Forecast:
    """A forecast of what reindexing with a model takes, from a trial with some documents.

    Attributes:
        documents: The number of documents in the index.
        left: The number of documents to encode; fewer than all where an interrupted run goes on.
        tried: The number of documents that were encoded in the trial.
        lost: The number of documents in the trial that cannot be encoded, since their images are not kept or not there.
        seconds: The time to encode all that are left.
        bytes_after: The size of the index once the old one is removed.
        bytes_added: The growth until then, while there are two indexes.
        bytes_now: The present size; None where the server does not say. ``bytes_after`` and ``bytes_added`` are then
            those of the vectors alone.
        bytes_free: The free space on the disk; None where the server does not say.
    """

    documents: int
    left: int
    tried: int
    lost: int
    seconds: float
    bytes_after: int
    bytes_added: int
    bytes_now: int | None
    bytes_free: int | None

    @property
    def fits(self) -> bool:
        """Return whether there is room for it, as far as is known."""
        return self.bytes_free is None or self.bytes_added < self.bytes_free


def forecast(
    store: Store, encoder: Encoder, *, seconds: float = 3.0, image_limits: ImageLimits = DEFAULT_LIMITS
) -> Forecast:
    """Forecast how long `reindex` takes with an encoder, and how large the index gets.

    Documents of the index, chosen at random, are read and encoded. Nothing is written: a store that is slower than the
    encoder adds to the time. What an index takes of the disk for other things than vectors is taken from the present
    one.

    Args:
        store: The index.
        encoder: The encoder of the new vectors.
        seconds: Seconds to try for; at least one round is finished, so a slow model takes longer.
        image_limits: The largest images.

    Returns:
        The forecast.

    Raises:
        ConfigError: There is no index, it was built with this encoder, or the store cannot be reindexed.
        BackendError: The encoder or the store failed.

    Example:
        >>> from vlmsearch import Document, Pipeline
        >>> from vlmsearch_mocks import MockEncoder, MockStore
        >>> with Pipeline(MockEncoder(), MockStore()) as pipeline:
        ...     _ = pipeline.add([Document("a", text="a dog"), Document("b", text="a car")])
        ...     found = forecast(pipeline.store, MockEncoder(neighbours={"a dog": ["a cat"]}))
        >>> found.documents, found.left, found.tried, found.lost
        (2, 2, 2, 0)
    """
    beside, manifest = replaceable(store), needed_manifest(store)
    if manifest.fingerprint == encoder.fingerprint:
        raise ConfigError(f"{store.name} was built with {encoder.fingerprint} already")
    unfinished = beside.unfinished(encoder.fingerprint, encoder.spaces)
    documents = len(store)
    left = max(documents - (len(unfinished) if unfinished is not None else 0), 0)
    drawn = _drawn(store)
    trial = _try(store, encoder, drawn, seconds, IndexOptions(image_limits=image_limits))
    use = store.disk_use() if isinstance(store, OnDisk) else None
    new = _vector_bytes(store, encoder.spaces, trial.fields)
    old = _vector_bytes(store, manifest.spaces, list(store.fields(drawn).values()))
    per_document = new if use is None else new + max(use.bytes / max(use.documents, 1) - old, 0)
    return Forecast(
        documents=documents,
        left=left,
        tried=len(trial.fields),
        lost=len(trial.lost),
        seconds=left * trial.seconds_each,
        bytes_after=round(documents * per_document),
        bytes_added=round(left * per_document),
        bytes_now=None if use is None else use.bytes,
        bytes_free=None if use is None else use.free,
    )


@dataclass
class _Trial:
    """A trial of some documents: the fields of those that were encoded, and the ids of those that cannot be."""

    fields: list[Collection[Field]] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    seconds_each: float = 0.0


def _try(store: Store, encoder: Encoder, drawn: Sequence[str], seconds: float, options: IndexOptions) -> _Trial:
    trial, examiner = _Trial(), Examiner.of(encoder, options, {})
    end, taken, count = time.monotonic() + seconds, 0.0, 0
    with ThreadPoolExecutor(max(LEAST_WORKERS, available_cores())) as workers:
        for number, ids in enumerate(_rounds(drawn)):
            begun = time.monotonic()
            outcomes = list(workers.map(examiner.examine, to_encode(store, None, trial.lost, ids)))
            records, rejects = encode(encoder, [outcome for outcome in outcomes if isinstance(outcome, Ready)])
            trial.fields += [record.vectors.keys() for record in records]
            trial.lost.update(outcome.id for outcome in (*outcomes, *rejects) if isinstance(outcome, Reject))
            if number < 2:  # the first round, in which models are slow, counts where it is the only one
                taken, count = 0.0, 0
            taken, count = taken + time.monotonic() - begun, count + len(ids)
            trial.seconds_each = taken / count
            if time.monotonic() > end:
                break
    return trial


def _rounds(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    start, count = 0, _FIRST
    while start < len(ids):
        yield ids[start : start + count]
        start, count = start + count, 2 * count


def _drawn(store: Store) -> list[str]:
    """Return ids of documents that are as good as chosen at random; rejected documents stay on their list."""
    rejected = {reject.id for reject in reject_list_of(store).rejects()}
    ids = (id for id in store.ids() if id not in rejected)
    return heapq.nsmallest(_SAMPLE, ids, key=lambda id: (sampling_key(id), id))


def _vector_bytes(store: Store, spaces: Sequence[Space], fields: Sequence[Collection[Field]]) -> float:
    """Return the mean size of the vectors of documents with such fields."""
    bytes_of: dict[Field, int] = {
        field: store.vector_bytes(space.dim) if isinstance(store, OnDisk) else 4 * space.dim
        for space in spaces
        for field in space.fields
    }
    return sum(bytes_of[field] for some in fields for field in some) / max(len(fields), 1)
