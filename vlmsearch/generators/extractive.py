"""Answers without a model: the sentences that answer, quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from vlmsearch._util.arguments import check_counts
from vlmsearch.generators.base import GenerationOptions, Generator
from vlmsearch.generators.text import until_stop

_SOURCE = re.compile(r"^\[(\d+)\] (.+)$", re.MULTILINE)


class ExtractiveGenerator(Generator):
    """Quotes the first ``quotes`` numbered lines of a prompt, such as ``[1] The dog is called Laika.``.

    A token is a word. There is nothing to sample, so it is always the likeliest text; a line with a bad word is passed
    over. A pipeline's prompt is the sentences of its sources that answer the question best, 40 words together at most:
    see `vlmsearch.answers.quotes`. No word of a template or a question is quoted.
    """

    max_words = 40

    def __init__(self, *, quotes: int = 3) -> None:
        check_counts(quotes=quotes)
        self.name = "extractive"
        self._quotes = quotes

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Return the quotes word by word; nothing where the prompt has no such lines."""
        options = options or GenerationOptions()
        quotes = (f"“{text.strip()}” [{number}]" for number, text in _SOURCE.findall(prompt))
        fit = (quote for quote in quotes if not any(word in quote for word in options.bad_words))
        words = re.findall(r"\s*\S+", " ".join(islice(fit, self._quotes)))
        yield from until_stop(iter(words[: options.max_tokens]), options.stop)
