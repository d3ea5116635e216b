"""How well and how fast a search finds what was judged, beside the hybrid searches of txtai and LanceDB.

Each has the same documents and the same model, loads it in its own way, and answers with the texts that it found. Each
peer is measured as it comes, and with the best of its own settings, which are chosen by the very queries that it is
then measured with: that favours the peers, and nothing of ours is chosen so.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np

from benchmarks.common import print_figures, rounds_option
from benchmarks.labelled import LabelledCollection, read_cisi
from vlmsearch.building.progress import steps
from vlmsearch.encoders.base import Encoder
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.search import evaluation
from vlmsearch.search.query import Query
from vlmsearch.types import Document, Vectors

CUT = 10
"""Documents of an answer that count."""
_WEIGHTS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Of vectors in a weighted sum, in which words have the rest."""
_NORMALIZATIONS: tuple[bool | str, ...] = (True, "bb25")
"""Of words' scores in txtai: by the highest one, and as probabilities."""
_DEPTHS = (10, 50, 100)
"""Rows that LanceDB takes of each field."""


@dataclass(frozen=True)
class SearchFigures:
    """The figures of one search: nDCG@10, seconds to index, and the median of a query in milliseconds.

    With other settings the vectors of the same run are indexed again, which is not timed.
    """

    name: str
    settings: str
    ndcg: float
    index_seconds: float | None
    query_ms: float


@dataclass(frozen=True)
class TxtaiSettings:
    """The ranking of txtai, by default as in its manual."""

    normalize: bool | str = True
    stopwords: bool = False
    weight: float = 0.5

    def __str__(self) -> str:
        return f"normalize={self.normalize}, stopwords={self.stopwords}, weights={self.weight}"


@dataclass(frozen=True)
class LanceSettings:
    """The ranking of LanceDB; a ``weight`` takes its linear combination in place of reciprocal ranks."""

    remove_stop_words: bool = True
    depth: int = CUT
    constant: int = 60
    weight: float | None = None

    def __str__(self) -> str:
        fusion = f"RRF(K={self.constant})" if self.weight is None else f"LinearCombination(weight={self.weight})"
        return f"remove_stop_words={self.remove_stop_words}, {fusion}, limit={self.depth}"


_Search = Callable[[str], list[str]]
"""Takes a query and returns the ids of the best documents, whose texts were read too."""
Peers: TypeAlias = "Mapping[str, Callable[[Path], _Txtai | _LanceDB]]"
"""Functions that open an empty index of each peer in a folder, with its model loaded."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--from", "checkpoint", required=True, type=click.Path(path_type=Path, exists=True), metavar="DIR",
              help="The checkpoint that the peers load: what the encoder was built from.")  # fmt: skip
@click.option("--encoder", default="onnx:all-minilm-l6-v2", show_default=True, metavar="URL",
              help="What makes our vectors.")  # fmt: skip
@rounds_option
def main(folder: Path, checkpoint: Path, encoder: str, rounds: int) -> None:
    """Compare `vlmsearch search` with the hybrid searches of txtai and LanceDB: nDCG@10 and times. It takes minutes.

    FOLDER holds CISI.ALL, CISI.QRY and CISI.REL, or others in their format. Peers are measured as they come, and with
    the best of their settings, chosen by the same queries. A query is timed with its encoding and with the texts found.
    """
    collection = read_cisi(folder)
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as place, open_encoder(encoder) as model:
        peers: Peers = {"txtai": partial(_Txtai, checkpoint), "lancedb": partial(_LanceDB, checkpoint)}
        found = measure_peers(collection, model, peers, Path(place), rounds)
    rows = [
        (each.name, each.settings, f"{each.ndcg:.4f}", f"{each.index_seconds:.1f}" if each.index_seconds else "",
         f"{each.query_ms:.1f}")
        for each in found
    ]  # fmt: skip
    title = f"{encoder}: {len(collection.documents):,} documents, {len(collection.answered)} queries"
    print_figures(title, ("search", "settings", "nDCG@10", "indexing (s)", "query, median (ms)"), rows, left=2)


def measure_peers(
    collection: LabelledCollection, encoder: Encoder, peers: Peers, folder: Path, rounds: int
) -> list[SearchFigures]:
    """Index a collection with each search in a folder, choose settings, and ask all judged queries in turns."""
    searches: list[tuple[str, str, _Search, float | None]] = []
    openers: dict[str, Callable[[Path], _Ours | _Txtai | _LanceDB]] = {"vlmsearch": partial(_Ours, encoder), **peers}
    with ExitStack() as stack:
        report = stack.enter_context(steps("peers"))
        for name, opener in openers.items():
            report(f"{name} indexes", 0, 1)
            peer = stack.enter_context(closing(opener(folder / name)))
            begun = time.perf_counter()
            peer.index(collection.documents)
            searches.append((name, "defaults", peer.search, time.perf_counter() - begun))
            if not isinstance(peer, _Ours):
                report(f"settings of {name} are compared", 0, 1)
                settings, search = peer.best(collection)
                searches.append((name, settings, search, None))
        report("all answer the queries", 0, 1)
        return _ask(collection, searches, rounds)


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
    """Return the mean nDCG@10 of the documents that were found for each query that has an answer."""
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
        """Return all that is there, as peers give it: no threshold, and a minus in the query means nothing."""
        (found,) = self._pipeline.search_many([Query(query)], limit=CUT, min_score=0.0)
        return [match.document.id for match in found]

    def close(self) -> None:
        self._store.close()


class _Txtai:
    """An index of txtai with its texts, saved where others could load it."""

    def __init__(self, checkpoint: Path, place: Path) -> None:
        import txtai

        self._txtai = txtai
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
        """Return the settings with the highest nDCG@10, and the search with them."""
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
        """Return the vectors of documents as they were made; those of queries are made anew."""
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
        import lancedb
        from lancedb import embeddings, index, rerankers
        from lancedb import pydantic as schema

        self._index, self._rerankers = index, rerankers
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
        """Return the settings with the highest nDCG@10, and the search with them."""
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


if __name__ == "__main__":
    main()
