"""The scores that an index gives: what to look at before choosing a threshold, without judged queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from typing_extensions import Unpack

from vlmsearch._util.markup import HtmlDisplay
from vlmsearch.errors import ConfigError
from vlmsearch.search.curves import histogram
from vlmsearch.search.options import ManyKeywords
from vlmsearch.search.query import Query
from vlmsearch.stores.base import Store
from vlmsearch.stores.samples import sampling_key
from vlmsearch.types import Document, Matches

OWN_QUERIES = 100
"""Documents whose texts are searched for."""
_LOOKED_AT = 2_000
"""Documents that are looked at for texts, at most."""
_MAX_CHARS = 200
"""Characters of a text that are searched for."""
_LIMIT = 50
"""Matches of each query whose scores count."""
_BATCH = 16


class HasScores(Protocol):
    """An index whose scores are looked at, here or on a server."""

    def search_many(self, queries: Iterable[str | Query], **options: Unpack[ManyKeywords]) -> list[Matches]:
        """Return the best matches of each query."""

    def info(self) -> Mapping[str, Any]:
        """Return what is in the index and what built it."""


@dataclass(frozen=True, repr=False)
class IndexScores(HtmlDisplay):
    """The scores that an index gives to some queries, which notebooks show as a histogram.

    Attributes:
        title: Heading of the histogram.
        histogram: Bins of the scores of two series: see `vlmsearch.search.curves.histogram`.
        threshold: Score from which the index shows matches.
        empty: Share of the queries that show nothing.
    """

    title: str
    histogram: Mapping[str, Any]
    threshold: float
    empty: float

    def __repr__(self) -> str:
        shown = f"{self.empty:.0%} of the queries show nothing from {self.threshold:.3g}"
        return f"{type(self).__name__}({self.title}: {shown})"


def index_scores(index: HasScores, queries: Iterable[str] | None = None) -> IndexScores:
    """Return the scores of the first 50 matches of each query, whatever their score.

    Args:
        index: An index, here or on a server.
        queries: Texts as they are searched for. The series are the best match of each, and the others. By default, the
            texts of 100 documents that are chosen at random; then the series are the scores of their own documents and
            those of others. Only an index that is here has its texts at hand.

    Returns:
        The scores.

    Raises:
        ConfigError: There are no queries, or the index has no texts.
        VlmsearchError: As for `Index.search`.

    Example:
        >>> from vlmsearch import Document, Pipeline
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     _ = pipeline.add([Document("a", text="a dog in the snow"), Document("b", text="a blue car")])
        ...     scores = index_scores(pipeline, ["snow"])
        >>> [sum(counts) for counts in scores.histogram["counts"].values()]
        [1, 1]
    """
    if queries is None:
        documents = _with_texts(index)
        asked: list[str | Query] = [Query((document.text or "")[:_MAX_CHARS]) for document in documents]
        title = f"Scores of the texts of {len(asked):,} documents as queries"
        names = "their own documents", "other documents"
    else:
        documents, asked = None, [query for query in queries if query.strip()]
        title, names = f"Scores of {len(asked):,} queries", ("best matches", "other matches")
    if not asked:
        raise ConfigError("there are no queries: give some texts to search for, such as those that people typed")
    threshold = float(index.info()["threshold"])
    first: list[float] = []
    others: list[float] = []
    empty = 0
    for number, matches in enumerate(_search(index, asked)):
        own = documents[number].id if documents is not None else None
        for place, match in enumerate(matches):
            is_first = match.document.id == own if documents is not None else place == 0
            (first if is_first else others).append(match.score)
        empty += not any(match.score >= threshold for match in matches)
    series = histogram(dict(zip(names, (first, others))))
    return IndexScores(title, series, threshold, empty / len(asked))


def _search(index: HasScores, queries: Sequence[str | Query]) -> Iterable[Matches]:
    for start in range(0, len(queries), _BATCH):
        yield from index.search_many(queries[start : start + _BATCH], limit=_LIMIT, min_score=0.0, group=False)


def _with_texts(index: HasScores) -> list[Document]:
    """Return documents with texts that are drawn at random, always the same ones."""
    store = getattr(index, "store", None)
    if not isinstance(store, Store):
        raise ConfigError("the texts of an index on a server are not drawn from here: give `queries`")
    ids = sorted(store.ids(), key=lambda id: (sampling_key(id), id))[:_LOOKED_AT]
    pages = (store.get(ids[start : start + _BATCH * 8]) for start in range(0, len(ids), _BATCH * 8))
    documents = [*islice((document for page in pages for document in page if document.text), OWN_QUERIES)]
    if not documents:
        raise ConfigError("no document has a text to search for: give `queries`, such as those that people typed")
    return documents
