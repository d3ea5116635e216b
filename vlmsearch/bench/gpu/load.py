"""Mixed load on engines from several threads: memory has to stay, and vectors have to be the same."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from vlmsearch.export.inputs import Feed
from vlmsearch.tensorrt.engine.cuda import current, free_memory
from vlmsearch.tensorrt.engine.engine import Engine

_WARM_UP = 0.1


@dataclass(frozen=True)
class EngineLoad:
    """What happened: ``memory_bytes`` is what the GPU gained in use after the warm-up, ``difference`` of any value."""

    seconds: float
    threads: int
    batches: int
    items: int
    errors: tuple[str, ...]
    memory_bytes: int
    difference: float

    def to_json(self) -> dict[str, object]:
        """All of it, as a report keeps it."""
        return {**asdict(self), "items_per_second": round(self.items / self.seconds, 1)}


def run_load(work: Sequence[tuple[Engine, Feed]], *, seconds: float = 180.0, threads: int = 8) -> EngineLoad:
    """Send batches of all sizes, cut from each engine's feed, from all threads at once.

    The first tenth of the time counts as warm-up: contexts and graphs are made on first use.
    """
    state = _State(time.monotonic() + seconds)
    before = [engine.run(feed) for engine, feed in work]
    pool = [threading.Thread(target=state.send, args=(work, seed)) for seed in range(threads)]
    for thread in pool:
        thread.start()
    time.sleep(seconds * _WARM_UP)
    with current(0):
        free = free_memory()
    for thread in pool:
        thread.join()
    with current(0):
        gained = free - free_memory()
    worst = max(float(np.abs(old - engine.run(feed)).max()) for old, (engine, feed) in zip(before, work))
    return EngineLoad(seconds, threads, state.batches, state.items, tuple(state.errors[:5]), gained, worst)


class _State:
    """What all threads write to."""

    def __init__(self, end: float) -> None:
        self._end = end
        self._lock = threading.Lock()
        self.batches = self.items = 0
        self.errors: list[str] = []

    def send(self, work: Sequence[tuple[Engine, Feed]], seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < self._end:
            engine, feed = rng.choice(list(work))
            most = len(next(iter(feed.values())))
            rows = rng.choice((1, 1, 1, 2, 8, 20, 32, 64, most))
            start = rng.randrange(max(most - rows, 0) + 1)
            try:
                engine.run({name: array[start : start + rows] for name, array in feed.items()})
            except Exception as exc:  # noqa: BLE001 - any failure at all is what is looked for
                with self._lock:
                    self.errors.append(f"{type(exc).__name__}: {exc}")
            with self._lock:
                self.batches += 1
                self.items += min(rows, most)
