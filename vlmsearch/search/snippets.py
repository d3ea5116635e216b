"""The text that lists show of a match."""

from __future__ import annotations

from vlmsearch.stores.terms import query_terms, spans_of
from vlmsearch.types import Match


def match_text(match: Match) -> str:
    """Return the text that fits: that of the passage, or else of the document; "" for none."""
    return (match.document.text or "") if match.passage is None else match.passage.text


def snippet(match: Match, query: str, size: int) -> str:
    """Return the text that fits, from where most words of a query are.

    Args:
        match: The match.
        query: Any string.
        size: Maximum number of its characters.

    Returns:
        The part on one line, with dots in place of a text before it.

    Example:
        >>> from vlmsearch.types import Document
        >>> match = Match(Document("a", "It is about many things. At last it names a dog."), 0.9, {})
        >>> snippet(match, "dogs", 20)
        '... names a dog.'
    """
    text = " ".join(match_text(match).split())
    if len(text) <= size:
        return text
    starts = [start for start, _ in spans_of(text, query_terms(query, "auto"), "auto")]
    best = max(starts, key=lambda start: sum(start <= other < start + size // 2 for other in starts), default=0)
    begin = text.rfind(" ", 0, max(best - size // 3, 0)) + 1
    return ("... " if begin else "") + text[begin : begin + size]
