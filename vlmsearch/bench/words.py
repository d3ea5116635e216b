"""How well words, an encoder and both find what was judged: nDCG@10.

The measure is that of Jarvelin and Kekalainen, "Cumulated Gain-based Evaluation of IR Techniques",
TOIS 20(4), 2002, with a gain of 1 for each judged document, which divides by the best that a page of ten can have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

from vlmsearch.bench.collections import LabelledCollection
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError
from vlmsearch.pipeline import Pipeline
from vlmsearch.search.fusion import text_fields
from vlmsearch.stores.base import Store, WordSearch

CUT = 10
"""How many documents of an answer count."""


def measure_words(collection: LabelledCollection, encoder: Encoder, store: Store) -> dict[str, float]:
    """Index a collection into an empty store and return nDCG@10 of words, of the text vectors and of `search`.

    Words are left out where the store ranks none.

    Raises:
        ConfigError: The store holds documents, or the encoder has no field for texts.
    """
    if store.manifest() is not None and len(store):
        raise ConfigError(f"{store.name} holds documents already: give an empty store")
    fields = [field for field in text_fields(encoder.spaces) if field.modality == "text"]
    if not fields:
        raise ConfigError(f"{encoder.fingerprint} compares no texts with texts: give another encoder")
    pipeline = Pipeline(encoder, store)
    report = pipeline.add(collection.documents)
    if report.rejects:
        raise ConfigError(f"{len(report.rejects)} documents cannot be indexed: {report.rejects[0].message}")
    answers: dict[str, dict[str, list[str]]] = {}
    manifest = store.manifest()
    words = isinstance(store, WordSearch) and manifest is not None and manifest.language
    for number in collection.answered:
        query = collection.queries[number]
        vectors = encoder.encode_texts([query], role="query")
        if isinstance(store, WordSearch) and words:
            answers.setdefault("words", {})[number] = [hit.id for hit in store.search_words(query, limit=CUT).hits]
        for field in fields:
            hits = store.search(field, vectors[field.space], limit=CUT)[0]
            answers.setdefault(str(field), {})[number] = [hit.id for hit in hits]
        found = pipeline.search(query, limit=CUT)
        answers.setdefault("search", {})[number] = [match.document.id for match in found]
    return {
        way: statistics.mean(gain(page, collection.relevance[number]) for number, page in found.items())
        for way, found in answers.items()
    }


def gain(found: Sequence[str], relevant: Collection[str]) -> float:
    """The discounted cumulated gain of a page, as a share of the best that there is."""
    have = sum(1 / math.log2(place + 2) for place, id in enumerate(found[:CUT]) if id in relevant)
    return have / sum(1 / math.log2(place + 2) for place in range(min(CUT, len(relevant))))
