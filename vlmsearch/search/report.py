"""What an evaluation found, as ``vlmsearch eval --json`` and the server say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from vlmsearch.encoders.base import Encoder
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search import evaluation
from vlmsearch.search.curves import Evaluation, curves
from vlmsearch.search.evaluation import FieldMeasures, Searches
from vlmsearch.search.judged import JudgedQuery
from vlmsearch.search.relevance import THRESHOLD
from vlmsearch.stores.base import Store, WordSearch
from vlmsearch.types import MIN_SCORE


class Evaluable(Searches, Protocol):
    """A pipeline that is evaluated."""

    @property
    def encoder(self) -> Encoder:
        """Return what makes the vectors."""

    @property
    def store(self) -> Store:
        """Return what keeps documents and vectors."""


def fields_of(pipeline: Evaluable, queries: Sequence[JudgedQuery]) -> dict[str, set[str]]:
    """Return the fields that queries ask, each with the ids of these queries."""
    manifest = pipeline.store.manifest()
    words = manifest is not None and bool(manifest.language) and isinstance(pipeline.store, WordSearch)
    return evaluation.asked_fields(queries, pipeline.encoder.spaces, has_words=words)


def tuning_of(pipeline: Evaluable) -> Mapping[str, float]:
    """Return the tuning that the index has now."""
    manifest = pipeline.store.manifest()
    return manifest.tuning if manifest is not None else {}


def evaluate(
    pipeline: Evaluable,
    queries: Sequence[JudgedQuery],
    *,
    limit: int,
    weights: Mapping[str, float] | None = None,
    min_score: float | None = None,
    rerank: Reranker | str | bool = False,
    on_search: Callable[[], None] = lambda: None,
) -> tuple[Evaluation, dict[str, FieldMeasures]]:
    """Measure each field alone and all of them fused.

    Args:
        pipeline: The pipeline.
        queries: The queries, with the ids that the index has.
        limit: How many matches of each query count.
        weights: Weights of the fields; by default those of the index.
        min_score: Score from which a match is shown; by default that of the index.
        rerank: What judges the first matches anew.
        on_search: Called after each search.

    Returns:
        The report, and what was measured by the names of the fields.

    Raises:
        MissingDependencyError: ir-measures is not installed.
        BackendError: A back end failed.
    """
    evaluation.load_measures()
    threshold = tuning_of(pipeline).get(MIN_SCORE, THRESHOLD) if min_score is None else min_score
    measured = evaluation.evaluate(
        pipeline,
        queries,
        fields_of(pipeline, queries),
        limit=limit,
        threshold=threshold,
        weights=weights,
        rerank=rerank,
        on_search=on_search,
    )
    judged = {query.id: query.relevant for query in queries}
    report = {
        "store": pipeline.store.name,
        "model": pipeline.encoder.fingerprint,
        "queries": len(queries),
        "without_answer": sum(1 for query in queries if not query.relevant),
        "limit": limit,
        "min_score": threshold,
        "rerank": rerank.name if isinstance(rerank, Reranker) else rerank or None,
        "fields": {name: _measured_json(figures) for name, figures in measured.items()},
        "curves": curves(
            {id: result.scores for id, result in measured[evaluation.FUSED].results.items()}, judged, threshold
        ),
    }
    return Evaluation(report), measured


def _measured_json(measured: FieldMeasures) -> dict[str, object]:
    measures = {
        name: {"value": round(figure.value, 6), "low": round(figure.low, 6), "high": round(figure.high, 6)}
        for name, figure in measured.estimates.items()
    }
    return {"queries": len(measured.results), "measures": measures, "p50": measured.p50, "p95": measured.p95}
