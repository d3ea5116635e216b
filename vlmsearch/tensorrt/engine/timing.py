"""How long the GPU takes for a batch, copies left out."""

from __future__ import annotations

from dataclasses import dataclass

from vlmsearch.tensorrt.engine.cuda import Event
from vlmsearch.tensorrt.engine.slots import ExecutionSlot, Step

_WARM_UP = 5


@dataclass(frozen=True)
class Timing:
    """Times of batches of one size on the GPU.

    ``latency_ms`` is the median of runs with nothing queued before them, ``p99_ms`` their 99th percentile;
    ``batch_ms`` the mean of as many queued back to back. ``graph``: as CUDA graphs.
    """

    batch: int
    runs: int
    graph: bool
    latency_ms: float
    p99_ms: float
    batch_ms: float


def time_step(slot: ExecutionSlot, step: Step, runs: int) -> Timing:
    """Time ``step`` on a slot whose inputs are staged."""
    for _ in range(_WARM_UP):
        slot.launch(step)
    slot.stream.synchronize()
    with Event(timed=True) as start, Event(timed=True) as stop:
        single = sorted(_queued(slot, step, 1, start, stop) for _ in range(runs))
        total = _queued(slot, step, runs, start, stop)
    return Timing(
        batch=step.rows,
        runs=runs,
        graph=slot.graphed(step),
        latency_ms=single[runs // 2],
        p99_ms=single[runs * 99 // 100],
        batch_ms=total / runs,
    )


def _queued(slot: ExecutionSlot, step: Step, runs: int, start: Event, stop: Event) -> float:
    """Milliseconds of ``runs`` runs back to back."""
    start.record(slot.stream)
    for _ in range(runs):
        slot.launch(step)
    stop.record(slot.stream)
    stop.synchronize()
    return stop.since(start)
