"""Curves and histograms of an index's scores, and the report of an evaluation, in JSON.

Scores are relevances from 0 to 1 and crowd near both ends. Thresholds and bins are in even steps of log-odds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vlmsearch._util.markup import HtmlDisplay, plain
from vlmsearch.search.judged import Judgements
from vlmsearch.search.relevance import to_log_odds, to_relevance

WIDEST = 7
"""Log-odds at the ends of curves and histograms: relevances of 0.0009 and 0.9991."""
_STEPS = 5
"""Thresholds in one step of log-odds."""
_BINS = 4 * WIDEST
_TENTHS = 10
THRESHOLDS = tuple(round(to_relevance(n / _STEPS), 6) for n in range(-WIDEST * _STEPS, WIDEST * _STEPS + 1))
"""Thresholds of a curve, 0.2 log-odds from each other."""

Scores = Mapping[str, Mapping[str, float]]
"""The ids that each query found with their scores, by the ids of the queries."""


class Evaluation(dict[str, Any], HtmlDisplay):
    """The report of an evaluation: what ``vlmsearch eval --json`` prints, as a dict that notebooks show with its plots.

    ``curves`` says how the measures change with the threshold, of all fields fused: precision, recall and F1 are means
    over queries, as in `Index.evaluate`; abstention is the share of queries that show nothing. Its ``histogram`` has
    the scores of answers and of other documents. Its ``calibration`` compares scores with the share of answers, in
    tenths.

    Example:
        >>> Evaluation(queries=12, limit=10, fields={"fused": {"measures": {"nDCG@10": {"value": 0.93}}}})
        Evaluation(12 queries, nDCG@10 0.930)
    """

    def __repr__(self) -> str:
        fields = self.get("fields") or {}
        measures = next(reversed(fields.values()))["measures"] if fields else {}
        figures = "".join(f", {plain(name)} {figure['value']:.3f}" for name, figure in measures.items())
        return f"{type(self).__name__}({self.get('queries', 0)} queries{figures})"


def curves(results: Scores, judged: Judgements, threshold: float) -> dict[str, Any]:
    """Return what judged queries say of thresholds and scores.

    Args:
        results: Scores of all that the queries found, also below the threshold.
        judged: The grades of the documents that answer them.
        threshold: The score from which matches are shown.

    Returns:
        The measures at the threshold (``at``) and along a ``curve``, a ``histogram`` and the ``calibration``.
    """
    points = [_shown(results, judged, value) for value in THRESHOLDS]
    pairs = [(id, document, score) for id, scores in results.items() for document, score in scores.items()]
    answers = [score for id, document, score in pairs if document in judged[id]]
    others = [score for id, document, score in pairs if document not in judged[id]]
    return {
        "threshold": threshold,
        "at": _shown(results, judged, threshold),
        "curve": {"threshold": list(THRESHOLDS), **{name: [point[name] for point in points] for name in points[0]}},
        "histogram": histogram({"answers": answers, "others": others}),
        "calibration": calibration(answers, others),
    }


def _shown(results: Scores, judged: Judgements, threshold: float) -> dict[str, float | None]:
    """Return the measures of what reaches a threshold; None for one that no query has."""
    precisions, recalls, f1s, empty = [], [], [], 0
    for id, scores in results.items():
        shown = [document for document, score in scores.items() if score >= threshold]
        answers = judged[id]
        right = sum(document in answers for document in shown)
        empty += not shown
        if shown:
            precisions.append(right / len(shown))
        if answers:
            recalls.append(right / len(answers))
        f1s.append(2 * right / (len(shown) + len(answers)) if shown or answers else 1.0)
    means = {"precision": _mean(precisions), "recall": _mean(recalls), "f1": _mean(f1s)}
    return {**means, "abstention": round(empty / len(results), 6) if results else None}


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 6) if values else None


def histogram(series: Mapping[str, Iterable[float]]) -> dict[str, Any]:
    """Return how many scores lie in each bin.

    Args:
        series: Scores by a name.

    Returns:
        The ``edges`` of the bins, one more than bins, and the ``counts`` of each series. What is beyond the edges is in
        the first and the last bin.
    """
    step = 2 * WIDEST / _BINS
    edges = [round(to_relevance(n * step - WIDEST), 6) for n in range(_BINS + 1)]
    counts = {}
    for name, scores in series.items():
        counts[name] = [0] * _BINS
        for score in scores:
            counts[name][min(max(int((to_log_odds(score) + WIDEST) // step), 0), _BINS - 1)] += 1
    return {"edges": edges, "counts": counts}


def calibration(answers: Sequence[float], others: Sequence[float]) -> list[dict[str, float]]:
    """Return the scores of each tenth beside the share of answers among them.

    Tenths without scores are left out.

    Args:
        answers: Scores of documents that are answers.
        others: Scores of documents that are none, or were not judged.

    Returns:
        The edges of each tenth (``low``, ``high``), its number of ``documents``, the mean of their ``score`` and the
        share of ``answers``.
    """
    scored = [(score, 1) for score in answers] + [(score, 0) for score in others]
    tenths: list[list[tuple[float, int]]] = [[] for _ in range(_TENTHS)]
    for score, is_answer in scored:
        tenths[min(int(score * _TENTHS), _TENTHS - 1)].append((score, is_answer))
    return [
        {
            "low": number / _TENTHS,
            "high": (number + 1) / _TENTHS,
            "documents": len(pairs),
            "score": round(sum(score for score, _ in pairs) / len(pairs), 6),
            "answers": round(sum(is_answer for _, is_answer in pairs) / len(pairs), 6),
        }
        for number, pairs in enumerate(tenths)
        if pairs
    ]
