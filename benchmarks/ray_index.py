"""Index on Ray: how much a second encoder adds, and what is left of an index while processes are killed.

Both use a cluster of this machine, which starts and ends with the run, and rows of Parquet that are drawn for it.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from benchmarks.common import print_figures, rounds_option
from benchmarks.corpus import BLOCK, Corpus
from benchmarks.memory import family, proportional
from vlmsearch._util.machine import available_cores
from vlmsearch.building.progress import steps
from vlmsearch.building.quantize import Report
from vlmsearch.cli.bench.data import numbers
from vlmsearch.cli.common import SECONDS
from vlmsearch.integrations.ray import RayOptions, index
from vlmsearch.registry import open_store
from vlmsearch.stores.base import check_store

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

Task = TypeVar("Task", bound=Callable[[], None])

_OBJECT_STORE_BYTES = 200 * 2**20
_SHARD_BLOCKS = 20
"""Blocks of the drawn documents in one Parquet file."""
_LONG_TEXT = 12
"""Captions in a text that takes an encoder far longer than it takes the rest of the flow."""
_SAMPLED_EVERY = 2.0
_STAGES = {"_read": "read", "_examine": "examine", "_Worker": "encode", "_save": "store", "_Keeper": "index"}
"""Parts of the titles of the flow's processes, with the work of the processes."""


@click.group()
def main() -> None:
    """Measure indexing on a Ray cluster of this machine."""


@main.command()
@click.option("--numbers", type=numbers, metavar="N,M", default="1,2", show_default=True, help="Numbers of encoders.")
@click.option("--documents", default=10_000, show_default=True, type=click.IntRange(1), help="How many texts a run.")
@click.option("--encoder", default="onnx:demo?threads=1", show_default=True, metavar="URL",
              help="An encoder that takes one core.")  # fmt: skip
@rounds_option
def workers(numbers: list[int], documents: int, encoder: str, rounds: int) -> None:
    """Time indexing with different numbers of encoders, in turns; rates are medians.

    Each encoder has a node of its own, and texts so long that it is the limit. Rates count from the first to the last
    documents that are done, without the start.
    """
    rates: dict[int, list[float]] = {number: [] for number in numbers}
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as place, steps("ray") as report:
        files = _write_rows(Path(place) / "rows", documents, captions=_LONG_TEXT, report=report)
        with local_cluster([1] * max(numbers)):
            for turn in range(rounds):
                for number, found in rates.items():
                    progress = _Progress(f"round {turn + 1}, workers: {number}", documents, report)
                    store, options = f"sqlite:{place}/index-{turn}-{number}", RayOptions(workers=number)
                    index(files, encoder=encoder, store=store, on_progress=progress, options=options)
                    found.append(progress.rate)
    medians = {number: statistics.median(found) for number, found in rates.items()}
    first = medians[numbers[0]]
    rows = [(str(number), f"{rate:.1f}", f"{rate / first:.3f}") for number, rate in medians.items()]
    names = ("workers", "documents/s", f"as many times as {numbers[0]}")
    print_figures(f"{encoder}, {documents:,} texts, {rounds} rounds", names, rows)


@main.command()
@click.option("--rows", default=1_000_000, show_default=True, type=click.IntRange(1), help="How many are indexed.")
@click.option("--every", default=20.0, show_default=True, type=SECONDS, help="Seconds from one kill to the next.")
@click.option("--encoder", default="mock:", show_default=True, metavar="URL", help="What makes the vectors.")
def kills(rows: int, every: float, encoder: str) -> None:
    """Index rows on all cores while processes that read, encode and store are killed; watch the memory.

    Exits 1 where afterwards a row is missing, an id is there twice, or the store is not in order.
    """
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as place, steps("ray") as report:
        store = f"sqlite:{place}/index"
        files = _write_rows(Path(place) / "rows", rows, report=report)
        with local_cluster([available_cores()]):
            progress = _Progress("indexing", rows, report)
            started = time.monotonic()
            with _every(_SAMPLED_EVERY, _Samples(progress)) as samples, _every(every, _Killer(progress)) as killer:
                result = index(files, encoder=encoder, store=store, on_progress=progress)
                samples()
            seconds = time.monotonic() - started
        with open_store(store) as opened:
            ids, is_clean = list(opened.ids()), check_store(opened).clean
    expected, found = set(map(_id, range(rows))), set(ids)
    missing, doubled, foreign = len(expected - found), len(ids) - len(found), len(found - expected)
    print_figures(encoder, ("what", "figures"), [
        ("indexed", f"{rows:,} rows in {seconds:.0f} s, {progress.rate:.0f}/s from the first to the last"),
        ("killed", ", ".join(f"{count} {stage}" for stage, count in killer.killed.items())),
        ("memory of all", _described(samples.all)),
        ("memory of the caller", _described(samples.caller)),
        ("reported", f"{result.added} added, {result.unchanged} unchanged"),
        ("index", f"{missing} missing, {doubled} doubled, {foreign} foreign"),
        ("check", "clean" if is_clean else "not in order"),
    ], left=2)  # fmt: skip
    if missing or doubled or foreign or not is_clean:
        sys.exit(1)


def _described(memory: Sequence[float]) -> str:
    quarter = max(len(memory) // 4, 1)
    return (
        f"{statistics.median(memory):.0f} MiB, from {min(memory):.0f} to {max(memory):.0f}; first quarter "
        f"{statistics.median(memory[:quarter]):.0f}, last {statistics.median(memory[-quarter:]):.0f}"
    )


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
        """Return documents a second from the first mark to the last."""
        (first, before), (last, after) = self.marks[0], self.marks[-1]
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
    """Kills one of the flow's processes, if there is one and something was done since the last kill."""

    progress: _Progress
    killed: Counter[str] = field(default_factory=Counter)
    marks: int = -1

    def __call__(self) -> None:
        if len(self.progress.marks) > self.marks and (victims := list(_flow_processes())):
            self.marks = len(self.progress.marks)
            pid, stage = random.choice(victims)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.killed[stage] += 1


@contextmanager
def _every(seconds: float, task: Task) -> Iterator[Task]:
    """Call a task every so many seconds in a thread."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            task()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield task
    finally:
        over.set()
        thread.join()


def _flow_processes() -> Iterator[tuple[int, str]]:
    """Yield the processes that this one's cluster has for the flow, and what each does."""
    for pid in family(os.getpid()):
        with suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
            stage = next((stage for name, stage in _STAGES.items() if name in title), None)
            if title.startswith("ray::") and stage:
                yield pid, stage


if __name__ == "__main__":
    main()
