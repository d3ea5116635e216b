"""Three outcomes of a search: matches, documents that come closest without being sure, and nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from vlmsearch_mocks import MockGenerator

from vlmsearch import Document, Match, Pipeline
from vlmsearch.answers.stream import NOTHING_FOUND, UNSURE
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search import relevance
from vlmsearch.search.engine import CLOSEST

TEXTS = [f"a {colour} {shape}" for colour in ("red", "green", "blue") for shape in ("star", "square", "ring", "heart")]


@pytest.fixture(params=["sqlite", "mock"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipeline]:
    store = f"sqlite:{tmp_path}/index" if request.param == "sqlite" else "mock:"
    with Pipeline.open(encoder="onnx:demo-minilm", store=store, generator="extractive:") as pipeline:
        pipeline.add(Document(text, text=text, metadata={"length": len(text)}) for text in TEXTS)
        yield pipeline


@pytest.fixture
def unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relevance, "THRESHOLD", 0.9999)


def scores(matches: tuple[Match, ...]) -> list[tuple[str, float]]:
    return [(match.document.id, round(match.score, 6)) for match in matches]


@pytest.mark.usefixtures("unsure")
def test_where_nothing_matches_the_best_are_closest(pipeline: Pipeline) -> None:
    found = pipeline.search("a red star", count=True)
    assert (len(found), found.total) == (0, 0)
    whatever = pipeline.search("a red star", min_score=0, limit=3)
    best = tuple(match for match in whatever if match.score >= CLOSEST)
    assert best
    assert scores(found.closest) == scores(best)
    assert found.closest[0].fields.keys() == whatever[0].fields.keys()
    assert "closest, not sure: " in repr(found)


@pytest.mark.usefixtures("unsure")
def test_what_comes_closest_passes_the_filter_and_is_on_the_first_page_alone(pipeline: Pipeline) -> None:
    assert pipeline.search("a red star").closest[0].document.id == "a red star"
    long = pipeline.search("a red star", where={"length": {"$gte": 12}}).closest
    assert all(len(match.document.id) >= 12 for match in long)
    assert pipeline.search("a red star", offset=3).closest == ()
    assert pipeline.search("a red star", min_score=0.9999).closest == ()


def test_a_search_with_matches_or_without_anything_near_has_none(pipeline: Pipeline) -> None:
    found = pipeline.search("a red star")
    assert found
    assert found.closest == ()
    nothing = pipeline.search("the quarterly tax report")
    assert (len(nothing), nothing.closest) == (0, ())


@pytest.mark.usefixtures("unsure")
def test_each_of_many_queries_has_its_own(pipeline: Pipeline) -> None:
    queries = ["a red star", "the quarterly tax report", "a blue ring"]
    alone = [pipeline.search(query) for query in queries]
    for one, other in zip(pipeline.search_many(queries), alone):
        assert scores(one.closest) == scores(other.closest)


class _Strict(Reranker):
    """Finds one document a little likely, and the others not at all."""

    name = "strict"

    def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
        return [0.01 if document.id == "a red heart" else 1e-9 for document in documents]


def test_an_open_reranker_decides(pipeline: Pipeline) -> None:
    found = pipeline.search("a red star", rerank=_Strict(), rerank_seconds=60)
    assert len(found) == 0
    assert [match.document.id for match in found.closest][:1] == ["a red heart"]


@pytest.mark.usefixtures("unsure")
def test_an_answer_from_unsure_sources_says_so(pipeline: Pipeline) -> None:
    answer = pipeline.ask("a red star")
    assert answer.is_unsure
    assert answer.text.startswith(UNSURE)
    assert answer.citations[0].id == "a red star"
    with pipeline.ask("a red star", stream=True) as parts:
        assert parts.answer() == answer
    none = pipeline.ask("the quarterly tax report")
    assert (none.text, none.is_unsure) == (NOTHING_FOUND, False)
    with Pipeline(pipeline.encoder, pipeline.store, MockGenerator("It is [1].")) as reads:
        answer = reads.ask("a red star")
    assert (answer.text, answer.is_unsure) == ("It is [1].", True)


def test_an_answer_from_matches_is_not_unsure(pipeline: Pipeline) -> None:
    answer = pipeline.ask("a red star")
    assert not answer.is_unsure
    assert UNSURE not in answer.text
