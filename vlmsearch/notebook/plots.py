"""The charts of an evaluation and of the scores of an index."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vlmsearch._util.svg import Axis, Chart, Point
from vlmsearch.search.curves import WIDEST
from vlmsearch.search.relevance import to_log_odds
from vlmsearch.search.scores import IndexScores

_SHARES = [(number / 5, f"{number / 5:.1f}") for number in range(6)]
_TICKS = (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999)
_LINES = {
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "abstention": "nothing shown",
}
_HEIGHTS = (0.05, 0.1, 0.2, 0.5, 1.0)
_HEIGHT = 320
_Z = 1.959964
"""Standard deviations of a 95 % interval."""


def evaluation_charts(report: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of the report of an evaluation.

    After tuning, they are those of the setting that the index has now.

    Args:
        report: What ``vlmsearch eval --json`` prints.

    Returns:
        Measures by threshold, scores of answers and others, and calibration; none for a report without curves.
    """
    tuning = report.get("tuning") or {}
    curves = tuning.get("curves") or report.get("curves")
    if not curves:
        return []
    counts = curves["histogram"]["counts"]
    names = {"answers": "answers", "others": "other documents"}
    scores = histogram_chart(
        {**curves["histogram"], "counts": {names.get(name, name): counts[name] for name in counts}},
        curves["threshold"],
        title="Scores of answers and of other documents",
    )
    return [_threshold_chart(curves), scores, _calibration_chart(curves["calibration"])]


def histogram_chart(histogram: Mapping[str, Any], threshold: float, *, title: str) -> Chart:
    """Return a histogram of scores, each series as shares of its sum.

    Args:
        histogram: What `vlmsearch.search.curves.histogram` gives.
        threshold: Score from which matches are shown, which is marked.
        title: Heading.

    Returns:
        The chart.
    """
    edges, counts = histogram["edges"], histogram["counts"]
    sums = {name: sum(values) for name, values in counts.items()}
    highest = max((max(values) / sums[name] for name, values in counts.items() if sums[name]), default=0.0)
    top = next(height for height in _HEIGHTS if highest <= height)
    shown = [f"{sums[name]:,} {name}" for name in counts]
    chart = Chart(
        title,
        f"Histogram of the scores of {' and '.join(shown)}. Matches are shown from {threshold:.3g}.",
        Axis("score, in even steps of log-odds", _ticks()),
        Axis("share of each", [(number / 5, f"{number / 5 * top:.0%}") for number in range(6)]),
        height=_HEIGHT,
    )
    for number, (name, values) in enumerate(counts.items()):
        bars = []
        for low, high, count in zip(edges, edges[1:], values):
            left, width = _place(low), (_place(high) - _place(low)) / len(counts)
            said = f"{count:,} {name} from {low:.3g} to {high:.3g}"
            height = count / sums[name] / top if sums[name] else 0.0
            bars += [(left + number * width, left + (number + 1) * width, height, said)] if count else []
        chart.bars(f"{name} ({sums[name]:,})", bars, number=number)
    chart.mark(_place(threshold), f"shown from {threshold:.3g}")
    return chart


def scores_chart(scores: IndexScores) -> Chart:
    """Return the histogram of the scores of an index.

    Args:
        scores: Scores.

    Returns:
        The chart.
    """
    return histogram_chart(scores.histogram, scores.threshold, title=scores.title)


def _threshold_chart(curves: Mapping[str, Any]) -> Chart:
    curve, threshold = curves["curve"], curves["threshold"]
    at = ", ".join(
        f"{shown} {curves['at'][name]:.3f}" for name, shown in _LINES.items() if curves["at"][name] is not None
    )
    chart = Chart(
        "Measures by threshold",
        f"Means over the queries, by the score from which matches are shown. From {threshold:.3g}: {at}.",
        Axis("threshold, in even steps of log-odds", _ticks()),
        Axis("mean or share of queries", _SHARES),
        height=_HEIGHT,
    )
    for number, (name, shown) in enumerate(_LINES.items()):
        points: list[Point | None] = [
            None if value is None else (_place(x), value) for x, value in zip(curve["threshold"], curve[name])
        ]
        chart.line(shown, points, number=number)
    chart.mark(_place(threshold), f"shown from {threshold:.3g}")
    return chart


def _calibration_chart(tenths: Sequence[Mapping[str, float]]) -> Chart:
    said = "; ".join(
        f"{tenth['documents']:,} documents with a score of {tenth['score']:.2f}: {tenth['answers']:.0%}"
        for tenth in tenths
    )
    chart = Chart(
        "Calibration",
        f"Mean score of each tenth, and the share of answers among its documents. {said}.",
        Axis("score", [(number / 10, f"{number / 10:.1f}") for number in range(11)]),
        Axis("share of answers", _SHARES),
        height=_HEIGHT,
    )
    chart.diagonal("as many as the score says")
    points = []
    for tenth in tenths:
        low, high = _interval(tenth["answers"], int(tenth["documents"]))
        title = f"{tenth['documents']:,} documents, mean score {tenth['score']:.3f}, {tenth['answers']:.3f} are answers"
        points.append(((tenth["score"], tenth["answers"]), low, high, title))
    chart.points("documents found, with 95 % interval", points, number=0)
    chart.row("documents", [((tenth["low"] + tenth["high"]) / 2, f"{tenth['documents']:,}") for tenth in tenths])
    return chart


def _interval(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson, "Probable inference", JASA 22, 1927)."""
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    half = _Z / (1 + _Z**2 / count) * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _ticks() -> list[tuple[float, str]]:
    return [(_place(value), f"{value:g}") for value in _TICKS]


def _place(score: float) -> float:
    """Return the place of a score on an axis of log-odds, from 0 to 1."""
    return (min(max(to_log_odds(score), -WIDEST), WIDEST) + WIDEST) / (2 * WIDEST)
