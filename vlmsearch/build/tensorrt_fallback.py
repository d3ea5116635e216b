"""Which Linears INT8 hurts most, and what is said of those that are left in FP16."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from vlmsearch.build.inputs import run
from vlmsearch.build.quantize import Report
from vlmsearch.build.tensorrt_graph import Int8, engine_graph
from vlmsearch.build.tensorrt_measure import Exam, drift

_SECONDS = 120.0
_SAMPLES = 16


def by_damage(model: bytes, int8: Mapping[str, Int8], exam: Exam, report: Report) -> list[str]:
    """The Linears, most harmful first: each is quantised alone, or with its neighbours where time would not do.

    ``model`` is the float32 file; ONNX Runtime computes on the CPU, so that no engine is built for it.
    """
    feeds, items = exam.feeds.some(_SAMPLES)
    reference, names = exam.reference[items], list(int8)
    damage: list[tuple[float, list[str]]] = []
    size = place = 0
    while place < len(names):
        group = names[place : place + max(size, 1)]
        begun = time.perf_counter()
        vectors, _ = run(engine_graph(model, int8, group, spelled_out=False), feeds)
        damage.append((1 - drift(reference, vectors).mean_cosine, group))
        place += len(group)
        size = size or max(1, round((time.perf_counter() - begun) * len(names) / _SECONDS))
        report(f"{exam.tower}: looking for the Linears that hurt most", place, len(names))
    damage.sort(key=lambda item: -item[0] / len(item[1]))
    return [name for _, group in damage for name in group]


def words(precision: str, kept: Sequence[str]) -> str:
    """A precision in a few words, with the Linears that are ``kept`` in FP16."""
    return f"{precision} with {len(kept)} Linears in fp16" if kept else precision
