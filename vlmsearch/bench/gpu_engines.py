"""Engines of several models: all precisions and TensorRT's own defaults, built side by side, measured one by one."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.build.recipe import Recipe
from vlmsearch.build.tensorrt import PRECISIONS, Workshop, ensure_engine, recipe_of
from vlmsearch.build.tensorrt_measure import example, slowness
from vlmsearch.build.tensorrt_network import BuiltPrecision, Settings, build_plan, strongly_typed
from vlmsearch.build.tensorrt_shapes import profiles
from vlmsearch.bundles import Bundle, Tower, model_file, open_bundle
from vlmsearch.gpu.cuda import current
from vlmsearch.gpu.engine import Engine
from vlmsearch.gpu.plans import Plan, PlanKey, find_plan, read_plan, store_plan
from vlmsearch.gpu.tensorrt import this_machine
from vlmsearch.gpu.timing import Timing

DEFAULTS = "defaults"
"""What is compared with: FP16 with one profile, and everything else as TensorRT has it."""
KINDS = ("fp16", "int8", DEFAULTS, "fp32")
_BATCHES = (1, 32, 256)
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Job:
    """One engine to build: ``kind`` is a precision, or `DEFAULTS`."""

    folder: Path
    tower: Tower
    kind: str

    def __str__(self) -> str:
        return f"{self.folder.name} {self.tower} {self.kind}"


@dataclass(frozen=True)
class Row:
    """One measured engine: how it was built and how near it is, from its plan, and what it takes now.

    ``plain`` is batch 1 without CUDA graphs, ``two`` the greatest batch in turns on two streams.
    """

    job: Job
    plan: Plan
    timings: tuple[Timing, ...]
    plain: Timing
    two: Timing
    memory: int

    def to_json(self) -> dict[str, object]:
        """All of it, as a report keeps it."""
        story = {key: value for key, value in self.plan.report.items() if key not in ("timings", "machine")}
        return {
            **story,
            "model": self.job.folder.name,
            "tower": self.job.tower,
            "precision": self.job.kind,
            "memory_bytes": self.memory,
            "timings": [_rounded(timing) for timing in self.timings],
            "batch_1_without_graph": _rounded(self.plain),
            "greatest_batch_on_two_streams": _rounded(self.two),
        }


def recipe_for(bundle: Bundle) -> Recipe:
    """The bundle's recipe, for batches of 1, 32 and 256, so that models can be compared."""
    recipe = recipe_of(bundle)
    return dataclasses.replace(
        recipe, shapes=dataclasses.replace(recipe.shapes, image_batch=_BATCHES, text_batch=_BATCHES)
    )


def build_all(
    jobs: Sequence[Job], *, workers: int, seconds: float = math.inf, report: Callable[[str], None]
) -> dict[Job, str]:
    """Build engines in processes of their own; gives why each that is missing is missing."""
    waiting, running, failed = list(jobs), dict[Job, subprocess.Popen[str]](), dict[Job, str]()
    end = time.monotonic() + seconds
    while waiting or running:
        while waiting and len(running) < workers and time.monotonic() < end:
            job = waiting.pop(0)
            command = [sys.executable, "-m", "vlmsearch.bench.gpu_engines", str(job.folder), job.tower, job.kind]
            running[job] = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
            )
        if time.monotonic() >= end:
            failed.update(dict.fromkeys((*waiting, *running), "there was no time left"))
            for process in running.values():
                process.kill()
                process.communicate()
            return failed
        for job in [job for job, process in running.items() if process.poll() is not None]:
            process = running.pop(job)
            said = process.communicate()[1]
            if process.returncode:
                failed[job] = (said.strip().splitlines() or ["it ended without a word"])[-1][:600]
            report(f"{job}: {failed.get(job, 'built')}")
        time.sleep(_POLL_SECONDS)
    return failed


def build(job: Job) -> Plan:
    """The plan of one job: the one in the cache, or one that is built now."""
    bundle = open_bundle(job.folder)
    if job.kind == DEFAULTS:
        return _defaults(bundle, job.tower)
    return ensure_engine(bundle, job.tower, precision=_precision(job.kind), recipe=recipe_for(bundle))


def measure_all(jobs: Sequence[Job], report: Callable[[str], None]) -> Iterator[Row]:
    """What the engines of these jobs take, one after the other, with nothing else on the GPU."""
    for job in jobs:
        report(f"{job}: measuring")
        plan, bundle = build(job), open_bundle(job.folder)
        workshop = Workshop(bundle, job.tower, 0, recipe_for(bundle))
        length = workshop.recipe.shapes.text_length[1]
        with Engine(read_plan(plan, here=this_machine(0))) as engine:
            timings = workshop.time(engine)
            plain = engine.timed(example(bundle, job.tower, 1, length), graph=False)
            two = engine.timed(example(bundle, job.tower, engine.max_batch, length), lanes=2)
            yield Row(job, plan, timings, plain, two, engine.memory)


def fastest(rows: Sequence[Row]) -> dict[str, str]:
    """The precision of each tower that would be published, by ``model tower``."""
    towers = dict.fromkeys((row.job.folder.name, row.job.tower) for row in rows)
    found = {}
    for name, tower in towers:
        own = [r for r in rows if (r.job.folder.name, r.job.tower) == (name, tower) and r.job.kind != DEFAULTS]
        if own:
            found[f"{name} {tower}"] = min(own, key=lambda row: slowness(row.timings, _BATCHES)).job.kind
    return found


def _defaults(bundle: Bundle, tower: Tower) -> Plan:
    base = "fp16" if strongly_typed() else "fp32"
    shapes = profiles(bundle, recipe_for(bundle), tower, None, many=False)
    digest = bundle.files[model_file(tower, base)].sha256  # type: ignore[arg-type]
    key = PlanKey(digest, this_machine(0), shapes, "fp16", flags=(("built", DEFAULTS),))
    found = find_plan(key)
    if found:
        return found
    begun = time.perf_counter()
    with current(0):
        data = build_plan(bundle.model(tower, base), Settings("fp16", shapes))  # type: ignore[arg-type]
    return store_plan(key, data, {"build_seconds": round(time.perf_counter() - begun, 1), "plan_bytes": len(data)})


def _precision(kind: str) -> BuiltPrecision:
    return next(precision for precision in PRECISIONS if precision == kind)


def _rounded(timing: Timing) -> dict[str, object]:
    figures = {key: round(value, 4) for key, value in dataclasses.asdict(timing).items()}
    return {**figures, "items_per_second": round(timing.throughput, 1)}


if __name__ == "__main__":
    build(Job(Path(sys.argv[1]), "image" if sys.argv[2] == "image" else "text", sys.argv[3]))
