"""The flow of `Pipeline.add`: read, decode, encode and store, in overlapping bounded stages.

::

    caller's thread      takes documents, asks the store what it has of them; opens files of several documents
    worker threads       read, digest, skip what is unchanged, decode
    one thread           encodes batches
    one thread           stores them and counts

Only so many documents are under way at once, so memory does not grow with their number. Each batch is durable when it
is counted: whenever the flow ends, by Ctrl-C, by an error or with the process, the next run completes it.

The document of a whole file is stored after those of its parts. Where the file was in the index before, the parts that
it no longer has are deleted first. Before the first part of another version is stored, the stamp of the whole file is
blanked. So an index that has the whole file in a version has all of that version, and nothing else.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias, TypeVar, Union

from vlmsearch._util.cancellation import on_cancel
from vlmsearch._util.machine import available_cores
from vlmsearch._util.plain import CONTROLS
from vlmsearch._util.threads import BoundedQueue, StoppedError
from vlmsearch._util.tracing import querying, stage
from vlmsearch._util.unread import ranked, unread_in, with_unread
from vlmsearch.encoders.base import Encoder, ResizesImages, prepared_image
from vlmsearch.errors import ConfigError, InvalidBatchError, InvalidInputError, OperationCancelledError
from vlmsearch.indexing.containers import kind_of, with_parts
from vlmsearch.indexing.facts import with_facts
from vlmsearch.indexing.image_text import with_image_text, with_mark, without_description, without_mark
from vlmsearch.indexing.items import Container, Item, ReadOptions, SourceDocument, id_of, with_readers
from vlmsearch.indexing.metadata import change_metadata
from vlmsearch.indexing.passages import Splitter, with_passages, without_passages
from vlmsearch.indexing.records import Ready, digest, encode
from vlmsearch.indexing.seen import SeenIds
from vlmsearch.indexing.sources import Paths, file_id, file_name, is_file
from vlmsearch.indexing.unread import count_unread, endings_text
from vlmsearch.media.images import read_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.media.remote import remote_url
from vlmsearch.media.tiff import unread_pages
from vlmsearch.stores.base import Store, reject_list_of
from vlmsearch.stores.label_keys import has_labels, split_labels, without_labels
from vlmsearch.stores.listing import outlines_of
from vlmsearch.stores.readers import keep_readers
from vlmsearch.stores.restricted import RestrictedStore
from vlmsearch.types import (
    READERS,
    Document,
    ImageSource,
    IndexReport,
    MetadataChange,
    MetadataValue,
    Passage,
    Record,
    Reject,
    Stamp,
    check_document_id,
    check_metadata,
    check_types,
    encodes_images,
    file_of_part,
    is_id,
    local_image,
    part_of,
    reader_names,
    web_url,
)

BATCH = 64
"""Documents that are encoded together."""
LOOKED_UP = 512
"""Documents that the store is asked about together, which is far cheaper. A group is smaller where documents come
slowly, or take much memory."""
_HEAVY_CHARS = 2**20
_READ_CHARS = 4
"""Characters that a byte of a loaded image counts, such as that of a page."""
_READ_TOGETHER = 16
"""Documents that one thread reads before it takes others."""
_READ_BYTES = 2**26
"""Images that were read already, and are not encoded yet: as much of them is in memory at a time."""
STORED_TOGETHER = 512
STORED_EVERY = 1.0
"""Stores take many records at once far more cheaply: so many, or what came within so many seconds."""
_NAMED_KEYS = 5
"""Keys of metadata that the message of an empty document names."""
_MIN_WORKERS = 2
"""Threads that read and decode where there are fewer cores: one reads while the other decodes."""
_UNDER_WAY = 4
"""Batches that may wait between two stages."""


@dataclass(frozen=True)
class UnchangedDocument:
    """A document that the index has in just this form, from the same source.

    Attributes:
        id: The id.
        readers: The readers that it is to have, where they are given.
        is_updated: Whether it had others.
    """

    id: str
    readers: MetadataValue | None = None
    is_updated: bool = False


Outcome: TypeAlias = Union[Ready, UnchangedDocument, Reject]
T = TypeVar("T", Item, Union[SourceDocument, Reject])
Input: TypeAlias = Union[SourceDocument, Reject, UnchangedDocument]
Known: TypeAlias = tuple[Input, Union[Stamp, None], bool]


@dataclass(frozen=True)
class IndexOptions:
    """The options of a run.

    Attributes:
        retry_rejects: Whether to try rejected inputs again.
        strict: Whether to fail at the first bad input.
        on_progress: A callback that takes the number of inputs done so far, from another thread.
        image_limits: The largest images.
        keep_labels: Whether a document without labels is unchanged where the index has it with some.
        has_remote_sources: Whether to read images in object storage that lie beside or below the file that names them.
        passages: Whether to encode long texts in passages.
    """

    retry_rejects: bool = False
    strict: bool = False
    on_progress: Callable[[int], None] | None = None
    image_limits: ImageLimits = DEFAULT_LIMITS
    keep_labels: bool = True
    has_remote_sources: bool = False
    passages: bool = True


@dataclass
class Tally:
    """The counts of a run so far."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    unlabelled: int = 0
    pruned: int = 0
    passages: int = 0
    cut: int = 0
    partly_read: int = 0
    unread: Counter[str] = field(default_factory=Counter)
    files: int = 0
    repeated: int = 0
    rejects: list[Reject] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Return how many inputs have been counted."""
        return self.added + self.updated + self.unchanged + len(self.rejects)

    def count(self, outcome: Outcome) -> None:
        """Add what became of one input."""
        self.files += not isinstance(outcome, Reject) and part_of(outcome.id) is None
        if isinstance(outcome, Reject):
            self.rejects.append(outcome)
        elif isinstance(outcome, UnchangedDocument):
            self.unchanged += not outcome.is_updated
            self.updated += outcome.is_updated
        else:
            self.updated += outcome.replaces
            self.added += not outcome.replaces
            self.unlabelled += outcome.unlabels
            self.passages += len(outcome.passages)
            self.cut += outcome.is_cut
            unread = unread_in(outcome.document.metadata)
            self.unread.update(unread)
            self.partly_read += bool(unread)

    def report(self, seconds: float) -> IndexReport:
        """Return it as the report of a run."""
        values = {**vars(self), "rejects": tuple(self.rejects), "unread": ranked(self.unread)}
        return IndexReport(**values, seconds=seconds)


class Flow:
    """One run over documents; `run` may be called once."""

    def __init__(self, encoder: Encoder, store: Store, options: IndexOptions) -> None:
        self._encoder = encoder
        self._store = store
        self._options = options
        self._examined: BoundedQueue[tuple[list[Future[list[Outcome]]], int]] = BoundedQueue(_UNDER_WAY)
        self._encoded: BoundedQueue[tuple[list[Record], list[Outcome]]] = BoundedQueue(2)
        self._under_way: Counter[str] = Counter()
        self._counted: set[str] = set()
        """Ids that are under way again after they were stored and counted."""
        self._counting = threading.Lock()
        self._seen = SeenIds()
        self._failure: BaseException | None = None
        self._is_over = False
        self._tally = Tally()
        self._waiting: list[Future[list[Outcome]]] = []
        self._waits = 0
        """The number of inputs at the workers that are not queued to be encoded."""
        self._put_at = 0.0
        self._read_bytes = 0
        """The images that were read already, and are not encoded yet."""
        self._waiting_bytes = 0
        self._encoding = threading.Condition()
        self._bad_parts: dict[str, list[Reject]] = {}
        """The parts of each file that were on the reject list before the run."""
        self._replaced: dict[str, set[str]] = {}
        """The files that were in the index, each with the present ids of its parts."""
        self._given_readers: dict[str, frozenset[str] | None] = {}
        """The readers that documents of whole files name which come without their file, by id."""
        self._held: list[SourceDocument | Reject] = []
        """The documents of whole files that have parts.

        They are stored when the parts that are gone are deleted.
        """

    def run(self, items: Iterable[Item]) -> IndexReport:
        """Index ``items`` and report; raise what a stage raised, after the other stages have ended.

        Where the caller gives the call up, no batch is begun any more, and what is being stored is stored whole.
        """
        with on_cancel(self._cancel):
            return self._run(items)

    def _run(self, items: Iterable[Item]) -> IndexReport:
        started = time.monotonic()
        self._put_at = started
        self._saver = Saver(self._store, strict=self._options.strict)
        preprocess = self._encoder.preprocess if isinstance(self._encoder, ResizesImages) else None
        self._reading = ReadOptions(self._options.image_limits, preprocess)
        self._examiner = Examiner.of(self._encoder, self._options, self._saver.rejects)
        for reject in self._saver.rejects.values():
            if part := part_of(reject.id):
                self._bad_parts.setdefault(part.of, []).append(reject)
        threads = [
            threading.Thread(
                target=copy_context().run, args=(self._guard, step), name=f"vlmsearch-{step.__name__.strip('_')}"
            )
            for step in (self._encode, self._save)
        ]
        count = max(_MIN_WORKERS, available_cores())  # the encoder's own threads run beside them
        with ThreadPoolExecutor(count, thread_name_prefix="vlmsearch-read") as workers:
            for thread in threads:
                thread.start()
            try:
                for group in groups(items):
                    self._take(workers, group)
                if self._replaced:
                    self._drop_parts()
                self._examine_later(workers, self._look_up(self._held))
                self._put()
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
        with self._encoding:
            self._encoding.notify_all()
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

    def _take(self, workers: ThreadPoolExecutor, group: Sequence[Item]) -> None:
        """Have a group examined, with the parts of its files that are new or changed."""
        containers = {item.id: item for item in group if isinstance(item, Container)}
        inputs: list[Input] = [item for item in group if not isinstance(item, Container)]
        changed: list[Container] = []
        whole = [id_of(item) for item in inputs if isinstance(item, SourceDocument) and _is_plain(item)]
        self._replaced |= {id: set() for id in whole if id in self._files_of_parts}
        if containers:
            with querying(self._store.name, "stamps"):
                stamps = self._store.stamps([id for id in containers if is_id(id)])
            for id, container in containers.items():
                same = self._same(container, stamps.get(id))
                inputs += same
                changed += [] if same else [container]
        self._examine_later(workers, self._look_up(inputs))
        for container in changed:
            self._open(workers, container, stamps.get(container.id))

    def _same(self, container: Container, known: Stamp | None) -> list[UnchangedDocument | Reject]:
        """Return the outcomes of a file that is unchanged or was rejected before.

        Empty for any other file.
        """
        bad = self._bad_parts.get(container.id, [])
        if bad and (self._options.retry_rejects or any(reject.code == "unreadable" for reject in bad)):
            return []
        if self._examiner.is_known(known, Stamp(container.version, container.source)):
            return [UnchangedDocument(container.id, container.readers), *bad]
        old = self._examiner.rejected.get(container.id)
        if old and old.stamp.digest == container.version and not self._options.retry_rejects:
            return [old, *bad]
        return []

    def _open(self, workers: ThreadPoolExecutor, container: Container, known: Stamp | None) -> None:
        """Have the parts of a file examined."""
        ids, whole = set[str](), list[SourceDocument | Reject]()
        if known and not self._examiner.is_known(known, Stamp(container.version, container.source)):
            self._blank(container.id, known)
        is_known = known is not None or container.id in self._files_of_parts
        for group in groups(container.parts(self._reading)):
            parts = [part for part in group if id_of(part) != container.id]
            whole += [part for part in group if id_of(part) == container.id]
            ids.update(map(id_of, parts))
            looked_up = self._look_up(parts)
            is_known = is_known or any(stamp is not None for _, stamp, _ in looked_up)
            self._examine_later(workers, looked_up)
        if not is_known:
            self._examine_later(workers, self._look_up(whole))
            return
        self._held += [replace(item, image=None) if isinstance(item, SourceDocument) else item for item in whole]
        if not any(isinstance(item, Reject) and item.code == "unreadable" for item in whole):
            self._replaced[container.id] = ids

    @cached_property
    def _files_of_parts(self) -> set[str]:
        """Return the files whose parts the index has.

        An interrupted run left no document of the whole file.
        """
        return {part.of for id in self._store.ids() if (part := part_of(id))}

    @cached_property
    def _readers_of_parts(self) -> dict[str, frozenset[str] | None]:
        """Return the readers that the parts of each file have in common."""
        files = dict[str, Union[frozenset[str], None]]()
        for outline in outlines_of(self._store, (READERS,)):
            if part := part_of(outline.id):
                readers = Document(outline.id, metadata=outline.metadata).readers
                files[part.of] = _common(files.get(part.of), readers)
        return files

    def _inheriting(self, items: Mapping[str, Input]) -> dict[str, Input]:
        """Return new documents of known files with the readers of these, where they name none themselves."""
        files: dict[str, tuple[SourceDocument, str]] = {}
        for id, item in items.items():
            if isinstance(item, SourceDocument) and isinstance(item.document.metadata, Mapping):
                file = part.of if (part := part_of(id)) else id
                is_of_file = part is not None or (item.source == id and kind_of(id) is not None)
                if is_of_file and READERS not in item.document.metadata:
                    files[id] = item, file
        if not files:
            return {}
        whole = {document.id: document.readers for document in self._store.get(list({of for _, of in files.values()}))}
        inheriting = dict[str, Input]()
        for id, (item, file) in files.items():
            # what is added without a file has its readers alone: reading all ids is too much for each call
            parts = self._readers_of_parts.get(file) if item.source and file in self._files_of_parts else None
            readers = _common(_common(whole.get(file), self._given_readers.get(file)), parts)
            inheriting[id] = item if readers is None else with_readers(item, reader_names(readers))
        return inheriting

    def _blank(self, id: str, known: Stamp) -> None:
        """Make the index forget which version of a file it has.

        What it says of labels stays.
        """
        labels = known.digest[len(without_labels(known.digest)) :]
        changes = [MetadataChange(read, known, read.metadata, labels) for read in self._store.get([id])]
        self._store.update_metadata(changes)

    def _drop_parts(self) -> None:
        """Delete the parts that files no longer have."""
        dropped = [id for id in self._store.ids() if self._is_dropped(id)]
        gone = [id for id, stamp in self._store.stamps(dropped).items() if stamp.source in self._replaced]
        self._tally.pruned += self._store.delete(gone)
        self._saver.release([id for id in list(self._examiner.rejected) if self._is_dropped(id)])

    def _is_dropped(self, id: str) -> bool:
        """Return whether a document is a part of a file that the file no longer has."""
        part = part_of(id)
        return part is not None and part.of in self._replaced and id not in self._replaced[part.of]

    def _look_up(self, group: Sequence[Input]) -> list[Known]:
        """Return the last input of each id with its stamp in the store.

        With it comes whether another one is under way.
        """
        self._tally.repeated += self._seen.add([id_of(item) for item in group if not isinstance(item, Reject)])
        latest = dict[str, Input]()
        for item in group:
            latest[id_of(item)] = _with_readers_of(latest.get(id_of(item)), item)
        documents = {id: item for id, item in latest.items() if isinstance(item, SourceDocument) and is_id(id)}
        usable = list(documents)
        self._given_readers |= {id: item.document.readers for id, item in documents.items() if _names_readers(item)}
        with self._counting:
            again = {id for id in latest if self._under_way[id]}
            self._under_way.update(latest.keys())
        with querying(self._store.name, "stamps"):
            known = self._store.stamps(usable)  # after that: what is not under way any more is in the store
        latest |= self._inheriting(
            {id: latest[id] for id in usable if id not in known or _is_read(latest[id], known[id])}
        )
        return [(item, known.get(id), id in again) for id, item in latest.items()]

    def _examine_later(self, workers: ThreadPoolExecutor, known: Sequence[Known]) -> None:
        """Have the workers examine inputs; small groups are encoded together with others."""
        for start in range(0, len(known), BATCH):
            some = known[start : start + BATCH]
            size = sum(_image_bytes(item) for item, _, _ in some)
            if size:
                self._wait_for_room(size)
            futures = self._submit(workers, some)
            self._waiting += futures
            self._waiting_bytes += size
            self._waits += len(some)
            if self._waits >= BATCH or time.monotonic() - self._put_at > STORED_EVERY:
                self._put()

    def _wait_for_room(self, size: int) -> None:
        """Wait until there is room for images of this size; StoppedError where the run has ended."""
        if self._read_bytes + size > _READ_BYTES:
            self._put()  # so that room is made
        with self._encoding:
            self._encoding.wait_for(
                lambda: self._is_over or not self._read_bytes or self._read_bytes + size <= _READ_BYTES
            )
            if self._is_over:
                raise StoppedError
            self._read_bytes += size

    def _put(self) -> None:
        waiting, self._waiting, self._waits = self._waiting, [], 0
        size, self._waiting_bytes = self._waiting_bytes, 0
        if waiting:
            self._examined.put((waiting, size))
        self._put_at = time.monotonic()

    def _submit(self, workers: ThreadPoolExecutor, batch: Sequence[Known]) -> list[Future[list[Outcome]]]:
        parts = (batch[start : start + _READ_TOGETHER] for start in range(0, len(batch), _READ_TOGETHER))
        return [workers.submit(copy_context().run, self._examine_all, part) for part in parts]

    def _examine_all(self, some: Sequence[Known]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        with stage("decode", {"vlmsearch.count": len(some)}):
            for given in some:
                if self._is_over:
                    raise StoppedError
                outcomes.append(self._examiner.examine(*given))
        return outcomes

    def _encode(self) -> None:
        records: dict[str, Record] = {}
        outcomes: list[Outcome] = []
        begun = time.monotonic()
        for futures, size in self._examined:
            for examined in _portions(outcome for future in futures for outcome in future.result()):
                ready = [outcome for outcome in examined if isinstance(outcome, Ready)]
                encoded, rejects = encode(self._encoder, ready)
                bad = {reject.id for reject in rejects}
                before = {id: record.document.metadata for id, record in records.items()}
                records.update((record.document.id, record) for record in keep_readers(encoded, before))
                outcomes += [o for o in examined if not (isinstance(o, Ready) and o.document.id in bad)]
                outcomes += rejects
                rows = len(outcomes) + sum(len(record.passages) for record in records.values())
                if rows >= STORED_TOGETHER or time.monotonic() - begun > STORED_EVERY:
                    self._encoded.put((list(records.values()), outcomes))
                    records, outcomes, begun = {}, [], time.monotonic()
            with self._encoding:
                self._read_bytes -= size
                self._encoding.notify_all()
        self._encoded.put((list(records.values()), outcomes))
        self._encoded.close()

    def _save(self) -> None:
        for records, outcomes in self._encoded:
            last = self._saver.save(records, outcomes)
            for id, outcome in last.items():
                if id not in self._counted or isinstance(outcome, Reject):
                    self._tally.count(outcome)
            with self._counting:
                self._under_way.subtract(outcome.id for outcome in outcomes)
                self._under_way = +self._under_way
                counted = {id for id, outcome in last.items() if not isinstance(outcome, Reject)} | self._counted
                self._counted = {id for id in counted if self._under_way[id]}
            if self._options.on_progress:
                self._options.on_progress(self._tally.done)


@dataclass(frozen=True)
class Examiner:
    """An examiner of inputs, which needs no other input and no store.

    Attributes:
        fingerprint: The fingerprint of the encoder.
        prepare: The function that makes an image ready for the encoder; None where it encodes no images.
        options: The options of the run.
        rejected: The reject list of the index, by id.
        splitter: The splitter of long texts.
    """

    fingerprint: str
    prepare: Callable[[ImageSource], ImageSource] | None
    options: IndexOptions
    rejected: Mapping[str, Reject]
    splitter: Splitter

    @classmethod
    def of(cls, encoder: Encoder, options: IndexOptions, rejected: Mapping[str, Reject]) -> Examiner:
        """Return the examiner for an open encoder."""
        limits = options.image_limits
        prepare = partial(prepared_image, encoder, limits=limits) if encodes_images(encoder.spaces) else None
        return cls(encoder.fingerprint, prepare, options, rejected, Splitter.of(encoder))

    def examine(self, item: Input, known: Stamp | None = None, is_again: bool = False) -> Outcome:
        """Return the outcome of one input.

        ``is_again`` says that another input with this id is under way, so that ``known`` is about to be replaced.
        """
        if not isinstance(item, SourceDocument):
            return item
        bare, readers = _without_readers(item)  # which may change where nothing else does
        document, stamp = bare.document, Stamp("", item.source)
        try:
            check_document_id(document.id)
            check_types(document)
            check_metadata(item.document.metadata)
            _check_keys(item.document.metadata)
            limits = self.options.image_limits
            image = document.image if item.image is None else item.image
            image = None if image is None else local_image(image)
            if isinstance(image, Path):
                is_asked = self.options.has_remote_sources and _is_beside(image, item.source)
                image = read_image(image, replace(limits, remote=limits.remote or is_asked))
            stamp = self._stamp(bare, image)
            is_read = item.ocr and not document.text and image is not None
            if is_read:
                stamp = replace(stamp, digest=with_mark(stamp.digest))
            is_same = known == _read_by(document, stamp, readers)[1]
            if (is_same or self.is_known(known, stamp, has_text=bool(document.text))) and not is_again:
                return UnchangedDocument(document.id, readers)
            old = self.rejected.get(document.id)
            is_old = old is not None and without_labels(old.stamp.digest) == without_labels(stamp.digest)
            if old and is_old and not self.options.retry_rejects:
                return old
            if is_read and image is not None:
                document = with_image_text(document, image, limits)
                stamp = self._marked(stamp, document)
            if is_file(document.id, item.source):
                photograph = image if isinstance(image, bytes) else None
                document = with_facts(document, item.source, file_name(item.source), photograph)
            document = _with_unread(document, image if item.image is None else None)
            check_metadata({} if document is bare.document else document.metadata)  # others were checked above
            if not document.text and image is None:
                keys = ", ".join(list(document.metadata)[:_NAMED_KEYS])
                rest = f", only metadata: {keys}" if keys else ""
                why = f"{document.id}: the document has neither text nor image{rest}"
                return Reject(document.id, "empty", CONTROLS.sub("?", why), stamp)
            if not document.text and self.prepare is None:
                why = f"{document.id}: {self.fingerprint} encodes no images"
                return Reject(document.id, "unsupported", why, stamp)
            usable = self.prepare(image) if image is not None and self.prepare else None
            unlabels = known is not None and has_labels(known.digest) and not has_labels(stamp.digest)
            document, stamp = _read_by(document, stamp, readers)
            return Ready(document, usable, stamp, known is not None, unlabels, *self._passages(document.text or ""))
        except MemoryError:
            return Reject(document.id, "too_large", f"{document.id}: it needs more memory than there is", stamp)
        except InvalidInputError as exc:
            image = document.image
            name = web_url(image) or str(image) if isinstance(image, Path) else document.id
            is_named = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(exc))
            message = str(exc) if is_named else f"{name}: {exc}"
            return Reject(document.id, exc.code, CONTROLS.sub("?", message), stamp)

    def _stamp(self, item: SourceDocument, image: ImageSource | None) -> Stamp:
        if item.digest:
            return Stamp(item.digest, item.source)
        own = digest(item.document, image, self.options.image_limits, content=item.content)
        return self._marked(Stamp(own, item.source), item.document)

    def _marked(self, stamp: Stamp, document: Document) -> Stamp:
        """Return the stamp of a document, with a mark where it may have passages."""
        is_long = self.options.passages and self.splitter.is_long(document.text)
        return replace(stamp, digest=with_passages(stamp.digest)) if is_long else stamp

    def _passages(self, text: str) -> tuple[tuple[Passage, ...], bool]:
        """Return the passages of a text, and whether the encoder reads its beginning alone."""
        return (self.splitter.split(text), False) if self.options.passages else ((), not self.splitter.fits(text))

    def is_known(self, known: Stamp | None, stamp: Stamp, *, has_text: bool = True) -> bool:
        """Return whether the index has this version of a document.

        It may have labels that are not in its source. Without a text in its source, it may have one that was read in
        its image or describes it, in passages or not.
        """
        if known and not has_text:
            known = replace(known, digest=without_passages(known.digest))
        if known is None or known == stamp or not self.options.keep_labels:
            return known == stamp
        unlabelled = without_labels(known.digest)
        is_same = stamp.digest in (unlabelled, without_description(unlabelled), without_mark(unlabelled))
        return known.source == stamp.source and is_same and stamp.digest != ""


def _without_readers(item: SourceDocument) -> tuple[SourceDocument, MetadataValue | None]:
    """Return a document without its readers, and these."""
    metadata = item.document.metadata
    if not isinstance(metadata, Mapping) or READERS not in metadata:
        return item, None
    others = {key: value for key, value in metadata.items() if key != READERS}
    return replace(item, document=replace(item.document, metadata=others)), metadata[READERS]


def _check_keys(metadata: Mapping[str, MetadataValue]) -> None:
    """Raise InvalidInputError for a key that is that of readers but for case and spaces: it would open a document."""
    for key in metadata:
        if key != READERS and key.strip().casefold() == READERS:
            raise InvalidInputError(
                "invalid", f"{key!r} does not say who may read: write {READERS!r}, or give it another name"
            )


def _read_by(document: Document, stamp: Stamp, readers: MetadataValue | None) -> tuple[Document, Stamp]:
    """Return a document and its stamp with readers, where they are given."""
    if readers is None:
        return document, stamp
    [record] = keep_readers([Record(document, {}, stamp)], {document.id: {READERS: readers}})
    return record.document, record.stamp


def _common(first: frozenset[str] | None, second: frozenset[str] | None) -> frozenset[str] | None:
    """Return the readers that two documents have in common; None is everyone."""
    return second if first is None else first if second is None else first & second


def _with_unread(document: Document, image: ImageSource | None) -> Document:
    """Return a document that says how many further pages its image file has."""
    counts = unread_pages(image) if isinstance(image, bytes) else {}
    return replace(document, metadata=with_unread(document.metadata, counts)) if counts else document


def _is_beside(image: Path, source: str) -> bool:
    """Return whether an image is beside a file of object storage, or below its folder."""
    id = file_id(str(image))
    return bool(remote_url(source)) and id.startswith(f"{source.rpartition('/')[0]}/") and ".." not in image.parts


class Saver:
    """A writer of records that keeps the reject list.

    ``rejects`` is that list by id, and stays up to date.
    """

    def __init__(self, store: Store, *, strict: bool = False) -> None:
        self._store = store
        self._reject_list = reject_list_of(store)
        self.rejects = {reject.id: reject for reject in self._reject_list.rejects()}
        self._is_strict = strict

    def save(self, records: Sequence[Record], outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
        """Store the outcomes of inputs, and return the last one of each id, by id.

        Raises InvalidInputError for the first rejected input in a strict run.
        """
        last = self._labelled({outcome.id: outcome for outcome in outcomes})
        self._check_strict(outcomes)
        used = [record for record in records if not isinstance(last[record.document.id], Reject)]
        files = {part.of for record in used if (part := record.document.part)}
        parts = [record for record in used if record.document.id not in files]
        whole = [record for record in used if record.document.id in files]
        written = [reject for some in (parts, whole) for reject in self._upsert(some)]
        refused = [reject for reject in written if reject.code == "invalid"]  # by its writer, not by its content
        last.update((reject.id, reject) for reject in written)
        self._note_rejects([o for o in last.values() if isinstance(o, Reject) and o not in refused])
        self.release([id for id, outcome in last.items() if not isinstance(outcome, Reject)])
        return {**last, **self._with_readers(last.values())}

    def _labelled(self, last: Mapping[str, Outcome]) -> dict[str, Outcome]:
        """Return outcomes that say whether labels are lost: what the digest says of may be readers, which are kept."""
        doubtful = {id: ready for id, ready in last.items() if isinstance(ready, Ready) and ready.unlabels}
        labels = {read.id: split_labels(read.metadata)[1] for read in self._store.get(list(doubtful))}
        only = {id: ready for id, ready in doubtful.items() if labels.get(id, {}).keys() == {READERS}}
        return {**last, **{id: replace(ready, unlabels=False) for id, ready in only.items()}}

    def _with_readers(self, outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
        """Give unchanged documents, and the parts of files, their given readers; returns those that had others."""
        given: dict[MetadataValue, list[str]] = {}
        for outcome in outcomes:
            if isinstance(outcome, UnchangedDocument) and outcome.readers is not None:
                given.setdefault(outcome.readers, []).append(outcome.id)
        updated, refused = set[str](), dict[str, Outcome]()
        for readers, ids in given.items():
            there = self._store.get(with_parts(self._store, ids))
            other = [document.id for document in there if document.metadata.get(READERS) != readers]
            try:
                change_metadata(self._store, other, {READERS: readers})
            except InvalidBatchError as exc:  # its writer is none of them
                refused |= {id: Reject(id, exc.code, str(next(iter(exc.items.values())))) for id in ids}
            updated |= {part.of if (part := part_of(id)) and part.of in ids else id for id in other}
        given_now = {
            id: UnchangedDocument(id, is_updated=True) for ids in given.values() for id in ids if id in updated
        }
        return {**given_now, **refused}

    def _upsert(self, records: list[Record]) -> list[Reject]:
        """Store records.

        What is too large for the store becomes a Reject, and the others go on.
        """
        if not records:
            return []
        with querying(self._store.name, "upsert", count=len(records)):
            rejects = upsert(self._store, records)
        self._check_strict(rejects)
        return rejects

    def _check_strict(self, outcomes: Iterable[Outcome]) -> None:
        """Raise InvalidInputError for the first rejected input in a strict run."""
        for outcome in outcomes if self._is_strict else ():
            if isinstance(outcome, Reject):
                raise InvalidInputError(outcome.code, f"{outcome.message} (and nothing after it was indexed: strict)")

    def _note_rejects(self, rejects: Sequence[Reject]) -> None:
        """Put new rejects on the list; documents whose content went bad are deleted.

        One that has readers stays, as nothing else would know them when its content can be used again.
        """
        new = [reject for reject in rejects if self.rejects.get(reject.id) != reject and is_id(reject.id)]
        if new:
            bad = [reject.id for reject in new if reject.code != "unreadable"]
            whole = [id for id in bad if part_of(id) is None]  # parts have those of their file when they come back
            read = {document.id for document in self._store.get(whole) if READERS in document.metadata}
            self._store.delete([id for id in bad if id not in read])
            self._reject_list.reject(new)  # last, since an input on the list is not examined again
            self.rejects.update((reject.id, reject) for reject in new)

    def release(self, ids: Sequence[str]) -> None:
        """Take inputs off the reject list, where they are on it."""
        healed = [id for id in ids if id in self.rejects]
        if healed:
            self._reject_list.release(healed)
            for id in healed:
                del self.rejects[id]


def upsert(store: Store, records: Sequence[Record]) -> list[Reject]:
    """Store records, and return those that the store does not take as rejects."""
    try:
        store.upsert(records)
    except InvalidBatchError as exc:
        expected = ("too_large", "invalid") if isinstance(store, RestrictedStore) else ("too_large",)
        if any(error.code not in expected for error in exc.items.values()):
            raise
        left = [record for item, record in enumerate(records) if item not in exc.items]
        bad = [(records[item], error) for item, error in exc.items.items()]
        rejects = [Reject(record.document.id, error.code, str(error), record.stamp) for record, error in bad]
        return [*rejects, *(upsert(store, left) if left else ())]
    return []


def settle(store: Store, source: Paths, report: IndexReport, seen: Collection[str] | None) -> IndexReport:
    """Clean up after a run: entries of the reject list that are over, and documents whose source is gone.

    Args:
        store: The index.
        source: What was read, to its end.
        report: The report of the run.
        seen: The ids of all inputs, to remove the other documents of the source; None to remove none.

    Returns:
        The report, with the numbers of removed documents, and of files that were left out or that nothing takes.
        Where documents are unchanged, it says how many of the index have unread parts.
    """
    bad = {reject.id for reject in report.rejects}
    release(store, lambda reject: reject.id not in bad and source.was_read(reject.id, reject.stamp))
    if seen is not None:
        missing = [id for id in store.ids() if not _was_seen(id, seen)]
        stamps = store.stamps(missing)
        lost = source.note_lost(seen, stamps)
        gone = [id for id, stamp in stamps.items() if source.covers(id, stamp)]
        release(store, lambda reject: not _was_seen(reject.id, seen) and source.covers(reject.id, reject.stamp))
        report = replace(report, pruned=report.pruned + store.delete(gone), rejects=(*report.rejects, *lost))
    in_all = (count_unread(store)[0] or 0) if report.unchanged else 0
    return replace(report, left_out=source.left_out(), others=source.others(), partly_read_in_all=in_all)


def checked_report(source: Paths, report: IndexReport) -> IndexReport:
    """Return the report of a whole run; ConfigError where there was nothing to index."""
    if not report.seen and not report.pruned:
        where = ", ".join(map(str, source.given))
        if report.left_out:
            names = ", ".join(f"`{option}`" for option in report.left_out)
            raise ConfigError(f"all files in {where} were left out, since they are read with an option: {names}")
        others = f", but other files: {endings_text(report.others)}; name a table itself" if report.others else ""
        raise ConfigError(f"no images, texts or rows in {where}{others or ': name files, or a folder that has some'}")
    return report


def _was_seen(id: str, seen: Collection[str]) -> bool:
    part = part_of(id)
    return id in seen or (part is not None and part.of in seen)


def release(store: Store, is_over: Callable[[Reject], bool]) -> None:
    """Take entries off the reject list of a store."""
    rejects = reject_list_of(store)
    rejects.release([reject.id for reject in rejects.rejects() if is_over(reject)])


def groups(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield inputs in groups to be looked up.

    A group ends early where it is heavy, or slow to come.
    """
    group: list[T] = []
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


def _portions(outcomes: Iterable[Outcome]) -> Iterator[list[Outcome]]:
    """Yield outcomes that are encoded together. A portion ends early where it has many passages."""
    portion, passages = list[Outcome](), 0
    for outcome in outcomes:
        portion.append(outcome)
        passages += len(outcome.passages) if isinstance(outcome, Ready) else 0
        if passages >= BATCH:
            yield portion
            portion, passages = [], 0
    if portion:
        yield portion


def _is_plain(item: SourceDocument) -> bool:
    """Return whether an input is a whole file without parts, which its kind may have."""
    return item.source == item.document.id and not item.digest and kind_of(item.source) is not None


def _names_readers(item: SourceDocument) -> bool:
    """Return whether it is a whole file that names readers, and comes from elsewhere."""
    id, metadata = item.document.id, item.document.metadata
    return isinstance(metadata, Mapping) and READERS in metadata and item.source != id and kind_of(id) is not None


def _with_readers_of(before: Input | None, item: Input) -> Input:
    """Return an input that names no readers with those of the one before it."""
    if not isinstance(before, SourceDocument) or not isinstance(item, SourceDocument):
        return item
    readers = _without_readers(before)[1]
    metadata = item.document.metadata
    is_silent = readers is not None and isinstance(metadata, Mapping) and READERS not in metadata
    return with_readers(item, readers) if is_silent else item  # type: ignore[arg-type]


def _is_read(item: Input, known: Stamp) -> bool:
    """Return whether a file brings a part that the index has from elsewhere."""
    if not isinstance(item, SourceDocument) or item.source == known.source:
        return False
    return item.source == file_of_part(item.document.id) != item.document.id


def _image_bytes(item: Input) -> int:
    """Return the size of an image that was read already."""
    if not isinstance(item, SourceDocument) or item.image is None:
        return 0
    return len(item.image) if isinstance(item.image, bytes) else 3 * item.image.width * item.image.height


def _chars(item: Item) -> int:
    """Return how much memory an input takes, in characters.

    An image that is not read yet counts as one of middle size.
    """
    if not isinstance(item, SourceDocument):
        return 0
    document = item.document
    if item.image is not None:
        return _READ_CHARS * _image_bytes(item)
    image = 0 if isinstance(document.image, (Path, type(None))) else _HEAVY_CHARS
    return image + (len(document.text) if isinstance(document.text, str) else 0)
