"""What a generator is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from string import Template
from typing import Protocol, runtime_checkable

from vlmsearch._util.closing import Closable
from vlmsearch.errors import ConfigError


@dataclass(frozen=True)
class GenerationOptions:
    """How to generate. ConfigError for a value that no generator can follow.

    ``max_tokens``: the most tokens of the answer. ``temperature``: 0 for the likeliest text, else what logits are
    divided by before sampling from the ``top_k`` likeliest tokens (None: all) that make up the share ``top_p``.
    ``repetition_penalty``: from 1 (none) up (CTRL, arXiv:1909.05858). ``stop``: the text ends before the first of
    these. ``bad_words``: what the text must not contain. ``seed``: the same seed samples the same text.
    ``beam_width``: of beam search; 1 for none.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    seed: int | None = None
    beam_width: int = 1

    def __post_init__(self) -> None:
        self._check_types()
        checks = (
            (self.max_tokens >= 1, f"`max_tokens` is at least 1, not {self.max_tokens}"),
            (self.temperature >= 0, f"`temperature` is at least 0, not {self.temperature}"),
            (self.top_k is None or self.top_k >= 1, f"`top_k` is at least 1, not {self.top_k}"),
            (0 < self.top_p <= 1, f"`top_p` is above 0 and at most 1, not {self.top_p}"),
            (self.repetition_penalty > 0, f"`repetition_penalty` is above 0, not {self.repetition_penalty}"),
            (all(self.stop) and all(self.bad_words), "`stop` and `bad_words` hold no empty string"),
            (self.beam_width >= 1, f"`beam_width` is at least 1, not {self.beam_width}"),
        )
        for holds, message in checks:
            if not holds:
                raise ConfigError(message)

    def _check_types(self) -> None:
        for name in ("max_tokens", "top_k", "seed", "beam_width"):
            value = getattr(self, name)
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            if not is_whole and value is not getattr(type(self), name):  # None where that is what is given otherwise
                raise ConfigError(f"`{name}` is a whole number, not {value!r}")
        for name in ("stop", "bad_words"):
            words = getattr(self, name)
            if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
                raise ConfigError(f"`{name}` is a list of strings, such as ['word'], not {words!r}")


class Generator(Closable, ABC):
    """Continues a prompt. May be used from several threads."""

    name: str
    """What generates, for messages; never holds a secret."""

    @abstractmethod
    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """The text in pieces, as it is made. Closing the iterator stops the generation."""

    def generate(self, prompt: str, options: GenerationOptions | None = None) -> str:
        """The whole text."""
        return "".join(self.stream(prompt, options))


@runtime_checkable
class CountsTokens(Protocol):
    """A generator that knows how much its model reads."""

    context: int
    """The most tokens of prompt and answer together."""

    def count_tokens(self, prompt: str) -> int:
        """How many tokens a prompt has for the model, with all that a chat template adds."""


@runtime_checkable
class HasPromptTemplate(Protocol):
    """A generator whose prompts have a form of their own, which a pipeline uses instead of any other."""

    prompt_template: Template
    """With the places of `vlmsearch.answers.prompts.TEMPLATE`, or one of them."""
