"""Thoughts of a model before its answer: they are neither text nor evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from vlmsearch._util.cancellation import check_cancelled
from vlmsearch._util.closable import closing_at_end
from vlmsearch.errors import InvalidInputError

_ENDS = {f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "seed:think")} | {
    "[THINK]": "[/THINK]",
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
}
"""The tag that ends the thoughts for each one that begins them."""
_TAG = re.compile(r"(?P<end>(?<![`\"'\u201c\u2018\xab])</think(?:ing)?>)|</?think(?:ing)?>")
"""A tag in a text without one at its beginning. Thoughts end with one that is not in quotes."""
_TAG_CHARS = 32
"""Length of the longest tag, about."""


class EndOfThoughts(str):
    """An empty piece of a text, which says that the pieces before it were thoughts.

    It comes where the thoughts had no tag before them, as with chat templates that begin them in the prompt.
    """

    __slots__ = ()


class UnfinishedThoughtsError(InvalidInputError):
    """A text that ended within the thoughts."""

    def __init__(self, *_: str) -> None:
        super().__init__("empty", "the model's text ended within its thoughts; a larger max_tokens may help")


def thought_tag(prompt: str) -> str:
    """Return the tag of thoughts with which a chat template ends a prompt; "" for none."""
    return next((tag for tag in _ENDS if prompt.rstrip().endswith(tag)), "")


def text_of(pieces: Iterator[str]) -> str:
    """Return the whole text of pieces, without those before an `EndOfThoughts`."""
    text: list[str] = []
    with closing_at_end(pieces):
        for piece in pieces:
            check_cancelled()
            text.append(piece)
            if isinstance(piece, EndOfThoughts):
                text.clear()
    return "".join(text)


def without_thoughts(pieces: Iterator[str]) -> Iterator[str]:
    """Yield the pieces of a text without the thoughts and spaces before it.

    A tag elsewhere is text, unless it ends thoughts that had no tag before them: see `EndOfThoughts`. ``pieces`` is
    closed, where it can be, as soon as the caller stops reading.

    Raises:
        UnfinishedThoughtsError: The text ends within them.
    """
    held = ""
    with closing_at_end(pieces):
        for piece in pieces:
            held += piece
            text = held.lstrip()
            if tag := next((tag for tag in _ENDS if text.startswith(tag)), ""):
                yield from _behind(_ENDS[tag], chain([text[len(tag) :]], pieces))
                return
            if len(held) > 2 * _TAG_CHARS or not any(tag.startswith(text) for tag in _ENDS):
                yield from _behind_thoughts(chain([held], pieces))
                return
        if held:
            yield held


def _behind(end: str, pieces: Iterator[str]) -> Iterator[str]:
    """Yield the pieces behind a tag, if one is given, and behind the space after it."""
    held = ""
    for piece in pieces:
        held += piece
        if end in held:
            held, end = held[held.index(end) + len(end) :].lstrip(), ""
            if held:
                yield from chain([held], pieces)
        else:
            held = held[-len(end) :]
    if end:
        raise UnfinishedThoughtsError


def _behind_thoughts(pieces: Iterator[str]) -> Iterator[str]:
    """Yield the pieces of a text whose thoughts have a tag at most at their end."""
    text = ""
    for piece in pieces:
        text = text[-_TAG_CHARS:] + piece
        tag = _TAG.search(text)
        if tag and tag["end"]:
            yield EndOfThoughts()
            yield from _behind("", chain([text[tag.end() :]], pieces))
        else:
            yield from chain([piece], pieces) if tag else [piece]
