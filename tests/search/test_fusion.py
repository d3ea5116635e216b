import numpy as np
import pytest

from vlmsearch import ConfigError, Field, Hit, Leg, Space
from vlmsearch.search.fusion import fuse, image_fields, query_vectors, text_fields

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


def test_first_everywhere_scores_one_and_legs_keep_rank_and_score() -> None:
    ranked = {str(CLIP_IMAGE): [Hit("a", 0.3), Hit("b", 0.2)], str(MINILM_TEXT): [Hit("a", 0.9)]}
    (first, score, legs), (second, lower, _) = fuse(ranked, {"a": BOTH, "b": BOTH})
    assert (first, second) == ("a", "b")
    assert score == pytest.approx(1.0)
    assert lower == pytest.approx(61 / 62 / 2)
    assert legs == {str(CLIP_IMAGE): Leg(1, 0.3), str(MINILM_TEXT): Leg(1, 0.9)}


def test_being_in_two_lists_beats_being_first_in_one() -> None:
    ranked = {str(CLIP_IMAGE): [Hit("x", 0.4), Hit("both", 0.3)], str(MINILM_TEXT): [Hit("y", 0.9), Hit("both", 0.8)]}
    assert [id for id, _, _ in fuse(ranked, dict.fromkeys(("x", "y", "both"), BOTH))] == ["both", "y", "x"]


def test_a_document_is_not_measured_by_a_field_it_lacks() -> None:
    ranked = {
        str(CLIP_IMAGE): [Hit("photo", 0.4), Hit("captioned", 0.3)],
        str(MINILM_TEXT): [Hit("note", 0.9), Hit("captioned", 0.8)],
    }
    fused = fuse(ranked, {"photo": [CLIP_IMAGE], "note": [CLIP_TEXT, MINILM_TEXT], "captioned": BOTH})
    assert [id for id, _, _ in fused] == ["note", "photo", "captioned"]
    assert [score for _, score, _ in fused] == pytest.approx([1.0, 1.0, 61 / 62])


def test_a_document_that_is_gone_is_left_out() -> None:
    assert [id for id, _, _ in fuse({str(CLIP_IMAGE): [Hit("gone", 0.4), Hit("a", 0.3)]}, {"a": BOTH})] == ["a"]


def test_weights_decide_between_fields() -> None:
    ranked = {str(CLIP_IMAGE): [Hit("picture", 0.4)], str(MINILM_TEXT): [Hit("text", 0.9)]}
    owned = {"picture": BOTH, "text": BOTH}
    assert fuse(ranked, owned, {str(CLIP_IMAGE): 3.0})[0][0] == "picture"
    assert fuse(ranked, owned, {str(CLIP_IMAGE): 0.0})[0][0] == "text"


@pytest.mark.parametrize("weights", [{str(CLIP_IMAGE): -1.0}, {str(CLIP_IMAGE): 0.0}])
def test_weights_that_make_no_sense_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="weights"):
        fuse({str(CLIP_IMAGE): [Hit("a", 0.4)]}, {"a": [CLIP_IMAGE]}, weights)


def test_a_document_with_a_text_is_measured_by_words_too() -> None:
    ranked = {"minilm/text": [Hit("a", 0.9), Hit("b", 0.8)], "words": [Hit("b", 7.5)]}
    (first, score, legs), (second, lower, _) = fuse(ranked, {"a": [MINILM_TEXT], "b": [MINILM_TEXT]})
    assert (first, second) == ("b", "a")
    assert score == pytest.approx((61 / 62 + 1) / 2)
    assert lower == pytest.approx(1 / 2)
    assert legs == {"minilm/text": Leg(2, 0.8), "words": Leg(1, 7.5)}


def test_a_document_without_text_is_raised_by_words_and_never_lowered() -> None:
    photos = [Hit(f"photo-{i:02}", 0.5 - i / 100) for i in range(40)]
    owned = {photo.id: [CLIP_IMAGE] for photo in photos} | {"other": [CLIP_IMAGE]}
    alone = {id: score for id, score, _ in fuse({"clip/image": photos}, owned)}
    words = [photos[30], *(Hit(f"text-{i}", 5.0) for i in range(60)), photos[0], Hit("other", 0.5)]
    both = {id: score for id, score, _ in fuse({"clip/image": photos, "words": words}, owned)}
    assert both["photo-30"] == pytest.approx((alone["photo-30"] + 1) / 2)
    assert both["other"] == pytest.approx(61 / (60 + 63) / 2)
    assert {id: both[id] for id in alone if id != "photo-30"} == {id: alone[id] for id in alone if id != "photo-30"}


def test_words_have_a_weight_and_do_not_decide_between_equals() -> None:
    ranked = {"minilm/text": [Hit("b", 0.9), Hit("a", 0.5)], "words": [Hit("a", 99.0), Hit("b", 1.0)]}
    owned = {"a": [MINILM_TEXT], "b": [MINILM_TEXT]}
    assert [id for id, _, _ in fuse(ranked, owned)] == ["b", "a"]
    assert [id for id, _, _ in fuse(ranked, owned, {"words": 2.0})] == ["a", "b"]
    assert [score for _, score, _ in fuse(ranked, owned, {"words": 0.0})] == pytest.approx([1.0, 61 / 62])


def test_nothing_fuses_to_nothing() -> None:
    assert fuse({}, {}) == []
    assert fuse({str(CLIP_IMAGE): []}, {}) == []
