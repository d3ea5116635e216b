"""What an engine is judged by: how near it is to float32, how fast, and which layers INT8 hurts most."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from vlmsearch.building.data import gather
from vlmsearch.building.inputs import Feed, Feeds, image_feeds, padded_feeds, run, text_feeds
from vlmsearch.building.quantize import Drift, Report, by_damage, drift
from vlmsearch.models.bundle import Bundle, Tower
from vlmsearch.models.inputs import open_tokenizer
from vlmsearch.models.recipe import Range, Recipe, TowerGate
from vlmsearch.tensorrt.builder.graph import Int8, engine_graph
from vlmsearch.tensorrt.engine.engine import Engine
from vlmsearch.tensorrt.engine.plans import Plan
from vlmsearch.tensorrt.engine.timing import Timing
from vlmsearch.types import Vectors

BATCHES = (1, 8, 32, 128, 256)
"""The batch sizes that every report has, as far as the engine takes them."""
_RUNS = 50
_SAMPLES = 16


@dataclass(frozen=True)
class AccuracyCheck:
    """Samples of one tower, their vectors in float32, and the gate to pass."""

    tower: Tower
    feeds: Feeds
    reference: Vectors
    gate: TowerGate
    origin: str

    def judge(self, vectors: Vectors) -> Drift:
        """Return how an engine's vectors differ; the rate is left out."""
        return drift(self.reference, vectors)

    def report(self, drift: Drift) -> dict[str, object]:
        """Return what a report says of it."""
        return {
            "passed": drift.passes(self.gate),
            "mean_cosine": round(drift.mean_cosine, 6),
            "min_cosine": round(drift.min_cosine, 6),
            "overlap": round(drift.overlap, 4),
            "samples": {"origin": self.origin, "count": len(self.reference)},
        }

    def recall(self, plan: Plan) -> Drift:
        """Return how a plan's vectors differed when it was built."""
        mean, minimum, overlap = (float(str(plan.report[name])) for name in ("mean_cosine", "min_cosine", "overlap"))
        return Drift(mean, minimum, overlap, 0.0)


def prepare_check(bundle: Bundle, tower: Tower, recipe: Recipe, report: Report) -> AccuracyCheck:
    """Return the samples that the recipe holds out from calibration, with float32 vectors.

    ONNX Runtime computes the vectors.
    """
    report(f"{tower}: collecting samples", 0, 1)
    _, held_out = gather(recipe, (), images=tower == "image", fit=False)
    if bundle.preprocess is not None and tower == "image":
        feeds = image_feeds(held_out.pictures, bundle.preprocess)
    else:
        feeds = text_feeds(held_out.texts, bundle.text, open_tokenizer(bundle))
    report(f"{tower}: float32 vectors to compare with", 0, 1)
    reference, _ = run(bundle.model(tower, "fp32"), feeds)
    if tower == "text":
        feeds = padded_feeds(feeds, bundle.text)
    return AccuracyCheck(tower, feeds, reference, recipe.gates.tower(tower), held_out.origin[tower])


def encode(engine: Engine, feeds: Feeds) -> Vectors:
    """Return an engine's vectors of all samples, in their order."""
    rows = np.concatenate([engine.run(batch) for batch in feeds.batches])
    vectors = np.empty_like(rows)
    vectors[feeds.order] = rows
    return vectors


def example(bundle: Bundle, tower: Tower, rows: int, length: int) -> Feed:
    """Return a batch to time: pixels of noise, or ids of texts that all have ``length`` tokens."""
    rng = np.random.default_rng(rows)
    if bundle.preprocess is not None and tower == "image":
        size = bundle.preprocess.size
        return {"pixels": rng.integers(0, 256, (rows, size, size, 3), np.uint8)}
    form = bundle.text
    ids = rng.integers(0, open_tokenizer(bundle).raw.get_vocab_size(), (rows, length)).astype(np.int32)
    ids[:, : len(form.prefix)] = form.prefix
    if form.suffix:
        ids[:, -len(form.suffix) :] = form.suffix
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def time_engine(
    engine: Engine, bundle: Bundle, tower: Tower, batches: Sequence[int], length: int
) -> tuple[Timing, ...]:
    """Return what batches of these sizes take, as far as the engine takes them."""
    return tuple(
        engine.timed(example(bundle, tower, rows, length), runs=_RUNS) for rows in batches if rows <= engine.max_batch
    )


def slowness(timings: Sequence[Timing], sizes: Range) -> float:
    """Return the geometric mean of what an item takes at these batch sizes, in milliseconds."""
    times = [timing.batch_ms / timing.batch for timing in timings if timing.batch in sizes]
    return math.exp(sum(map(math.log, times)) / len(times)) if times else math.inf


def timings_of(plan: Plan) -> tuple[Timing, ...]:
    """Return what a plan was measured at when it was built."""
    entries = cast("list[dict[str, Any]]", plan.report["timings"])
    names = [field.name for field in dataclasses.fields(Timing)]
    return tuple(Timing(**{name: entry[name] for name in names}) for entry in entries)


def harmful_first(model: bytes, int8: Mapping[str, Int8], check: AccuracyCheck, report: Report) -> list[str]:
    """Return the Linears, most harmful first.

    ``model`` is the float32 file; ONNX Runtime computes on the CPU, so that no engine is built for it.
    """
    feeds, items = check.feeds.some(_SAMPLES)
    reference = check.reference[items]

    def damage(names: Sequence[str]) -> float:
        vectors, _ = run(engine_graph(model, int8, names, spelled_out=False), feeds)
        return 1 - drift(reference, vectors).mean_cosine

    def searched(done: int) -> None:
        report(f"{check.tower}: looking for the Linears that hurt most", done, len(int8))

    return by_damage(list(int8), damage, searched)


def words(precision: str, kept: Sequence[str]) -> str:
    """Return a precision in a few words, with the Linears that are ``kept`` in FP16."""
    return f"{precision} with {len(kept)} Linears in fp16" if kept else precision
