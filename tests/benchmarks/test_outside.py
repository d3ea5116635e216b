"""Relevance on what no fit has seen, in small."""

import json
from pathlib import Path

import pytest

from benchmarks.labelled import own_questions, read_questions
from benchmarks.outside import (
    drawn_pictures,
    measure_number,
    measure_pictures,
    measure_together,
    measure_word,
    own_texts,
)


def test_a_picture_finds_itself_among_others_and_among_texts() -> None:
    figures = measure_pictures([*drawn_pictures(40), *own_texts(20)], 15)
    assert (figures.first, figures.shown) == (1.0, 1.0)


def test_one_word_of_few_texts_is_found() -> None:
    assert measure_word("onnx:demo").first == 1.0


def test_a_number_that_is_met_comes_before_what_is_alike() -> None:
    assert measure_number("onnx:demo-minilm", 300).first == 1.0


def test_own_questions_are_about_an_entry_of_their_topic() -> None:
    collections = list(own_questions())
    assert len(collections) == 6
    for collection in collections:
        ids = {document.id for document in collection.documents}
        assert len(ids) == 12
        assert len(collection.queries) == 24
        assert {next(iter(answers)) for answers in collection.relevance.values()} == ids
    queries = [query for collection in collections for query in collection.queries.values()]
    assert len(set(queries)) == len(queries)


def test_questions_of_entries_that_are_left_out_have_no_answer(tmp_path: Path) -> None:
    rows = [
        {"id": f"s{i}", "question": f"question {i}?", "answers": ["so", "or so"], "queries": [f"ask {i}", f"say {i}"]}
        for i in range(40)
    ]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    collection = read_questions(file)
    ids = {document.id for document in collection.documents}
    assert 15 <= len(ids) <= 25
    assert len(collection.queries) == 80
    for id, answers in collection.relevance.items():
        entry = id.partition("#")[0]
        assert answers == ({entry: 1} if entry in ids else {})


@pytest.mark.slow
def test_queries_are_counted_by_whether_something_answers_them() -> None:
    figures = measure_together(list(own_questions())[:1], "mock:")
    for share in (figures.first, figures.shown, figures.unanswered_shown):
        assert share is not None
        assert 0 <= share <= 1
