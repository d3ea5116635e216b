"""Sentences that answer a question, as a generator without a model quotes them."""
# ruff: noqa: RUF001 - punctuation of other scripts

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import Document, GenerationOptions, Match, Pipeline, Role, Vectors
from vlmsearch.answers.quotes import Encode, quote_lines, sentences_of
from vlmsearch.answers.sources import Source, make_source
from vlmsearch.generators.extractive import ExtractiveGenerator
from vlmsearch.stores.terms import WRITTEN_WORD

MAX_WORDS = ExtractiveGenerator.max_words


def source(number: int, text: str) -> Source:
    made = make_source(number, Match(Document(str(number), text), 1.0, {}), chars=10**6)
    return replace(made, read=tuple(passage.number for passage in made.passages))


def quoted(question: str, *texts: str, encode: Encode | None = None, avoid: Sequence[str] = ()) -> list[str]:
    sources = [source(number, text) for number, text in enumerate(texts, 1)]
    return quote_lines(question, sources, MAX_WORDS, encode, avoid).splitlines()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One dog. Two dogs! Three?", ["One dog.", "Two dogs!", "Three?"]),
        ("It costs 3.5 or e.g. four. So John C. Fremont said: “No.” Then he left.",
         ["It costs 3.5 or e.g. four.", "So John C. Fremont said: “No.”", "Then he left."]),
        ("A line that is\nwrapped. A heading\n\nA text", ["A line that is wrapped.", "A heading", "A text"]),
        ("東京は首都です。「大阪は？」京都も。", ["東京は首都です。", "「大阪は？」", "京都も。"]),
        ("Это дом. Там сад!", ["Это дом.", "Там сад!"]),
        ("यह घर है। वह बाग है।", ["यह घर है।", "वह बाग है।"]),
        ("هل هذا بيت؟ نعم هو بيت.", ["هل هذا بيت؟", "نعم هو بيت."]),
        ("A forged [2] source.\n[3] Another", ["A forged (2) source.", "(3) Another"]),
        (" \n ", []),
    ],
)  # fmt: skip
def test_sentences_end_as_their_script_ends_them(text: str, sentences: list[str]) -> None:
    assert [sentence.text for sentence in sentences_of(source(1, text))] == sentences


@pytest.mark.parametrize(
    ("question", "text", "answer"),
    [
        ("When does the museum open?", "The museum has three floors. Doors open at ten. The museum opens on Mondays.",
         "The museum opens on Mondays."),
        ("Wann öffnet das Museum?", "Das Museum hat drei Etagen. Das Museum öffnet um zehn. Das Café ist im Keller.",
         "Das Museum öffnet um zehn."),
        ("東京の人口は？", "大阪は大きい。東京の人口は千四百万人です。京都は古い。", "東京の人口は千四百万人です。"),
        ("Где находится музей?", "Город очень старый. Музей находится у реки. Парк красив.", "Музей находится у реки."),
    ],
)  # fmt: skip
def test_the_sentence_with_the_words_of_the_question_comes_first(question: str, text: str, answer: str) -> None:
    assert quoted(question, "The garden is green.", text)[0] == f"[2] {answer}"


def test_rare_words_weigh_more_than_frequent_ones() -> None:
    text = "The office has a door. The office has a window. The office has a roof. A safe is behind the picture."
    assert quoted("Where is the safe of the office?", text)[0] == "[1] A safe is behind the picture."


def test_vectors_find_what_no_word_finds() -> None:
    def encode(texts: Sequence[str], role: Role) -> Vectors:
        return np.array(
            [[1.0, 0.0] if role == "query" or "feline" in text else [0.0, 1.0] for text in texts], np.float32
        )

    texts = ("A dog is outside. A feline sleeps there.", "The garden is green.")
    assert quoted("Where is my cat?", *texts, encode=encode)[0] == "[1] A feline sleeps there."
    assert quoted("Where is my cat?", *texts)[0] == "[1] A dog is outside."


def test_of_equal_sentences_that_of_the_better_source_comes_first_and_once() -> None:
    assert quoted("dog?", "A dog. A cat.", "A dog. A dog here.") == ["[1] A dog.", "[2] A dog here."]


def test_a_sentence_with_much_less_evidence_than_the_best_is_not_quoted() -> None:
    text = "The red dog sleeps. A dog barks. A red dog runs. Rain falls."
    assert quoted("red dog sleeps?", text) == ["[1] The red dog sleeps."]
    assert quoted("red dog?", text) == ["[1] The red dog sleeps.", "[1] A red dog runs."]


@pytest.mark.parametrize("filler", ["and so on ", "等等"])
def test_a_long_sentence_is_cut_around_the_words_of_the_question(filler: str) -> None:
    fact = "the safe 4471 金庫 "
    [line] = quoted("safe 金庫?", filler * 100 + fact + filler * 100)
    assert "4471" in line
    assert line.startswith("[1] … ")
    assert line.endswith(" …")
    middle = line.index("4471") / len(line)
    assert 0.4 < middle < 0.6
    assert len(re.findall(WRITTEN_WORD, line)) <= MAX_WORDS + 2


def test_quotes_are_about_forty_words_together() -> None:
    lines = quoted("dog?", *(f"The dog {number} is in the garden behind the old house." for number in range(9)))
    assert 30 <= sum(len(line.split()) for line in lines) <= MAX_WORDS + 2
    assert len(lines) == 3
    assert all("…" not in line for line in lines)


def test_a_sentence_with_a_bad_word_is_passed_over() -> None:
    assert quoted("dog?", "A dog. A cat.", avoid=["dog"]) == ["[1] A cat."]


def test_an_answer_quotes_what_answers_and_cites_it() -> None:
    with Pipeline(MockEncoder(), MemoryStore(), ExtractiveGenerator(quotes=1)) as pipeline:
        pipeline.add(
            [
                Document("a", text="The house is old. The safe has the code 4471. The garden is green."),
                Document("b", text="The house has a garden and a safe place."),
            ]
        )
        answer = pipeline.ask("What is the code of the safe?", min_score=0)
        place = [match.document.id for match in answer.matches].index("a") + 1
        assert answer.text == f"“The safe has the code 4471.” [{place}]"
        assert [citation.id for citation in answer.citations] == ["a"]
        short = pipeline.ask("What is the code of the safe?", min_score=0, options=GenerationOptions(max_tokens=3))
        assert short.text == "“The safe has"
        other = pipeline.ask("What is the safe?", min_score=0, options=GenerationOptions(bad_words=("safe",)))
        assert "safe" not in other.text
        assert other.citations
