"""Telling beforehand how long `reindex` takes with a model, and how large the index gets."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError
from vlmsearch.indexing.flow import STORED_TOGETHER, Flow, IndexOptions
from vlmsearch.indexing.reindex import needed_manifest, replaceable, to_encode
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.stores.base import OnDisk, Store, reject_list_of
from vlmsearch.stores.samples import sampling_key
from vlmsearch.types import Field, Space

_SAMPLE = 4096
"""The most documents that are tried."""
_FIRST = 8
"""So many are encoded before time is taken, for models that are slow at first; then twice as many in each round."""
_LEAST_ROUNDS = 3
_COMPARISONS = 2
"""How often `reindex` compares the two indexes when all is encoded."""


@dataclass(frozen=True)
class Forecast:
    """Say what reindexing with a model takes, from what was tried with some documents.

    Attributes:
        documents: How many there are in the index.
        left: How many of these are to be encoded; fewer than all where an interrupted run goes on.
        tried: How many were encoded and written to find out.
        lost: How many of these cannot be encoded again, because their images are not kept or not there.
        seconds: How long it takes.
        bytes_after: How many bytes the index takes once the old one is removed.
        bytes_added: How many more bytes than now the two take together, until then.
        bytes_now: How many bytes everything takes now; None where the server does not say, and then ``bytes_after`` and
            ``bytes_added`` are those of the vectors alone.
        bytes_free: How many bytes are left on the disk; None where the server does not say.
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
    """Say how long `reindex` takes with an encoder, and how large the index gets.

    Documents of the index, chosen at random, are encoded and written to an index beside it, which is removed again.
    Nothing else changes. What an index takes of the disk for other things than vectors is taken from the present one.

    Args:
        store: The index.
        encoder: What is to make the new vectors.
        seconds: For how long to try; at least one round is finished, so a slow model takes longer.
        image_limits: How large an image may be.

    Returns:
        The forecast.

    Raises:
        ConfigError: There is no index, it was built with this encoder, or the store cannot be reindexed.
        IndexMismatchError: Another one began meanwhile.
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
    documents, unfinished = len(store), beside.unfinished(encoder.fingerprint, encoder.spaces)
    left = max(documents - (len(unfinished) if unfinished is not None else 0), 0)
    started = time.monotonic()
    drawn = _drawn(store, {reject.id for reject in reject_list_of(store).rejects()})
    reading = time.monotonic() - started
    use = store.disk_use() if isinstance(store, OnDisk) else None
    with beside.trial(encoder.fingerprint, encoder.spaces) as trial:
        tried = _try(store, trial, encoder, drawn, seconds, IndexOptions(image_limits=image_limits))
        new, old = _vector_bytes(trial, encoder.spaces, drawn), _vector_bytes(store, manifest.spaces, drawn)
    per_document = new if use is None else new + max(use.bytes / max(use.documents, 1) - old, 0)
    return Forecast(
        documents=documents,
        left=left,
        tried=tried.encoded,
        lost=len(tried.lost),
        seconds=tried.seconds(left) + _COMPARISONS * (2 * reading + documents * tried.comparing),
        bytes_after=round(documents * per_document),
        bytes_added=round(left * per_document),
        bytes_now=None if use is None else use.bytes,
        bytes_free=None if use is None else use.free,
    )


@dataclass
class _Tried:
    """What came of some documents: how many seconds each round took, and what comparing one document takes."""

    encoded: int = 0
    lost: set[str] = field(default_factory=set)
    rounds: list[tuple[int, float]] = field(default_factory=list)
    comparing: float = 0.0

    def seconds(self, documents: int) -> float:
        """Return how long so many take: a straight line through the rounds, of which each stores once."""
        if len(self.rounds) < _LEAST_ROUNDS:
            count, taken = self.rounds[-1] if self.rounds else (1, 0.0)
            return documents * taken / count
        counts, times = zip(*self.rounds[1:])
        each, once = np.polyfit(counts, times, 1)
        if each <= 0:
            each, once = sum(times) / sum(counts), 0.0
        return float(documents * each + math.ceil(documents / STORED_TOGETHER) * max(once, 0.0))


def _try(
    store: Store, trial: Store, encoder: Encoder, drawn: Sequence[str], seconds: float, options: IndexOptions
) -> _Tried:
    tried, started = _Tried(), time.monotonic()
    for ids in _rounds(drawn):
        begun = time.monotonic()
        report = Flow(encoder, trial, options).run(to_encode(store, trial, tried.lost, ids))
        tried.rounds.append((len(ids), time.monotonic() - begun))
        failed = [reject.id for reject in report.rejects]
        reject_list_of(trial).release(failed)
        tried.lost.update(failed)
        tried.encoded += report.added
        if time.monotonic() - started > seconds:
            break
    begun = time.monotonic()
    store.stamps(drawn)
    trial.stamps(drawn)
    tried.comparing = (time.monotonic() - begun) / max(len(drawn), 1)
    return tried


def _rounds(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    start, count = 0, _FIRST
    while start < len(ids):
        yield ids[start : start + count]
        start, count = start + count, 2 * count


def _drawn(store: Store, without: Collection[str]) -> list[str]:
    """Return ids of documents that are as good as chosen at random.

    Those on the reject list stay as they are there.
    """
    ids = (id for id in store.ids() if id not in without)
    return heapq.nsmallest(_SAMPLE, ids, key=lambda id: (sampling_key(id), id))


def _vector_bytes(store: Store, spaces: Sequence[Space], ids: Sequence[str]) -> float:
    """Return what the vectors of a document take, on average of those among ``ids`` that are there."""
    bytes_of: dict[Field, int] = {
        field: store.vector_bytes(space.dim) if isinstance(store, OnDisk) else 4 * space.dim
        for space in spaces
        for field in space.fields
    }
    found = store.fields(ids).values()
    return sum(bytes_of[field] for fields in found for field in fields) / max(len(found), 1)
