"""Relevance on what no fit has seen, in small."""

import pytest

from benchmarks.labelled import own_questions
from benchmarks.outside import (
    CHANGES,
    drawn_pictures,
    measure_number,
    measure_pictures,
    measure_together,
    measure_word,
    own_texts,
)
from vlmsearch.errors import UncalibratedWarning


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
    for share in (figures.first, figures.shown, figures.unanswered_shown):
        assert share is not None
        assert 0 <= share <= 1
