"""Indexing on Ray: how much a second encoder adds, and what is left of an index while processes are killed.

Both use a cluster of this machine, which starts and ends with the run, and rows of Parquet that are drawn for it.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks.corpus import BLOCK, Corpus
from benchmarks.memory import family, proportional
from vlmsearch.errors import ConfigError
from vlmsearch.integrations.ray import RayOptions, index
from vlmsearch.models.inputs import available_cores
from vlmsearch.registry import open_store
from vlmsearch.stores.base import check_store

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

Report = Callable[[str, int, int], None]
"""Takes a step's name, how many documents are done, and how many there are."""

Task = TypeVar("Task", bound=Callable[[], None])

_OBJECT_STORE_BYTES = 200 * 2**20
_SHARD_BLOCKS = 20
"""Blocks of the drawn documents in one Parquet file."""
_LONG_TEXT = 12
"""Captions in a text that takes an encoder far longer than it takes the rest of the flow."""
_SAMPLED_EVERY = 2.0
_STAGES = {"_read": "read", "_examine": "examine", "_Worker": "encode", "_save": "store", "_Keeper": "index"}
"""What the titles of the flow's processes have in them, and what the processes do."""


@dataclass(frozen=True)
class WorkersTiming:
    """Documents a second with so many encoders, round by round."""

    workers: int
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """The median."""
        return statistics.median(self.rates)


@dataclass(frozen=True)
class MemoryOverTime:
    """Memory in MiB over time: the extremes, and medians of all samples, of the first quarter and of the last."""

    least: float
    median: float
    most: float
    first_quarter: float
    last_quarter: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> MemoryOverTime:
        """Summarise samples in the order in which they were taken."""
        quarter = max(len(samples) // 4, 1)
        return cls(
            min(samples),
            statistics.median(samples),
            max(samples),
            statistics.median(samples[:quarter]),
            statistics.median(samples[-quarter:]),
        )


@dataclass(frozen=True)
class KilledRun:
    """Say what a run during which processes were killed took, and what it left.

    ``rate`` is rows a second from the first to the last time that any were reported as done, ``seconds`` the whole run,
    with its start. ``kills`` counts killed processes by what they do. ``memory`` is that of the caller and all that it
    started, ``caller`` that of the caller. ``missing`` rows are not in the index, ``doubled`` ids are there more than
    once, ``foreign`` ones are of no row; ``clean`` is what the check of the store gives.
    """

    rows: int
    seconds: float
    rate: float
    kills: dict[str, int]
    memory: MemoryOverTime
    caller: MemoryOverTime
    added: int
    unchanged: int
    missing: int
    doubled: int
    foreign: int
    clean: bool

    @property
    def complete(self) -> bool:
        """Whether the index is the one that a run without kills builds."""
        return self.clean and not (self.missing or self.doubled or self.foreign)


@contextmanager
def local_cluster(cpus: Sequence[int]) -> Iterator[Cluster]:
    """Be connected to a cluster of nodes of this machine, of which each claims to have so many CPUs.

    Standard output is dropped meanwhile: Ray writes there about each process that ends.
    """
    import ray
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            for count in cpus:
                cluster.add_node(num_cpus=count, object_store_memory=_OBJECT_STORE_BYTES, include_dashboard=False)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def time_workers(
    counts: Sequence[int], *, documents: int, encoder: str, rounds: int, folder: Path, report: Report
) -> list[WorkersTiming]:
    """Index long texts with different numbers of encoders in turns, on a cluster of a node of one CPU for each.

    Args:
        counts: Numbers of encoders.
        documents: How many texts each run indexes.
        encoder: The URL of an encoder that takes one core.
        rounds: How often each number runs.
        folder: An empty folder for the texts and the indexes.
        report: Told what is done.

    Returns:
        The rates from the first to the last time that documents were reported as done.

    Raises:
        ConfigError: There are so few documents that all were done at once.
    """
    files = _write_rows(folder / "rows", documents, captions=_LONG_TEXT, report=report)
    rates: dict[int, list[float]] = {count: [] for count in counts}
    report("starting a cluster", 0, 1)
    with local_cluster([1] * max(counts)):
        for turn in range(rounds):
            for count, found in rates.items():
                progress = _Progress(f"round {turn + 1}, workers: {count}", documents, report)
                store = f"sqlite:{folder}/index-{turn}-{count}"
                index(files, encoder=encoder, store=store, on_progress=progress, options=RayOptions(workers=count))
                found.append(progress.rate)
    return [WorkersTiming(count, tuple(found)) for count, found in rates.items()]


def index_while_killing(
    rows: int, *, kill_every: float | None, encoder: str, store: str, folder: Path, report: Report
) -> KilledRun:
    """Index rows on a cluster of this machine's cores, kill a process of the flow every so many seconds, and compare.

    Args:
        rows: How many.
        kill_every: Seconds between two kills; None for none.
        encoder: The URL of an encoder.
        store: The URL of a store that is empty.
        folder: An empty folder for the rows.
        report: Told what is done.

    Raises:
        ConfigError: The store has documents or cannot be checked, the system has no ``/proc``, or there are so few
            rows that all were done at once.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        raise ConfigError("processes and their memory are found in /proc, which this system has not: use Linux")
    with open_store(store) as opened:
        if len(opened):
            raise ConfigError(f"{store} has documents: give an index that is new")
    files = _write_rows(folder / "rows", rows, report=report)
    report("starting a cluster", 0, 1)
    with local_cluster([available_cores()]):
        progress = _Progress("indexing", rows, report)
        started = time.monotonic()
        with _every(_SAMPLED_EVERY, _Samples(progress)) as samples, _every(kill_every, _Killer()) as killer:
            result = index(files, encoder=encoder, store=store, on_progress=progress)
            samples()
        seconds = time.monotonic() - started
    report("comparing", 0, 1)
    with open_store(store) as opened:
        ids = list(opened.ids())
        clean = check_store(opened).clean
    expected, found = set(map(_id, range(rows))), set(ids)
    return KilledRun(
        rows=rows,
        seconds=seconds,
        rate=progress.rate,
        kills=dict(killer.killed),
        memory=MemoryOverTime.of(samples.all),
        caller=MemoryOverTime.of(samples.caller),
        added=result.added,
        unchanged=result.unchanged,
        missing=len(expected - found),
        doubled=len(ids) - len(found),
        foreign=len(found - expected),
        clean=clean,
    )


def _write_rows(folder: Path, rows: int, *, captions: int = 1, report: Report) -> list[Path]:
    """Parquet files of rows with an id, a text of so many made-up captions, and two columns of metadata."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    corpus = Corpus(rows, dim=2)
    files: list[Path] = []
    for start in range(0, len(corpus.blocks), _SHARD_BLOCKS):
        first = start * BLOCK
        report("drawing rows", first, rows)
        blocks = [corpus.block(number) for number in corpus.blocks[start : start + _SHARD_BLOCKS]]
        texts = [text for block in blocks for text in block.texts]
        repeated = texts * (1 + captions // len(texts)) + texts
        columns = {
            "id": [_id(first + place) for place in range(len(texts))],
            "text": [" ".join(repeated[place : place + captions]) for place in range(len(texts))],
            "album": [album for block in blocks for album in block.columns["album"].tolist()],
            "rating": [rating for block in blocks for rating in block.columns["rating"].tolist()],
        }
        files.append(folder / f"{len(files):05}.parquet")
        parquet.write_table(pa.table(columns), files[-1])
    return files


def _id(row: int) -> str:
    return f"row-{row:09}"


@dataclass
class _Progress:
    """Notes when how much was done."""

    step: str
    total: int
    report: Report
    marks: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.report(self.step, 0, self.total)

    def __call__(self, done: int) -> None:
        self.marks.append((time.monotonic(), done))
        self.report(self.step, done, self.total)

    @property
    def rate(self) -> float:
        """Documents a second from the first mark to the last."""
        (first, before), (last, after) = self.marks[0], self.marks[-1]
        if after == before:
            raise ConfigError(f"{self.total} documents are done at once, which gives no rate: give more")
        return (after - before) / (last - first)


@dataclass
class _Samples:
    """Takes the memory of this process and of all that it started, once something is done."""

    progress: _Progress
    all: list[float] = field(default_factory=list)
    caller: list[float] = field(default_factory=list)

    def __call__(self) -> None:
        if self.progress.marks:
            self.all.append(sum(map(proportional, family(os.getpid()))))
            self.caller.append(proportional(os.getpid()))


@dataclass
class _Killer:
    """Kills one of the flow's processes, if there is one."""

    killed: Counter[str] = field(default_factory=Counter)

    def __call__(self) -> None:
        if victims := list(_flow_processes()):
            pid, stage = random.choice(victims)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.killed[stage] += 1


@contextmanager
def _every(seconds: float | None, task: Task) -> Iterator[Task]:
    """Call a task every so many seconds in a thread; never where they are None."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            task()

    thread = threading.Thread(target=run)
    if seconds is not None:
        thread.start()
    try:
        yield task
    finally:
        over.set()
        if seconds is not None:
            thread.join()


def _flow_processes() -> Iterator[tuple[int, str]]:
    """The processes that this one's cluster has for the flow, and what each does."""
    for pid in family(os.getpid()):
        with suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
            stage = next((stage for name, stage in _STAGES.items() if name in title), None)
            if title.startswith("ray::") and stage:
                yield pid, stage
