"""Ending a text where it is told to end."""

from __future__ import annotations

from collections.abc import Iterator


def until_stop(pieces: Iterator[str], stop: tuple[str, ...]) -> Iterator[str]:
    """The pieces up to the stop word that is complete first; what may become one is held back until that is clear.

    ``pieces`` is closed, where it can be, as soon as a stop word is found or the caller stops reading.
    """
    held = ""
    try:
        for piece in pieces:
            held += piece
            found = [(at + len(word), at) for word in stop if (at := held.find(word)) >= 0]
            if found:
                held = held[: min(found)[1]]
                break
            safe = len(held) - max((_overlap(held, word) for word in stop), default=0)
            if safe:
                yield held[:safe]
                held = held[safe:]
        if held:
            yield held
    finally:
        close = getattr(pieces, "close", None)
        if close:
            close()


def _overlap(text: str, word: str) -> int:
    """How many characters at the end of ``text`` are the beginning of ``word``."""
    return next((size for size in range(min(len(text), len(word) - 1), 0, -1) if text.endswith(word[:size])), 0)
