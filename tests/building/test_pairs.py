"""The labelled texts that ship: their form, that no label contradicts another, and their size."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import pytest

from tests.support.paths import ENGINES
from vlmsearch.building.data import LabelledText, passages, sentences, unanswered

FILE = ENGINES / "pairs.jsonl"
KINDS = ("question", "keywords", "paraphrase")


@pytest.fixture(scope="module")
def known() -> list[LabelledText]:
    return passages()


def test_every_line_is_a_passage_with_exactly_these_fields(known: list[LabelledText]) -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    names = [field.name for field in dataclasses.fields(LabelledText)]
    assert all(list(json.loads(line)) == names for line in lines)
    assert [passage.text for passage in known] == [json.loads(line)["text"] for line in lines]


def test_there_are_enough_in_groups_of_four_and_of_thirty(known: list[LabelledText]) -> None:
    topics = Counter(passage.topic for passage in known)
    assert len(topics) >= 80
    assert len(known) >= 320
    assert Counter(topics.values()) == {4: 113, 30: 10}
    names = [f"{topic}-{i:0{len(str(count))}}" for topic, count in topics.items() for i in range(1, count + 1)]
    assert [passage.id for passage in known] == names


@pytest.mark.parametrize(("field", "least", "most"), [("text", 20, 120), ("keywords", 2, 4), ("question", 3, 20)])
def test_lengths_in_words(known: list[LabelledText], field: str, least: int, most: int) -> None:
    lengths = {passage.id: len(getattr(passage, field).split()) for passage in known}
    assert {id: count for id, count in lengths.items() if not least <= count <= most} == {}


def test_questions_and_paraphrases_are_one_sentence_and_short_ones_colloquial(known: list[LabelledText]) -> None:
    short = [passage for passage in known if Counter(one.topic for one in known)[passage.topic] == 30]
    known = [passage for passage in known if passage not in short]
    assert all(
        len(passage.question.split()) <= 10 and passage.question == passage.question.lower() for passage in short
    )
    assert [passage.id for passage in known if passage.paraphrase.find(". ") >= 0] == []
    assert [passage.id for passage in known if not passage.paraphrase.endswith(".")] == []
    assert [passage.id for passage in known if not passage.question.endswith("?")] == []


def test_no_passage_and_no_query_occurs_twice(known: list[LabelledText]) -> None:
    written = [getattr(passage, kind) for passage in known for kind in ("text", *KINDS)]
    counts = Counter(text.casefold() for text in [*written, *unanswered(), *sentences()])
    assert [text for text, count in counts.items() if count > 1] == []


def test_paraphrases_are_not_copied(known: list[LabelledText]) -> None:
    """Any five words in a row that both have are too many."""
    assert [passage.id for passage in known if _runs(passage.paraphrase) & _runs(passage.text)] == []


def test_others_that_answer_too_are_of_the_topic(known: list[LabelledText]) -> None:
    topics = {passage.id: passage.topic for passage in known}
    for passage in known:
        assert passage.id not in passage.also
        assert {topics[id] for id in passage.also} <= {passage.topic}


def test_there_are_120_questions_without_an_answer() -> None:
    assert len(unanswered()) == 120
    assert all(question.endswith("?") for question in unanswered())


def test_they_are_small_enough_for_the_wheel() -> None:
    assert FILE.stat().st_size <= 350_000


def _runs(text: str) -> set[tuple[str, ...]]:
    words = ["".join(filter(str.isalnum, word)) for word in text.casefold().split()]
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}
