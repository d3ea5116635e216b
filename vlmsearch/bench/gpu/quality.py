"""How well vectors of sentences agree with people: Spearman's rank correlation on pairs with scores (STS)."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlmsearch.errors import ConfigError
from vlmsearch.export.inputs import Feeds, padded_feeds, text_feeds
from vlmsearch.models.bundle import Bundle
from vlmsearch.models.inputs import open_tokenizer
from vlmsearch.types import Vectors

_BATCH = 64


def sts_spearman(bundle: Bundle, path: Path, encode: Callable[[Feeds], Vectors]) -> float:
    """The correlation of cosines with the scores in a CSV file of two sentences and a score a row."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if len(row) >= 3]
    if not rows:
        raise ConfigError(f"{path} has no rows of two sentences and a score")
    texts = [row[0] for row in rows] + [row[1] for row in rows]
    feeds = text_feeds(texts, bundle.text, open_tokenizer(bundle), _BATCH)
    vectors = encode(padded_feeds(feeds, bundle.text))
    cosines = (vectors[: len(rows)] * vectors[len(rows) :]).sum(axis=1)
    scores = np.array([float(row[2]) for row in rows])
    return float(np.corrcoef(_ranks(cosines), _ranks(scores))[0, 1])


def _ranks(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """The place of every value; equal ones share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: NDArray[np.float64] = (ends - (counts - 1) / 2)[places]
    return ranks
