"""Stores in processes of their own: the first answer, readers beside a writer, and `vlmsearch search`."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Self

from benchmarks.contenders import open_contender
from benchmarks.corpus import BLOCK, Condition, Corpus
from vlmsearch._util.credentials import child_environment
from vlmsearch.errors import BackendError

READERS = 4
_SEARCHES = 20
_PAUSE = 0.02
"""Seconds that a reader rests after each look."""
_PATIENCE = 300.0
"""Seconds that readers go on looking after the last write."""
_QUERIES = "queries.npy"


@dataclass(frozen=True)
class FirstAnswer:
    """One new process: seconds until it opened the store and until its first page, its CPU time and memory.

    ``opening`` and ``answer`` count from when its imports were done, ``wall`` and ``cpu`` from the process's start;
    ``peak`` is its largest resident memory in MiB after 20 other searches, which took ``search`` milliseconds each, and
    one with a filter, which took ``filtered`` milliseconds.
    """

    opening: float
    answer: float
    wall: float
    cpu: float
    peak: float
    search: float
    filtered: float


@dataclass(frozen=True)
class Reading:
    """Readers beside a writer: documents a second of the writer; errors, the slowest sight of a commit, searches."""

    rate: float
    errors: int
    first_error: str
    unseen: int
    lag: float
    search: float
    start: float


def first_answer(name: str, folder: Path, corpus: Corpus) -> FirstAnswer:
    """Start a process that opens a contender and searches."""
    np.save(folder / _QUERIES, corpus.queries(1 + _SEARCHES))
    with _Child("first", name, folder, corpus.dim) as child:
        return FirstAnswer(**child.read())


def read_while_writing(name: str, folder: Path, corpus: Corpus, documents: int) -> Reading:
    """Start readers, then write further documents block by block; they are removed at the end.

    BackendError where the readers cannot open the contender beside the writer.
    """
    first = len(corpus.blocks)
    blocks = [corpus.block(number) for number in range(first, first + max(1, documents // BLOCK))]
    contender = open_contender(name, folder, corpus.dim)
    with ExitStack() as stack:
        stack.callback(contender.close)
        given = json.dumps(dataclasses.asdict(corpus))
        base = contender.count()
        children = [
            stack.enter_context(_Child("read", name, folder, corpus.dim, given, str(base), str(len(blocks))))
            for _ in range(READERS)
        ]
        starts = [child.read()["start"] for child in children]
        ready = time.monotonic()
        commits = []
        for block in blocks:
            contender.add(block)
            commits.append(time.monotonic())
        found = [child.read() for child in children]
        for block in blocks:
            contender.remove(block.ids)
    seen = [one["seen"] for one in found]
    return Reading(
        rate=len(blocks) * BLOCK / (commits[-1] - ready),
        errors=sum(one["errors"] for one in found),
        first_error=next((one["first_error"] for one in found if one["errors"]), ""),
        unseen=sum(len(blocks) - len(each) for each in seen),
        lag=max((at - commit for each in seen for at, commit in zip(each, commits)), default=0.0),
        search=statistics.median([ms for one in found for ms in one["searches"]] or [0.0]),
        start=max(starts),
    )


def run_search(arguments: Sequence[str]) -> tuple[float, float]:
    """Run ``vlmsearch search``; returns the seconds it took and its CPU time.

    BackendError if it fails.
    """
    started = time.perf_counter()
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "vlmsearch", "search", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=child_environment(),
    ) as process:
        errors = process.stderr.read() if process.stderr else b""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BackendError(f"vlmsearch search fails: {errors.decode(errors='replace').strip()[-400:]}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime


class _Child:
    """A process of this module, which answers in lines of JSON."""

    def __init__(self, task: str, name: str, folder: Path, dim: int, *more: str) -> None:
        command = [sys.executable, "-m", __name__, task, str(time.monotonic()), name, str(folder), str(dim), *more]
        self._name = name
        self._process = subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment(), text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def read(self) -> dict[str, Any]:
        """Return the next answer; BackendError where the process ended without one."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            errors = self._process.communicate()[1].strip()
            raise BackendError(
                f"a process with {self._name} ended: {errors.splitlines()[-1] if errors else 'no error'}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


def _main(task: str, spawned: str, name: str, folder: str, dim: str, *more: str) -> None:
    if task == "first":
        _first(name, Path(folder), int(dim), float(spawned))
    else:
        _read(name, Path(folder), Corpus(**json.loads(more[0])), int(more[1]), int(more[2]))


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _first(name: str, folder: Path, dim: int, spawned: float) -> None:
    ready = time.monotonic()
    contender = open_contender(name, folder, dim)
    opened = time.monotonic()
    query, *others = np.load(folder / _QUERIES)
    contender.page(query)
    answered, cpu = time.monotonic(), time.process_time()
    times = [_milliseconds(partial(contender.search, other)) for other in others]
    filtered = _milliseconds(partial(contender.search, query, Condition("album", value="album-0")))
    contender.close()
    _answer({
        "opening": opened - ready,
        "answer": answered - ready,
        "wall": answered - spawned,
        "cpu": cpu,
        "peak": _peak(),
        "search": statistics.median(times),
        "filtered": filtered,
    })  # fmt: skip


def _milliseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - started)


def _peak() -> float:
    """Return the largest resident memory so far in MiB; 0 where the system does not say."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


def _read(name: str, folder: Path, corpus: Corpus, base: int, blocks: int) -> None:
    """Search for the last document of the newest block that is counted, until the last block was found.

    Tells when each block was first found by a search; a block is found with those before it.
    """
    first = len(corpus.blocks)
    lasts = [(block.ids[-1], block.vectors[-1]) for block in map(corpus.block, range(first, first + blocks))]
    usual = corpus.queries(1)[0]
    started = time.perf_counter()
    contender = open_contender(name, folder, corpus.dim)
    contender.search(usual)
    _answer({"start": time.perf_counter() - started})
    seen: list[float] = []
    times: list[float] = []
    errors, first_error = 0, ""
    end = time.monotonic() + _PATIENCE
    while len(seen) < blocks and time.monotonic() < end:
        try:
            complete = min((contender.count() - base) // BLOCK, blocks)
            id, vector = lasts[complete - 1] if complete > len(seen) else ("", usual)
            started = time.perf_counter()
            found = contender.search(vector)
            times.append(1000 * (time.perf_counter() - started))
            if complete > len(seen) and found and found[0] == id:
                seen += [time.monotonic()] * (complete - len(seen))
        except Exception as exc:  # noqa: BLE001 - they are counted
            errors += 1
            first_error = first_error or f"{type(exc).__name__}: {exc}"
        time.sleep(_PAUSE)
    contender.close()
    _answer({"seen": seen, "searches": times, "errors": errors, "first_error": first_error})


if __name__ == "__main__":
    _main(*sys.argv[1:])
