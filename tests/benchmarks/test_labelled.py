"""Labelled collections: what counts as an answer, and what has none."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.labelled import (
    Attribute,
    LabelledCollection,
    drawn_scenes,
    read_captions,
    read_cisi,
    read_sts,
)
from tests.support.labelled import write_cisi
from tests.support.paths import SHARED
from vlmsearch.demo.queries import parse_query
from vlmsearch.demo.scenes import make_scene
from vlmsearch.types import Document

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not here")


def check(collection: LabelledCollection) -> None:
    """What holds for every collection."""
    ids = {document.id for document in collection.documents}
    assert len(ids) == len(collection.documents)
    assert collection.relevance.keys() == collection.queries.keys()
    for graded in collection.relevance.values():
        assert graded.keys() <= ids
        assert all(grade >= 1 for grade in graded.values())
    assert {*collection.answered, *collection.unanswered} == collection.queries.keys()


def test_cisi_is_read(tmp_path: Path) -> None:
    found = read_cisi(write_cisi(tmp_path / "judged"))
    check(found)
    assert found.documents == (
        Document("1", text="Dogs in the snow\nHuskies pull a sledge\nthrough the forest."),
        Document("2", text="Blue cars\nA parade of old cars."),
        Document("4", text="Boats on a lake."),
    )
    assert found.queries == {"1": "a sledge and\nhuskies", "2": "cars of old"}
    assert found.relevance == {"1": {"1": 1}, "2": {"2": 1, "4": 1}}


def test_unanswered_queries_join(tmp_path: Path) -> None:
    found = read_cisi(write_cisi(tmp_path / "judged")).with_unanswered(["how to knead dough", "tyre pressure"])
    check(found)
    assert found.answered == ("1", "2")
    assert [found.queries[id] for id in found.unanswered] == ["how to knead dough", "tyre pressure"]


def test_scored_pairs_become_queries_with_and_without_answers(tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(
        "A cat sleeps.,A cat is asleep.,4.8\n"
        '"A cat sleeps.","A cat, it seems, dozes.",3.2\n'
        "A cat sleeps.,A dog barks.,0.4\n"
        "A cat is asleep.,A kitten naps.,4.2\n"
        "A train leaves.,A bus arrives.,1.8\n"
        "A train leaves.,A ship sinks.,1.0\n"
        "A man runs.,A man walks.,2.5\n"
        "Two old trains are leaving the station.,A lorry waits.,0.5\n"
        "The old king dies.,A queen is crowned.,1.2\n"
        "An old king died.,A new law.,0.0\n"
        "A boy sings.,a boy sings,5.0\n"
        "A boy sings.,A boy is singing.,4.0\n"
    )
    found = read_sts(file)
    check(found)
    texts = {document.id: document.text for document in found.documents}
    graded = {
        found.queries[id]: {texts[other]: grade for other, grade in found.relevance[id].items()} for id in found.queries
    }
    assert graded == {
        "A cat sleeps.": {"A cat is asleep.": 2, "A cat, it seems, dozes.": 1},
        "A train leaves.": {},
        "Two old trains are leaving the station.": {},
        "A boy sings.": {"a boy sings": 2, "A boy is singing.": 2},
    }
    judged = {found.queries[id]: {texts[other] for other in found.judged[id]} for id in found.queries}
    assert judged["A cat sleeps."] == {"A cat is asleep.", "A cat, it seems, dozes.", "A dog barks."}
    assert judged["A boy sings."] == {"a boy sings", "A boy is singing."}
    assert set(texts.values()) == {
        "A cat is asleep.", "A cat, it seems, dozes.", "A dog barks.", "A kitten naps.", "A bus arrives.",
        "A ship sinks.", "A man runs.", "A man walks.", "a boy sings", "A boy is singing.", "A lorry waits.",
        "The old king dies.", "An old king died.", "A queen is crowned.", "A new law.",
    }, "no document is a query, and a sentence that another may answer is not asked for"  # fmt: skip


def test_captions_ask_for_the_photograph_that_they_belong_to(tmp_path: Path) -> None:
    file = tmp_path / "captions.jsonl"
    rows = [
        {"file": "a.jpg", "captions": ["a dog", "one dog", "the dog"]},
        {"file": "b.jpg", "captions": ["a cat", "cats"]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_captions(file)
    check(found)
    assert found.documents == (Document("a.jpg", text="a dog"), Document("b.jpg", text="a cat"))
    assert found.queries == {"a.jpg#2": "one dog", "a.jpg#3": "the dog", "b.jpg#2": "cats"}
    assert found.relevance == {"a.jpg#2": {"a.jpg": 1}, "a.jpg#3": {"a.jpg": 1}, "b.jpg#2": {"b.jpg": 1}}


@pytest.mark.parametrize("style", ["short", "partial"])
def test_half_of_the_scenes_have_captions_and_every_query_is_judged_against_all(style: str) -> None:
    found = drawn_scenes(60, queries=40, style=style)  # type: ignore[arg-type]
    check(found)
    scenes = {document.id: make_scene(int(document.id.removeprefix("scene-"))) for document in found.documents}
    assert len(scenes) == 60
    assert len(found.answered) == len(found.queries) == len(set(found.queries.values())) == 40
    for place, document in enumerate(found.documents):
        assert document.text == (None if place % 2 else scenes[document.id].caption())
        assert isinstance(document.image, bytes)
    with Image.open(io.BytesIO(found.documents[7].image)) as image:  # type: ignore[arg-type]
        assert image.convert("RGB").tobytes() == scenes[found.documents[7].id].draw().tobytes()
    for id, text in found.queries.items():
        assert found.relevance[id] == {other: 1 for other, scene in scenes.items() if parse_query(text).fits(scene)}
    assert drawn_scenes(60, queries=40, style=style) == found  # type: ignore[arg-type]


@pytest.mark.parametrize("absent", [("shape", "star"), ("colour", "red"), ("background", "snow")])
def test_what_is_absent_is_asked_for_and_in_no_scene(absent: tuple[Attribute, str]) -> None:
    attribute, value = absent
    found = drawn_scenes(60, queries=30, absent=absent)
    check(found)
    assert len(found.answered) == len(found.unanswered) == 30
    for document in found.documents:
        scene = make_scene(int(document.id.removeprefix("scene-")))
        assert value not in {scene.background, *(getattr(group, attribute, "") for group in scene.groups)}
    for id in found.unanswered:
        asked = parse_query(found.queries[id])
        assert value in {asked.background, *(getattr(group, attribute, "") for group in asked.groups)}


@needs_shared
def test_the_shared_collections_have_the_sizes_they_are_known_for() -> None:
    cisi, sts, photos = (
        read_cisi(SHARED / "cisi"),
        read_sts(SHARED / "stsb-en-dev.csv"),
        read_captions(SHARED / "photos" / "captions.jsonl"),
    )
    for collection in (cisi, sts, photos):
        check(collection)
    assert (len(cisi.documents), len(cisi.answered), len(cisi.unanswered)) == (1460, 76, 0)
    assert (len(sts.documents), len(sts.answered), len(sts.unanswered)) == (2162, 257, 491)
    assert (len(photos.documents), len(photos.answered), len(photos.unanswered)) == (300, 1200, 0)
