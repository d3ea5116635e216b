"""How much words count beside vectors in one index, estimated from its texts alone.

Where the vectors of an index know its vocabulary, the texts that share words with a text are also near to it. Where
they do not, because the model never learnt what the texts are about, words have to count more. Some texts of a sample
serve as queries, by a few of their words and by their vectors. The best by words are as near as the best by vectors, or
less near: that is the estimate.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vlmsearch.stores.postings import Postings, WordTable
from vlmsearch.stores.terms import plain_words, query_terms
from vlmsearch.types import Vectors

if TYPE_CHECKING:
    from vlmsearch.encoders.base import Encoder

_MAX_WEIGHT, _SHARPNESS = 12.0, 4
_KNOWN = 0.36
"""The agreement from which on vectors know the words."""
_KNOWN_LETTERS, _LETTERS_SHARPNESS, _MIN_SHARE = 0.66, 8, 0.01
"""The share of letters in tokens that mean something from which on a language is known.

English models have .9 and more for English, .1 to .6 for languages in the same script, and less than .1 for others.
"""
_COPY = 0.85
"""The share of its own BM25 from which on another text is about a copy: such texts tell nothing."""
_MIN_TEXTS = 48
"""Texts that an estimate needs."""
_QUERIES, _WORDS, _BEST = 64, 12, 10
_CHARS = 500
"""The beginning of a text that is looked at."""


def letters_weight(texts: Sequence[str], encoder: Encoder) -> float:
    """Return how much words count beside vectors of a model that may not know the language.

    Args:
        texts: Texts of a sample of the index.
        encoder: The encoder of the index.

    Returns:
        What the evidence of words is multiplied by, from 1 to 12; 1 where the model's tokenizer is not at hand.
    """
    share = encoder.known_letters([text[:_CHARS] for text in texts])
    return 1.0 if share is None else _bounded((_KNOWN_LETTERS / max(share, _MIN_SHARE)) ** _LETTERS_SHARPNESS)


def word_weight(texts: Sequence[str], vectors: Vectors, language: str) -> float:
    """Return how much words count beside vectors.

    Args:
        texts: Texts of a sample of the index.
        vectors: Their vectors, float32 of shape (n, dim), each row of length one.
        language: The language of the index.

    Returns:
        What the evidence of words is multiplied by, from 1 to 12; 1 for fewer than 48 texts.

    Example:
        >>> word_weight(["a dog"], np.eye(1, dtype=np.float32), "auto")
        1.0
    """
    if len(texts) < _MIN_TEXTS:
        return 1.0
    beginnings = [text[:_CHARS] for text in texts]
    table = WordTable([Postings.of(range(len(texts)), beginnings, language)], None)
    agreements = []
    for at in np.linspace(0, len(texts) - 1, _QUERIES).astype(int):
        words = plain_words(beginnings[at])
        some = np.linspace(0, len(words) - 1, min(_WORDS, len(words))).astype(int)
        places, scores, _ = table.best(query_terms(" ".join(words[i] for i in some), language), _BEST + 1, None)
        others, of_others = places[places != at][:_BEST], scores[places != at]
        if of_others.max(initial=0.0) >= _COPY * scores.max(initial=0.0):
            continue
        cosines = vectors @ vectors[at]
        usual = float(np.median(cosines))
        best = float(np.sort(np.delete(cosines, at))[-_BEST:].mean()) - usual
        if len(others) and best > 0:
            agreements.append((float(cosines[others].mean()) - usual) / best)
    if not agreements:
        return 1.0
    agreement = statistics.median(agreements)
    return _bounded((_KNOWN / agreement) ** _SHARPNESS if agreement > 0 else _MAX_WEIGHT)


def _bounded(weight: float) -> float:
    return round(min(max(weight, 1.0), _MAX_WEIGHT), 2)  # the same whichever store rounds the vectors
