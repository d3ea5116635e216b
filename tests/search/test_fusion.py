import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vlmsearch import ConfigError, Field, FieldScore, Hit, Space
from vlmsearch.search.fusion import add_up, fuse, highest_behind, image_fields, query_vectors, text_fields
from vlmsearch.search.relevance import (
    DOUBT,
    FLOOR,
    PRIOR,
    Evidence,
    to_log_odds,
    to_relevance,
    words_beside,
)
from vlmsearch.types import WORDS

CLIP = Space("clip", 2, frozenset(("text", "image")))
MINILM = Space("minilm", 3, frozenset(("text",)))
CLIP_IMAGE, CLIP_TEXT, MINILM_TEXT = Field("clip", "image"), Field("clip", "text"), Field("minilm", "text")
BOTH = [CLIP_IMAGE, CLIP_TEXT, MINILM_TEXT]


def test_a_text_asks_images_by_clip_and_texts_by_minilm() -> None:
    assert text_fields([CLIP, MINILM]) == [CLIP_IMAGE, MINILM_TEXT]


def test_a_text_asks_texts_by_clip_where_nothing_better_is_there() -> None:
    assert text_fields([CLIP]) == [CLIP_IMAGE, CLIP_TEXT]


def test_a_text_asks_a_text_space_that_stands_alone() -> None:
    assert text_fields([MINILM]) == [MINILM_TEXT]


def test_an_image_asks_both_fields_of_clip() -> None:
    assert image_fields([CLIP, MINILM]) == [CLIP_IMAGE, CLIP_TEXT]


def test_a_query_of_text_and_image_shares_a_field_by_the_mean() -> None:
    text = {"clip": np.array([[1, 0]], np.float32), "minilm": np.array([[0, 0, 1]], np.float32)}
    image = {"clip": np.array([[0, 1]], np.float32)}
    asked = query_vectors([CLIP, MINILM], text, image)
    assert set(asked) == {CLIP_IMAGE, CLIP_TEXT, MINILM_TEXT}
    np.testing.assert_allclose(asked[CLIP_IMAGE], [[0.5**0.5, 0.5**0.5]], rtol=1e-6)
    np.testing.assert_array_equal(asked[CLIP_TEXT], image["clip"])
    np.testing.assert_array_equal(asked[MINILM_TEXT], text["minilm"])


COSINES = Evidence(20.0, -6.0)
"""Even odds at a cosine of 0.3 in place of the prior."""
EVIDENCE = {str(field): COSINES for field in BOTH} | {WORDS: words_beside(40.0, "red stars")}


def alone(query: str, value: float) -> float:
    """What a BM25 of at most 40 is worth by itself."""
    words = words_beside(40.0, query).alone
    assert words is not None
    return float(words.of(np.array([value]))[0])


def found(
    ranked: Mapping[str, Sequence[Hit]],
    owned: Mapping[str, Collection[Field]],
    weights: Mapping[str, float] | None = None,
    **options: Any,
) -> dict[str, float]:
    """The log-odds of each document, best first."""
    return {id: to_log_odds(score) for id, score in fuse(ranked, owned, EVIDENCE, weights, **options).order}


def test_evidence_is_added_to_the_prior_and_fields_keep_what_they_said() -> None:
    ranked = {str(CLIP_IMAGE): [Hit("a", 0.5), Hit("b", 0.4)], str(MINILM_TEXT): [Hit("a", 0.45)]}
    fused = fuse(ranked, {"a": BOTH, "b": [CLIP_IMAGE]}, EVIDENCE)
    (first, score), (second, lower) = fused.order
    assert (first, second) == ("a", "b")
    parts = [COSINES(0.5), COSINES(0.45)]
    assert to_log_odds(score) == pytest.approx(PRIOR + sum(parts))
    assert to_log_odds(lower) == pytest.approx(PRIOR + COSINES(0.4))
    assert fused.fields("a") == {
        str(CLIP_IMAGE): FieldScore(1, 0.5, parts[0]),
        str(MINILM_TEXT): FieldScore(1, 0.45, parts[1]),
    }


def test_two_fields_that_speak_for_a_document_beat_one() -> None:
    ranked = {str(CLIP_IMAGE): [Hit("x", 0.5), Hit("both", 0.48)], str(MINILM_TEXT): [Hit("both", 0.48)]}
    assert list(found(ranked, {"x": [CLIP_IMAGE], "both": BOTH})) == ["both", "x"]


def test_a_field_that_a_document_lacks_counts_neither_for_nor_against_it() -> None:
    ranked = {str(CLIP_IMAGE): [Hit("photo", 0.4)], str(MINILM_TEXT): [Hit("note", 0.4)]}
    odds = found(ranked, {"photo": [CLIP_IMAGE], "note": [MINILM_TEXT]})
    assert odds["photo"] == odds["note"] == pytest.approx(PRIOR + COSINES(0.4))


def test_a_caption_that_says_nothing_takes_little_off_a_picture() -> None:
    ranked = {str(CLIP_IMAGE): [Hit("a", 0.5)], str(MINILM_TEXT): [Hit("a", -0.3)]}
    assert found(ranked, {"a": BOTH})["a"] == pytest.approx(PRIOR + COSINES(0.5) + FLOOR, abs=0.01)


def test_a_document_that_is_gone_is_left_out() -> None:
    assert list(found({str(CLIP_IMAGE): [Hit("gone", 0.4), Hit("a", 0.3)]}, {"a": BOTH})) == ["a"]


def test_equal_ones_are_in_the_order_of_their_ids() -> None:
    hits = [Hit(id, 0.4) for id in "cab"]
    assert list(found({str(CLIP_IMAGE): hits}, {id: [CLIP_IMAGE] for id in "abc"})) == ["a", "b", "c"]


def test_what_a_field_did_not_list_counts_as_it_says_or_as_its_last_hit() -> None:
    ranked = {str(CLIP_IMAGE): [Hit("a", 0.5), Hit("b", 0.4)], str(MINILM_TEXT): [Hit("c", 0.45)]}
    owned = {"a": [CLIP_IMAGE], "b": [CLIP_IMAGE], "c": BOTH}
    fused = fuse(ranked, owned, EVIDENCE, behind={str(CLIP_IMAGE): {"c": Hit("c", 0.1)}})
    assert fused.fields("c")[str(CLIP_IMAGE)] == FieldScore(None, 0.1, COSINES(0.1))
    fused = fuse(ranked, owned, EVIDENCE)
    assert fused.fields("c")[str(CLIP_IMAGE)] == FieldScore(None, 0.4, COSINES(0.4))


def test_weights_multiply_the_evidence() -> None:
    ranked = {str(CLIP_IMAGE): [Hit("picture", 0.5)], str(MINILM_TEXT): [Hit("text", 0.5)]}
    owned = {"picture": [CLIP_IMAGE], "text": [MINILM_TEXT]}
    odds = found(ranked, owned, {str(CLIP_IMAGE): 1.5, str(MINILM_TEXT): 0.0})
    assert odds == pytest.approx({"picture": PRIOR + 1.5 * COSINES(0.5), "text": PRIOR})


@pytest.mark.parametrize("weight", [-1.0, float("inf"), float("nan")])
def test_weights_that_make_no_sense_are_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="weights"):
        fuse({str(CLIP_IMAGE): [Hit("a", 0.4)]}, {"a": [CLIP_IMAGE]}, EVIDENCE, {str(CLIP_IMAGE): weight})


def test_words_count_for_a_document_with_a_text_and_against_it_where_it_shares_none() -> None:
    ranked = {"minilm/text": [Hit("a", 0.4), Hit("b", 0.4)], WORDS: [Hit("b", 16.0)]}
    odds = found(ranked, {"a": [MINILM_TEXT], "b": [MINILM_TEXT]})
    assert odds["b"] == pytest.approx(PRIOR + COSINES(0.4) + EVIDENCE[WORDS](16.0))
    assert odds["a"] == pytest.approx(PRIOR + COSINES(0.4) + EVIDENCE[WORDS](0.0))
    assert odds["b"] > PRIOR + COSINES(0.4) > odds["a"]


def test_words_that_are_met_almost_completely_stand_for_themselves() -> None:
    ranked = {"minilm/text": [Hit("a", 0.1)], WORDS: [Hit("a", 36.0)]}
    odds = found(ranked, {"a": [MINILM_TEXT]})["a"]
    assert odds == pytest.approx(PRIOR + alone("red stars", 36.0) - DOUBT)
    assert to_relevance(odds) > 0.9
    by_words = found({WORDS: [Hit("a", 20.0)]}, {"a": [MINILM_TEXT]})
    assert by_words["a"] == pytest.approx(PRIOR + alone("red stars", 20.0)), "nothing else was asked"


def test_codes_stand_for_themselves_whatever_vectors_say() -> None:
    ranked = {"minilm/text": [Hit("a", 0.1)], WORDS: [Hit("a", 20.0)]}
    evidence = {**EVIDENCE, WORDS: words_beside(40.0, "AB-4711")}
    ((_, score),) = fuse(ranked, {"a": [MINILM_TEXT]}, evidence).order
    assert to_log_odds(score) == pytest.approx(PRIOR + alone("AB-4711", 20.0))


def test_of_fields_that_one_vector_is_compared_with_the_best_counts() -> None:
    names = [str(CLIP_IMAGE), str(CLIP_TEXT)]
    by_best = {name: replace(COSINES, best_of="clip") for name in names}
    ranked = {names[0]: [Hit("itself", 0.9), Hit("both", 0.6)], names[1]: [Hit("both", 0.7), Hit("itself", 0.2)]}
    owned = {"itself": [CLIP_IMAGE, CLIP_TEXT], "both": [CLIP_IMAGE, CLIP_TEXT]}
    fused = fuse(ranked, owned, by_best)
    odds = {id: to_log_odds(score) for id, score in fused.order}
    assert odds == {"itself": pytest.approx(PRIOR + COSINES(0.9)), "both": pytest.approx(PRIOR + COSINES(0.7))}
    values = {names[0]: np.array([0.9, 0.6]), names[1]: np.array([0.2, 0.7])}
    parts = add_up(values, np.array([True, True]), dict.fromkeys(names, 1.0), by_best).parts
    assert np.isnan([parts[name] for name in names]).tolist() == [[False, True], [True, False]]


def test_a_photo_is_raised_by_the_name_of_its_file_and_never_lowered() -> None:
    photos = [Hit("named", 0.3), Hit("similar", 0.3), Hit("other", 0.29)]
    owned = {photo.id: [CLIP_IMAGE] for photo in photos}
    alone = found({str(CLIP_IMAGE): photos}, owned)
    both = found({str(CLIP_IMAGE): photos, WORDS: [Hit("named", 32.0), Hit("similar", 4.0)]}, owned)
    assert both["named"] > 2 > alone["named"]
    assert (both["similar"], both["other"]) == (alone["similar"], alone["other"])


def test_nothing_fuses_to_nothing() -> None:
    assert fuse({}, {}, {}).order == []
    assert fuse({str(CLIP_IMAGE): []}, {}, EVIDENCE).order == []


def test_all_documents_at_once_are_judged_as_each_alone() -> None:
    draw = np.random.default_rng(0)
    kinds: list[Collection[Field]] = [BOTH, [CLIP_IMAGE], [MINILM_TEXT]]
    owned = {f"{n:03}": kinds[n % 3] for n in range(300)}
    ranked = {
        name: [Hit(id, draw.uniform(0, scale)) for id in draw.permutation(list(owned))[:120].tolist()]
        for name, scale in ((str(CLIP_IMAGE), 0.6), (str(MINILM_TEXT), 0.6), (WORDS, 40.0))
    }
    weights = {str(CLIP_IMAGE): 0.7, str(MINILM_TEXT): 1.0, WORDS: 1.2}
    fused = fuse(ranked, owned, EVIDENCE, weights)
    for id, score in fused.order:
        has_text = MINILM_TEXT in owned[id]
        fields = fused.fields(id)
        values = {name: np.array([fields[name].score if name in fields else math.nan]) for name in weights}
        alone = add_up(values, np.array([has_text]), weights, EVIDENCE)
        assert to_log_odds(score) == pytest.approx(alone.total[0])
    assert fused.order == sorted(fused.order, key=lambda one: (-one[1], one[0]))
    likely = [one for one in fused.order if one[1] >= 0.3]
    assert 0 < len(likely) < len(fused.order)
    assert fuse(ranked, owned, EVIDENCE, weights, min_relevance=0.3).order == likely


def test_no_document_that_fields_do_not_list_exceeds_the_bound() -> None:
    draw = np.random.default_rng(1)
    kinds: list[list[Field]] = [list(BOTH), [CLIP_IMAGE], [MINILM_TEXT]]
    fields = {str(CLIP_IMAGE): 0.6, str(MINILM_TEXT): 0.6, WORDS: 40.0}
    weights = {str(CLIP_IMAGE): 0.7, str(MINILM_TEXT): 1.0, WORDS: 1.2}
    for _ in range(20):
        owned = {f"{n:03}": kinds[n % 3] for n in range(300)}
        every = {
            name: sorted(
                (
                    Hit(id, draw.uniform(0, scale) ** 2 / scale)
                    for id, fields in owned.items()
                    if name in map(str, fields) or (name == WORDS and draw.random() < 0.5)
                ),
                key=lambda hit: (-hit.score, hit.id),
            )
            for name, scale in fields.items()
        }
        best = {name: hits[:20] for name, hits in every.items()}
        listed = {hit.id for hits in best.values() for hit in hits}
        order = fuse(every, owned, EVIDENCE, weights).order
        highest = max(score for id, score in order if id not in listed)
        bound = highest_behind(best, kinds, EVIDENCE, weights, full=fields)
        assert highest <= to_relevance(bound) < order[0][1]
        assert highest_behind(every, kinds, EVIDENCE, weights, full=()) == -math.inf
