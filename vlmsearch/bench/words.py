"""How well words, an encoder and both find what was judged: nDCG@10, as `vlmsearch eval` measures it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from vlmsearch.bench.collections import LabelledCollection
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError
from vlmsearch.pipeline import Pipeline
from vlmsearch.search import evaluation
from vlmsearch.search.fusion import text_fields
from vlmsearch.search.judged import JudgedQuery
from vlmsearch.search.relevance import THRESHOLD
from vlmsearch.stores.base import Store, WordSearch
from vlmsearch.types import WORDS

CUT = 10
"""How many documents of an answer count."""


def measure_words(collection: LabelledCollection, encoder: Encoder, store: Store) -> dict[str, float]:
    """Index a collection into an empty store and return nDCG@10 of words, of the text vectors and of `search`.

    Words are left out where the store ranks none.

    Raises:
        ConfigError: The store holds documents, or the encoder has no field for texts.
        MissingDependencyError: ir-measures is not installed.
    """
    evaluation.load_measures()
    if store.manifest() is not None and len(store):
        raise ConfigError(f"{store.name} holds documents already: give an empty store")
    fields = [field for field in text_fields(encoder.spaces) if field.modality == "text"]
    if not fields:
        raise ConfigError(f"{encoder.fingerprint} compares no texts with texts: give another encoder")
    pipeline = Pipeline(encoder, store)
    report = pipeline.add(collection.documents)
    if report.rejects:
        raise ConfigError(f"{len(report.rejects)} documents cannot be indexed: {report.rejects[0].message}")
    queries = [JudgedQuery(id, collection.relevance[id], collection.queries[id]) for id in collection.answered]
    manifest = store.manifest()
    words = isinstance(store, WordSearch) and manifest is not None and bool(manifest.language)
    legs = evaluation.asked_legs(queries, encoder.spaces, has_words=words)
    measured = evaluation.evaluate(pipeline, queries, legs, limit=CUT, threshold=THRESHOLD)
    names = {WORDS: WORDS, **{str(field): str(field) for field in fields}, evaluation.FUSED: "search"}
    measure = evaluation.order_measure(CUT)
    return {name: measured[leg].estimates[measure].value for leg, name in names.items() if leg in measured}


def ndcg(collection: LabelledCollection, found: Mapping[str, Sequence[str]]) -> float:
    """The mean nDCG@10 of the documents that were found for each query that has an answer."""
    judged = {id: collection.relevance[id] for id in collection.answered}
    return statistics.mean(evaluation.ranking_values(found, judged, CUT)[evaluation.order_measure(CUT)].values())
