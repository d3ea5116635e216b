"""Documents made up for measuring stores: captions, metadata, vectors, and queries with their exact answers.

All is drawn from fixed seeds, a block of documents at a time, so that any process can draw any block again and a
million documents need no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmsearch.types import Scalar, Vectors

BLOCK = 512
"""Documents to a block, as indexing hands them to a store."""
LIMIT = 10
"""Hits that a query asks for."""
ALBUMS = 100
_SEED = 18
_CLUSTERS = 1000
_SPECTRUM = 0.5
"""The decay of the variance of the principal components: the standard deviation of number j is j to minus this."""
_SPREAD = 0.7
"""The spread inside a cluster as a multiple of that between clusters."""
_VOCABULARY = 30_000
_FLAT = 2.7
"""Of Mandelbrot's form of Zipf's law: the probability of the word of rank r is as 1 / (r + this)."""
_FUNCTION_WORDS = "a the in of on with and at is to from by near his her an for over under two"
_ONSETS = "b bl br c ch cl d dr f fl g gr h j k l m n p pl r s sh sl st t tr v w z"
_VOWELS = "a ai e ea ee i o oa oo ou u"
_CODAS = ("", "", "ck", "d", "l", "m", "n", "nd", "p", "r", "rt", "sh", "st", "t", "x")
_ENDINGS = ("", "", "", "", "s", "s", "ed", "ing")


@dataclass(frozen=True)
class CorpusBlock:
    """Some documents: their ids, captions, vectors, and the columns of their metadata.

    Each has a whole number of its own (``serial``), one of 100 ``album``s, and a ``rating`` from 0 to 1.
    """

    ids: list[str]
    texts: list[str]
    vectors: Vectors
    columns: dict[str, NDArray[Any]]

    @property
    def metadata(self) -> list[dict[str, Scalar]]:
        """Return the metadata of each document."""
        names = list(self.columns)
        return [dict(zip(names, row)) for row in zip(*(column.tolist() for column in self.columns.values()))]


@dataclass(frozen=True)
class Condition:
    """A filter on one key: a range of numbers without its end, or one string."""

    key: str
    low: float = 0.0
    high: float = 0.0
    value: str = ""

    @property
    def where(self) -> dict[str, object]:
        """Return as `vlmsearch.stores.filters` has it."""
        return {self.key: self.value or {"$gte": self.low, "$lt": self.high}}

    @property
    def sql(self) -> str:
        """Return as SQL has it."""
        return (
            f"{self.key} = '{self.value}'" if self.value else f"{self.key} >= {self.low} AND {self.key} < {self.high}"
        )

    def passes(self, columns: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return whether each document passes."""
        column = columns[self.key]
        passes: NDArray[np.bool_] = column == self.value if self.value else (column >= self.low) & (column < self.high)
        return passes


@cache
def _words() -> list[str]:
    """Draw the vocabulary, the most frequent words first."""
    rng = np.random.default_rng([_SEED, 5])
    found = dict.fromkeys(_FUNCTION_WORDS.split())
    syllable = (_ONSETS.split(), _VOWELS.split(), _CODAS)
    while len(found) < _VOCABULARY:
        parts = [*(syllable * int(rng.integers(1, 4))), _ENDINGS]
        found["".join(part[rng.integers(len(part))] for part in parts)] = None
    return list(found)


@cache
def _shares() -> NDArray[np.float64]:
    """Return the share of the words up to each in all texts."""
    shares = np.cumsum(1 / (np.arange(_VOCABULARY) + _FLAT))
    shares /= shares[-1]
    return shares


@dataclass(frozen=True)
class Corpus:
    """A collection of so many documents with vectors of ``dim``.

    The vectors are a mixture of 1,000 clusters of unequal sizes with a decaying spectrum, turned so that no axis is
    special, and not centred: much like those of images. With ``random`` they are independent of each other, which is
    the hardest case for an index. Queries are drawn from the same mixture and are not in the collection.
    """

    documents: int
    dim: int
    random: bool = False

    @property
    def blocks(self) -> range:
        """Return the numbers of the blocks."""
        return range(-(-self.documents // BLOCK))

    def block(self, number: int) -> CorpusBlock:
        """Draw a block."""
        size = min(BLOCK, self.documents - number * BLOCK)
        rng = np.random.default_rng([_SEED, number])
        places = range(number * BLOCK, number * BLOCK + size)
        return CorpusBlock(
            [f"photos/{place // 1000:04}/{place:07}.jpg" for place in places],
            [self._caption(rng) for _ in places],
            self._vectors(rng, size),
            {
                "serial": self._serials[places.start : places.stop],
                "album": np.array([f"album-{album}" for album in rng.integers(ALBUMS, size=size)]),
                "rating": rng.random(size),
            },
        )

    def queries(self, count: int) -> Vectors:
        """Draw the vectors of queries."""
        return self._vectors(np.random.default_rng([_SEED, 1, count]), count)

    def word_queries(self, count: int) -> list[str]:
        """Draw queries of two to four words, of which the frequent ones are asked more often too."""
        rng = np.random.default_rng([_SEED, 2, count])
        common = len(_FUNCTION_WORDS.split())
        content = _words()[common:]
        shares = np.cumsum(1 / (np.arange(len(content)) + _FLAT + common))
        drawn = [np.searchsorted(shares, rng.random(rng.integers(2, 5)) * shares[-1]) for _ in range(count)]
        return ["a " + " ".join(content[place] for place in places) for places in drawn]

    def conditions(self, share: float, count: int) -> list[Condition]:
        """Draw different filters that keep ``share`` of the documents: 0.5, 0.01 or 0.0001."""
        rng = np.random.default_rng([_SEED, 3, count])
        if share == 0.5:
            return [Condition("rating", low, low + share) for low in (rng.random(count) * share).tolist()]
        if share == 1 / ALBUMS:
            return [Condition("album", value=f"album-{place % ALBUMS}") for place in range(count)]
        kept = max(1, round(share * self.documents))
        starts = rng.integers(self.documents - kept + 1, size=count).tolist()
        return [Condition("serial", start, start + kept) for start in starts]

    def _caption(self, rng: np.random.Generator) -> str:
        shares, words = _shares(), _words()
        return " ".join([words[place] for place in np.searchsorted(shares, rng.random(rng.integers(6, 19))).tolist()])

    def _vectors(self, rng: np.random.Generator, count: int) -> Vectors:
        drawn = rng.standard_normal((count, self.dim), dtype=np.float32)
        if not self.random:
            chosen = np.searchsorted(self._cluster_shares, rng.random(count))
            drawn = (drawn * (_SPREAD * self._scale) + self._centres[chosen]) @ self._turn
        unit: Vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        return unit

    @cached_property
    def _serials(self) -> NDArray[np.int64]:
        return np.random.default_rng([_SEED, 4]).permutation(self.documents)

    @cached_property
    def _scale(self) -> NDArray[np.float32]:
        return (np.arange(1, self.dim + 1) ** -_SPECTRUM).astype(np.float32)

    @cached_property
    def _centres(self) -> NDArray[np.float32]:
        rng = np.random.default_rng([_SEED, 6])
        mean = rng.standard_normal(self.dim, dtype=np.float32)
        return (rng.standard_normal((_CLUSTERS, self.dim), dtype=np.float32) + mean) * self._scale

    @cached_property
    def _cluster_shares(self) -> NDArray[np.float64]:
        shares = np.cumsum(1 / (np.arange(_CLUSTERS) + 10.0))
        shares /= shares[-1]
        return shares

    @cached_property
    def _turn(self) -> NDArray[np.float32]:
        turn = np.linalg.qr(np.random.default_rng([_SEED, 7]).standard_normal((self.dim, self.dim)))[0]
        return turn.astype(np.float32)


class ExactNearest:
    """The exact answers of queries, each with a filter or none, over blocks as they come."""

    def __init__(self, queries: Vectors, conditions: Sequence[Condition | None]) -> None:
        self._queries = queries
        self._conditions = conditions
        self._filtered = np.array([place for place, condition in enumerate(conditions) if condition], np.int64)
        self._scores = np.full((len(queries), LIMIT), -np.inf, np.float32)
        self._ids = np.full((len(queries), LIMIT), "", "U32")

    def add(self, block: CorpusBlock) -> None:
        """Compare with further documents."""
        scores = self._queries @ block.vectors.T
        masks: dict[Condition, NDArray[np.bool_]] = {}
        for place in self._filtered:
            condition = self._conditions[place]
            if condition is not None:
                if condition not in masks:
                    masks[condition] = condition.passes(block.columns)
                scores[place, ~masks[condition]] = -np.inf
        better = np.flatnonzero((scores > self._scores[:, -1:]).any(axis=1))
        if len(better):
            both = np.hstack((self._scores[better], scores[better]))
            order = np.argsort(-both, axis=1, kind="stable")[:, :LIMIT]
            names = np.hstack((self._ids[better], np.broadcast_to(np.array(block.ids, "U32"), scores[better].shape)))
            self._scores[better] = np.take_along_axis(both, order, axis=1)
            self._ids[better] = np.take_along_axis(names, order, axis=1)

    def best(self, place: int) -> list[str]:
        """Return the ids of the nearest documents of a query, best first."""
        return [id for id, score in zip(self._ids[place].tolist(), self._scores[place]) if score > -np.inf]
