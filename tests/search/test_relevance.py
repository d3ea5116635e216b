"""What cosines and words are worth, and whether a search knows when nothing matches."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import Document, Pipeline, RelevanceFit
from vlmsearch.demo.queries import SceneQuery, parse_query
from vlmsearch.demo.scenes import Scene, make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.registry import open_store
from vlmsearch.search.relevance import (
    FLOOR,
    MAX_EVIDENCE,
    PRIOR,
    Backgrounds,
    Evidence,
    IndexBackground,
    fitted_evidence,
    standing_out,
    to_log_odds,
    to_relevance,
    words_beside,
)
from vlmsearch.types import Field, Vectors

TEXT = Field("minilm", "text")


def unit(rows: Sequence[Sequence[float]]) -> Vectors:
    array = np.array(rows, np.float32)
    vectors: Vectors = array / np.linalg.norm(array, axis=1, keepdims=True)
    return vectors


def sample(count: int, centre: float, seed: int = 0) -> IndexBackground:
    """Vectors around a direction, the nearer to it the larger ``centre`` is."""
    rows = np.random.default_rng(seed).standard_normal((count, 32)).astype(np.float32)
    rows[:, 0] += centre
    return IndexBackground(unit(rows.tolist()))


def test_log_odds_and_relevance_are_each_others_inverse() -> None:
    assert [to_relevance(odds) for odds in (-1e9, 0.0, 1e9)] == [pytest.approx(0.0), 0.5, pytest.approx(1.0)]
    assert to_log_odds(to_relevance(1.7)) == pytest.approx(1.7)
    assert (to_log_odds(0.0), to_log_odds(1.0)) == (-700, 700)


def test_evidence_is_a_line_that_ends_at_the_floor() -> None:
    evidence = Evidence(20.0, -5.0)
    assert evidence(0.9) == pytest.approx(13.0, abs=1e-3)
    assert evidence(-1.0) == pytest.approx(FLOOR, abs=1e-6)
    assert evidence(0.2) == pytest.approx(math.log(math.exp(-1.0) + 0.2))


def test_a_cosine_is_worth_less_where_the_query_is_near_to_everything() -> None:
    fit = RelevanceFit(-4.0, 20.0, -10.0, -5.0, 1.0, 0.0, 0.1)
    query = unit([[1.0, *([0.0] * 31)]])[0]
    far, near = (fitted_evidence(fit, sample(400, centre), query) for centre in (0.0, 6.0))
    assert far(0.4) > near(0.4) + 3
    background = sample(400, 6.0)
    cosines = np.sort(background.sample @ query)
    known = background.against(query)
    rivals = cosines[[-5, -4, -3, -2]].mean()
    assert known == pytest.approx((400, np.median(cosines), cosines.std(), rivals), rel=1e-5)
    expected = -4.0 - 10.0 * (400 / 432 * known.median) - 5.0 * (400 * rivals + 8 * 0.2) / 408 - PRIOR
    assert near.base == pytest.approx(expected, abs=1e-4)


def test_documents_that_are_near_by_any_standard_are_no_background() -> None:
    fit = RelevanceFit(-4.0, 20.0, -10.0, -5.0, 0.5, 0.0, 0.1)
    background, query = sample(400, 0.0), unit([[1.0, *([0.0] * 31)]])[0]
    copies = IndexBackground(np.concatenate([background.sample, np.tile(query, (400, 1))]))
    alone, beside = (fitted_evidence(fit, some, query) for some in (background, copies))
    assert beside.base == pytest.approx(alone.base)
    assert beside.basis is not None
    assert beside.basis.documents == np.count_nonzero(background.sample @ query < 0.5)
    patterns = IndexBackground(unit([[20.0, *row] for row in np.random.default_rng(1).standard_normal((64, 31))]))
    like = standing_out(patterns, patterns.sample[0], alike=True, near=0.5)
    assert to_relevance(PRIOR + like(float(np.median(patterns.sample @ patterns.sample[0])))) > 0.7


def test_few_documents_are_judged_by_what_is_usual() -> None:
    fit = RelevanceFit(-4.0, 20.0, -10.0, -5.0, 1.0, 0.25, 0.1)
    query = unit([[1.0, *([0.0] * 31)]])[0]
    none = fitted_evidence(fit, IndexBackground(np.empty((0, 32), np.float32)), query)
    assert none.base == pytest.approx(-4.0 - 10.0 * 0.25 - 5.0 * 0.45 - PRIOR)
    assert IndexBackground(unit([[1.0, *([0.0] * 31)]])).within() == (0, 0, 0, 0)


@pytest.mark.parametrize("centre", [0.0, 4.0])
@pytest.mark.parametrize("alike", [True, False])
def test_without_a_fit_what_stands_out_counts_whatever_the_scale(centre: float, alike: bool) -> None:
    """One model has cosines around 0, another around 0.4: three deviations above are even odds in both."""
    background = sample(2000, centre)
    query = background.sample[0]
    _, median, deviation, _ = background.against(query)
    if alike:
        _, median, deviation, _ = np.mean([background.against(query), background.within()], axis=0)
    evidence = standing_out(background, query, alike=alike, is_pure=False)
    assert PRIOR + evidence(median + 3 * deviation) == pytest.approx(0, abs=0.35)
    assert to_relevance(PRIOR + evidence(median)) < 0.02
    assert 0.85 < to_relevance(PRIOR + evidence(median + 5 * deviation)) < to_relevance(PRIOR + MAX_EVIDENCE + 0.5)


@pytest.mark.parametrize("centre", [0.0, 2.0, 4.0])
def test_the_very_vector_is_near_certainty_however_near_to_each_other_all_are(centre: float) -> None:
    background = sample(2000, centre)
    query = background.sample[0]
    evidence = standing_out(background, query, alike=True)
    assert to_relevance(PRIOR + evidence(1.0)) > 0.95
    assert to_relevance(PRIOR + evidence(background.against(query).median)) < 0.1


def test_evidence_and_the_value_that_it_begins_at_are_each_others_inverse() -> None:
    for evidence in (Evidence(20.0, -6.0), Evidence(20.0, -6.0, bound=6.0), Evidence(0.5, -1.0, bound=2.0)):
        said = np.array([-1.0, 0.5, 1.9])
        assert evidence.of(evidence.min_value(said)) == pytest.approx(said, abs=1e-6)
        assert evidence.min_value(np.array([FLOOR])) == -math.inf


@pytest.mark.parametrize("floor", [FLOOR, -math.inf])
@pytest.mark.parametrize("bound", [2.0, 6.0, math.inf])
def test_bounds_of_evidence_are_never_wrong(floor: float, bound: float) -> None:
    evidence = Evidence(20.0, -6.0, bound=bound, floor=floor, weight=3.0)
    values = np.linspace(-1, 2, 3001)
    exact, upper = evidence.of(values), replace(evidence, is_upper=True).of(values)
    assert (upper >= exact).all()
    assert (upper <= exact + 3 * 2 * math.log(2)).all()
    begin = evidence.min_value(exact)
    assert (begin <= values + 1e-6).all()
    steep = exact > 3 * FLOOR + 0.1 if floor == FLOOR else np.full(len(values), True)
    assert begin[steep] == pytest.approx(values[steep], abs=1e-9)


def test_evidence_beyond_its_bound_keeps_the_order_and_counts_a_tenth() -> None:
    evidence = Evidence(20.0, 0.0, bound=6.0)
    assert evidence(0.1) == pytest.approx(2.0 + math.exp(FLOOR - 2.0), abs=0.05)
    assert evidence(1.0) == pytest.approx(6.0 + 1.4, abs=1e-3)
    assert evidence(1.0) - evidence(0.9) == pytest.approx(0.2, abs=1e-3)


def test_words_count_by_what_could_be_met() -> None:
    four, two = words_beside(40.0, "red stars above trees"), words_beside(40.0, "red stars")
    assert four(20.0) > four(5.0) > four(0.0) == pytest.approx(-0.6, abs=0.03)
    assert two(10.0) > four(10.0), "of fewer words, more is met"
    assert words_beside(40.0, "runner 77")(10.0) == pytest.approx(3 * two(10.0), abs=0.15)
    assert words_beside(40.0, "red stars", weight=3.0)(10.0) == pytest.approx(3 * two(10.0))


@pytest.mark.parametrize(
    ("query", "share", "expected"),
    [
        ("zebra", 0.45, 25.6 * 0.45 - 2.9),  # one word is worth its share, however frequent it is
        ("a zebra", 0.45, 25.6 * 0.45 - 2.9),
        ("AB-4711", 0.45, 25.6 * 0.45 - 2.9),
        ("AB-4711", 0.7, 25.6 / 2.2 - 2.9 + 2.56 * (0.7 - 1 / 2.2)),  # and little more in a short text
        ("what is a zebra", 0.45, 0.45 * 4.0),  # more words no more than their BM25
        ("zebra crossing", 0.45, 0.45 * 4.0),
        ("zebra crossing", 0.05, 25.6 * 0.05 - 2.9),
    ],
)
def test_alone_words_say_no_more_than_their_rarity(query: str, share: float, expected: float) -> None:
    alone = words_beside(4.0, query).alone
    assert alone is not None
    values = np.array([share * 4.0])
    assert alone.of(values) == pytest.approx([expected])
    assert alone.min_value(np.array([expected])) == pytest.approx(values)


@pytest.mark.parametrize(("documents", "expected"), [(5, -0.75), (20, -0.75), (40, -2.325), (60, -3.9), (500, -3.9)])
def test_all_words_of_a_short_query_say_more_among_few_documents(documents: int, expected: float) -> None:
    alone = words_beside(40.0, "safe code office accounting", documents=documents).alone
    assert alone is not None
    assert alone.held == 16.0
    assert alone.held_log_odds == pytest.approx(expected)
    assert words_beside(40.0, "safe code office accounting hall", documents=documents).alone.held == math.inf  # type: ignore[union-attr]


def test_a_document_that_holds_all_words_of_a_short_query_is_among_the_closest() -> None:
    texts = ["the delivery note of hall one", *(f"a delivery note about item {n} of the list" for n in range(80))]
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document(str(n), text=text) for n, text in enumerate(texts))
        found = pipeline.search("delivery note", weights={"minilm/text": 0.01})
        assert found.matches or len(found.closest) == 3
        assert not pipeline.search("sunken galleon", weights={"minilm/text": 0.01}).closest


def test_a_background_is_taken_anew_once_the_index_is_another() -> None:
    encoder, store, backgrounds = MockEncoder(), MemoryStore(), Backgrounds()
    with Pipeline(encoder, store) as pipeline:
        pipeline.add(Document(f"a-{n}", text=f"dog {n}") for n in range(20))
        manifest = store.manifest()
        assert manifest is not None
        first = backgrounds.get(store, manifest, TEXT)
        assert len(first.sample) == 20
        pipeline.add(Document(f"b-{n}", text=f"cat {n}") for n in range(20))
        assert backgrounds.get(store, manifest, TEXT) is first, "for some seconds"
        backgrounds.forget()
        assert len(backgrounds.get(store, manifest, TEXT).sample) == 40


def test_an_index_is_searched_by_its_tuning() -> None:
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add([Document("a", text="a dog in the snow"), Document("b", text="a dog and a blue car at the sea")])
        plain = pipeline.search("a dog in the snow")
        assert isinstance(pipeline.store, MemoryStore)
        pipeline.store.tune({"words": 0.0, "min_score": 0.9999})
        tuned = pipeline.search("a dog in the snow")
        assert (plain.threshold, tuned.threshold) == (0.3, 0.9999)
        assert len(tuned) < len(plain) == 2
        vectors = sum(field.evidence for name, field in tuned[0].fields.items() if name != "words")
        assert to_log_odds(tuned[0].score) == pytest.approx(PRIOR + vectors), "words count nothing"


def test_an_encoder_without_a_fit_still_finds_and_orders() -> None:
    class Unfitted(MockEncoder):
        def __init__(self) -> None:
            super().__init__()
            self.relevance = MappingProxyType({})

    texts = [f"{animal} number {n}" for n in range(30) for animal in ("dog", "cat", "bird")]
    with Pipeline(Unfitted(), MemoryStore()) as pipeline:
        pipeline.add(Document(f"id-{i:02}", text=text) for i, text in enumerate(texts))
        pipeline.add(Document("x", text="a red star above the sea"))
        assert [match.document.id for match in pipeline.search("a red star")][:1] == ["x"]


def shows(seen: Scene | SceneQuery, kind: str, value: str) -> bool:
    return value in ([seen.background] if kind == "background" else [getattr(group, kind) for group in seen.groups])


def short_captions(scenes: Sequence[Scene], count: int, kind: str = "", value: str = "") -> list[str]:
    """Return different short captions of scenes that have a value of a kind, or of any scenes."""
    texts: dict[str, None] = {}
    for seed, scene in itertools.product(range(20), scenes):
        text = scene.captions(1, seed, style="short")[0]
        if not kind or shows(parse_query(text), kind, value):
            texts[text] = None
        if len(texts) == count:
            break
    return list(texts)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "value"), [("shape", "star"), ("colour", "red"), ("background", "snow")])
def test_what_no_scene_has_is_not_found_and_what_is_there_is(kind: str, value: str) -> None:
    drawn = [make_scene(30_000_000 + number) for number in range(600)]
    scenes = [scene for scene in drawn if not shows(scene, kind, value)][:300]
    answered = short_captions(scenes, 80)
    unanswered = short_captions([scene for scene in drawn if shows(scene, kind, value)], 80, kind, value)
    with Pipeline(OnnxEncoder("demo"), open_store("mock:")) as pipeline:
        pipeline.add(
            Document(str(place), text=None if place % 2 else scene.caption(), image=scene.draw())
            for place, scene in enumerate(scenes)
        )
        answered_silent, unanswered_silent = (
            sum(not matches for matches in pipeline.search_many(queries, limit=5)) for queries in (answered, unanswered)
        )
    assert unanswered_silent >= 0.95 * (answered_silent + unanswered_silent)
    assert unanswered_silent >= 0.9 * len(unanswered) > 50
    assert len(answered) - answered_silent >= 0.9 * len(answered) > 50
