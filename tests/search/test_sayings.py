"""Matches say what a query has in quotation marks, and not what it leaves out."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.search.test_arrays import documents
from tests.support.small_store import SmallStore
from vlmsearch import Document, Pipeline, Query, Store
from vlmsearch.registry import open_store
from vlmsearch.search.query import make_query
from vlmsearch.stores.sqlite.store import SqliteStore

PICTURE = Image.fromarray(np.random.default_rng(1).integers(0, 255, (16, 16, 3), np.uint8))
TEXTS = {
    "said": "A red bicycle leans on a wall.",
    "capital": "The Red Bicycle: a film about racing",
    "between": "A red old bicycle at the station",
    "turned": "This bicycle is red.",
    "plural": "Two red bicycles",
    "apart": "A red car and a blue bicycle",
    "shade": "A bicycle under a sun shade",
    "sunny": "A bicycle in the sun, and a tree that gives shade",
    "tokyo": "東京タワーの赤い自転車",
    "kyoto": "京東の赤い車と自転車",
}


@pytest.fixture(params=["mock", "sqlite", "small", "mongodb", "mongodb+chroma", "postgresql"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipeline]:
    """Open the same documents in stores of each kind; the small one ranks no words."""
    name = f"t{uuid.uuid4().hex[:12]}"
    if request.param == "small":
        store: Store = SmallStore()
    elif "mongodb" in request.param:
        url = f"{request.param}://{request.getfixturevalue('mongo_address')}/{name}"
        store = open_store(url + (f"?chroma=http://{request.getfixturevalue('chroma_address')}" * ("+" in url)))
    elif request.param == "postgresql":
        store = open_store(f"{request.getfixturevalue('postgres_url')}?table={name}")
    else:
        store = open_store({"mock": "mock:", "sqlite": f"sqlite:{tmp_path / 'index'}"}[request.param])
    with Pipeline(MockEncoder(), store) as opened:
        yield filled(opened, tmp_path)


def filled(pipeline: Pipeline, folder: Path) -> Pipeline:
    path = folder / "red-bicycle.png"
    PICTURE.save(path)
    pipeline.add([*(Document(id, text=text) for id, text in TEXTS.items()), Document("picture", image=path)])
    return pipeline


def shown(pipeline: Pipeline, text: str | None, **options: Any) -> set[str]:
    return {match.document.id for match in pipeline.search(text, min_score=0.0, limit=50, **options)}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ('a "red bicycle" in the sun', {"said", "capital", "picture"}),
        ("„red bicycle“", {"said", "capital", "picture"}),
        ("«Red Bicycle»", {"said", "capital", "picture"}),
        ('"red bicycle" -wall', {"capital", "picture"}),
        ('"red bicycle" "racing"', {"capital"}),
        ("“red bicycles”", {"plural"}),
        ('"bicycle under a"', {"shade"}),
        ('"wall of bicycles"', set()),
        ("「東京」", {"tokyo"}),
        ('"自転車"', {"tokyo", "kyoto"}),
    ],
)
def test_matches_say_what_is_in_quotation_marks(pipeline: Pipeline, query: str, says: set[str]) -> None:
    assert shown(pipeline, query) == says


@pytest.mark.parametrize("query", ['a 5" tube of 6" pipe', 'a red "bicycle', "5'10\" tall", 'rated "" or " "', '12"'])
def test_inches_and_unclosed_quotation_marks_mean_nothing(pipeline: Pipeline, query: str) -> None:
    assert shown(pipeline, query) >= TEXTS.keys()


@pytest.mark.parametrize(
    ("without", "says"),
    [
        ("sun shade", {"shade", "sunny"}),
        ('"sun shade"', {"shade"}),
        ("the shades", {"shade", "sunny"}),
        ("sunset and shadow", set()),
        ("the red bicycle", {"said", "capital", "between", "turned", "plural", "apart", "picture"}),
        ("東京", {"tokyo"}),
        ("!!", set()),
    ],
)
def test_what_is_left_out_takes_away_what_says_it(pipeline: Pipeline, without: str, says: set[str]) -> None:
    everything = {*TEXTS, "picture"}
    assert shown(pipeline, "a bicycle", without=without) | {"picture"} == everything - says | {"picture"}
    matches = pipeline.search("a bicycle", without=without, min_score=0.0, limit=50)
    scores = {match.document.id: match.score for match in pipeline.search("a bicycle", min_score=0.0, limit=50)}
    texts = {match.document.id: match.score for match in matches if match.document.id != "picture"}
    assert texts == pytest.approx({id: scores[id] for id in texts}), "what is near it keeps its score"


def test_a_phrase_is_on_every_page_and_counted(pipeline: Pipeline) -> None:
    pipeline.add(
        Document(f"more-{i:02}", text=f"bicycle number {i}, {'red bicycle' if i % 3 else 'bicycle red'}")
        for i in range(40)
    )
    options: dict[str, Any] = {"min_score": 0.0, "limit": 7}
    pages = [pipeline.search('a "red bicycle"', **options)]
    while pages[-1].cursor:
        pages.append(pipeline.search('a "red bicycle"', cursor=pages[-1].cursor, **options))
    ranked = [match.document.id for page in pages for match in page]
    right = {"said", "capital", "picture", *(f"more-{i:02}" for i in range(40) if i % 3)}
    assert sorted(ranked) == sorted(right)
    assert pipeline.search('a "red bicycle"', count=True, **options).total == len(right)


def test_what_says_a_phrase_is_shown_however_little_else_fits(pipeline: Pipeline) -> None:
    pipeline.add([Document("far", text="Boats, hills, harbours, and somewhere the old red bicycle of a man " * 3)])
    ids = {match.document.id for match in pipeline.search('quantum physics "old red bicycle of a"')}
    assert ids == {"far"}
    assert len(pipeline.search('quantum physics "old red bicycle of a"', min_score=0.999)) == 0
    assert not pipeline.search('quantum physics "!!"')


def test_a_passage_says_a_phrase(pipeline: Pipeline) -> None:
    text = "\n\n".join([*(f"Part {i} is about trees and water. " * 12 for i in range(8)), "A red bicycle. " * 20])
    pipeline.add([Document("long", text=text)])
    assert shown(pipeline, '"red bicycle"') == {"said", "capital", "picture", "long"}
    assert shown(pipeline, '"water a red"') == set()
    assert "long" not in shown(pipeline, "water", without="red bicycle")


def test_an_explanation_says_what_is_lacking(pipeline: Pipeline) -> None:
    told = pipeline.explain('a "red bicycle"', "turned", min_score=0.0)
    assert (told.outcome, told.reason) == ("phrase", "Its text does not say, word for word: red bicycle.")
    assert pipeline.explain('a "red bicycle"', "said", min_score=0.0).outcome == "shown"
    assert pipeline.explain('bicycle -"sun shade"', "shade", min_score=0.0).without == (("sun shade", 1.0),)


def test_a_query_as_it_is_has_no_phrases(tmp_path: Path) -> None:
    assert make_query('a "red bicycle"') == Query("a red bicycle", phrases=("red bicycle",))
    assert Query('a "red bicycle"').phrases == ()
    with Pipeline.open(encoder="mock:", store="mock:", generator="extractive:") as opened:
        asked = filled(opened, tmp_path)
        [whole, phrase] = asked.search_many([Query('"bicycle red"'), '"bicycle red"'], min_score=0.0, limit=50)
        assert len(whole) > len(phrase) == 0
        assert asked.ask('What is "bicycle red"?').matches


@pytest.mark.parametrize(
    "query", ['star "red sea"', 'star -"red sea"', '"star" -"sea red" sand', '"sand" -rock', '"star"']
)
@pytest.mark.parametrize("options", [{}, {"min_score": 0.0}, {"group": False}, {"where": {"even": True}}])
def test_arrays_give_what_documents_one_by_one_give(tmp_path: Path, query: str, options: dict[str, Any]) -> None:
    with (
        Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "i"))) as fast,
        Pipeline(MockEncoder(), MemoryStore()) as slow,
    ):
        for opened in (fast, slow):
            opened.add(documents(200))
        wanted, ranked = (p.search(query, count=True, facets=["year"], limit=12, **options) for p in (slow, fast))
        assert (ranked.total, ranked.facets) == (wanted.total, wanted.facets)
        assert [match.document.id for match in ranked] == [match.document.id for match in wanted]
        assert [match.score for match in ranked] == pytest.approx([match.score for match in wanted], abs=1e-5)
        assert [match.parts for match in ranked] == [pytest.approx(match.parts, abs=1e-5) for match in wanted]
