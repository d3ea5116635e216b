"""Text of a language model, one token after the other, and beam search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vlmsearch.generators.base import GenerationOptions
from vlmsearch.generators.local.sampling import Sampler, Scores, log_softmax, penalised
from vlmsearch.generators.text import Decode, Detokenizer


class Cache(Protocol):
    """The keys and values of one text, or of several of the same length."""

    def step(self, tokens: NDArray[np.int64]) -> Scores:
        """Read tokens (rows, count) after those before them; logits (rows, vocabulary) of what comes next."""

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order; a row may be kept several times."""


class LanguageModel(Protocol):
    """A causal language model. May be used from several threads."""

    context: int
    """Maximum number of tokens that it reads."""
    ends: frozenset[int]
    """The tokens that end a text."""

    def open(self, pictures: Any = None) -> Cache:
        """Return a new text, with the pictures of its prompt: see `LocalGenerator.read_parts`."""


class BadWords:
    """A test for tokens that would complete a bad word, however it is cut into tokens."""

    def __init__(self, words: Sequence[str], text: Detokenizer) -> None:
        self._words = words
        self._text = text
        self._max_chars = max(map(len, words), default=0)
        self._tail = ""

    def note(self, piece: str) -> None:
        """Remember the end of the text."""
        self._tail = (self._tail + piece)[-self._max_chars :] if self._words else ""

    def __call__(self, token: int) -> bool:
        """Return whether a text with this token next would have a bad word."""
        if not self._words:
            return False
        text = self._tail + self._text.peek(token)
        return any(word in text for word in self._words)


def generate_text(
    model: LanguageModel, prompt: Sequence[int], options: GenerationOptions, decode: Decode, pictures: Any = None
) -> Iterator[str]:
    """Yield the text that follows a prompt of at least one token. Stop words are the caller's."""
    max_tokens = min(options.max_tokens, model.context - len(prompt))
    if options.beam_width > 1:
        likeliest = decode(beam_search(model.open(pictures), prompt, options, max_tokens, model.ends, decode))
        if likeliest:
            yield likeliest
        return
    text = Detokenizer(decode)
    bad = BadWords(options.bad_words, text)
    sampler, cache = Sampler(options), model.open(pictures)
    history, unread = list(prompt), list(prompt)
    for _ in range(max_tokens):
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


class Beams:
    """The state of one search, as transformers does it: the score of a text is its mean logarithmic probability.

    `advance` takes the logits of every running text. It returns the rows that the model has to keep, and the token that
    each of them reads next.
    """

    def __init__(
        self, prompt: Sequence[int], options: GenerationOptions, max_tokens: int, ends: frozenset[int], decode: Decode
    ) -> None:
        self._prompt = list(prompt)
        self._options = options
        self._max_tokens = max_tokens
        self._ends = ends
        self._decode = decode
        self._running: list[tuple[float, list[int]]] = [(0.0, [])]
        self._finished: list[tuple[float, list[int]]] = []
        self.done = max_tokens < 1

    @property
    def ranked(self) -> list[tuple[float, list[int]]]:
        """Return the texts so far, at most one a beam, with their scores, best first."""
        if self._finished:
            return self._finished
        return [(score / max(len(tokens), 1), tokens) for score, tokens in self._running]

    def advance(self, logits: Scores) -> tuple[list[int], NDArray[np.int64]]:
        """Return the rows to keep, and their next tokens (rows, 1). `done` says whether that is still needed."""
        width = self._options.beam_width
        scores = self._scores(logits)
        order = np.argsort(-scores, axis=None, kind="stable")
        length = len(self._running[0][1]) + 1
        following: list[tuple[float, list[int], int]] = []
        for rank, flat in enumerate(order):
            row, token = divmod(int(flat), scores.shape[1])
            score = float(scores[row, token])
            if len(following) == width or not np.isfinite(score):
                break
            tokens = self._running[row][1]
            if token in self._ends:
                if rank < width:
                    self._finish(score / length, tokens)
            elif not self._is_bad([*tokens, token]):
                following.append((score, [*tokens, token], row))
        if not following:
            self.done = True
            return [0], np.zeros((1, 1), np.int64)
        self._running = [(score, tokens) for score, tokens, _ in following]
        self._close(length)
        return [row for *_, row in following], np.array([[tokens[-1]] for _, tokens, _ in following], np.int64)

    def _scores(self, logits: Scores) -> Scores:
        """Return the score of each continuation of each running text."""
        chances = log_softmax(logits)
        rows = [
            penalised(row, self._prompt + tokens, self._options.repetition_penalty) + np.float32(score)
            for row, (score, tokens) in zip(chances, self._running)
        ]
        return np.stack(rows)

    def _finish(self, score: float, tokens: list[int]) -> None:
        self._finished.append((score, tokens))
        self._finished = sorted(self._finished, key=lambda pair: -pair[0])[: self._options.beam_width]

    def _close(self, length: int) -> None:
        """End at the limit, or when no running text can beat those that are finished."""
        width = self._options.beam_width
        if length >= self._max_tokens:
            for score, tokens in self._running:
                self._finish(score / length, tokens)
            self.done = True
        elif len(self._finished) == width:
            self.done = self._running[0][0] / length <= self._finished[-1][0]

    def _is_bad(self, tokens: list[int]) -> bool:
        words = self._options.bad_words
        return bool(words) and any(word in self._decode(tokens) for word in words)


def beam_search(
    cache: Cache,
    prompt: Sequence[int],
    options: GenerationOptions,
    max_tokens: int,
    ends: frozenset[int],
    decode: Decode,
) -> list[int]:
    """Return the tokens of the likeliest text, of at most ``max_tokens``, that ``options.beam_width`` beams find."""
    beams = Beams(prompt, options, max_tokens, ends, decode)
    unread = np.array([prompt], np.int64)
    while not beams.done:
        rows, unread = beams.advance(cache.step(unread))
        cache.select(rows)
    return beams.ranked[0][1]
