"""Engines of several models: all precisions and TensorRT's own defaults, built side by side, measured one by one."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vlmsearch.bench.gpu.calls import Calls, time_calls
from vlmsearch.bench.gpu.jobs import DEFAULTS, run_jobs
from vlmsearch.models.bundle import Bundle, Tower, model_file, open_bundle
from vlmsearch.models.recipe import Recipe
from vlmsearch.tensorrt.builder.accuracy import example, slowness
from vlmsearch.tensorrt.builder.builder import PRECISIONS, EngineBuilder
from vlmsearch.tensorrt.builder.engines import ensure_engine, recipe_of
from vlmsearch.tensorrt.builder.network import BuiltPrecision, Settings, build_plan, strongly_typed
from vlmsearch.tensorrt.builder.shapes import profiles
from vlmsearch.tensorrt.engine.cuda import current
from vlmsearch.tensorrt.engine.engine import GRAPHS, Engine
from vlmsearch.tensorrt.engine.plans import Plan, PlanKey, find_plan, read_plan, store_plan
from vlmsearch.tensorrt.engine.runtime import this_machine
from vlmsearch.tensorrt.engine.timing import Timing

_BATCHES = (1, 32, 256)
_THREADS = 8
_PLAIN, _TWO, _CALLS = "batch_1_without_graph", "greatest_batch_on_two_streams", "batch_1_calls"
_TRIED = ("form", "fp16_layers", "failed", "mean_cosine", "overlap", "mean_cosine_on_onnx_runtime")


@dataclass(frozen=True)
class Job:
    """One engine to build: ``kind`` is a precision, or `DEFAULTS`."""

    folder: Path
    tower: Tower
    kind: str

    @property
    def model(self) -> str:
        """The bundle's name."""
        return open_bundle(self.folder).name

    def __str__(self) -> str:
        return f"{self.model} {self.tower} {self.kind}"


@dataclass(frozen=True)
class Row:
    """One measured engine: how it was built, after what else, and how near it is, and what it takes now.

    ``plain`` is batch 1 without CUDA graphs, ``two`` the greatest batch in turns on two streams, ``calls`` batch 1
    as callers see it.
    """

    job: Job
    plan: Plan
    timings: tuple[Timing, ...]
    plain: Timing
    two: Timing
    memory: int
    calls: tuple[Calls, ...] = ()

    @classmethod
    def from_json(cls, job: Job, found: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> Row:
        """What `to_json` gave in one process, and `call` in another."""
        timings = tuple(_timing(entry) for entry in found["timings"])
        plain, two = (_timing(found[name]) for name in (_PLAIN, _TWO))
        return cls(job, build(job), timings, plain, two, found["memory_bytes"], tuple(Calls(**each) for each in calls))

    def to_json(self) -> dict[str, object]:
        """All of it, as a report keeps it."""
        story = {key: value for key, value in self.plan.report.items() if key not in ("timings", "machine")}
        others = [attempt for attempt in self.plan.attempts if attempt != self.plan.report]
        if others:
            story["tried_before"] = [{key: other[key] for key in _TRIED if key in other} for other in others]
        return {
            **story,
            "model": self.job.model,
            "tower": self.job.tower,
            "precision": self.job.kind,
            "memory_bytes": self.memory,
            "timings": [_rounded(timing) for timing in self.timings],
            _PLAIN: _rounded(self.plain),
            _TWO: _rounded(self.two),
            _CALLS: [dataclasses.asdict(each) for each in self.calls],
        }


def recipe_for(bundle: Bundle) -> Recipe:
    """The bundle's recipe, for batches of 1, 32 and 256, so that models can be compared."""
    recipe = recipe_of(bundle)
    return dataclasses.replace(
        recipe, shapes=dataclasses.replace(recipe.shapes, image_batch=_BATCHES, text_batch=_BATCHES)
    )


def build_all(
    jobs: Sequence[Job], *, gpus: Sequence[int], on_each: int, seconds: float, report: Callable[[str], None]
) -> dict[Job, str]:
    """Build engines in processes of their own, those that take longest first; gives why each is missing."""
    order = sorted(jobs, key=lambda job: (job.tower != "image", -_model_bytes(job)))
    commands = {job: command("build", job) for job in order}
    outcomes = run_jobs(commands, gpus=gpus, on_each=on_each, seconds=seconds, report=report)
    return {job: outcome.failure for job, outcome in outcomes if outcome.failure}


def command(what: Literal["build", "measure", "call"], job: Job) -> list[str]:
    """What does one of the three in a process of its own."""
    return [sys.executable, "-m", "vlmsearch.bench.gpu.engines", what, str(job.folder), job.tower, job.kind]


def _model_bytes(job: Job) -> int:
    files = open_bundle(job.folder).files
    return files[model_file(job.tower, "fp32")].size


def build(job: Job) -> Plan:
    """The plan of one job: the one in the cache, or one that is built now."""
    bundle = open_bundle(job.folder)
    if job.kind == DEFAULTS:
        return _defaults(bundle, job.tower)
    return ensure_engine(bundle, job.tower, precision=_precision(job.kind), recipe=recipe_for(bundle))


def measure_all(
    jobs: Sequence[Job], *, gpus: Sequence[int], report: Callable[[str], None]
) -> tuple[list[Row], dict[Job, str]]:
    """What built engines take, one at a time on each GPU, and why any could not be measured."""
    measured, called = (
        dict(run_jobs({job: command(what, job) for job in jobs}, gpus=gpus, report=report))
        for what in ("measure", "call")
    )
    rows = []
    for job in (job for job in jobs if not measured[job].failure):
        calls = "[]" if called[job].failure else called[job].output
        rows.append(Row.from_json(job, json.loads(measured[job].output), json.loads(calls)))
    return rows, {job: why for job in jobs if (why := measured[job].failure or called[job].failure)}


def measure(job: Job) -> Row:
    """What one engine takes; it is built where it is not there."""
    plan, bundle = build(job), open_bundle(job.folder)
    workshop = EngineBuilder(bundle, job.tower, 0, recipe_for(bundle))
    length = workshop.recipe.shapes.text_length[1]
    one = example(bundle, job.tower, 1, length)
    data = read_plan(plan, here=this_machine(0))
    with Engine(data) as engine:
        timings = workshop.time(engine)
        plain = engine.timed(one, graph=False)
        two = engine.timed(example(bundle, job.tower, engine.max_batch, length), lanes=2)
        return Row(job, plan, timings, plain, two, engine.memory)


def call(job: Job) -> list[Calls]:
    """What batch 1 takes its callers, one of them and several, with CUDA graphs and without."""
    plan, bundle = build(job), open_bundle(job.folder)
    one = example(bundle, job.tower, 1, recipe_for(bundle).shapes.text_length[1])
    data = read_plan(plan, here=this_machine(0))
    calls = []
    for graphs in (True, False):
        with Engine(data, contexts=_THREADS, graphs=GRAPHS if graphs else (), max_batch=1) as engine:
            calls += [time_calls(engine, one, threads, graphs=graphs) for threads in (1, _THREADS)]
    return calls


def fastest(rows: Sequence[Row]) -> dict[str, str]:
    """The precision of each tower that would be published, by ``model tower``."""
    towers = dict.fromkeys((row.job.model, row.job.tower) for row in rows)
    found = {}
    for name, tower in towers:
        own = [r for r in rows if (r.job.model, r.job.tower) == (name, tower) and r.job.kind != DEFAULTS]
        if own:
            found[f"{name} {tower}"] = min(own, key=lambda row: slowness(row.timings, _BATCHES)).job.kind
    return found


def _defaults(bundle: Bundle, tower: Tower) -> Plan:
    base = "fp16" if strongly_typed() else "fp32"
    shapes = profiles(bundle, recipe_for(bundle), tower, None)
    digest = bundle.files[model_file(tower, base)].sha256  # type: ignore[arg-type]
    key = PlanKey(digest, this_machine(0).bare, shapes, "fp16", flags=(("built", DEFAULTS),))
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
    figures = dataclasses.asdict(timing)
    times = {key: round(value, 4) for key, value in figures.items() if isinstance(value, float)}
    return {**figures, **times, "items_per_second": round(timing.throughput, 1)}


def _timing(entry: Mapping[str, Any]) -> Timing:
    """What `_rounded` gave."""
    return Timing(**{field.name: entry[field.name] for field in dataclasses.fields(Timing)})


def _main(what: str, folder: str, tower: str, kind: str) -> None:
    job = Job(Path(folder), "image" if tower == "image" else "text", kind)
    if what == "build":
        build(job)
    elif what == "measure":
        print(json.dumps(measure(job).to_json()))
    else:
        print(json.dumps([dataclasses.asdict(each) for each in call(job)]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
