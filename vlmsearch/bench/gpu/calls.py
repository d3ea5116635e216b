"""What a batch takes as its caller sees it: from the call, with its copies and the host's work, to the vectors."""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from vlmsearch.export.inputs import Feed
from vlmsearch.tensorrt.engine.engine import Engine

_WARM_UP = 20
_SECONDS = 0.5


@dataclass(frozen=True)
class Calls:
    """Calls one after the other from so many threads at once: the median of them and the 99th percentile."""

    threads: int
    graphs: bool
    median_ms: float
    p99_ms: float
    calls_per_second: float


def time_calls(engine: Engine, feed: Feed, threads: int, *, graphs: bool, seconds: float = _SECONDS) -> Calls:
    """Time `Engine.run` of one feed; ``graphs`` says whether the engine was opened with any for it.

    What a call raises is raised.
    """
    taken: list[list[float]] = [[] for _ in range(threads)]
    begin = threading.Barrier(threads + 1)
    stop = threading.Event()

    def call(times: list[float]) -> None:
        try:
            for _ in range(_WARM_UP):
                engine.run(feed)
            begin.wait()
            while not stop.is_set():
                begun = time.perf_counter()
                engine.run(feed)
                times.append(1000 * (time.perf_counter() - begun))
        except BaseException:
            begin.abort()  # or the others would wait for ever
            raise

    with ThreadPoolExecutor(threads) as pool:
        calls = [pool.submit(call, times) for times in taken]
        with suppress(threading.BrokenBarrierError):
            begin.wait()
            time.sleep(seconds)
        stop.set()
        failures = [failure for done in calls if (failure := done.exception())]
    for failure in sorted(failures, key=lambda failure: isinstance(failure, threading.BrokenBarrierError)):
        raise failure
    times = sorted(time for each in taken for time in each)
    return Calls(
        threads,
        graphs,
        round(statistics.median(times), 4),
        round(times[len(times) * 99 // 100], 4),
        round(len(times) / seconds, 1),
    )
