"""Long texts in prompts: their passages are read, and the answer says what was not."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder, MockGenerator

from vlmsearch import (
    Answer,
    Citation,
    ConfigError,
    Document,
    GenerationOptions,
    Generator,
    InvalidInputError,
    Match,
    Pipeline,
    ReadText,
)
from vlmsearch.answers.prompts import Prompt, fit_prompt
from vlmsearch.answers.sources import Source, make_source, reading_order
from vlmsearch.answers.stream import AnswerStream
from vlmsearch.generators.extractive import ExtractiveGenerator
from vlmsearch.registry import open_encoder
from vlmsearch.types import Passage


def passages_of(texts: Sequence[str], headings: Sequence[str] = ()) -> list[Passage]:
    ends = list(accumulate(map(len, texts)))
    return [
        Passage(number, end - len(text), end, headings[number - 1] if headings else "", text)
        for number, (text, end) in enumerate(zip(texts, ends), 1)
    ]


def long_match(id: str, passages: Sequence[Passage], best: int, score: float = 0.9, **parts: float) -> Match:
    text = "".join(passage.text for passage in passages)
    others = {f"{id}#passage={number[1:]}": value for number, value in parts.items()}
    return Match(Document(id, text), score, {}, others, passages[best - 1])


def letters(id: str, count: int = 9) -> list[Passage]:
    """Return passages of ten characters: ``a1aaaaaaa `` is the first of the document a."""
    return passages_of([f"{id}{number}".ljust(9, id) + " " for number in range(1, count + 1)])


def prompt_of(sources: Sequence[Source], chars: int) -> Prompt:
    return Prompt("?", tuple(sources), reading_order(sources, chars))


def two_sources() -> list[Source]:
    first, second = letters("a"), letters("b")
    matches = [long_match("a", first, 3, p7=0.5), long_match("b", second, 5, 0.8, p1=0.6)]
    return [
        make_source(number, match, passages=passages)
        for number, match, passages in zip((1, 2), matches, (first, second))
    ]


@pytest.mark.parametrize(
    ("chars", "read"),
    [
        (1, {"a": (3,)}),
        (20, {"a": (3,), "b": (5,)}),
        (30, {"a": (3,), "b": (1, 5)}),
        (40, {"a": (3, 7), "b": (1, 5)}),
        (50, {"a": (2, 3, 7), "b": (1, 5)}),
        (80, {"a": (2, 3, 4, 6, 7, 8), "b": (1, 5)}),
        (110, {"a": (2, 3, 4, 6, 7, 8), "b": (1, 2, 4, 5, 6)}),
        (180, {"a": tuple(range(1, 10)), "b": tuple(range(1, 10))}),
    ],
)
def test_the_best_passages_come_first_then_others_then_neighbours(chars: int, read: dict[str, tuple[int, ...]]) -> None:
    prompt = prompt_of(two_sources(), chars)
    assert {source.match.document.id: source.read_text.passages for source in prompt.sources} == read
    for source in prompt.sources:
        assert source.read_text.count == 9
        assert source.read_text.unread == 90 - 10 * len(source.read_text.passages)
    assert [source.match.document.id for source in prompt.sources + prompt.dropped] == ["a", "b"]


def test_passages_of_other_pages_say_nothing_of_a_page() -> None:
    passages = letters("a")
    match = long_match("f.pdf#page=3", passages, 3, p5=0.8)
    others = {**match.parts, "f.pdf#page=7#passage=9": 0.89, "f.pdf#page=7": 0.88}
    source = make_source(1, replace(match, parts=others), passages=passages)
    assert prompt_of([source], 20).sources[0].read == (3, 5)


def test_a_source_has_its_passages_in_order_with_headings_and_gaps() -> None:
    passages = passages_of(["# Rules\nOne. ", "Two. ", "Three. ", "Four [1]\n[2]"], ["", "# Rules", "Keys", "Keys"])
    source = make_source(1, long_match("a", passages, 1, p2=0.8, p4=0.5), passages=passages)
    assert prompt_of([source], 30).sources[0].line == "[1] # Rules One. Two. […] Keys: Four (1) (2)"
    assert prompt_of([source], 10).sources[0].line == "[1] # Rules One."
    alone = make_source(1, long_match("a", passages, 2), passages=passages)
    assert prompt_of([alone], 1).sources[0].line == "[1] # Rules: Two."


def test_a_short_document_is_read_whole_and_a_long_one_without_passages_from_its_beginning() -> None:
    long = "The rules of the house are long. " * 300
    sources = [
        make_source(number, Match(Document(id, text), 0.9, {}), chars=2000)
        for number, (id, text) in enumerate([("long", long), ("short", "a dog")], 1)
    ]
    first, second = prompt_of(sources, 2000).sources
    assert second.line == "[2] a dog"
    assert second.read_text == ReadText()
    read = len(long) - first.read_text.unread
    assert 1000 < read <= 1995
    assert first.line == f"[1] {long[:read].strip()}"
    assert first.line.endswith(".")
    assert first.read_text.name == f"{len(long) - read:,} characters not read"
    assert first.citation == Citation(1, "long")


def test_passages_of_another_version_of_the_text_are_not_read() -> None:
    old, new = letters("a"), letters("b")
    [source] = prompt_of([make_source(1, long_match("a", old, 4), passages=new)], 1000).sources
    assert source.line == f"[1] {''.join(part.text for part in old).strip()}"
    assert (source.read_text, source.citation) == (ReadText(), Citation(1, "a"))


def test_passages_are_left_out_before_a_source_is() -> None:
    options = GenerationOptions(max_tokens=10)
    sizes: list[list[int]] = []
    for context in range(30, 90):
        generator = MockGenerator(context=context)
        whole = prompt_of(two_sources(), 1000)
        if not sizes and replace(whole, count=1).tokens_of(generator) > context - 10:
            with pytest.raises(InvalidInputError, match="the question and one source are"):
                fit_prompt(whole, generator, options)
            continue
        prompt = fit_prompt(whole, generator, options)
        assert prompt.tokens == generator.count_tokens(prompt.text) <= context - 10
        sizes.append([len(source.read_text.passages) for source in prompt.sources])
    assert sizes[0] == [1]
    assert sizes[-1] == [9, 9]
    assert [1, 1] in sizes
    assert [sum(size) for size in sizes] == sorted(sum(size) for size in sizes)
    assert all(size == [1] or len(size) == 2 for size in sizes)


def test_the_answer_says_what_was_read_and_cites_the_best_passage() -> None:
    prompt = prompt_of(two_sources(), 50)
    answer = AnswerStream(prompt, iter(["Yes [2], [1]."])).answer()
    assert answer.citations == (Citation(2, "b", "b#passage=5"), Citation(1, "a", "a#passage=3"))
    assert answer.read == {"a": ReadText((2, 3, 7), 9, 60), "b": ReadText((1, 5), 9, 70)}
    assert answer.read["a"].name == "passages 2, 3, 7 of 9; 60 characters not read"
    assert ReadText((3,), 9, 80).name == "passage 3 of 9; 80 characters not read"
    assert ReadText(tuple(range(1, 10)), 9, 0).name == ""


# ---- from a question

FILLER = "Further remarks on budget, staffing and planning of the association follow in the annex. "
FACT = "The safe in the office has the code 4471-K. "


def ask(text: str, generator: Generator, source_chars: int = 12_000) -> Answer:
    with Pipeline(MockEncoder(), MemoryStore(), generator) as pipeline:
        pipeline.add([Document("handbook", text=text), Document("garden", text="A note about the garden.")])
        return pipeline.ask("What code has the safe?", min_score=0, limit=1, source_chars=source_chars)


def test_a_budget_in_characters_holds_and_is_bounded() -> None:
    generator, text = MockGenerator(), FACT + FILLER * 20
    answer = ask(text, generator, source_chars=1500)
    assert 0 < len(text) - answer.read["handbook"].unread <= 1500
    assert FACT.strip() in generator.prompts[0]
    assert ask(text, generator).read["handbook"].unread == 0
    with pytest.raises(ConfigError, match=r"`source_chars` is from 1 to 1,048,576, not 0"):
        ask(FACT, generator, source_chars=0)


@pytest.mark.parametrize("generator", [MockGenerator("It is 4471-K [1]."), ExtractiveGenerator(quotes=1)])
def test_a_fact_in_the_middle_of_a_handbook_is_read_and_cited(generator: Generator) -> None:
    text = FILLER * 100 + FACT + FILLER * 100
    store = MemoryStore()
    with Pipeline(open_encoder("onnx:demo"), store, generator) as pipeline:
        pipeline.add(Document("handbook", text=text))
        pipeline.add(Document(f"note-{number}", text=f"Note {number} about the garden.") for number in range(20))
        answer = pipeline.ask("What is the code of the safe?", min_score=0, limit=3, source_chars=1000)
    passages = store.passages(["handbook"])["handbook"]
    [fact] = [passage.number for passage in passages if "4471-K" in passage.text]
    assert answer.matches[0].document.id == "handbook"
    assert "4471-K" in answer.text
    assert answer.citations == (Citation(1, "handbook", f"handbook#passage={fact}"),)
    read = answer.read["handbook"]
    assert {fact - 1, fact, fact + 1} <= set(read.passages)
    assert read.count == len(passages)
    assert read.unread == len(text) - sum(len(passages[number - 1].text) for number in read.passages) > 0
