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
    ``batch_ms`` the mean of as many queued back to back, spread over ``lanes``. ``graph``: as CUDA graphs.
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


def time_step(lanes: Sequence[ExecutionSlot], step: Step, runs: int) -> Timing:
    """Time ``step`` on lanes whose inputs are staged."""
    for lane in lanes:
        for _ in range(_WARM_UP):
            lane.launch(step)
        lane.stream.synchronize()
    with Event(timed=True) as start, Event(timed=True) as stop:
        single = sorted(_one(lanes[0], step, start, stop) for _ in range(runs))
        total = _queued(lanes, step, runs, start, stop)
    return Timing(
        batch=step.rows,
        runs=runs,
        lanes=len(lanes),
        graph=lanes[0].graphed(step),
        latency_ms=single[runs // 2],
        p99_ms=single[runs * 99 // 100],
        batch_ms=total / runs,
    )


def _one(lane: ExecutionSlot, step: Step, start: Event, stop: Event) -> float:
    start.record(lane.stream)
    lane.launch(step)
    stop.record(lane.stream)
    stop.synchronize()
    return stop.since(start)


def _queued(lanes: Sequence[ExecutionSlot], step: Step, runs: int, start: Event, stop: Event) -> float:
    """Milliseconds of ``runs`` runs in turn on all lanes, from the first lane's start to the last one's end."""
    start.record(lanes[0].stream)
    for lane in lanes[1:]:
        lane.stream.wait(start)
    for i in range(runs):
        lanes[i % len(lanes)].launch(step)
    with Event() as done:
        for lane in lanes[1:]:
            done.record(lane.stream)
            lanes[0].stream.wait(done)
        stop.record(lanes[0].stream)
        stop.synchronize()
    return stop.since(start)
