"""Thoughts of a model before its answer: they are neither text nor evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from vlmsearch._util.cancellation import check_cancelled
from vlmsearch._util.closable import closing_at_end
from vlmsearch.errors import InvalidInputError

_ENDS = {f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning", "seed:think")} | {
    "[think]": "[/think]",
    "\u25c1think\u25b7": "\u25c1/think\u25b7",
    "<|start_thinking|>": "<|end_thinking|>",
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
}
"""The tag that ends the thoughts for each one that begins them, in lower case."""
_BEGIN, _END = ("|".join(map(re.escape, tags)) for tags in (_ENDS, _ENDS.values()))
_QUOTES = "`\"'\u201c\u201d\u2018\u2019\xab\xbb"
_TAG = re.compile(rf"(?i)(?P<end>(?<![{_QUOTES}])(?:{_END})|(?:{_END})(?=[^{_QUOTES}]))|{_BEGIN}|(?:{_END})(?=.)")
"""A tag in a text without one at its beginning. Thoughts end with one that is not between quotes."""
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
    return next((tag for tag in _ENDS if prompt.rstrip().lower().endswith(tag)), "")


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
    with closing_at_end(pieces):
        text, tag = _beginning(pieces)
        if not tag:
            seen = ""
            for piece in chain([text], pieces):
                seen = seen[-_TAG_CHARS:] + piece
                if other := _TAG.search(seen):
                    break
                yield piece
            else:
                return
            if not other["end"]:
                yield from chain([piece], pieces)
                return
            yield EndOfThoughts()
            text, tag = _beginning(chain([seen[other.end() :]], pieces), is_behind=True)
        while tag:
            text, tag = _beginning(_behind(_ENDS[tag], chain([text[len(tag) :]], pieces)), is_behind=True)
        yield from chain([text], pieces)


def _beginning(pieces: Iterator[str], *, is_behind: bool = False) -> tuple[str, str]:
    """Return the first pieces, and the tag with which they begin; "" for none. Space behind thoughts is left out."""
    held = ""
    for piece in pieces:
        held += piece
        text = held.lstrip()
        held = text if is_behind else held
        if tag := next((tag for tag in _ENDS if text.lower().startswith(tag)), ""):
            return text, tag
        if len(held) > 2 * _TAG_CHARS or not any(tag.startswith(text.lower()) for tag in _ENDS):
            break
    return held, ""


def _behind(end: str, pieces: Iterator[str]) -> Iterator[str]:
    """Yield what is behind a tag in its piece, and then the pieces after it."""
    held = ""
    for piece in pieces:
        held += piece
        if tag := re.search(re.escape(end), held, re.IGNORECASE):
            yield held[tag.end() :]
            yield from pieces
            return
        held = held[-len(end) :]
    raise UnfinishedThoughtsError
