"""Re-ranking of pictures: which scenes are right is known, and a judge that knows it puts them first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.reranking_pictures import (
    PictureCollection,
    counted_scenes,
    judge_first,
    main,
    quality,
)
from tests.support.tables import tables
from vlmsearch import Document, Pipeline
from vlmsearch.demo.queries import parse_query
from vlmsearch.rerankers.base import Reranker


@pytest.fixture(scope="module")
def collection() -> PictureCollection:
    return counted_scenes(12, 10)


def test_a_query_fits_its_scene_and_none_of_its_neighbours(collection: PictureCollection) -> None:
    assert len(collection.queries) == 10
    scenes = collection.scenes
    for query, text in collection.queries.items():
        right = collection.relevance[query].keys()
        assert right == {id for id, scene in scenes.items() if parse_query(text).fits(scene)}
        own = min(right, key=len)
        assert own.count("-") == 1
        assert f"{own}-mirrored" in scenes.keys() - right
        assert f"{own}-fewer" not in right
    assert any(id.endswith("fewer") for id in scenes)
    assert collection.queries["2"] == "one triangle to the left of a flower"
    assert counted_scenes(12, 10) == collection


def test_a_mirrored_scene_is_the_mirror_image(collection: PictureCollection) -> None:
    for id, scene in collection.scenes.items():
        mirrored = collection.scenes.get(f"{id}-mirrored")
        if mirrored is None:
            continue
        axis = "x" if scene.relation in ("left of", "right of") else "y"
        for group, other in zip(scene.groups, mirrored.groups):
            assert [getattr(item, axis) for item in group.items] == [256 - getattr(item, axis) for item in other.items]
        assert mirrored.relation != scene.relation


class Knowing(Reranker):
    """A judge that knows which scenes are right, and does not judge half of the others."""

    name = "knowing"

    def __init__(self, collection: PictureCollection) -> None:
        self._right = {collection.queries[query]: ids for query, ids in collection.relevance.items()}

    def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
        return [
            0.999 if document.id in self._right[query] else None if "fewer" in document.id else 0.001
            for document in documents
        ]


def test_a_judge_that_sees_puts_the_right_scenes_first(collection: PictureCollection, tmp_path: Path) -> None:
    with Pipeline.open(encoder="onnx:demo", store="mock:") as pipeline:
        for id, scene in collection.scenes.items():
            scene.draw(128).save(tmp_path / f"{id}.png")
            pipeline.add(Document(id, image=tmp_path / f"{id}.png"))
        judged = judge_first(pipeline, Knowing(collection), collection.queries, first=len(collection.scenes))
    before, pooled, alone = (quality(judged.rankings(weight), collection) for weight in (0.0, 0.5, 1.0))
    assert before[0] < pooled[0] <= 1
    assert alone[0] == 1
    assert alone[1] == pytest.approx(sum(1 / len(ids) for ids in collection.relevance.values()) / 10)


def test_any_re_ranker_is_measured() -> None:
    options = ("--scenes", "12", "--queries", "4", "--first", "6", "--size", "64")
    [(title, rows)] = tables(main, "judge:mock:no?pictures=1", *options).items()
    assert title.startswith("4 queries for counts and places, ")
    assert "the first 6 read, 100% judged" in title
    plain, pooled, alone, best = rows
    assert [row["order of"] for row in rows[:3]] == ["onnx:demo", "with judge:mock:", "judge:mock: alone"]
    assert float(plain["nDCG@10"]) <= float(best["nDCG@10"])
    assert plain["nDCG@10"] == pooled["nDCG@10"], "who says no to all changes nothing"
    assert 0 < float(alone["nDCG@10"]) <= 1
    [(title, blind)] = tables(main, "judge:mock:no", *options).items()
    assert "0% judged" in title
    assert [row["recall@1"] for row in blind[:3]] == [plain["recall@1"]] * 3
