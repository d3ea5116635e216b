"""Answers without a model: the best source, quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vlmsearch.errors import ConfigError
from vlmsearch.generators.base import GenerationOptions, Generator

_SOURCE = re.compile(r"^\[(\d+)\] (.+)$", re.MULTILINE)


class ExtractiveGenerator(Generator):
    """Quotes the first ``quotes`` numbered sources of a prompt (lines such as ``[1] a dog in the snow``)."""

    def __init__(self, *, quotes: int = 3) -> None:
        if quotes < 1:
            raise ConfigError(f"quotes is at least 1, not {quotes}")
        self.name = "extractive"
        self._quotes = quotes

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """One piece a quoted source, each followed by its number; nothing where the prompt has no sources."""
        for position, (number, text) in enumerate(_SOURCE.findall(prompt)[: self._quotes]):
            yield f"{' ' if position else ''}“{text.strip()}” [{number}]"
