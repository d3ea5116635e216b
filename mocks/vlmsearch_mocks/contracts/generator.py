"""What every generator has to do, as tests."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor

import pytest

from vlmsearch.generators.base import GenerationOptions, Generator
from vlmsearch_mocks.contracts.records import once_a_class

PROMPTS = ["Sources:\n[1] a red star\n\nQuestion: what is red?\nAnswer:", "Σ ünï \U0001f436?", "one " * 300]
LIKELIEST = GenerationOptions(max_tokens=24, temperature=0.0)


class GeneratorContract(ABC):
    """Subclass it as ``Test...`` and say how a generator is made; every sentence of `Generator` is a test."""

    @abstractmethod
    def make_generator(self) -> Generator:
        """A generator, always the same one, that answers in more than one token."""

    @pytest.fixture
    def generator(self, request: pytest.FixtureRequest) -> Generator:
        """One generator for all tests of the class."""
        return once_a_class(request, self.make_generator)

    def test_it_says_what_it_is(self, generator: Generator) -> None:
        assert generator.name

    @pytest.mark.parametrize("prompt", PROMPTS, ids=["question", "unicode", "long"])
    def test_the_pieces_are_the_whole_text(self, generator: Generator, prompt: str) -> None:
        pieces = list(generator.stream(prompt, LIKELIEST))
        assert all(isinstance(piece, str) for piece in pieces)
        assert "".join(pieces) == generator.generate(prompt, LIKELIEST)

    def test_the_likeliest_text_is_always_the_same(self, generator: Generator) -> None:
        assert len({generator.generate(PROMPTS[0], LIKELIEST) for _ in range(3)}) == 1

    def test_options_may_be_left_out(self, generator: Generator) -> None:
        assert generator.generate(PROMPTS[0])
        assert "".join(generator.stream(PROMPTS[0])) == generator.generate(PROMPTS[0])

    def test_there_are_no_more_tokens_than_asked_for(self, generator: Generator) -> None:
        one = generator.generate(PROMPTS[0], GenerationOptions(max_tokens=1))
        whole = generator.generate(PROMPTS[0], LIKELIEST)
        assert len(one) < len(whole)
        assert whole.startswith(one.rstrip())

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
