"""Bulk indexing on a cluster: the flow of `Pipeline.index` on Ray Data (https://docs.ray.io/en/latest/data/data.html).

::

    the caller      finds files and tables, and counts the outcomes.
    tasks           read tables row by row, and list files.
    tasks           read images, digest, skip unchanged documents, decode and resize.
    actors          encode batches, each with an encoder of its own.
    actors          store batches, each with the index open; one for an index in files of this machine.

Each stage waits for the next one, so that memory is bounded. Every step can be done twice with the same result. So Ray
repeats the steps of a process or a machine that was lost, and another run completes one that was broken off.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import PIL.Image

from vlmsearch._util.extras import install_command
from vlmsearch._util.unread import COUNT, UNREAD
from vlmsearch.encoders.base import Encoder, ResizesImages, prepared_image
from vlmsearch.errors import BackendError, ConfigError, MissingDependencyError, VlmsearchError, one_line
from vlmsearch.indexing.flow import (
    BATCH,
    STORED_TOGETHER,
    Examiner,
    IndexOptions,
    Outcome,
    Saver,
    Tally,
    checked_report,
    settle,
)
from vlmsearch.indexing.items import NO_OPTIONS, Container, Item, SourceDocument, SourceOptions
from vlmsearch.indexing.passages import Splitter
from vlmsearch.indexing.records import Ready, encode, plain
from vlmsearch.indexing.sources import Paths, file_name, read_unit
from vlmsearch.media.images import IMAGE_SUFFIXES
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.models.inputs import to_pixels
from vlmsearch.registry import open_encoder, open_store, usual_encoder
from vlmsearch.stores.base import Store
from vlmsearch.stores.readers import keep_file_readers
from vlmsearch.types import Document, ImageSource, IndexReport, Record, Reject, Space, Stamp, encodes_images, is_id

try:
    import pyarrow as pa
    import ray
    import ray.data
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as exc:
    raise MissingDependencyError(f"{exc.name} is not installed: {install_command('ray')}") from exc

if TYPE_CHECKING:
    from ray.actor import ActorHandle

    from vlmsearch.media.preprocess import Preprocess

_BLOCK_BYTES = 16 * 2**20
"""Bytes that pass from one stage to the next at a time."""
_READERS = 4
"""Tables that are read, and lists of files that are made, at the same time."""
_THREADS = 4
"""Calls that one process of the index answers at the same time: it is asked what it has while it stores."""
_READER_BYTES = 2**28
"""The memory that a task which reads and decodes reserves."""
_UNITS_A_TASK = 8
_CONNECT_SECONDS = 10.0
_ROWS = STORED_TOGETHER
"""Documents of a task, which are read again if its process is killed."""
_LOOKED_UP = 2 * BATCH
"""Documents that the index is asked about together."""


@dataclass(frozen=True)
class RayOptions:
    """The cluster to run on, and the resources to use.

    Attributes:
        address: The cluster: ``HOST:PORT`` of its head, or ``auto`` for the one that this machine belongs to. None
            starts one of this machine's cores, unless RAY_ADDRESS names another or the program has connected to one.
        workers: The number of encoders that work at a time. The default is one a GPU where ``worker_gpus`` is given,
            else one a machine. An encoder takes all cores of its machine unless its URL says ``threads``.
        worker_cpus: The number of Ray's CPUs that an encoder reserves. With 0, encoders and the tasks that decode share
            the cores, as they do in one process. One CPU has to be left, also after a machine is lost.
        worker_gpus: The number of Ray's GPUs that an encoder reserves, such as 1 for ``tensorrt:``.
        writers: The number of processes that write to an index on servers. An index in files has one.

    Example:
        >>> RayOptions(workers=8, worker_gpus=1).writers
        4
    """

    address: str | None = None
    workers: int | None = None
    worker_cpus: float = 0.0
    worker_gpus: float = 0.0
    writers: int = 4


def index(
    paths: str | Path | Iterable[str | Path] | Paths,
    *,
    encoder: str | None = None,
    store: str,
    prune: bool = False,
    retry_rejects: bool = False,
    on_progress: Callable[[int], None] | None = None,
    image_limits: ImageLimits = DEFAULT_LIMITS,
    options: RayOptions = RayOptions(),
) -> IndexReport:
    """Index what paths name on a Ray cluster; the index is the one that `Pipeline.index` builds.

    Every machine of the cluster needs vlmsearch with the same extras, and the files by the same names. It also needs
    the environment variables of the back ends and the object storage. If an id comes more than once in a run, any of
    its documents may stay.

    Args:
        paths: As for `Pipeline.index`.
        encoder: The URL of an encoder, which each worker opens; None for the one that built the index, or the default.
        store: The URL of a store. One that is files, such as ``sqlite:``, is on the machine of the caller.
        prune: Remove the documents that came from these folders and tables and are there no longer.
        retry_rejects: Try those that were rejected again, too.
        on_progress: Called with the number of inputs that are done.
        image_limits: How large an image may be.
        options: Where and on how much to run.

    Returns:
        What was done. A document that was stored by a worker which was lost right after that counts as unchanged.

    Raises:
        ConfigError: A path or a URL is wrong, there is nothing to index, or the cluster is too small for the workers.
        IndexMismatchError: Another encoder built the index.
        BackendError: The encoder, the store or the cluster failed.

    Example:
        >>> from vlmsearch.integrations.ray import RayOptions, index
        >>> index("s3://photos/shards/*.tar", encoder="onnx:default", store="postgresql://db/photos",
        ...       options=RayOptions("auto", workers=16))  # doctest: +SKIP
        IndexReport(added=1000000, ...)
    """
    started = time.monotonic()
    given = [paths] if isinstance(paths, (str, Path)) else paths
    source = given if isinstance(given, Paths) else Paths(list(given))
    if replace(source.options, follow_links=True, passages=True, columns=None, readers=None) != NO_OPTIONS:
        raise ConfigError("a cluster reads images, texts and tables: index files of several documents on one machine")
    with open_store(store) as opened:
        url = encoder or usual_encoder(opened.name, opened.manifest())
    settings = _Settings(
        url,
        store,
        os.getcwd(),
        IndexOptions(
            retry_rejects=retry_rejects,
            image_limits=image_limits,
            has_remote_sources=True,
            passages=source.options.passages,
        ),
    )
    tally, seen = Tally(), set[str]()
    with _connected(options.address), _own_errors():
        for outcomes in _run(source, settings, options):
            for outcome in outcomes:
                tally.count(outcome)
                if isinstance(outcome, Reject):
                    source.note(outcome)
            seen.update(outcome.id for outcome in outcomes if prune)
            if on_progress:
                on_progress(tally.done)
    with open_store(store) as opened:
        report = settle(opened, source, tally.report(time.monotonic() - started), seen if prune else None)
    return checked_report(source, report)


@dataclass(frozen=True)
class _Settings:
    """Settings for the processes; ``folder`` is the base of relative paths in URLs."""

    encoder: str
    store: str
    folder: str
    options: IndexOptions

    def enter(self) -> None:
        """Work in the caller's folder, where this machine has it."""
        with suppress(OSError):
            os.chdir(self.folder)


@dataclass(frozen=True)
class _EncoderFacts:
    """A description of an encoder that is not open."""

    fingerprint: str
    spaces: tuple[Space, ...]
    preprocess: Preprocess | None
    splitter: Splitter


def _run(source: Paths, settings: _Settings, options: RayOptions) -> Iterator[list[Outcome]]:
    """Yield what became of the inputs, some at a time."""
    units = [_dump(unit) for unit in source.units()]
    if not units:
        return
    reserved = {"num_cpus": options.worker_cpus, "num_gpus": options.worker_gpus}
    workers = _workers(options)
    described: _EncoderFacts = ray.get(ray.remote(_describe).options(**reserved).remote(settings))
    with ExitStack() as stack:
        keepers = _keepers(settings, described, options, stack)
        rejected = ray.put(ray.get(keepers[0].rejects.remote()))
        blocks = math.ceil(len(units) / _UNITS_A_TASK)
        data = ray.data.from_items([{"row": unit} for unit in units], override_num_blocks=blocks)
        data.context.target_max_block_size = _BLOCK_BYTES
        data.context.enable_progress_bars = False
        data.context.print_on_execution_start = False
        tasks = ray.data.TaskPoolStrategy
        stages = (
            data.map_batches(
                _read,
                batch_size=1,
                num_cpus=0,
                compute=tasks(min(_READERS, blocks)),
                batch_format="pyarrow",
                fn_args=(source.options, settings.options.image_limits),
            )
            .repartition(target_num_rows_per_block=_ROWS)
            .map_batches(
                _examine,
                batch_size=_LOOKED_UP,
                num_cpus=1,
                memory=_READER_BYTES,
                batch_format="pyarrow",
                fn_args=(settings, described, keepers, [rejected]),
            )
            .map_batches(
                _Worker,
                batch_size=BATCH,
                compute=ray.data.ActorPoolStrategy(size=workers),
                batch_format="pyarrow",
                fn_constructor_args=(settings,),
                **reserved,
            )
            .map_batches(
                _save,
                batch_size=STORED_TOGETHER,
                num_cpus=0,
                compute=tasks(len(keepers)),
                batch_format="pyarrow",
                fn_args=(keepers,),
            )
        )
        for batch in stages.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from _rows(batch)
        ray.get([keeper.close.remote() for keeper in keepers])


# ---- in the processes of the cluster


def _describe(settings: _Settings) -> _EncoderFacts:
    settings.enter()
    with open_encoder(settings.encoder) as encoder:
        preprocess = encoder.preprocess if isinstance(encoder, ResizesImages) else None
        splitter = replace(Splitter.of(encoder), count=partial(_count, settings))
        return _EncoderFacts(encoder.fingerprint, encoder.spaces, preprocess, splitter)


def _read(batch: pa.Table, options: SourceOptions, limits: ImageLimits) -> Iterator[pa.Table]:
    """Yield the documents of files and tables.

    Images are read here only where they are in a table.
    """
    for unit in _rows(batch):
        yield from _tables(read_unit(unit, options, limits))


def _examine(
    batch: pa.Table,
    settings: _Settings,
    described: _EncoderFacts,
    keepers: Sequence[ActorHandle[Any]],
    rejected: Sequence[ray.ObjectRef[dict[str, Reject]]],
) -> Iterator[pa.Table]:
    """Yield what is to be done about each document."""
    items = [_single(item) if isinstance(item, Container) else item for item in _rows(batch)]
    ids = [item.document.id for item in items if isinstance(item, SourceDocument) and is_id(item.document.id)]
    known: dict[str, Stamp] = ray.get(random.choice(keepers).stamps.remote(ids))
    prepare = _preparing(settings, described)
    examiner = Examiner(described.fingerprint, prepare, settings.options, _fetched(rejected[0]), described.splitter)
    yield from _tables(_without_bytes(examiner.examine(item, _stamp_of(item, known), False)) for item in items)


def _single(container: Container) -> SourceDocument | Reject:
    """Return a file of several documents as a Reject, or a TIFF as its first page."""
    name = file_name(container.id)
    if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
        document = Document(container.id, image=Path(name), readers=container.readers)
        return SourceDocument(document, container.source)
    message = f"{container.id!r} is a file of several documents, which a cluster does not read: index it on one machine"
    return Reject(container.id, "unreadable", message, Stamp("", container.source))


def _stamp_of(item: Item, known: Mapping[str, Stamp]) -> Stamp | None:
    return known.get(item.document.id) if isinstance(item, SourceDocument) else None


def _without_bytes(outcome: Outcome) -> Outcome:
    """Return the same without the image as it was read: what the encoder takes of it is there beside it."""
    return replace(outcome, document=plain(outcome.document)) if isinstance(outcome, Ready) else outcome


@cache
def _fetched(rejected: ray.ObjectRef[dict[str, Reject]]) -> dict[str, Reject]:
    rejects: dict[str, Reject] = ray.get(rejected)
    return rejects


@cache
def _preparing(settings: _Settings, described: _EncoderFacts) -> Callable[[ImageSource], ImageSource] | None:
    """Return the function that makes an image ready for the encoder.

    The encoder is opened only where nothing else knows how.
    """
    if not encodes_images(described.spaces):
        return None
    limits = settings.options.image_limits
    if described.preprocess is not None:
        return partial(_resized, preprocess=described.preprocess, limits=limits)
    return partial(prepared_image, _encoder(settings), limits=limits)


@cache
def _encoder(settings: _Settings) -> Encoder:
    settings.enter()
    return open_encoder(settings.encoder)


def _count(settings: _Settings, texts: Sequence[str]) -> list[int]:
    """Count the tokens of texts; the encoder is opened for the first long one."""
    return Splitter.of(_encoder(settings)).count(texts)


def _resized(image: ImageSource, preprocess: Preprocess, limits: ImageLimits) -> ImageSource:
    return PIL.Image.fromarray(to_pixels(image, preprocess, limits))


class _Worker:
    """An encoder, for batches."""

    def __init__(self, settings: _Settings) -> None:
        settings.enter()
        self._encoder = open_encoder(settings.encoder)

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        """Yield the outcomes, each with its record where it has one."""
        outcomes: list[Outcome] = list(_rows(batch))
        encoded, rejects = encode(self._encoder, [outcome for outcome in outcomes if isinstance(outcome, Ready)])
        records = {record.document.id: record for record in encoded}
        bad = {reject.id for reject in rejects}
        rest = [outcome for outcome in outcomes if not (isinstance(outcome, Ready) and outcome.id in bad)]
        yield from _tables((_counted(outcome), records.get(outcome.id)) for outcome in (*rest, *rejects))


def _counted(outcome: Outcome) -> Outcome:
    """Return what has to be known of an outcome to count it."""
    if not isinstance(outcome, Ready):
        return outcome
    passages = tuple(replace(passage, heading="", text="") for passage in outcome.passages)
    metadata = {key: value for key, value in outcome.document.metadata.items() if key in (UNREAD, COUNT)}
    return replace(outcome, document=Document(outcome.id, metadata=metadata), image=None, passages=passages)


def _save(batch: pa.Table, keepers: Sequence[ActorHandle[Any]]) -> pa.Table:
    """Have documents stored; returns their outcomes as one row."""
    rows = batch["row"].to_pylist()
    return pa.table({"row": pa.array([ray.get(random.choice(keepers).save.remote(rows))], pa.large_binary())})


class _Keeper:
    """The index, opened when it is first asked."""

    def __init__(self, settings: _Settings, described: _EncoderFacts) -> None:
        self._settings, self._described = settings, described
        self._opening, self._saving = threading.Lock(), threading.Lock()
        self._store: Store | None = None

    def _open(self) -> Store:
        with self._opening:
            if self._store is None:
                self._settings.enter()
                store = open_store(self._settings.store)
                store.bind(self._described.fingerprint, self._described.spaces)
                self._saver = Saver(store)
                self._store = store
            return self._store

    def rejects(self) -> dict[str, Reject]:
        """Return the reject list, by id."""
        self._open()
        return self._saver.rejects

    def stamps(self, ids: list[str]) -> dict[str, Stamp]:
        """Return what the index has of documents."""
        return self._open().stamps(ids)

    def save(self, rows: list[bytes]) -> bytes:
        """Store what `_Worker` gave; what became of it."""
        store = self._open()
        given: list[tuple[Outcome, Record | None]] = list(map(pickle.loads, rows))
        records = {record.document.id: record for _, record in given if record is not None}
        with self._saving:
            kept = keep_file_readers(list(records.values()), store)
            last = self._saver.save(kept, [outcome for outcome, _ in given])
        return _dump(list(last.values()))

    def close(self) -> None:
        """Close the index."""
        with self._opening:
            if self._store is not None:
                self._store.close()


# ---- the cluster


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Be connected to a cluster: that of the program, that at an address, or one of this machine that ends after it."""
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)  # it warns of what is asked for
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        _check_address(address or "")
        ray.init(
            address=address or os.environ.get("RAY_ADDRESS", "local"),
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except (OSError, RuntimeError, ValueError) as exc:
        raise BackendError(f"no Ray cluster at {address or 'this machine'}: {one_line(exc)}") from exc
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """OSError where nothing listens, which Ray would find out after minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()


@contextmanager
def _own_errors() -> Iterator[None]:
    """Give what a process of the cluster raised, as it was raised there."""
    try:
        yield
    except ray.exceptions.RayError as exc:
        cause: BaseException | None = exc
        while cause is not None:
            if isinstance(cause, VlmsearchError) and not isinstance(cause, ray.exceptions.RayError):
                raise cause from exc
            cause = getattr(cause, "cause", None) or cause.__cause__
        raise BackendError(f"the Ray cluster failed: {one_line(exc)}") from exc


def _workers(options: RayOptions) -> int:
    """Return how many encoders work at a time; ConfigError for too small a cluster."""
    has = ray.cluster_resources()
    cpus, gpus = has.get("CPU", 0.0), has.get("GPU", 0.0)
    machines = sum(1 for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU"))
    usual = int(gpus // options.worker_gpus) if options.worker_gpus else machines
    count = options.workers or usual
    if count * options.worker_gpus > gpus or count < 1:
        raise ConfigError(f"{count or 'any'} `workers` of {options.worker_gpus:g} GPUs: the cluster has {gpus:g}")
    if count * options.worker_cpus + 1 > cpus:
        raise ConfigError(
            f"{count} `workers` of {options.worker_cpus:g} CPUs leave none of the cluster's {cpus:g} to read and "
            "decode: give fewer, or less than that to each with `worker_cpus`"
        )
    return count


def _keepers(
    settings: _Settings, described: _EncoderFacts, options: RayOptions, stack: ExitStack
) -> list[ActorHandle[Any]]:
    """Return the processes that have the index open.

    One on this machine, unless servers keep it. They end with the stack.
    """
    with open_store(settings.store) as store:
        is_served = store.is_served
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    remote = ray.remote(_Keeper).options(
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=-1,
        max_concurrency=_THREADS,
        scheduling_strategy="SPREAD" if is_served else here,
    )
    keepers = [remote.remote(settings, described) for _ in range(options.writers if is_served else 1)]
    for keeper in keepers:
        stack.callback(ray.kill, keeper)
    return keepers


# ---- rows


def _dump(value: object) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def _rows(batch: pa.Table) -> Iterator[Any]:
    for row in batch["row"]:
        yield pickle.loads(row.as_py())  # noqa: S301 - a process of this run wrote it


def _tables(values: Iterable[object]) -> Iterator[pa.Table]:
    """Yield rows with these values, so many at a time as are not too large."""
    rows: list[bytes] = []
    size = 0
    for value in values:
        rows.append(_dump(value))
        size += len(rows[-1])
        if size > _BLOCK_BYTES:
            yield _table(rows)
            rows, size = [], 0
    yield _table(rows)


def _table(rows: Sequence[bytes]) -> pa.Table:
    return pa.table({"row": pa.array(rows, pa.large_binary())})
