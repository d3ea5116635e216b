"""Lower precisions of one tower, measured against float32, and the search for a good one."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from vlmsearch.building.calibrate import Observation
from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.export import export_quantised
from vlmsearch.building.inputs import Feeds, row_cosines, run
from vlmsearch.building.layers import Int8Scaling
from vlmsearch.models.bundle import Precision, Tower
from vlmsearch.models.recipe import Calibration, ScoreGate, TowerGate
from vlmsearch.types import Vectors

Report = Callable[[str, int, int], None]
"""Takes a step's name, how much of it is done, and how much there is."""
NEIGHBOURS = 10
PERCENTILES = (99.999, 99.99)
"""Static ranges that are tried beside the whole one."""
_WORTH_CLIPPING = 5e-4
_SEARCH_SECONDS = 180.0
_SEARCH_SAMPLES = 32


def silent(step: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class QuantisationPlan:
    """A way of quantising a tower.

    Static ranges are fixed, from ``percentile`` of the calibration values; dynamic ones are those of each batch.
    ``smoothing`` is SmoothQuant's alpha, ``excluded`` the Linears left in high precision.
    """

    method: Literal["static", "dynamic"]
    percentile: float = 100.0
    smoothing: float | None = None
    excluded: tuple[str, ...] = ()


class Closeness(Protocol):
    """The nearness of a model of lower precision to float32."""

    @property
    def rate(self) -> float:
        """Return how many items it computes in a second."""

    @property
    def nearness(self) -> float:
        """1 where it computes the same, less the more it differs."""

    def passes(self, gate: Any) -> bool:
        """Return whether it is near enough."""


D = TypeVar("D", bound=Closeness)


@dataclass(frozen=True)
class Drift:
    """The differences of a model from float32: cosines, the share of the 10 nearest kept; and its items a second."""

    mean_cosine: float
    min_cosine: float
    overlap: float
    rate: float

    @property
    def nearness(self) -> float:
        """Return the mean cosine."""
        return self.mean_cosine

    def passes(self, gate: TowerGate) -> bool:
        """Return whether it is near enough."""
        return self.mean_cosine >= gate.mean_cosine and self.overlap >= gate.overlap


@dataclass(frozen=True)
class ScoreDrift:
    """The differences of a cross-encoder from float32: its probabilities, and the share of pairs in the same order.

    ``order`` is (1 + tau) / 2 of Kendall's rank correlation, over all pairs that float32 does not find equal.
    """

    mean_difference: float
    max_difference: float
    order: float
    rate: float

    @property
    def nearness(self) -> float:
        """1 less the mean difference."""
        return 1 - self.mean_difference

    def passes(self, gate: ScoreGate) -> bool:
        """Return whether it is near enough."""
        return self.mean_difference <= gate.difference and self.order >= gate.order


@dataclass(frozen=True)
class QuantisedTower(Generic[D]):
    """The plan of a tower (None: it is not quantised), its difference from float32, and all plans that were tried."""

    plan: QuantisationPlan | None
    drift: D
    tried: tuple[tuple[QuantisationPlan, D], ...] = ()


@dataclass(frozen=True)
class Subject(Generic[D]):
    """A tower with held-out samples, the vectors that float32 gives for them, and a gate.

    ``compare`` takes what float32 and another model give, and the other's rate. ``scratch`` is a file for models that
    are tried.
    """

    checkpoint: Checkpoint
    tower: Tower
    feeds: Feeds
    reference: Vectors
    gate: TowerGate | ScoreGate
    compare: Callable[[Vectors, Vectors, float], D]
    scratch: Path

    def measure(self, model: Path) -> D:
        """Return how a model of this tower differs from float32."""
        vectors, rate = run(model, self.feeds)
        return self.compare(self.reference, vectors, rate)

    def some(self, count: int) -> Subject[D]:
        """Return the same with fewer samples."""
        feeds, items = self.feeds.some(count)
        return dataclasses.replace(self, feeds=feeds, reference=self.reference[items])


def drift(reference: Vectors, vectors: Vectors, rate: float = 0.0) -> Drift:
    """Return how ``vectors`` differ from ``reference``, row by row."""
    cosines = row_cosines(vectors, reference)
    return Drift(float(cosines.mean()), float(cosines.min()), neighbour_overlap(reference, vectors), rate)


def score_drift(reference: Vectors, vectors: Vectors, rate: float = 0.0) -> ScoreDrift:
    """Return how probabilities differ from those of float32, both (n, 1)."""
    differences = np.abs(np.nan_to_num(vectors, nan=-1.0) - reference)
    return ScoreDrift(float(differences.mean()), float(differences.max()), _same_order(reference, vectors), rate)


def _same_order(reference: Vectors, scores: Vectors) -> float:
    """Return the share of the pairs that ``reference`` orders which ``scores`` orders the same way.

    A tie counts half.
    """
    wanted, got = (np.sign(values - values.T) for values in (reference, np.nan_to_num(scores, nan=-1.0)))
    ordered = wanted != 0
    return float((1 + (wanted * got)[ordered].mean()) / 2) if ordered.any() else 1.0


def neighbour_overlap(reference: Vectors, vectors: Vectors) -> float:
    """Return the share of each row's nearest rows by ``reference`` that are nearest by ``vectors``, too."""
    count = min(NEIGHBOURS, len(reference) - 1)
    nearest = []
    for rows in (reference, vectors):
        scores = np.nan_to_num(rows @ rows.T, nan=-2.0)
        np.fill_diagonal(scores, -np.inf)
        nearest.append(np.argpartition(-scores, count - 1, axis=1)[:, :count])
    return float(np.mean([len(np.intersect1d(a, b)) / count for a, b in zip(*nearest)]))


def write(
    subject: Subject[D], precision: Precision, plan: QuantisationPlan, seen: Mapping[str, Observation], file: Path
) -> None:
    """Write one tower in ``int8`` (for ONNX Runtime on a CPU) or ``qdq`` (for TensorRT)."""
    parts = {
        name: _ranges(plan, observation, symmetric=precision == "qdq")
        for name, observation in seen.items()
        if name not in plan.excluded
    }
    export_quantised(subject.checkpoint, subject.tower, precision, parts, file)


def quantise(
    subject: Subject[D],
    precision: Precision,
    seen: Mapping[str, Observation],
    settings: Calibration,
    report: Report,
    *,
    trusted: bool,
    search: bool = True,
) -> QuantisedTower[D]:
    """Return the plan that passes the gate first: plain, smoothed, or with the most harmful Linears in high precision.

    ``trusted`` says that calibration saw what the model will see. Without that, ``int8`` gets dynamic ranges, because
    fixed ones would cut off what calibration did not see. If nothing passes, the result is the nearest there is.
    Without ``search`` nothing better is looked for than what passes first, and no Linear is put in high precision.
    """
    tried: list[tuple[QuantisationPlan, D]] = []

    def attempt(plan: QuantisationPlan) -> QuantisedTower[D]:
        report(f"{precision}: {describe(plan)}", len(tried), len(tried) + 1)
        write(subject, precision, plan, seen, subject.scratch)
        tried.append((plan, subject.measure(subject.scratch)))
        return QuantisedTower(plan, tried[-1][1], tuple(tried))

    def damage(names: Sequence[str]) -> float:
        others = tuple(name for name in seen if name not in names)
        plan = dataclasses.replace(_plan(best), excluded=others)
        write(some, precision, plan, seen, some.scratch)
        return 1 - some.measure(some.scratch).nearness

    def searched(done: int) -> None:
        report(f"{precision}: looking for the Linears that hurt most", done, len(seen))

    some = subject.some(_SEARCH_SAMPLES)
    passing = []
    if precision == "qdq" or trusted:
        static = attempt(QuantisationPlan("static"))
        if not search and static.drift.passes(subject.gate):
            return static
        for share in PERCENTILES:
            narrower = attempt(QuantisationPlan("static", share))
            static = narrower if _is_better(narrower, static, subject.gate) else static
        passing.append(static)
    if precision == "int8":
        passing.append(attempt(QuantisationPlan("dynamic")))
    for result in passing:
        if result.drift.passes(subject.gate):
            return dataclasses.replace(result, tried=tuple(tried))
    plain = passing[0]
    smoothed = attempt(dataclasses.replace(_plan(plain), smoothing=settings.smoothing, percentile=100.0))
    best = smoothed
    if not smoothed.drift.passes(subject.gate):
        best = max(plain, smoothed, key=_nearness)
    if search and not best.drift.passes(subject.gate):
        order = by_damage(list(seen), damage, searched)
        best = _exclude(best, order, int(settings.max_excluded * len(seen)), subject.gate, attempt)
    return dataclasses.replace(best, tried=tuple(tried))


def describe(plan: QuantisationPlan) -> str:
    """Return a plan in a few words."""
    words = [plan.method] + ([f"{plan.percentile:g} %"] if plan.method == "static" and plan.percentile < 100 else [])
    words += [f"smoothed by {plan.smoothing:g}"] if plan.smoothing is not None else []
    words += [f"{len(plan.excluded)} Linears in high precision"] if plan.excluded else []
    return ", ".join(words)


def _ranges(plan: QuantisationPlan, seen: Observation, *, symmetric: bool) -> Int8Scaling:
    smooth = None if plan.smoothing is None else seen.smoothing(plan.smoothing)
    if plan.method == "dynamic":
        return Int8Scaling(smooth=smooth)
    low, greatest = seen.inputs.range(plan.percentile) if smooth is None else seen.inputs.scaled(smooth)
    if symmetric:
        return Int8Scaling(max(-low, greatest, 1e-9) / 127, 0, smooth)
    low, greatest = min(low, 0.0), max(greatest, 0.0)
    scale = max(greatest - low, 1e-9) / 255
    return Int8Scaling(scale, round(-low / scale), smooth)


def _is_better(narrower: QuantisedTower[D], wider: QuantisedTower[D], gate: TowerGate | ScoreGate) -> bool:
    """Return whether a narrower static range is worth what it cuts off.

    It alone passes, or it is much nearer to float32.
    """
    if narrower.drift.passes(gate) != wider.drift.passes(gate):
        return narrower.drift.passes(gate)
    return _nearness(narrower) > _nearness(wider) + _WORTH_CLIPPING


def _nearness(result: QuantisedTower[D]) -> float:
    return result.drift.nearness


def _plan(result: QuantisedTower[D]) -> QuantisationPlan:
    if result.plan is None:
        raise ValueError("this model was not quantised")
    return result.plan


def by_damage(
    names: Sequence[str], damage: Callable[[Sequence[str]], float], report: Callable[[int], None]
) -> list[str]:
    """Return the Linears, most harmful first.

    ``damage`` measures what some of them do. Each is measured alone, or with its neighbours where time is short.
    ``report`` is told how many were measured.
    """
    measured: list[tuple[float, Sequence[str]]] = []
    size = place = 0
    while place < len(names):
        group = names[place : place + max(size, 1)]
        begun = time.perf_counter()
        measured.append((damage(group) / len(group), group))
        place += len(group)
        size = size or max(1, round((time.perf_counter() - begun) * len(names) / _SEARCH_SECONDS))
        report(place)
    return [name for _, group in sorted(measured, key=lambda pair: -pair[0]) for name in group]


def _exclude(
    best: QuantisedTower[D],
    order: Sequence[str],
    max_count: int,
    gate: TowerGate | ScoreGate,
    attempt: Callable[[QuantisationPlan], QuantisedTower[D]],
) -> QuantisedTower[D]:
    """Return the model with the fewest Linears in high precision that passes the gate.

    It is found by bisection. Where none passes, the nearest is returned.
    """
    if max_count < 1:
        return best
    plan = _plan(best)
    passing = attempt(dataclasses.replace(plan, excluded=tuple(order[:max_count])))
    if not passing.drift.passes(gate):
        return max(best, passing, key=_nearness)
    low, high = 1, max_count
    while low < high:
        count = (low + high) // 2
        result = attempt(dataclasses.replace(plan, excluded=tuple(order[:count])))
        if result.drift.passes(gate):
            passing, high = result, count
        else:
            low = count + 1
    return passing
