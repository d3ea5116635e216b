"""What every generator has to do, as tests."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from vlmsearch.errors import ConfigError
from vlmsearch.generators.base import CountsTokens, GenerationOptions, Generator
from vlmsearch_mocks.contracts.records import once_a_class

PROMPTS = ["Sources:\n[1] a red star\n\nQuestion: what is red?\nAnswer:", "Σ ünï \U0001f436?", "one " * 300]
LIKELIEST = GenerationOptions(max_tokens=24, temperature=0.0)


class GeneratorContract(ABC):
    """A suite in which every sentence of `Generator` is a test.

    Subclass it as ``Test...`` and say how a generator is made.

    An option is followed or refused with ConfigError; a generator that passes one over fails here.
    """

    @abstractmethod
    def make_generator(self) -> Generator:
        """Return a generator, always the same one, that answers in more than one token."""

    @pytest.fixture
    def generator(self, request: pytest.FixtureRequest) -> Generator:
        """Return one generator for all tests of the class."""
        return once_a_class(request, self.make_generator)

    def test_it_says_what_it_is(self, generator: Generator) -> None:
        assert generator.name

    def test_the_likeliest_text_is_always_the_same(self, generator: Generator) -> None:
        assert len({generator.generate(PROMPTS[0], LIKELIEST) for _ in range(3)}) == 1

    @pytest.mark.parametrize("prompt", PROMPTS, ids=["question", "unicode", "long"])
    def test_the_pieces_are_the_whole_text(self, generator: Generator, prompt: str) -> None:
        pieces = list(generator.stream(prompt, LIKELIEST))
        assert all(isinstance(piece, str) and piece for piece in pieces)
        assert "".join(pieces) == generator.generate(prompt, LIKELIEST)

    def test_options_may_be_left_out(self, generator: Generator) -> None:
        assert generator.generate(PROMPTS[0])
        assert "".join(generator.stream(PROMPTS[0])) == generator.generate(PROMPTS[0])

    def test_there_are_no_more_tokens_than_asked_for(self, generator: Generator) -> None:
        short = generator.generate(PROMPTS[0], GenerationOptions(max_tokens=1))
        whole = generator.generate(PROMPTS[0], LIKELIEST)
        assert len(short) < len(whole)
        assert whole.startswith(short.rstrip())

    def test_the_text_ends_before_the_first_stop(self, generator: Generator) -> None:
        whole = generator.generate(PROMPTS[0], LIKELIEST)
        for word in (whole[len(whole) // 2 :][:4], whole[-3:], whole[:2]):
            options = replace(LIKELIEST, stop=("no such text", word))
            text = "".join(generator.stream(PROMPTS[0], options))
            assert text.rstrip() == whole[: whole.index(word)].rstrip()
            assert generator.generate(PROMPTS[0], options) == text

    def test_a_prompt_may_have_half_of_a_character(self, generator: Generator) -> None:
        assert isinstance(generator.generate(f"{PROMPTS[0]} \ud800", LIKELIEST), str)

    def test_the_same_seed_samples_the_same_text(self, generator: Generator) -> None:
        options = GenerationOptions(max_tokens=16, temperature=1.0, seed=7)
        assert len({generator.generate(PROMPTS[0], options) for _ in range(3)}) == 1

    def test_a_bad_word_is_not_in_the_text_or_is_refused(self, generator: Generator) -> None:
        whole = generator.generate(PROMPTS[0], LIKELIEST)
        word = max(whole.split(), key=len)
        try:
            text = generator.generate(PROMPTS[0], replace(LIKELIEST, bad_words=(word,)))
        except ConfigError:
            return
        assert word not in text

    @pytest.mark.parametrize(
        "options",
        [
            replace(LIKELIEST, beam_width=2),
            replace(LIKELIEST, repetition_penalty=1.3),
            GenerationOptions(max_tokens=8, temperature=0.7, top_k=4, top_p=0.9, seed=1),
        ],
        ids=["beams", "repetition", "sampling"],
    )
    def test_an_option_is_followed_or_refused(self, generator: Generator, options: GenerationOptions) -> None:
        try:
            text = generator.generate(PROMPTS[0], options)
        except ConfigError:
            return
        assert text == generator.generate(PROMPTS[0], options)

    def test_one_that_counts_tokens_counts_them(self, generator: Generator) -> None:
        if not isinstance(generator, CountsTokens):
            return
        counts = [generator.count_tokens("a red star " * times) for times in (1, 10, 20)]
        assert 0 < counts[0] < counts[1] < counts[2]
        assert generator.context > 1
        assert generator.count_tokens(PROMPTS[1]) > 0

    def test_closing_the_iterator_stops_it_and_the_next_call_is_whole(self, generator: Generator) -> None:
        whole = generator.generate(PROMPTS[0], LIKELIEST)
        stream = generator.stream(PROMPTS[0], LIKELIEST)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert list(stream) == []
        assert generator.generate(PROMPTS[0], LIKELIEST) == whole

    def test_it_can_be_used_from_several_threads(self, generator: Generator) -> None:
        alone = [generator.generate(prompt, LIKELIEST) for prompt in PROMPTS]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda prompt: generator.generate(prompt, LIKELIEST), PROMPTS * 3))
        assert together == alone * 3

    def test_it_can_be_closed_twice(self) -> None:
        generator = self.make_generator()
        generator.close()
        generator.close()
