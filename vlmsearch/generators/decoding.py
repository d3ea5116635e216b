"""The loop that makes text of a language model, one token after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vlmsearch.generators.base import GenerationOptions
from vlmsearch.generators.beams import beam_search
from vlmsearch.generators.pieces import Decode, Detokenizer
from vlmsearch.generators.sampling import Sampler, Scores


class Cache(Protocol):
    """What a language model remembers of one text, or of several of the same length."""

    def step(self, tokens: NDArray[np.int64]) -> Scores:
        """Read tokens (rows, count) after those before them; logits (rows, vocabulary) of what comes next."""

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order; a row may be kept several times."""


class LanguageModel(Protocol):
    """A causal language model. May be used from several threads."""

    context: int
    """The most tokens that it reads."""
    ends: frozenset[int]
    """The tokens that end a text."""

    def open(self) -> Cache:
        """A new text."""


class BadWords:
    """Says which token would complete a bad word, however it is cut into tokens."""

    def __init__(self, words: Sequence[str], text: Detokenizer) -> None:
        self._words = words
        self._text = text
        self._longest = max(map(len, words), default=0)
        self._tail = ""

    def note(self, piece: str) -> None:
        """Remember the end of the text."""
        self._tail = (self._tail + piece)[-self._longest :] if self._words else ""

    def __call__(self, token: int) -> bool:
        """Whether a text with this token next would have a bad word."""
        if not self._words:
            return False
        text = self._tail + self._text.peek(token)
        return any(word in text for word in self._words)


def generate_text(
    model: LanguageModel, prompt: Sequence[int], options: GenerationOptions, decode: Decode
) -> Iterator[str]:
    """The text that follows a prompt of at least one token, a piece at a time; stop words are the caller's."""
    most = min(options.max_tokens, model.context - len(prompt))
    if options.beam_width > 1:
        found = decode(beam_search(model.open(), prompt, options, most, model.ends, decode))
        if found:
            yield found
        return
    text = Detokenizer(decode)
    bad = BadWords(options.bad_words, text)
    sampler, cache = Sampler(options), model.open()
    history, unread = list(prompt), list(prompt)
    for _ in range(most):
        token = sampler.choose(cache.step(np.array([unread], np.int64))[0], history, bad)
        if token is None or token in model.ends:
            break
        history.append(token)
        unread = [token]
        piece = text.push(token)
        bad.note(piece)
        if piece:
            yield piece
    rest = text.finish()
    if rest:
        yield rest
