"""From tokens to pieces of text that never end within a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
"""Text of token ids, without special tokens."""
_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Gives the text of tokens as they come; all pieces together are what ``decode`` makes of all tokens.

    A piece is decoded together with the one before it, so that the space before a word is kept where a tokenizer
    drops that of the first word.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._start = 0
        self._shown = 0

    def push(self, token: int) -> str:
        """The text that ``token`` completes; nothing while a character lacks bytes."""
        self._tokens.append(token)
        piece = self._rest(self._tokens[self._start :])
        if piece.endswith(_INCOMPLETE):
            return ""
        self._start, self._shown = self._shown, len(self._tokens)
        return piece

    def peek(self, token: int) -> str:
        """What would follow the pieces so far if ``token`` came next and were the last."""
        return self._rest([*self._tokens[self._start :], token])

    def finish(self) -> str:
        """What is left: a character that lacks bytes, as a replacement character."""
        piece = self._rest(self._tokens[self._start :])
        self._start = self._shown = len(self._tokens)
        return piece

    def _rest(self, tokens: Sequence[int]) -> str:
        before = self._decode(tokens[: self._shown - self._start])
        return self._decode(tokens)[len(before) :]
