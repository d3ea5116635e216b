"""The making of one tower's engines: built, judged, and built again in another way where they are not good enough.

A plan is built and run on samples that calibration has not seen. It is kept only if it is as near to float32 as the
recipe's gate asks. INT8 that is not near enough is built again with the most harmful Linears in FP16. What TensorRT
miscomputes, or cannot build or load, is built again in another form: of the graph, or of the optimization profiles.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from vlmsearch.building.inputs import run
from vlmsearch.building.quantize import Drift, Report, silent
from vlmsearch.errors import BackendError, ConfigError, QualityError
from vlmsearch.models.bundle import Bundle, Precision, Tower, model_file
from vlmsearch.models.recipe import Range, Recipe
from vlmsearch.tensorrt.builder.accuracy import (
    BATCHES,
    AccuracyCheck,
    encode,
    harmful_first,
    prepare_check,
    slowness,
    time_engine,
    timings_of,
    words,
)
from vlmsearch.tensorrt.builder.graph import Int8, engine_graph, read_int8, read_model
from vlmsearch.tensorrt.builder.network import BuiltPrecision, Settings, build_plan, timing_file
from vlmsearch.tensorrt.builder.shapes import Form, batches, forms, parted, profiles
from vlmsearch.tensorrt.engine.cuda import current, find_gpu
from vlmsearch.tensorrt.engine.engine import Engine
from vlmsearch.tensorrt.engine.plans import (
    APART,
    Choice,
    EnginePrecision,
    Machine,
    Plan,
    PlanKey,
    building,
    join_plans,
    read_plan,
    store_plan,
)
from vlmsearch.tensorrt.engine.runtime import this_machine
from vlmsearch.tensorrt.engine.timing import Timing

PRECISIONS: tuple[BuiltPrecision, ...] = ("fp16", "int8", "fp32")
"""The precisions that ``auto`` chooses from."""
SHARES = (0.125, 0.25, 0.5)
"""Shares of the Linears that are left in FP16, attempt by attempt.

They are tried where INT8 in all of them does harm.
"""
NEAR = 0.9998
"""The mean cosine to float32 that an engine without INT8 keeps. What is further off is not rounded but miscomputed."""
ASTRAY = 0.02
"""The mean cosine that an INT8 engine may lose to ONNX Runtime on the same graph.

More is no rounding.
"""
_FORM = "5"  # changes whenever another graph or network is made of the same file, so that no older plan is used


@dataclass(frozen=True)
class BuiltPlan:
    """A plan that passed, and what it was measured at."""

    plan: Plan
    timings: tuple[Timing, ...]


@dataclass(frozen=True)
class FailedPlan:
    """An engine that did not pass.

    ``right`` is the mean cosine of the same INT8 graph on ONNX Runtime, where TensorRT miscomputes it in every form.
    """

    drift: Drift
    right: float | None = None


@dataclass
class EngineBuilder:
    """The builder of the engines of one tower.

    ``attempts`` is the report of each so far.
    """

    bundle: Bundle
    tower: Tower
    device: int
    recipe: Recipe
    profile: Range | None = None
    level: int | None = None
    report: Report = silent
    attempts: list[Mapping[str, object]] = field(default_factory=list)
    _failed: set[tuple[BuiltPrecision, Form]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.recipe = dataclasses.replace(self.recipe, shapes=self.recipe.shapes.of(self.bundle.text))

    @cached_property
    def machine(self) -> Machine:
        """Return what the plans are bound to."""
        return this_machine(self.device)

    @cached_property
    def check(self) -> AccuracyCheck:
        """Return what every engine is judged by."""
        return prepare_check(self.bundle, self.tower, self.recipe, self.report)

    @cached_property
    def int8(self) -> dict[str, Int8]:
        """Return how the Linears are quantised."""
        return read_int8(self._file("qdq"))

    @property
    def batches(self) -> Range:
        """Return the batches that count."""
        return batches(self.recipe, self.tower, self.profile)

    def choice(self, precision: EnginePrecision) -> Choice:
        """Return what was asked for, as it is remembered."""
        gate = self.recipe.gates.tower(self.tower)
        options = {
            "batches": str(self.profile or self.batches),
            "form": _FORM,
            "fp16": self._digest("fp16"),
            "gate": f"{gate.mean_cosine} {gate.overlap}",
            "lengths": str(self.recipe.shapes.text_length),
            "level": str(self.level),
            "one_profile": str(self.profile is not None),
            "qdq": self._digest("qdq"),
        }
        return Choice(self._digest("fp32"), precision, self.machine, tuple(sorted(options.items())))

    def fastest(self) -> BuiltPlan:
        """Return the fastest precision that passes; QualityError tells why none did."""
        made, failed = [], []
        for precision in PRECISIONS:
            try:
                made.append(self.make(precision))
            except (BackendError, ConfigError, QualityError) as exc:
                failed.append(str(exc))
                if isinstance(exc, ConfigError):
                    self.attempts.append({**self._named(precision), "failed": str(exc)})
                    self.report(f"{self.tower}: {precision} is left out: {exc}", 1, 1)
        if not made:
            raise QualityError("; ".join(failed))
        self.report(f"{self.tower}: measuring all that passed", 0, 1)
        return min(made, key=lambda entry: slowness(self.time_plan(entry.plan), self.batches))

    def time_plan(self, plan: Plan) -> tuple[Timing, ...]:
        """Return what a plan takes now."""
        with Engine(read_plan(plan, here=self.machine), device=self.device, contexts=1) as engine:
            return self.time(engine)

    def make(self, precision: BuiltPrecision) -> BuiltPlan:
        """Return the first plan of a precision that passes; QualityError says how near the attempts came."""
        failed: list[str] = []
        advice = "Try another `precision`, or build the bundle again with data of your own in `calibrate`"
        for kept in self._kept(precision):
            result = self._attempt(precision, kept)
            if isinstance(result, BuiltPlan):
                return result
            drift = result.drift
            failed.append(f"{words(precision, kept)}: cosine {drift.mean_cosine:.5f}, overlap {drift.overlap:.3f}")
            if result.right is not None:
                failed.append(
                    f"ONNX Runtime computes the same graph at {result.right:.5f}, so TensorRT {self.machine.tensorrt} "
                    f"miscomputes it, in every form that there is"
                )
                advice = "Try another `precision`"
                break
        gate = self.check.gate
        raise QualityError(
            f"{self.bundle.name}: no {precision} engine of the {self.tower} tower is near enough to float32 (cosine "
            f"{gate.mean_cosine:g} and overlap {gate.overlap:g} are asked for): {'; '.join(failed)}. {advice}"
        )

    def _kept(self, precision: BuiltPrecision) -> Iterator[tuple[str, ...]]:
        """Yield which Linears stay in FP16, attempt by attempt."""
        yield ()
        if precision == "int8":
            order = harmful_first(self._file("fp32"), self.int8, self.check, self.report)
            yield from (tuple(sorted(order[: math.ceil(share * len(order))])) for share in SHARES)

    def _attempt(self, precision: BuiltPrecision, kept: tuple[str, ...]) -> BuiltPlan | FailedPlan:
        """Build one engine and measure it.

        Where TensorRT fails on a form or miscomputes it, the next one is tried. In the end the nearest of all is taken.
        A form that failed is not tried again with other Linears in FP16.
        """
        refused: list[BackendError] = []
        tried: list[tuple[float, BuiltPlan | FailedPlan]] = []
        different: dict[PlanKey, Form] = {}
        for form in forms(precision, self.tower, self.machine):
            key = self._key(precision, kept, form)
            if not form.apart or APART in dict(key.flags):  # of one profile there are not several plans
                different.setdefault(key, form)  # with a profile that was given, some come to the same
        for form in different.values():
            if (precision, form) in self._failed:
                continue
            try:
                cosine, result = self._try(precision, kept, form)
            except BackendError as exc:
                refused.append(exc)
                self.attempts.append({**self._what(precision, kept, form), "failed": str(exc)})
                self._failed.add((precision, form))
                self.report(f"{self.tower}: {words(precision, kept)} failed in this form: {exc}", 1, 1)
                continue
            if cosine >= NEAR or (precision == "int8" and (isinstance(result, BuiltPlan) or result.right is None)):
                return result
            # Several plans are the same computation, for an engine that cannot be loaded as one.
            self._failed |= {(precision, form), (precision, dataclasses.replace(form, apart=True))}
            tried.append((cosine, result))
        if not tried:
            raise refused[-1]
        cosine, nearest = max(tried, key=lambda pair: pair[0])
        told = f"{words(precision, kept)} is miscomputed, at a cosine of {cosine:.5f} to float32 in its nearest form"
        self.report(f"{self.tower}: {told}", 1, 1)
        return nearest

    def _try(
        self, precision: BuiltPrecision, kept: tuple[str, ...], form: Form
    ) -> tuple[float, BuiltPlan | FailedPlan]:
        """Build one engine and measure it: its mean cosine to float32, and the engine where it passes and is kept.

        One that is in the cache was measured when it was built, and is judged again: the gate may be another now.
        """
        key = self._key(precision, kept, form)
        with building(key) as done:
            if done:
                data, drift, report, timings = b"", self.check.recall(done), dict(done.report), timings_of(done)
                report["passed"] = drift.passes(self.check.gate)
            else:
                data, drift, report, timings = self._measured(precision, kept, form, key)
            right = None
            if precision == "int8" and not report["passed"]:
                right = self._on_onnx_runtime(kept)
                report["mean_cosine_on_onnx_runtime"] = round(right, 6)
            self.attempts.append(report)
            if report["passed"]:
                return drift.mean_cosine, BuiltPlan(done or store_plan(key, data, report), timings)
            astray = right is not None and drift.mean_cosine < right - ASTRAY
            return drift.mean_cosine, FailedPlan(drift, right if astray else None)

    def _measured(
        self, precision: BuiltPrecision, kept: tuple[str, ...], form: Form, key: PlanKey
    ) -> tuple[bytes, Drift, dict[str, object], tuple[Timing, ...]]:
        """Build an engine, and return how it differs from float32, its report and timings.

        The engine comes first, as the bytes of its plan.
        """
        data, seconds = self._build(precision, kept, form, key)
        self.report(f"{self.tower}: measuring {words(precision, kept)}", 0, 1)
        with Engine(data, device=self.device, contexts=1) as engine:
            vectors = encode(engine, self.check.feeds)
            timings = self.time(engine)
            figures = {"build_seconds": round(seconds, 1), "memory_bytes": engine.memory, "plan_bytes": len(data)}
        drift = self.check.judge(vectors)
        what = {**self._what(precision, kept, form), "cublas": key.machine.cublas}
        gpu = find_gpu(self.device)
        machine = {"gpu": gpu.name, "driver": gpu.driver, "cuda": gpu.cuda, "tensorrt": self.machine.tensorrt}
        report = {**what, **self.check.report(drift), "machine": machine, **figures}
        report["timings"] = [dataclasses.asdict(timing) for timing in timings]
        return data, drift, report, timings

    def _on_onnx_runtime(self, kept: tuple[str, ...]) -> float:
        """Return the mean cosine to float32 that ONNX Runtime reaches with the same Linears in INT8.

        It runs on the CPU.
        """
        names = [name for name in self.int8 if name not in kept]
        self.report(f"{self.tower}: {words('int8', kept)} on ONNX Runtime", 0, 1)
        vectors, _ = run(engine_graph(self._file("fp32"), self.int8, names, spelled_out=False), self.check.feeds)
        return self.check.judge(vectors).mean_cosine

    def time(self, engine: Engine) -> tuple[Timing, ...]:
        """Return what batches of the report's sizes and of the recipe's take."""
        sizes = sorted({*BATCHES, *self.batches})
        return time_engine(engine, self.bundle, self.tower, sizes, self.recipe.shapes.text_length[1])

    def _build(self, precision: BuiltPrecision, kept: tuple[str, ...], form: Form, key: PlanKey) -> tuple[bytes, float]:
        onnx = self._file(form.base)
        if precision == "int8" or form.spelled_out:
            names = [name for name in self.int8 if name not in kept] if precision == "int8" else []
            onnx = engine_graph(onnx, self.int8 if names else {}, names, spelled_out=form.spelled_out)
        else:
            read_model(onnx)
        self.report(f"{self.tower}: building {words(precision, kept)}", 0, 1)
        settings = [Settings(precision, shapes, self.level) for shapes in parted(key.profiles, form)]
        settings[0] = dataclasses.replace(settings[0], cublas=key.machine.cublas)
        timings, begun = timing_file(self.machine), time.perf_counter()
        with current(self.device):
            data = join_plans([build_plan(onnx, part, timing_cache=timings) for part in settings])
        return data, time.perf_counter() - begun

    def _key(self, precision: BuiltPrecision, kept: tuple[str, ...], form: Form) -> PlanKey:
        shapes = profiles(self.bundle, self.recipe, self.tower, self.profile, form.split)
        several = len(parted(shapes, form)) > 1
        flags = {"base": self._digest(form.base), "form": _FORM, "spelled_out": str(form.spelled_out)}
        flags |= {APART: "True"} if several else {}
        machine = self.machine if several and form.cublas else self.machine.bare
        source = self._digest("qdq" if precision == "int8" else form.base)
        return PlanKey(source, machine, shapes, precision, self.level, kept, tuple(flags.items()))

    def _file(self, precision: Precision) -> bytes:
        name = model_file(self.tower, precision)
        if name not in self.bundle.files:
            raise ConfigError(
                f"{self.bundle.name} has no {name}, which this engine is built from: "
                f"`vlmsearch build {self.bundle.name} --precision fp32,fp16,int8,qdq` makes it"
            )
        return self.bundle.model(self.tower, precision)

    def _digest(self, precision: Precision) -> str:
        file = self.bundle.files.get(model_file(self.tower, precision))
        return file.sha256 if file else ""

    def _what(self, precision: BuiltPrecision, kept: tuple[str, ...], form: Form) -> dict[str, object]:
        return {
            **self._named(precision),
            "fp16_layers": list(kept),
            "int8_layers": len(self.int8) - len(kept) if precision == "int8" else 0,
            "form": dataclasses.asdict(form),
        }

    def _named(self, precision: BuiltPrecision) -> dict[str, object]:
        return {"model": self.bundle.name, "tower": self.tower, "precision": precision}
