"""Tokens as text whose pieces never end within a character, and the words to stop at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from vlmsearch._util.closable import closing_at_end
from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError
from vlmsearch.models.tokenizers import no_panics, read_tokenizer

Decode = Callable[[Sequence[int]], str]
"""Text of token ids, without special tokens."""
_INCOMPLETE = "\ufffd"


class Detokenizer:
    """A decoder of tokens as they come.

    All pieces together are what ``decode`` makes of all tokens, bytes that are no characters excepted. A piece is
    decoded together with the one before it: some tokenizers drop the space before the first word.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._start = 0
        self._shown = 0

    def push(self, token: int) -> str:
        """Return the text that ``token`` completes; nothing while a character lacks bytes."""
        self._tokens.append(token)
        piece = self._rest(self._tokens[self._start :])
        if not piece or piece.endswith(_INCOMPLETE):  # behind a token that is not shown, a word begins no text either
            return ""
        self._start, self._shown = self._shown, len(self._tokens)
        return piece

    def peek(self, token: int) -> str:
        """Return what would follow the pieces so far if ``token`` came next and were the last."""
        return self._rest([*self._tokens[self._start :], token])

    def finish(self) -> str:
        """Return what is left: a character that lacks bytes, as a replacement character."""
        piece = self._rest(self._tokens[self._start :])
        self._start = self._shown = len(self._tokens)
        return piece

    def _rest(self, tokens: Sequence[int]) -> str:
        before = self._decode(tokens[: self._shown - self._start])
        return self._decode(tokens)[len(before) :]


def until_stop(pieces: Iterator[str], stop: tuple[str, ...], tag: str = "") -> Iterator[str]:
    """Yield the pieces up to the stop word that is complete first.

    What may become one is held back until that is clear. ``tag`` is that of thoughts with which the prompt ended.

    ``pieces`` is closed, where it can be, as soon as a stop word is found or the caller stops reading.
    """
    held = ""
    with closing_at_end(pieces):
        if tag:
            yield tag
        for piece in pieces:
            held += piece
            places = [(at + len(word), at) for word in stop if (at := held.find(word)) >= 0]
            if places:
                held = held[: min(places)[1]]
                break
            safe = len(held) - max((_overlap(held, word) for word in stop), default=0)
            if safe:
                yield held[:safe]
                held = held[safe:]
        if held:
            yield held


def _overlap(text: str, word: str) -> int:
    """Return how many characters at the end of ``text`` are the beginning of ``word``."""
    return next((size for size in range(min(len(text), len(word) - 1), 0, -1) if text.endswith(word[:size])), 0)


def sum_by_word(tokens: Iterable[tuple[str, float]], words: Sequence[str]) -> list[float]:
    """Return the probability of each word, whatever its case and the spaces around it.

    >>> sum_by_word([(" Yes", 0.5), ("yes", 0.25), ("No", 0.125)], ["yes", "no"])
    [0.75, 0.125]
    """
    sums = dict.fromkeys(words, 0.0)
    for token, probability in tokens:
        word = token.strip().casefold()
        if word in sums:
            sums[word] += probability
    return [sums[word] for word in words]


def open_tokenizer(path: Path) -> Tokenizer:
    """Return the ``tokenizer.json`` at ``path`` or in that folder, which neither cuts nor fills up.

    ConfigError if none is.
    """
    file = path / "tokenizer.json" if os.path.isdir(path) else path
    try:
        tokenizer = read_tokenizer(file.read_bytes(), str(file))
    except OSError as exc:
        raise ConfigError(f"{file} cannot be read: {exc.strerror}") from exc
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def token_counter(path: Path) -> Callable[[str], int]:
    """Return how many tokens a text has for a tokenizer at ``path``, special ones left out."""
    tokenizer = open_tokenizer(path)

    def count(text: str) -> int:
        with no_panics(str(path)):
            return len(tokenizer.encode(well_formed(text), add_special_tokens=False).ids)

    return count
