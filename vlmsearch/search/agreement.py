"""How much words count beside vectors in one index, estimated from its texts alone.

Where the vectors of an index know its vocabulary, the texts that share words with a text are also near to it. Where
they do not, because the model never learnt what the texts are about, words have to count more. Some texts of a sample
serve as queries, by a few of their words and by their vectors. The best by words are as near as the best by vectors, or
less near: that is the estimate.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from vlmsearch.stores.postings import Postings, WordTable
from vlmsearch.stores.terms import plain_words, query_terms
from vlmsearch.types import Vectors

_MIN_SLOPE, _MAX_SLOPE = 1.2, 3.0
_AT_FULL = 0.6
"""The weight where words and vectors are equally near at best."""
_MIN_TEXTS = 48
"""Texts that an estimate needs."""
_QUERIES, _WORDS, _BEST = 64, 12, 10
_CHARS = 500
"""The beginning of a text that is looked at."""


def word_slope(texts: Sequence[str], vectors: Vectors, language: str) -> float | None:
    """Return how much words count beside vectors.

    Args:
        texts: Texts of a sample of the index.
        vectors: Their vectors, float32 of shape (n, dim), each row of length one.
        language: The language of the index.

    Returns:
        The slope of the evidence of words, from 1.2 to 3; None for fewer than 48 texts.

    Example:
        >>> word_slope(["a dog"], np.eye(1, dtype=np.float32), "auto") is None
        True
    """
    if len(texts) < _MIN_TEXTS:
        return None
    beginnings = [text[:_CHARS] for text in texts]
    table = WordTable([Postings.of(range(len(texts)), beginnings, language)], None)
    agreements = []
    for at in np.linspace(0, len(texts) - 1, _QUERIES).astype(int):
        words = plain_words(beginnings[at])
        some = np.linspace(0, len(words) - 1, min(_WORDS, len(words))).astype(int)
        places, _, _ = table.best(query_terms(" ".join(words[i] for i in some), language), _BEST + 1, None)
        others = places[places != at][:_BEST]
        cosines = vectors @ vectors[at]
        usual = float(np.median(cosines))
        best = float(np.sort(np.delete(cosines, at))[-_BEST:].mean()) - usual
        if len(others) and best > 0:
            agreements.append((float(cosines[others].mean()) - usual) / best)
    if not agreements:
        return None
    slope = max(_AT_FULL / max(statistics.median(agreements), _AT_FULL / _MAX_SLOPE), _MIN_SLOPE)
    return round(slope, 2)  # the same whichever store rounds the vectors
