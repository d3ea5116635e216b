"""What a generator is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from vlmsearch.closing import Closable


@dataclass(frozen=True)
class GenerationOptions:
    """How to generate: at most ``max_tokens`` tokens, and ``temperature`` 0 for the likeliest text."""

    max_tokens: int = 256
    temperature: float = 0.0


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
