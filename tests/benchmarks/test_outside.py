"""Relevance on what no fit has seen, in small."""

import numpy as np
import pytest

from benchmarks.labelled import LabelledCollection, own_questions
from benchmarks.outside import (
    CHANGES,
    QueryOutcome,
    drawn_pictures,
    first_beside,
    fuse_ranks,
    fuse_scores,
    measure_company,
    measure_number,
    measure_pictures,
    measure_together,
    measure_word,
    own_texts,
    summarise,
)
from vlmsearch.errors import UncalibratedWarning
from vlmsearch.registry import open_encoder
from vlmsearch.search.evaluation import Estimate
from vlmsearch.types import Document


def test_a_picture_finds_itself_among_others_and_among_texts() -> None:
    with pytest.warns(UncalibratedWarning):
        figures = measure_pictures([*drawn_pictures(40), *own_texts(20)], 15)
    assert (figures.first, figures.shown) == (1.0, 1.0)
    changed = measure_pictures(drawn_pictures(8), 2, CHANGES)
    assert (changed.first, changed.offered) == (1.0, 1.0)


def test_a_word_of_few_texts_and_a_number_come_before_what_is_alike() -> None:
    assert measure_word("onnx:demo").first == 1.0
    with pytest.warns(UncalibratedWarning):
        assert measure_number("onnx:demo-minilm", 300).first == 1.0


def test_queries_are_counted_by_whether_something_answers_them() -> None:
    figures = measure_together(list(own_questions())[:1], "mock:")
    for share in (figures.first, figures.shown, figures.unanswered_shown, figures.ndcg, figures.by_words):
        assert share is not None
        assert 0 <= share <= 1
    assert figures.ndcg is not None
    assert figures.first is not None
    assert figures.ndcg >= figures.first, "one document answers each"


def test_figures_bins_and_intervals_of_known_outcomes() -> None:
    figures = summarise(
        [
            QueryOutcome(True, [(0.95, True), (0.6, False)], [True, False], False, {"cosine": True}),
            QueryOutcome(True, [(0.75, False), (0.72, True)], [False, True], False, {"cosine": False}),
            QueryOutcome(True, [(0.25, True)], [], True, {"cosine": True}),
            QueryOutcome(True, [], [], False, {"cosine": True}),
            QueryOutcome(False, [(0.9, False)], [False], False),
            QueryOutcome(False, [(0.05, False)], [], False),
        ]
    )
    assert (figures.first, figures.shown, figures.offered, figures.unanswered_shown) == (0.5, 0.5, 0.75, 0.5)
    assert figures.precision == 0.4
    assert (figures.ndcg, figures.by_words) == (0.0, 0.0)
    assert figures.brier == pytest.approx((0.0025 + 0.36 + 0.5625 + 0.0784 + 0.5625 + 0.81 + 0.0025) / 7)
    assert figures.bins == [(0, 1), (0.5, 2), (None, 0), (0.5, 2)]
    assert figures.beside == {"cosine": Estimate(0.25, 0.0, 0.75, 4)}, "one more of four is right; 97.5 % of draws: 3"


def test_rankings_are_fused_by_ranks_and_by_scores() -> None:
    words, cosine = np.array([[0.0, 3, 1], [0, 0, 0]]), np.array([[0.9, 0.5, 0.1], [0.2, 0.8, 0.5]])
    ranks = [[1 / 61, 1 / 61 + 1 / 62, 1 / 62 + 1 / 63], [1 / 63, 1 / 61, 1 / 62]]
    assert fuse_ranks(words, cosine) == pytest.approx(np.array(ranks))
    deviations = [[0.1557, 1.3363, -1.4920], [-1.2247, 1.2247, 0]]
    assert fuse_scores(words, cosine) == pytest.approx(np.array(deviations), abs=1e-4)


def test_the_nearest_text_comes_first_beside() -> None:
    documents = Document("a", text="a red circle"), Document("b"), Document("c", text="two dogs in the snow")
    collection = LabelledCollection(documents, {"1": "two dogs", "2": "no answer"}, {"1": {"c": 1}, "2": {}})
    with open_encoder("onnx:demo") as encoder:
        assert first_beside(collection, encoder)["cosine"] == {"1": "c"}


def test_documents_of_a_company_lie_among_photographs() -> None:
    with pytest.warns(UncalibratedWarning):
        figures = measure_company(70, "onnx:demo-minilm")
    assert figures.beside["cosine"].queries == 26
    assert (figures.first or 0) > 0.5
