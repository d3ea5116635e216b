"""How well and how fast a search finds what was judged, beside the hybrid searches of txtai and LanceDB.

Each has the same documents and the same model, loads it in its own way, and answers with the texts that it found. Each
peer is measured as it comes, and with the best of its own settings, which are chosen by the very queries that it is
then measured with: that favours the peers, and nothing of ours is chosen so.
"""

from __future__ import annotations

import importlib
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.labelled import LabelledCollection
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError, MissingDependencyError
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import open_store
from vlmsearch.search import evaluation
from vlmsearch.search.query import Query
from vlmsearch.types import Document, Vectors

PEERS = {"txtai": ("txtai", "faiss"), "lancedb": ("lancedb", "pyarrow", "sentence_transformers")}
"""The other searches, and the modules that they need."""
CUT = 10
"""How many documents of an answer count."""
Progress = Callable[[str, int, int], None]
"""Takes what is going on, how many steps are done, and how many there are."""
_WEIGHTS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Of vectors in a weighted sum, in which words have the rest."""
_NORMALIZATIONS: tuple[bool | str, ...] = (True, "bb25")
"""Of words' scores in txtai: by the highest one, and as probabilities."""
_DEPTHS = (10, 50, 100)
"""How many rows LanceDB takes of each leg."""


@dataclass(frozen=True)
class SearchFigures:
    """What was measured of one search: nDCG@10, seconds to index, and the median of a query in milliseconds.

    With other settings the vectors of the same run are indexed again, which is not timed.
    """

    name: str
    settings: str
    ndcg: float
    index_seconds: float | None
    query_ms: float


@dataclass(frozen=True)
class TxtaiSettings:
    """How txtai ranks: as the manual has it, unless something else is given."""

    normalize: bool | str = True
    stopwords: bool = False
    weight: float = 0.5

    def __str__(self) -> str:
        return f"normalize={self.normalize}, stopwords={self.stopwords}, weights={self.weight}"


@dataclass(frozen=True)
class LanceSettings:
    """How LanceDB ranks; a ``weight`` takes its linear combination in place of reciprocal ranks with the constant."""

    remove_stop_words: bool = True
    depth: int = CUT
    constant: int = 60
    weight: float | None = None

    def __str__(self) -> str:
        fusion = f"RRF(K={self.constant})" if self.weight is None else f"LinearCombination(weight={self.weight})"
        return f"remove_stop_words={self.remove_stop_words}, {fusion}, limit={self.depth}"


_Search = Callable[[str], list[str]]
"""Takes a query and returns the ids of the best documents, whose texts were read too."""


def check_peers(names: Sequence[str]) -> None:
    """Raise MissingDependencyError where a peer, or what it needs, is not installed."""
    for name in names:
        _load(name, PEERS[name])


def measure_peers(
    collection: LabelledCollection,
    encoder: Encoder,
    checkpoint: Path,
    names: Sequence[str],
    folder: Path,
    *,
    rounds: int = 3,
    progress: Progress,
) -> list[SearchFigures]:
    """Index a collection with each search in a folder, choose settings, and ask all judged queries in turns.

    Args:
        collection: What is indexed and asked for.
        encoder: Ours, made of the checkpoint.
        checkpoint: The folder of the model that the peers load, in the form of sentence-transformers.
        names: Which of `PEERS` to measure.
        folder: Where the indexes go.
        rounds: How often all queries are asked for the median; the first answers are those that are judged.
        progress: Told of each step before it begins.

    Returns:
        The figures, ours first, then each peer's as it comes and with its best settings.

    Raises:
        MissingDependencyError: A peer, or ir-measures, is not installed.
        ConfigError: No such folder of a checkpoint.
    """
    if names and not (checkpoint / "config.json").is_file():
        raise ConfigError(f"{checkpoint} holds no model that the peers can load: give the folder of a checkpoint")
    check_peers(names)
    evaluation.load_measures()
    steps = 2 + 2 * len(names)
    done = itertools.count()
    searches: list[tuple[str, str, _Search, float | None]] = []
    with ExitStack() as stack:
        for name in ("vlmsearch", *names):
            progress(f"{name} indexes", next(done), steps)
            peer = stack.enter_context(closing(_open(name, encoder, checkpoint, folder)))
            begun = time.perf_counter()
            peer.index(collection.documents)
            searches.append((name, "defaults", peer.search, time.perf_counter() - begun))
            if not isinstance(peer, _Ours):
                progress(f"settings of {name} are compared", next(done), steps)
                settings, search = peer.best(collection)
                searches.append((name, settings, search, None))
        progress("all answer the queries", next(done), steps)
        return _ask(collection, searches, rounds)


def _open(name: str, encoder: Encoder, checkpoint: Path, folder: Path) -> _Ours | _Txtai | _LanceDB:
    """Open an empty index with its model loaded."""
    if name == "vlmsearch":
        return _Ours(encoder, folder / name)
    return (_Txtai if name == "txtai" else _LanceDB)(checkpoint, folder / name)


def _ask(
    collection: LabelledCollection, searches: Sequence[tuple[str, str, _Search, float | None]], rounds: int
) -> list[SearchFigures]:
    """Let all answer all queries in turns."""
    times: list[list[float]] = [[] for _ in searches]
    scores = []
    for turn in range(rounds):
        for place, (_, _, search, _) in enumerate(searches):
            found = {}
            for number in collection.answered:
                begun = time.perf_counter()
                found[number] = search(collection.queries[number])
                times[place].append(time.perf_counter() - begun)
            if turn == 0:
                scores.append(ndcg(collection, found))
    return [
        SearchFigures(name, settings, score, seconds, statistics.median(each) * 1000)
        for (name, settings, _, seconds), score, each in zip(searches, scores, times, strict=True)
    ]


def ndcg(collection: LabelledCollection, found: Mapping[str, Sequence[str]]) -> float:
    """The mean nDCG@10 of the documents that were found for each query that has an answer."""
    judged = {id: collection.relevance[id] for id in collection.answered}
    return statistics.mean(evaluation.ranking_values(found, judged, CUT)[evaluation.order_measure(CUT)].values())


class _Ours:
    def __init__(self, encoder: Encoder, place: Path) -> None:
        encoder.encode_texts(["a first text loads the model"])
        self._store = open_store(f"sqlite:{place}")
        self._pipeline = Pipeline(encoder, self._store)

    def index(self, documents: Sequence[Document]) -> None:
        self._pipeline.add(documents)

    def search(self, query: str) -> list[str]:
        """All that is there, as peers give it: no threshold, and a minus in the query means nothing."""
        (found,) = self._pipeline.search_many([Query(query)], limit=CUT, min_score=0.0)
        return [match.document.id for match in found]

    def close(self) -> None:
        self._store.close()


class _Txtai:
    """An index of txtai with its texts, saved where others could load it."""

    def __init__(self, checkpoint: Path, place: Path) -> None:
        (self._txtai,) = _load("txtai", ("txtai",))
        self._place = place
        self._known: dict[str, Vectors] = {}
        self._embeddings = self._txtai.Embeddings(path=str(checkpoint), content=True, hybrid=True)
        self._tuned = self._embeddings
        self._embeddings.transform("a first text loads the model")
        self._encode = self._embeddings.model.encode
        self._embeddings.model.encode = self._encode_and_keep

    def index(self, documents: Sequence[Document]) -> None:
        self._embeddings.index((document.id, document.text, None) for document in documents)
        self._embeddings.save(str(self._place))
        self._embeddings.model.encode = self._encode

    def search(self, query: str) -> list[str]:
        return [row["id"] for row in self._embeddings.search(query, CUT)]

    def best(self, collection: LabelledCollection) -> tuple[str, _Search]:
        """The settings with the highest nDCG@10, and the search with them."""
        queries = [collection.queries[number] for number in collection.answered]
        asked = dict(zip(queries, self._encode(queries)))
        scores: dict[TxtaiSettings, float] = {}
        self._known |= asked
        for normalize, stopwords in itertools.product(_NORMALIZATIONS, (False, True)):
            self._index_again(collection.documents, TxtaiSettings(normalize, stopwords))
            for weight in _WEIGHTS:
                found = {number: self._ask(collection.queries[number], weight) for number in collection.answered}
                scores[TxtaiSettings(normalize, stopwords, weight)] = ndcg(collection, found)
        for query in asked:
            del self._known[query]
        best = max(scores, key=lambda each: scores[each])
        self._index_again(collection.documents, best)
        return str(best), partial(self._ask, weight=best.weight)

    def close(self) -> None:
        self._embeddings.close()
        self._tuned.close()

    def _ask(self, query: str, weight: float) -> list[str]:
        return [row["id"] for row in self._tuned.search(query, CUT, weights=weight)]

    def _index_again(self, documents: Sequence[Document], settings: TxtaiSettings) -> None:
        scoring = {"method": "bm25", "terms": True, "normalize": settings.normalize}
        self._tuned = self._txtai.Embeddings(
            method="external",
            transform=lambda texts: self._vectors(texts),  # noqa: PLW0108 (it takes functions, not methods)
            content=True,
            scoring={**scoring, "tokenizer": {"stopwords": settings.stopwords}},
        )
        self._tuned.index((document.id, document.text, None) for document in documents)

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        """The vectors of documents as they were made; those of queries are made anew."""
        return np.stack([self._known[text] if text in self._known else self._encode([text])[0] for text in texts])

    def _encode_and_keep(self, texts: Sequence[str], *rest: object) -> Vectors:
        vectors: Vectors = self._encode(texts, *rest)
        self._known.update(zip(texts, vectors))
        return vectors


class _LanceDB:
    """A table of LanceDB whose vectors its own embedding function makes, with its full text index.

    The vectors have no index, so that they are compared exactly; its manual recommends one from 100,000 of them.
    """

    def __init__(self, checkpoint: Path, place: Path) -> None:
        lancedb, embeddings, schema, self._index, self._rerankers = _load(
            "lancedb", ("lancedb", "lancedb.embeddings", "lancedb.pydantic", "lancedb.index", "lancedb.rerankers")
        )
        self._function = embeddings.get_registry().get("sentence-transformers").create(name=str(checkpoint))
        self._function.compute_query_embeddings("a first text loads the model")
        model = type(
            "Row",
            (schema.LanceModel,),
            {
                "__annotations__": {"id": str, "text": str, "vector": schema.Vector(self._function.ndims())},
                "text": self._function.SourceField(),
                "vector": self._function.VectorField(),
            },
        )
        self._database = lancedb.connect(str(place))
        self._table = self._database.create_table("documents", schema=model)
        self._tuned = self._table

    def index(self, documents: Sequence[Document]) -> None:
        self._table.add([{"id": document.id, "text": document.text} for document in documents])
        self._table.create_index("text", config=self._index.FTS())

    def search(self, query: str) -> list[str]:
        return _ids(self._table.search(query, query_type="hybrid").limit(CUT))

    def best(self, collection: LabelledCollection) -> tuple[str, _Search]:
        """The settings with the highest nDCG@10, and the search with them."""
        self._tuned = self._database.create_table("tuned", data=self._table.to_arrow())
        vectors = {number: self._vector(collection.queries[number]) for number in collection.answered}
        scores: dict[LanceSettings, float] = {}
        for stop in (False, True):
            self._index_again(stop)
            fusions = [LanceSettings(stop, depth, constant) for depth in _DEPTHS for constant in (10, 60)]
            fusions += [LanceSettings(stop, depth, weight=weight) for depth in _DEPTHS for weight in _WEIGHTS]
            for each in fusions:
                found = {
                    number: self._ask(collection.queries[number], vector, each) for number, vector in vectors.items()
                }
                scores[each] = ndcg(collection, found)
        best = max(scores, key=lambda each: scores[each])
        self._index_again(best.remove_stop_words)
        return str(best), lambda query: self._ask(query, self._vector(query), best)

    def close(self) -> None:
        pass

    def _index_again(self, remove_stop_words: bool) -> None:
        self._tuned.create_index("text", config=self._index.FTS(remove_stop_words=remove_stop_words), replace=True)

    def _vector(self, query: str) -> object:
        return self._function.compute_query_embeddings(query)[0]

    def _ask(self, query: str, vector: object, settings: LanceSettings) -> list[str]:
        reranker = (
            self._rerankers.RRFReranker(K=settings.constant)
            if settings.weight is None
            else self._rerankers.LinearCombinationReranker(weight=settings.weight)
        )
        asked = self._tuned.search(query_type="hybrid").vector(vector).text(query)
        return _ids(asked.rerank(reranker).limit(settings.depth))


def _ids(query: Any) -> list[str]:
    return [row["id"] for row in query.to_list()[:CUT]]


def _load(peer: str, modules: Sequence[str]) -> list[Any]:
    try:
        return [importlib.import_module(module) for module in modules]
    except ImportError as exc:
        raise MissingDependencyError(
            f"{peer} cannot be measured without {exc.name}: pip install {peer} sentence-transformers"
        ) from exc
