"""Queries with documents that answer them or nearly do: what a re-ranker's probability is fitted to and measured on."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vlmsearch.building.data import CALIBRATION_SEED, passages
from vlmsearch.demo.queries import parse_query
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import ConfigError

PairsFrom = Literal["passages", "scenes"]
_SCENES = 1000
_STYLES = ("partial", "partial", "short", "full")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class LabelledPairs:
    """Queries and documents that share words, and whether each document is what its query asks for.

    ``queries``, ``documents`` and ``labels`` belong together row by row; the rows of one query are next to each other.
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    labels: NDArray[np.bool_]
    origin: str

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Return the pairs, as a tokenizer takes them."""
        return list(zip(self.queries, self.documents))

    def some(self, count: int) -> LabelledPairs:
        """Return up to ``count`` pairs, spread evenly over all."""
        rows = np.unique(np.linspace(0, len(self.labels) - 1, min(count, len(self.labels))).astype(int))
        queries, documents = (tuple(texts[row] for row in rows) for texts in (self.queries, self.documents))
        return LabelledPairs(queries, documents, self.labels[rows], self.origin)


@dataclass(frozen=True)
class Collection:
    """Documents, queries, and which documents each query asks for."""

    documents: tuple[str, ...]
    queries: tuple[str, ...]
    relevant: tuple[frozenset[int], ...]
    origin: str


def labelled_pairs(source: PairsFrom, queries: int, candidates: int) -> LabelledPairs:
    """Return pairs of queries with the documents that share most words with each.

    They are always the same. ConfigError where the collection has fewer queries.
    """
    collection = drawn_scenes(2 * queries) if source == "scenes" else labelled_passages()
    different = list({query: number for number, query in enumerate(collection.queries)}.values())
    if len(different) < queries:
        raise ConfigError(f"there are {len(different)} queries on {collection.origin}, not {queries}")
    chosen = random.Random(0).sample(different, queries)
    nearest = _nearest(collection.documents, [collection.queries[number] for number in chosen], candidates)
    rows = [(number, document) for number, near in zip(chosen, nearest) for document in near]
    return LabelledPairs(
        tuple(collection.queries[number] for number, _ in rows),
        tuple(collection.documents[document] for _, document in rows),
        np.array([document in collection.relevant[number] for number, document in rows]),
        collection.origin,
    )


def drawn_scenes(queries: int) -> Collection:
    """Captions of 1,000 drawn scenes, and queries that leave things out: a scene is relevant if all they say holds."""
    scenes = [make_scene(CALIBRATION_SEED + i) for i in range(_SCENES)]
    asked = [
        make_scene(CALIBRATION_SEED + i % _SCENES).captions(1, 11 + i // _SCENES, style=_STYLES[i % len(_STYLES)])[0]
        for i in range(queries)
    ]
    queries_of_scenes = [parse_query(query) for query in asked]
    relevant = (frozenset(i for i, scene in enumerate(scenes) if query.fits(scene)) for query in queries_of_scenes)
    return Collection(
        tuple(scene.caption() for scene in scenes), tuple(asked), tuple(relevant), "captions of drawn scenes"
    )


def labelled_passages() -> Collection:
    """Return the project's own passages, four a topic.

    The queries of each are a question, keywords and a paraphrase.
    """
    rows = passages()
    places = {row.id: place for place, row in enumerate(rows)}
    asked = [
        (query, frozenset(places[id] for id in (row.id, *row.also)))
        for row in rows
        for query in (row.question, row.keywords, row.paraphrase)
    ]
    return Collection(
        tuple(row.text for row in rows),
        tuple(query for query, _ in asked),
        tuple(relevant for _, relevant in asked),
        "the project's passages",
    )


def _nearest(documents: Sequence[str], queries: Sequence[str], count: int) -> list[list[int]]:
    """Return for each query the documents that share most of its words; rare words count more."""
    bags = [frozenset(_WORD.findall(document.lower())) for document in documents]
    frequencies = Counter(word for bag in bags for word in bag)
    weights = {word: math.log(1 + len(bags) / frequency) for word, frequency in frequencies.items()}

    def near(query: str) -> list[int]:
        words = set(_WORD.findall(query.lower()))
        scores = [sum(weights[word] for word in words & bag) / math.sqrt(len(bag) or 1) for bag in bags]
        return sorted(range(len(bags)), key=lambda place: (-scores[place], place))[:count]

    return [near(query) for query in queries]
