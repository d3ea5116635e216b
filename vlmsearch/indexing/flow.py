"""The flow of `Pipeline.add`: read, decode, encode and store, in overlapping bounded stages.

::

    caller's thread      takes documents, asks the store what it has of them
    worker threads       read, digest, skip what is unchanged, decode
    one thread           encodes batches
    one thread           stores them and counts

Only so many documents are under way at once, so memory does not grow with their number. Each batch is durable when it
is counted: whenever the flow ends, by Ctrl-C, by an error or with the process, the next run completes it.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, Union

from vlmsearch._util.cancellation import on_cancel
from vlmsearch._util.threads import BoundedQueue, StoppedError
from vlmsearch._util.tracing import querying, stage
from vlmsearch.encoders.base import Encoder, prepared_image
from vlmsearch.errors import InvalidBatchError, InvalidInputError, OperationCancelledError
from vlmsearch.indexing.records import Ready, check_types, digest, encode
from vlmsearch.indexing.sources import Item, Sourced
from vlmsearch.media.images import read_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.models.inputs import available_cores
from vlmsearch.search.fusion import image_fields
from vlmsearch.search.label_keys import has_labels, without_labels
from vlmsearch.stores.base import Store, quarantine_of
from vlmsearch.types import CONTROLS, IndexReport, Record, Reject, Stamp, check_id, check_metadata, is_id

BATCH = 64
"""Documents that are encoded together."""
LOOKED_UP = 512
"""Documents that the store is asked about together, which is far cheaper: so many, or what came within a second, or
what has so much text and so many images in memory as is not to wait for others."""
_HEAVY_CHARS = 2**20
_READ_TOGETHER = 16
"""Documents that one thread reads before it takes others."""
STORED_TOGETHER = 512
STORED_EVERY = 1.0
"""Stores take many records at once far more cheaply: so many, or what came within so many seconds."""
LEAST_WORKERS = 2
"""Threads that read and decode where there are fewer cores: one reads while the other decodes."""
_UNDER_WAY = 4
"""Batches that may wait between two stages."""


@dataclass(frozen=True)
class Unchanged:
    """A document that the index has in just this form, from the same source."""

    id: str


Outcome: TypeAlias = Union[Ready, Unchanged, Reject]
_Known: TypeAlias = "tuple[Item, Stamp | None, bool]"


@dataclass(frozen=True)
class IndexOptions:
    """How to run: look at quarantined inputs again, fail at the first bad input, and whom to tell of progress.

    ``on_progress`` is called with the number of inputs done so far, from another thread. ``image_limits`` is how
    large an image may be. With ``keep_labels`` a document without labels is unchanged where the index has it with some.
    """

    retry_failed: bool = False
    strict: bool = False
    on_progress: Callable[[int], None] | None = None
    image_limits: ImageLimits = DEFAULT_LIMITS
    keep_labels: bool = True


@dataclass
class _Tally:
    """What has been done so far."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    unlabelled: int = 0
    rejects: list[Reject] = field(default_factory=list)

    def report(self, seconds: float) -> IndexReport:
        rejects = tuple(self.rejects)
        return IndexReport(self.added, self.updated, self.unchanged, 0, rejects, seconds, self.unlabelled)


class Flow:
    """One run over documents; `run` may be called once."""

    def __init__(self, encoder: Encoder, store: Store, options: IndexOptions) -> None:
        self._encoder = encoder
        self._sees = bool(image_fields(encoder.spaces))
        self._store = store
        self._quarantine = quarantine_of(store)
        self._options = options
        self._examined: BoundedQueue[list[Future[list[Outcome]]]] = BoundedQueue(_UNDER_WAY)
        self._encoded: BoundedQueue[tuple[list[Record], list[Outcome]]] = BoundedQueue(2)
        self._under_way: Counter[str] = Counter()
        self._counted: set[str] = set()
        """What is under way again after it was stored and counted."""
        self._counting = threading.Lock()
        self._failure: BaseException | None = None
        self._is_over = False
        self._tally = _Tally()

    def run(self, items: Iterable[Item]) -> IndexReport:
        """Index ``items`` and report; raises what a stage raised, after the other stages have ended.

        Where the caller gives the call up, no batch is begun any more, and what is being stored is stored whole.
        """
        with on_cancel(self._cancel):
            return self._run(items)

    def _run(self, items: Iterable[Item]) -> IndexReport:
        started = time.monotonic()
        self._quarantined = {reject.id: reject for reject in self._quarantine.rejects()}
        threads = [
            threading.Thread(
                target=copy_context().run, args=(self._guard, step), name=f"vlmsearch-{step.__name__.strip('_')}"
            )
            for step in (self._encode, self._save)
        ]
        count = max(LEAST_WORKERS, available_cores())  # the encoder's own threads run beside them
        with ThreadPoolExecutor(count, thread_name_prefix="vlmsearch-read") as workers:
            for thread in threads:
                thread.start()
            try:
                for group in _groups(items):
                    known = self._look_up(group)
                    for start in range(0, len(known), BATCH):
                        self._examined.put(self._submit(workers, known[start : start + BATCH]))
                self._examined.close()
                for thread in threads:
                    thread.join()
            except StoppedError:
                pass
            finally:
                self._stop()
                workers.shutdown(cancel_futures=True)
                for thread in threads:
                    thread.join()
        if self._failure is not None:
            raise self._failure
        return self._tally.report(time.monotonic() - started)

    def _cancel(self) -> None:
        self._failure = self._failure or OperationCancelledError("it was cancelled")
        self._stop()

    def _stop(self) -> None:
        self._is_over = True
        self._examined.stop()
        self._encoded.stop()

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a stage; its failure stops all others."""
        try:
            step()
        except StoppedError:
            pass
        except BaseException as exc:  # noqa: BLE001 - raised again by the caller of run
            self._failure = self._failure or exc
            self._stop()

    def _look_up(self, group: Sequence[Item]) -> list[_Known]:
        """The last input of each id, what the store has of it, and whether another one is under way."""
        latest = {item.id if isinstance(item, Reject) else item.document.id: item for item in group}
        usable = [id for id, item in latest.items() if isinstance(item, Sourced) and is_id(id)]
        with self._counting:
            again = {id for id in latest if self._under_way[id]}
            self._under_way.update(latest.keys())
        with querying(self._store.name, "stamps"):
            known = self._store.stamps(usable)  # after that: what is not under way any more is in the store
        return [(item, known.get(id), id in again) for id, item in latest.items()]

    def _submit(self, workers: ThreadPoolExecutor, batch: Sequence[_Known]) -> list[Future[list[Outcome]]]:
        parts = (batch[start : start + _READ_TOGETHER] for start in range(0, len(batch), _READ_TOGETHER))
        return [workers.submit(copy_context().run, self._examine_all, part) for part in parts]

    def _examine_all(self, some: Sequence[_Known]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        with stage("decode", {"vlmsearch.count": len(some)}):
            for one in some:
                if self._is_over:
                    raise StoppedError
                outcomes.append(self._examine(*one))
        return outcomes

    def _examine(self, item: Item, known: Stamp | None, is_again: bool) -> Outcome:
        """What is to be done about one input; all of it that needs no other input.

        ``is_again``: another of its id is under way, so that ``known`` is about to be replaced.
        """
        if isinstance(item, Reject):
            return item
        document, stamp = item.document, Stamp("", item.source)
        try:
            check_id(document.id)
            check_types(document)
            check_metadata(document.metadata)
            limits = self._options.image_limits
            image = read_image(document.image, limits) if isinstance(document.image, Path) else document.image
            stamp = Stamp(digest(document, image, limits), item.source)
            if self._is_known(known, stamp) and not is_again:
                return Unchanged(document.id)
            old = self._quarantined.get(document.id)
            if old and old.stamp.digest == stamp.digest and not self._options.retry_failed:
                return old
            if not document.text and image is None:
                return Reject(document.id, "empty", f"{document.id}: the document has neither text nor image", stamp)
            if not document.text and not self._sees:
                why = f"{document.id}: {self._encoder.fingerprint} encodes no images"
                return Reject(document.id, "unsupported", why, stamp)
            usable = prepared_image(self._encoder, image, limits) if image is not None and self._sees else None
            unlabels = known is not None and has_labels(known.digest) and not has_labels(stamp.digest)
            return Ready(document, usable, stamp, known is not None, unlabels)
        except MemoryError:
            return Reject(document.id, "too_large", f"{document.id}: it needs more memory than there is", stamp)
        except InvalidInputError as exc:
            name = str(document.image) if isinstance(document.image, Path) else document.id
            is_named = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(exc))
            message = str(exc) if is_named else f"{name}: {exc}"
            return Reject(document.id, exc.code, CONTROLS.sub("?", message), stamp)

    def _is_known(self, known: Stamp | None, stamp: Stamp) -> bool:
        """Whether the index has this version of a document, perhaps with labels that its source knows nothing of."""
        if known is None or known == stamp or not self._options.keep_labels:
            return known == stamp
        return known.source == stamp.source and without_labels(known.digest) == stamp.digest != ""

    def _encode(self) -> None:
        records: dict[str, Record] = {}
        outcomes: list[Outcome] = []
        begun = time.monotonic()
        for futures in self._examined:
            examined = [outcome for future in futures for outcome in future.result()]
            ready = [outcome for outcome in examined if isinstance(outcome, Ready)]
            encoded, rejects = encode(self._encoder, ready)
            bad = {reject.id for reject in rejects}
            records.update((record.document.id, record) for record in encoded)
            outcomes += [o for o in examined if not (isinstance(o, Ready) and o.document.id in bad)]
            outcomes += rejects
            if len(outcomes) >= STORED_TOGETHER or time.monotonic() - begun > STORED_EVERY:
                self._encoded.put((list(records.values()), outcomes))
                records, outcomes, begun = {}, [], time.monotonic()
        self._encoded.put((list(records.values()), outcomes))
        self._encoded.close()

    def _save(self) -> None:
        for records, outcomes in self._encoded:
            last = {outcome.id: outcome for outcome in outcomes}
            self._check_strict(outcomes)
            used = [record for record in records if not isinstance(last[record.document.id], Reject)]
            last.update((reject.id, reject) for reject in self._upsert(used))
            self._note_rejects([outcome for outcome in last.values() if isinstance(outcome, Reject)])
            self._release([id for id, outcome in last.items() if not isinstance(outcome, Reject)])
            for id, outcome in last.items():
                if id not in self._counted or isinstance(outcome, Reject):
                    self._count(outcome)
            with self._counting:
                self._under_way.subtract(outcome.id for outcome in outcomes)
                self._under_way = +self._under_way
                counted = {id for id, outcome in last.items() if not isinstance(outcome, Reject)} | self._counted
                self._counted = {id for id in counted if self._under_way[id]}
            if self._options.on_progress:
                tally = self._tally
                self._options.on_progress(tally.added + tally.updated + tally.unchanged + len(tally.rejects))

    def _upsert(self, records: list[Record]) -> list[Reject]:
        """Store records; what is too large for the store becomes a Reject, and the others go on."""
        if not records:
            return []
        try:
            with querying(self._store.name, "upsert", count=len(records)):
                self._store.upsert(records)
        except InvalidBatchError as exc:
            if any(error.code != "too_large" for error in exc.items.values()):
                raise
            bad = [(records[item], error) for item, error in exc.items.items()]
            rejects = [Reject(record.document.id, error.code, str(error), record.stamp) for record, error in bad]
            self._check_strict(rejects)
            left = [record for item, record in enumerate(records) if item not in exc.items]
            if left:
                self._store.upsert(left)
            return rejects
        return []

    def _count(self, outcome: Outcome) -> None:
        if isinstance(outcome, Reject):
            self._tally.rejects.append(outcome)
        elif isinstance(outcome, Unchanged):
            self._tally.unchanged += 1
        elif outcome.replaces:
            self._tally.updated += 1
            self._tally.unlabelled += outcome.unlabels
        else:
            self._tally.added += 1

    def _check_strict(self, outcomes: Iterable[Outcome]) -> None:
        """Raise InvalidInputError for the first input that is rejected, where that was asked for."""
        for outcome in outcomes if self._options.strict else ():
            if isinstance(outcome, Reject):
                raise InvalidInputError(outcome.code, f"{outcome.message} (and nothing after it was indexed: strict)")

    def _note_rejects(self, rejects: Sequence[Reject]) -> None:
        """Quarantine what is new; a document whose content went bad is found no longer."""
        new = [reject for reject in rejects if self._quarantined.get(reject.id) != reject and is_id(reject.id)]
        if new:
            self._store.delete([reject.id for reject in new if reject.code != "unreadable"])
            self._quarantine.quarantine(new)  # last, for what is on the list is not looked at again
            self._quarantined.update((reject.id, reject) for reject in new)

    def _release(self, ids: Sequence[str]) -> None:
        healed = [id for id in ids if id in self._quarantined]
        if healed:
            self._quarantine.release(healed)
            for id in healed:
                del self._quarantined[id]


def _groups(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Inputs in groups to be looked up; a group ends early where it is heavy, or slow to come."""
    group: list[Item] = []
    chars, begun = 0, time.monotonic()
    for item in items:
        group.append(item)
        chars += _chars(item)
        is_heavy = chars > BATCH * _HEAVY_CHARS
        if len(group) == LOOKED_UP or is_heavy or time.monotonic() - begun > STORED_EVERY:
            yield group
            group, chars, begun = [], 0, time.monotonic()
    if group:
        yield group


def _chars(item: Item) -> int:
    """How much of memory an input takes, in characters; an image counts as one of middle size."""
    if isinstance(item, Reject):
        return 0
    document = item.document
    image = 0 if isinstance(document.image, (Path, type(None))) else _HEAVY_CHARS
    return image + (len(document.text) if isinstance(document.text, str) else 0)
