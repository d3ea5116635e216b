"""What a re-ranker that sees adds to a search of pictures without captions, for counts and places.

The pictures are drawn scenes of two kinds of objects, each with its neighbours: mirrored, so that left and right or
above and below change places, and with one object less. An embedding hardly tells them apart. A query such as
"two stars to the left of a ring" names both kinds, and the scenes that it fits are known from how they were drawn.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import click

from benchmarks.common import print_figures
from vlmsearch.demo.description import Item, ShapeGroup
from vlmsearch.demo.queries import parse_query
from vlmsearch.demo.scenes import CANVAS, Scene, make_scene
from vlmsearch.demo.vocabulary import COUNT_WORDS, INVERSE, RELATIONS, SHAPES
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import open_reranker
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.evaluation import ranking_values
from vlmsearch.search.rerank import WEIGHT, pooled
from vlmsearch.types import Document, Match

FIRST_SEED = 60_000_000
"""First of the scenes that are drawn here: training, the gallery and all other measurements use smaller seeds."""
CUT = 10
"""Documents of an answer that count."""


@dataclass(frozen=True)
class PictureCollection:
    """Drawn scenes by their ids, queries by their ids, and for each query the scenes that it fits."""

    scenes: Mapping[str, Scene]
    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Judged:
    """The first matches of each query, what a re-ranker says of them, and the seconds that it took."""

    matches: Mapping[str, Sequence[Match]]
    scores: Mapping[str, Sequence[float | None]]
    seconds: float

    def rankings(self, weight: float) -> dict[str, list[str]]:
        """Return the ids of each query's matches, best first, with this weight of the re-ranker."""
        return {query: [id for id, _ in sorted(self._pooled(query, weight), key=_likely)] for query in self.matches}

    def _pooled(self, query: str, weight: float) -> Iterator[tuple[str, float]]:
        for match, score in zip(self.matches[query], self.scores[query]):
            yield match.document.id, match.score if score is None else pooled(score, match.score, weight)


def counted_scenes(count: int, queries: int) -> PictureCollection:
    """Return a collection in which each query fits some scenes and none of their neighbours.

    Args:
        count: Number of scenes that are drawn, at least 1; each is followed by its neighbours.
        queries: Maximum number of different queries, from the first scenes on.

    Returns:
        The collection.
    """
    scenes: dict[str, Scene] = {}
    asked: dict[str, None] = {}
    seed = FIRST_SEED
    while count:
        scene, seed = make_scene(seed), seed + 1
        if len(scene.groups) != 2 or scene.relation == "inside":
            continue
        count -= 1
        scenes[f"scene-{scene.seed}"] = scene
        scenes |= {f"scene-{scene.seed}-{kind}": changed for kind, changed in _neighbours(scene)}
        asked[_query(scene)] = None
    texts = dict(zip(map(str, range(1, queries + 1)), asked))
    parsed = {id: parse_query(text) for id, text in texts.items()}
    relevance = {id: {name: 1 for name, scene in scenes.items() if parsed[id].fits(scene)} for id in texts}
    return PictureCollection(scenes, texts, relevance)


def judge_first(pipeline: Pipeline, reranker: Reranker, queries: Mapping[str, str], *, first: int) -> Judged:
    """Return the first matches of each query and what a re-ranker says of them."""
    matches = {id: list(pipeline.search(text, limit=first, min_score=0.0)) for id, text in queries.items()}
    begun = time.perf_counter()
    scores = {id: reranker.score(queries[id], [match.document for match in matches[id]]) for id in queries}
    return Judged(matches, scores, time.perf_counter() - begun)


def quality(rankings: Mapping[str, Sequence[str]], collection: PictureCollection) -> tuple[float, float]:
    """Return the means of nDCG@10 and recall@1 over all queries."""
    best = ranking_values(rankings, collection.relevance, CUT)[f"nDCG@{CUT}"]
    first = ranking_values(rankings, collection.relevance, 1)["recall@1"]
    return sum(best.values()) / len(best), sum(first.values()) / len(first)


def _likely(scored: tuple[str, float]) -> float:
    return -scored[1]


def _query(scene: Scene) -> str:
    """Return a query for the number of the first objects and where they lie to the others."""
    first, second = scene.groups
    number = COUNT_WORDS[first.count] if first.count > 1 else "one"
    return f"{number} {_noun(first.shape, first.count)} {RELATIONS[scene.relation][0]} {_some(second)}"


def _some(group: ShapeGroup) -> str:
    number = COUNT_WORDS[group.count]
    noun = _noun(group.shape, group.count)
    return f"an {noun}" if number == "a" and noun[0] in "aeiou" else f"{number} {noun}"


def _noun(shape: str, count: int) -> str:
    return SHAPES[shape][0][count > 1]


def _neighbours(scene: Scene) -> Iterator[tuple[str, Scene]]:
    """Yield scenes that are nearly like one, and that its query does not fit."""
    first, second = scene.groups
    is_beside = scene.relation in ("left of", "right of")
    groups = tuple(replace(group, items=tuple(_mirrored(group, is_beside=is_beside))) for group in scene.groups)
    yield "mirrored", replace(scene, groups=groups, relation=INVERSE[scene.relation])
    if first.count > 1:
        yield "fewer", replace(scene, groups=(replace(first, items=first.items[1:]), second))


def _mirrored(group: ShapeGroup, *, is_beside: bool) -> Iterator[Item]:
    for item in group.items:
        yield replace(item, x=CANVAS - item.x) if is_beside else replace(item, y=CANVAS - item.y)


@click.command()
@click.argument("reranker")
@click.option("--encoder", default="onnx:demo", show_default=True, help="URL of the encoder of the first stage.")
@click.option("--scenes", default=200, show_default=True, type=click.IntRange(1), help="Scenes, without neighbours.")
@click.option("--queries", default=100, show_default=True, type=click.IntRange(1), help="Queries at most.")
@click.option("--first", default=20, show_default=True, type=click.IntRange(1), help="Matches that are read.")
@click.option("--size", default=CANVAS, show_default=True, type=click.IntRange(16), help="Pixels of a side.")
def main(reranker: str, encoder: str, scenes: int, queries: int, first: int, size: int) -> None:
    """Measure the re-ranker of a URL on pictures without captions."""
    collection = counted_scenes(scenes, queries)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        judge = stack.enter_context(open_reranker(reranker))
        pipeline = stack.enter_context(Pipeline.open(encoder=encoder, store=f"sqlite:{folder / 'index'}"))
        pipeline.add(draw(collection.scenes, folder, size))
        judged = judge_first(pipeline, judge, collection.queries, first=first)
    given = [score for scores in judged.scores.values() for score in scores]
    known = sum(score is not None for score in given)
    weights = {encoder: 0.0, f"with {judge.name}": WEIGHT, f"{judge.name} alone": 1.0}
    orders = {name: judged.rankings(weight) for name, weight in weights.items()}
    orders["the right ones first"] = {
        query: sorted(ids, key=lambda id: id not in collection.relevance[query])
        for query, ids in orders[encoder].items()
    }
    rows = [[name, *(f"{mean:.3f}" for mean in quality(ranks, collection))] for name, ranks in orders.items()]
    title = (
        f"{len(collection.queries)} queries for counts and places, {len(collection.scenes):,} pictures without "
        f"captions; the first {first} read, {known / len(given):.0%} judged, {len(given) / judged.seconds:.1f}/s"
    )
    print_figures(title, ["order of", f"nDCG@{CUT}", "recall@1"], rows)


def draw(scenes: Mapping[str, Scene], folder: Path, size: int = CANVAS) -> Iterator[Document]:
    """Yield scenes as documents without texts, drawn into a folder."""
    for id, scene in scenes.items():
        path = folder / f"{id}.png"
        scene.draw(size).save(path)
        yield Document(id, image=path)


if __name__ == "__main__":
    main()
