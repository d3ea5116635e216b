"""How much of what an exact search finds an approximate one finds, too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TypeAlias, Union

import numpy as np

from vlmsearch.stores.base import Store
from vlmsearch.stores.filters import Comparison, Filter, normalise, values_of
from vlmsearch.types import Document, Field, Hit, Vectors

SAMPLE = 512
"""Documents of a field whose vectors and metadata are looked at."""
_MAX_ERROR = 1e-6
"""Difference of two cosines that count as equal."""
_QUERIES, _FILTERED, _NEIGHBOURS = 20, 10, 10
"""Queries without a filter and with each, and the nearest documents of one that are counted."""
_SHARES = (0.01, 0.1)
"""Shares of the documents that pass a filter, at least: of each kind, the ones that pass the fewest are taken."""
_HARMLESS = 0.02
_OTHER = 0.4
"""The part of another document in a query: its cosine with its own is .93 where the two have nothing in common."""
Comparer: TypeAlias = Callable[[Vectors, int, Union[Filter, None]], Sequence[Sequence[Hit]]]
"""A search for the nearest documents of each vector: how many, and under which filter."""
_KINDS = {"$eq": "an equality", "$gte": "a range", "$ne": "$ne"}


class Recalls:
    """Recalls of the fields of a store, as texts for people. They are measured where a field has changed by a tenth."""

    def __init__(self) -> None:
        self._kept: dict[Field, tuple[int, str]] = {}

    def of(self, store: Store, field: Field, size: int, exact: Comparer) -> str:
        """Return the recall of a field.

        Args:
            store: The store.
            field: The field, which the store searches approximately.
            size: The size of the field, in any unit.
            exact: Compares all vectors of the field.
        """
        step = round(math.log(max(size, 1)) * 10)
        if self._kept.get(field, (-1, ""))[0] != step:

            def search(vectors: Vectors, limit: int, where: Filter | None) -> list[list[Hit]]:
                return store.search(field, vectors, limit=limit, where=where)

            filters = sampled_filters(store.get(store.sample_ids(field, SAMPLE)))
            self._kept[field] = step, measured_recall(store.sample(field, SAMPLE), search, exact, filters)
        return self._kept[field][1]


def measured_recall(
    sample: Vectors, approximate: Comparer, exact: Comparer, filters: Mapping[Comparison, float]
) -> str:
    """Return the share of the nearest documents that a search finds, for people.

    A hit counts where its cosine is not below that of the last one of the exact page: of equal ones, any is right.

    Args:
        sample: Vectors of the index. A query is one of the first, with a part of another.
        approximate: The search.
        exact: The comparison with all documents.
        filters: Filters, with the share of the documents that pass. The one with the lowest recall is named.
    """
    mixed = sample + _OTHER * np.roll(sample, 1, axis=0)  # what is asked is near a document, and is none
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    searches = firsts = 0
    recalls: dict[Comparison | None, float] = {}
    for where in (None, *filters) if len(sample) else ():
        queries = mixed[: _QUERIES if where is None else _FILTERED]
        both = zip(approximate(queries, _NEIGHBOURS, where), exact(queries, _NEIGHBOURS, where))
        pages = [(hits, best) for hits, best in both if best]
        right = sum(hit.score >= best[-1].score - _MAX_ERROR for hits, best in pages for hit in hits[: len(best)])
        recalls[where] = right / max(sum(len(best) for _, best in pages), 1)
        searches += len(pages)
        firsts += sum(bool(hits) and hits[0].score >= best[0].score - _MAX_ERROR for hits, best in pages)
    if not searches:
        return "approximate"
    text = f"approximate, recall {recalls[None]:.3f} of {_NEIGHBOURS}"
    if filters:
        weakest = min(filters, key=recalls.__getitem__)
        text += f", {recalls[weakest]:.3f} where {_KINDS[weakest.operator]} passes {100 * filters[weakest]:.0f} %"
    return f"{text}, the nearest first in {firsts} of {searches} searches"


def sampled_filters(documents: Sequence[Document]) -> dict[Comparison, float]:
    """Return filters on metadata that documents have, with the share of the documents that pass.

    There are equalities, ranges of numbers and ``$ne``, as far as the metadata have any: some pass few documents.

    Args:
        documents: A sample of an index.
    """
    values = [(key, value) for document in documents for key, value in document.metadata.items()]
    pairs = [(key, normalise(part)) for key, value in values for part in dict.fromkeys(values_of(value))]
    counts, passing, above = Counter(pairs), Counter[Comparison](), Counter[str]()
    for (key, value), count in counts.items():
        passing[Comparison(key, "$eq", value)] = count
        passing[Comparison(key, "$ne", value)] = len(documents) - count
    numbers = [(value, key) for key, value in counts if type(value) is float]
    for value, key in sorted(numbers, reverse=True):
        above[key] += counts[key, value]
        passing[Comparison(key, "$gte", value)] = above[key]
    filters: dict[Comparison, float] = {}
    for kind, share in product(_KINDS, _SHARES):
        enough = {where: n for where, n in passing.items() if where.operator == kind and n >= share * len(documents)}
        if fewest := min(enough, key=passing.__getitem__, default=None):
            filters[fewest] = passing[fewest] / len(documents)
    return filters


def identical_share(sample: Vectors) -> float:
    """Return the share of the largest group of equal vectors.

    Args:
        sample: Vectors of length one. Those whose cosine is 1 count as equal.

    Returns:
        The share, 0 where it is below 2 %, which harmed no graph that was measured.
    """
    count = int((sample @ sample.T >= 1 - _MAX_ERROR).sum(axis=1).max(initial=0))
    return count / len(sample) if count > max(1, _HARMLESS * len(sample)) else 0.0
