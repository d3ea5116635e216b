"""Thoughts before an answer, in every form and cut anywhere: they are neither text nor evidence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from vlmsearch_mocks import MockGenerator

from vlmsearch import ConfigError, GenerationOptions, InvalidInputError
from vlmsearch.generators.thoughts import UnfinishedThoughtsError

HARMONY = "<|channel|>analysis<|message|>see [2]<|end|><|start|>assistant<|channel|>final<|message|>"
TEXTS = (
    "", " \n", "<think", "<thin ice> and 1 < 2 </t", "It begins with <think> and ends with </think> [1].",
    "Models write `<think>...</think>` first.", "Close it with `</think>`, the last tag of all these tags: </think>.",
)  # fmt: skip


def answer_in(text: str, size: int) -> str:
    """What `Generator.generate` makes of a text that comes in pieces of one size."""

    class Cut(MockGenerator):
        def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
            return (text[start : start + size] for start in range(0, len(text), size))

    return Cut().generate("?")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>\nsee [2]\n</think>\n\nIt is [1].", "It is [1]."),
        (" \n<think></think>It is [1].", "It is [1]."),
        ("see [2]\n</think>\n\nIt is [1].", "It is [1]."),
        ("see [2].</think>It is [1].", "It is [1]."),
        ("<thinking>see [2]</thinking>It is [1].", "It is [1]."),
        ("<thought>see [2]</thought>It is [1].", "It is [1]."),
        ("[THINK]see [2][/THINK]It is [1].", "It is [1]."),
        (f"{HARMONY}It is [1].", "It is [1]."),
        ("<THINK>see [2]</Think>It is [1].", "It is [1]."),
        ("<|START_THINKING|>see [2]<|END_THINKING|>It is [1].", "It is [1]."),
        ("<think>\n\n</think>\n\n<think>see [2]</think> \n It is [1].", "It is [1]."),
        ("see [2]</think><think>or [3]</think>It is [1].", "It is [1]."),
        ('It says "yes" [2]</thought>It is [1].', "It is [1]."),
        ('It says "yes"</think>It is [1].', "It is [1]."),
        *((text, text) for text in TEXTS),
        ("<think>a</think>It has <think> and </think>.", "It has <think> and </think>."),
    ],
)
def test_thoughts_are_no_part_of_the_text(text: str, answer: str) -> None:
    assert {answer_in(text, size) for size in range(1, len(text) + 2)} == {answer}


@pytest.mark.parametrize("text", ["<think>see [2]</think", "[THINK]"])
def test_thoughts_without_an_end_are_no_answer(text: str) -> None:
    for size in range(1, len(text) + 1):
        with pytest.raises(UnfinishedThoughtsError, match="a larger max_tokens"):
            answer_in(text, size)


def test_thoughts_that_take_the_usual_limit_get_a_larger_one() -> None:
    generator = MockGenerator("<think>" + "so " * 300 + "</think>It is [1].")
    assert [generator.generate("?") for _ in range(2)] == ["It is [1]."] * 2
    assert [options.max_tokens for options in generator.options] == [256, 4096, 4096]
    with pytest.raises(UnfinishedThoughtsError):
        generator.generate("?", GenerationOptions(max_tokens=100))
    with pytest.raises(UnfinishedThoughtsError):
        MockGenerator("<think>" + "so " * 5000).generate("?")


@pytest.mark.parametrize("error", [ConfigError("at most 2048"), InvalidInputError("too_long", "4096 with the prompt")])
def test_a_model_without_room_for_the_larger_limit_gets_less(error: Exception) -> None:
    class Small(MockGenerator):
        def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
            pieces = super().stream(prompt, options)
            if self.options[-1].max_tokens > 2048:
                raise error
            return pieces

    generator = Small("<think>" + "so " * 300 + "</think>It is [1].")
    assert [generator.generate("?") for _ in range(2)] == ["It is [1]."] * 2
    with pytest.raises(type(error)):
        generator.generate("?", GenerationOptions(max_tokens=5000))
    generator = Small("<think>" + "so " * 3000)
    for _ in range(2):
        with pytest.raises(UnfinishedThoughtsError):
            generator.generate("?")
