"""Explanations: what they say is what the search did, on several stores."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder, MockReranker

from vlmsearch import ConfigError, Document, Explanation, InvalidInputError, Match, Pipeline, Regions, Scalar, Store
from vlmsearch.demo.scenes import Scene, make_scene
from vlmsearch.search.explanation import MIN_FALL, WINDOWS
from vlmsearch.search.occlusion import find_passages
from vlmsearch.search.relevance import THRESHOLD, to_relevance
from vlmsearch.stores.base import Tunable

COLOURS = ("red", "green", "blue", "yellow")
THINGS = ("star", "ring", "heart", "circle", "cross")


@pytest.fixture
def pipeline(store: Store) -> Pipeline:
    """Forty notes, a colour and a thing each, twice; four pictures, of which one has a caption."""
    made = Pipeline(MockEncoder(), store)
    pairs = [(colour, thing) for colour in COLOURS for thing in THINGS] * 2
    notes = []
    for i, (colour, thing) in enumerate(pairs):
        metadata: dict[str, Scalar] = {"colour": colour, "number": i}
        notes.append(Document(f"note-{i:02}", text=f"{colour} {thing}", metadata=metadata))
    made.add(notes)
    made.add(Document(f"picture-{colour}", image=Image.new("RGB", (8, 8), colour)) for colour in COLOURS[1:])
    made.add(Document("captioned", text="a red star over water", image=Image.new("RGB", (8, 8), "red")))
    return made


def agree(found: Explanation, match: Match) -> bool:
    """Whether an explanation says what the search says."""
    assert found.relevance == pytest.approx(match.score, abs=1e-6)
    assert set(found.fields) == set(match.fields)
    for name, field in match.fields.items():
        told = found.fields[name]
        assert (told.value, told.evidence) == pytest.approx((field.score, field.evidence), abs=1e-5)
        assert told.rank == field.rank
    return found.document == match.document


@pytest.mark.parametrize(
    "options",
    [{}, {"weights": {"words": 0}}, {"weights": {"minilm/text": 0.3, "words": 2}}, {"where": {"number": {"$lt": 30}}}],
)
def test_every_document_is_explained_as_the_search_judges_it(pipeline: Pipeline, options: dict[str, Any]) -> None:
    whole = pipeline.search("red star", limit=60, min_score=0, **options)
    for place, match in enumerate(whole, 1):
        found = pipeline.explain("red star", match.document.id, limit=60, min_score=0, **options)
        assert agree(found, match)
        assert (found.outcome, found.place, found.candidates) == ("shown", place, len(whole))
        counted = [field.weight * field.evidence for field in found.fields.values() if field.counts]
        by_words = found.words_alone
        assert found.log_odds == pytest.approx(found.prior + sum(counted) if by_words is None else by_words)
        assert to_relevance(found.log_odds) == pytest.approx(found.relevance)


def test_what_an_index_was_tuned_to_is_explained_too(pipeline: Pipeline) -> None:
    assert isinstance(pipeline.store, Tunable)
    pipeline.store.tune({"minilm/text": 0.5, "min_score": 0.05})
    match = pipeline.search("red star", limit=3)[2]
    found = pipeline.explain("red star", match.document.id)
    assert agree(found, match)
    assert (found.threshold, found.fields["minilm/text"].weight, found.fields["words"].weight) == (0.05, 0.5, 1.0)


def test_an_image_and_documents_are_explained_as_queries_too(pipeline: Pipeline) -> None:
    for asked in ({"image": Image.new("RGB", (8, 8), "darkred")}, {"like": ["captioned"]}):
        for match in pipeline.search(limit=5, min_score=0, **asked):
            found = pipeline.explain(None, match.document.id, limit=5, min_score=0, **asked)
            assert agree(found, match)
            assert found.words == ()
            bases = [field.basis for field in found.fields.values()]
            assert not any(basis.fitted for basis in bases if basis)
            assert all(bases)


def reason(pipeline: Pipeline, id: str, text: str = "red star", **options: Any) -> tuple[str, str]:
    found = pipeline.explain(text, id, **options)
    shown = {match.document.id for match in pipeline.search(text, **options)}
    assert (found.outcome == "shown") == (id in shown)
    return found.outcome, found.reason


def test_what_takes_a_document_out_is_named(pipeline: Pipeline) -> None:
    assert reason(pipeline, "note-00") == ("shown", "It is shown at place 1.")
    outcome, why = reason(pipeline, "note-39")  # a yellow cross
    assert outcome == "threshold"
    assert why.endswith(f" is below the threshold of {THRESHOLD:.3f}.")
    assert reason(pipeline, "note-20", limit=1) == ("limit", "It comes at place 2, and 1 are shown.")
    assert reason(pipeline, "note-00", where={"number": {"$gte": 1, "$lt": 20}, "colour": {"$in": ["red"]}}) == (
        "filter",
        "The filter leaves it out: number is at least 1, but it is 0.",
    )
    where = {"$or": [{"number": 7}, {"missing": "x"}]}
    assert pipeline.explain("red star", "note-00", where=where).failed == (
        "none of these holds: number is 7, but it is 0, or missing is 'x', but it is missing",
    )
    assert reason(pipeline, "note-00", text="star -red") == ("without", "It is what the query leaves out: red (1.00).")
    assert pipeline.explain(None, "note-00", like=["note-00"]).outcome == "named"
    assert pipeline.explain("star", "note-00", without=["note-00"]).outcome == "named"


def test_a_document_behind_all_that_are_looked_at_is_explained() -> None:
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document(f"{i:04}", text="red star") for i in range(1200))
        found = pipeline.explain("red star", "1150")
        assert (found.outcome, found.place, found.candidates) == ("limit", None, 1000)
        assert found.reason == "At least 1000 documents come before it, and 10 are shown."
        assert {field.rank for field in found.fields.values()} == {None}
        deep = pipeline.explain("red star", "1150", limit=1200)
        assert (deep.outcome, deep.place) == ("shown", 1151)


def test_the_relevance_of_what_is_left_out_is_told_and_taken_off(pipeline: Pipeline) -> None:
    matches = pipeline.search("star", without="red ring", limit=40)
    assert matches
    for match in matches:
        found = pipeline.explain("star", match.document.id, without="red ring", limit=40)
        [(what, likely)] = found.without
        assert what == "red ring"
        assert match.score == pytest.approx(to_relevance(found.log_odds) * (1 - likely), abs=1e-6)


def test_a_document_that_is_not_there_is_explained(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInputError, match="the document cannot be used"):
        pipeline.add(Document("broken", image=b"no image"))
    found = pipeline.explain("red star", "broken")
    assert (found.outcome, found.document, found.relevance) == ("rejected", None, None)
    assert "(unsupported): " in found.reason
    for id in ("nobody", "x" * 2000, "a\0b"):
        assert pipeline.explain("red star", id).outcome == "absent"
    with Pipeline(MockEncoder(), MemoryStore()) as empty:
        assert empty.explain("red star", "a").reason == "There is no index yet."


def test_the_re_ranker_is_explained() -> None:
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document(f"star-{i}", text="red stars " + "star " * i) for i in range(5))
        pipeline.add([Document("few", text="red star"), Document("many", text="star star star star")])
        reranker = MockReranker()
        asked: dict[str, Any] = {"rerank": reranker, "min_score": 0.0, "limit": 7}
        for match in pipeline.search("red star", **asked):
            found = pipeline.explain("red star", match.document.id, **asked)
            assert found.relevance == pytest.approx(match.score, abs=1e-6)
            assert found.judged is not None
        assert pipeline.explain("red star", "few", rerank="mock:").judged == pytest.approx(0.98)
        pipeline.add(Document("half", text="red"))
        assert pipeline.explain("red star", "half", min_score=0.99).outcome == "shown"
        fallen = pipeline.explain("red star", "half", rerank=reranker, min_score=0.99)
        assert fallen.outcome == "reranker"
        assert fallen.reason.startswith("The re-ranker gave it 0.500, and so its relevance of ")
        unread = pipeline.explain("red star", "star-4", rerank=reranker, rerank_first=1)
        assert unread.judged is None


def test_words_are_counted_as_the_store_ranks_them(pipeline: Pipeline) -> None:
    found = pipeline.explain("the red stars, nowhere", "captioned")
    words = {word.word: word for word in found.words}
    assert list(words) == ["red", "stars", "nowhere"]
    assert words["stars"].stem == "star"
    assert (words["red"].documents, words["stars"].documents, words["nowhere"].documents) == (11, 9, 0)
    assert words["nowhere"].score == 0
    assert words["red"].score > 0
    assert sum(word.score for word in found.words) == pytest.approx(found.fields["words"].value, abs=1e-4)
    assert sum(word.max_score for word in found.words) == pytest.approx(found.max_bm25, abs=1e-4)


def test_a_word_that_very_many_documents_hold_has_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.search.explain._MAX_COUNTED", 39)
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document(str(i), text=f"star {i}") for i in range(40))
        [common, rare] = pipeline.explain("star 4", "4").words
        assert (common.documents, rare.documents) == (None, 1)


def test_words_that_decide_alone_are_told(tmp_path: Path) -> None:
    path = tmp_path / "AB4711.png"
    Image.new("RGB", (8, 8), "red").save(path)
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document(str(i), text=f"letter {i} about nothing at all, and more of it") for i in range(50))
        pipeline.add(Document("photo", image=path))
        found = pipeline.explain("AB4711", "photo")
        assert found.outcome == "shown"
        assert found.words_alone is not None
        assert found.log_odds == found.words_alone
        assert not found.fields["words"].counts


def test_what_the_document_lacks_counts_nothing(pipeline: Pipeline) -> None:
    found = pipeline.explain("red star", "picture-blue")
    assert set(found.lacking) == {"minilm/text", "words"}
    assert set(found.fields) == {"clip/image"}
    assert pipeline.explain("red star", "note-00").lacking == ("clip/image",)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"text": " "}, InvalidInputError),
        ({"seconds": 0}, ConfigError),
        ({"weights": {"nothing": 1}}, ConfigError),
        ({"limit": 0}, ConfigError),
    ],
)
def test_wrong_options_are_refused(pipeline: Pipeline, options: Mapping[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        pipeline.explain(**{"text": "star", "id": "note-00", **options})


# ---- the parts that mattered


def test_the_sentence_that_was_asked_for_matters_most() -> None:
    text = "The boat is old. Was a red star over it? (Nobody knows.) It sank."
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add([Document("a", text=text), Document("b", text="a ring")])
        assert pipeline.explain("red star", "a").passages == ()
        found = pipeline.explain("red star", "a", parts=True)
        parts = {text[part.start : part.end]: part.evidence for part in found.passages}
        assert list(parts) == ["The boat is old.", "Was a red star over it?", "(Nobody knows.)", "It sank."]
        assert max(parts, key=parts.__getitem__) == "Was a red star over it?"
        assert parts["Was a red star over it?"] > MIN_FALL
        assert parts["It sank."] < 0  # without it, the rest is nearer


def test_the_words_of_a_short_text_are_left_out_one_by_one() -> None:
    def worth(texts: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([2.0 * ("red" in text) + ("star" in text) for text in texts])

    text = "one red star"
    parts = [(text[part.start : part.end], part.evidence) for part in find_passages(text, worth)]
    assert parts == [("one", 0), ("red", 2), ("star", 1)]
    assert find_passages("word " * 200, worth) == []
    assert find_passages("star", worth) == []
    assert len(find_passages("A star. " * 200, worth)) == 64


def is_on_the_star(scene: Scene, regions: Regions) -> bool:
    """Whether the middle of the window that mattered most lies within the square around a red star."""
    if regions.best is None:
        return False
    left, top, right, bottom = (256 * share for share in regions.best)
    x, y = (left + right) / 2, (top + bottom) / 2
    stars = [item for group in scene.groups if (group.shape, group.colour) == ("star", "red") for item in group.items]
    return any(abs(item.x - x) <= item.diameter / 2 and abs(item.y - y) <= item.diameter / 2 for item in stars)


@pytest.mark.slow
def test_the_region_that_mattered_most_lies_on_the_star(tmp_path: Path) -> None:
    scenes: dict[str, Scene] = {}
    seed = 10_000_000  # far from those that the model was trained on
    while len(scenes) < 80:
        scene = make_scene(seed)
        if len(scene.groups) > 1 and any((group.shape, group.colour) == ("star", "red") for group in scene.groups):
            scenes[str(seed)] = scene
            scene.draw().save(tmp_path / f"{seed}.png")
        seed += 1
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        others = (make_scene(20_000_000 + i) for i in range(200))
        pipeline.add(Document(f"other-{i}", image=other.draw()) for i, other in enumerate(others))
        pipeline.add(Document(id, image=tmp_path / f"{id}.png") for id in scenes)
        shown = [match for match in pipeline.search("a red star", limit=100) if match.document.id in scenes][:20]
        assert len(shown) == 20
        hits = 0
        for match in shown:
            found = pipeline.explain("a red star", match.document.id, limit=100, parts=True, seconds=60)
            assert agree(found, match)
            assert found.regions
            assert found.regions.tried == WINDOWS
            hits += is_on_the_star(scenes[match.document.id], found.regions)
    assert hits >= 15


def test_the_time_for_regions_is_kept(tmp_path: Path) -> None:
    Image.new("RGB", (64, 48), "red").save(tmp_path / "red.png")
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document("red", image=tmp_path / "red.png"))
        asked: dict[str, Any] = {"image": Image.new("RGB", (64, 48), "red"), "parts": True}
        done: list[int] = []
        whole = pipeline.explain(None, "red", on_progress=done.append, **asked).regions
        assert whole
        assert (whole.tried, done) == (WINDOWS, [*range(0, WINDOWS, 7), WINDOWS])
        short = pipeline.explain(None, "red", seconds=1e-9, **asked)
        assert short.regions
        assert (short.regions.tried, short.regions.best) == (0, None)
        assert short.notes == (f"The time was over after 0 of {WINDOWS} windows of the image.",)


def test_an_image_that_is_not_there_any_more_is_told(tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    Image.new("RGB", (8, 8), "red").save(path)
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add([Document("file", image=path), Document("bytes", image=path.read_bytes())])
        path.unlink()
        gone = pipeline.explain("red star", "file", parts=True)
        assert gone.regions is None
        assert "cannot be read" in gone.notes[0]
        [note] = pipeline.explain("red star", "bytes", parts=True).notes
        assert note.startswith("The index does not keep its image")


def test_an_explanation_is_plain_data(pipeline: Pipeline) -> None:
    found = asdict(pipeline.explain("red star", "note-00"))
    assert found["fields"]["minilm/text"]["basis"]["fitted"] is True


def test_marked_is_where_the_text_says_words_of_the_query(pipeline: Pipeline) -> None:
    found = pipeline.explain("red stars", "captioned")
    assert [found.document.text[start:end] for start, end in found.marked] == ["red", "star"]  # type: ignore[union-attr,index]
    assert pipeline.explain("red stars", "picture-green").marked == ()
