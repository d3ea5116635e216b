"""How long the GPU takes for a batch, copies left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vlmsearch.tensorrt.engine.cuda import Event
from vlmsearch.tensorrt.engine.slots import ExecutionSlot, Step

_WARM_UP = 5


@dataclass(frozen=True)
class Timing:
    """What batches of one size took on the GPU.

    ``latency_ms`` is the median of runs with nothing queued before them, ``p99_ms`` their 99th percentile;
    ``batch_ms`` the mean of as many queued back to back, spread over ``lanes`` execution slots. ``graph``: as CUDA
    graphs.
    """

    batch: int
    runs: int
    lanes: int
    graph: bool
    latency_ms: float
    p99_ms: float
    batch_ms: float

    @property
    def throughput(self) -> float:
        """Items a second, queued back to back."""
        return self.batch * 1000 / self.batch_ms


def time_step(slots: Sequence[ExecutionSlot], step: Step, runs: int) -> Timing:
    """Time ``step`` on slots whose inputs are staged."""
    for slot in slots:
        for _ in range(_WARM_UP):
            slot.launch(step)
        slot.stream.synchronize()
    with Event(timed=True) as start, Event(timed=True) as stop:
        single = sorted(_one(slots[0], step, start, stop) for _ in range(runs))
        total = _queued(slots, step, runs, start, stop)
    return Timing(
        batch=step.rows,
        runs=runs,
        lanes=len(slots),
        graph=slots[0].graphed(step),
        latency_ms=single[runs // 2],
        p99_ms=single[runs * 99 // 100],
        batch_ms=total / runs,
    )


def _one(slot: ExecutionSlot, step: Step, start: Event, stop: Event) -> float:
    start.record(slot.stream)
    slot.launch(step)
    stop.record(slot.stream)
    stop.synchronize()
    return stop.since(start)


def _queued(slots: Sequence[ExecutionSlot], step: Step, runs: int, start: Event, stop: Event) -> float:
    """Milliseconds of ``runs`` runs in turn on all slots, from the first slot's start to the last one's end."""
    start.record(slots[0].stream)
    for slot in slots[1:]:
        slot.stream.wait(start)
    for i in range(runs):
        slots[i % len(slots)].launch(step)
    with Event() as done:
        for slot in slots[1:]:
            done.record(slot.stream)
            slots[0].stream.wait(done)
        stop.record(slots[0].stream)
        stop.synchronize()
    return stop.since(start)
