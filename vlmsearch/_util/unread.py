"""Parts of documents that were not read or cannot be kept, as metadata: ``2 comments, 1 chart``, and their number.

A filter on ``unread_count`` gives these documents: ``{"unread_count": {"$gte": 1}}``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

UNREAD, COUNT = "unread", "unread_count"
"""The keys of the unread parts, such as ``2 comments, 1 chart``, and of their number."""
HAS_UNREAD: Mapping[str, object] = {COUNT: {"$gte": 1}}
"""The filter that such documents pass."""
_AMOUNT = re.compile(r"([1-9][0-9,]*) (.+)")


def unread_metadata(counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the metadata that say which parts were not read; none where all were."""
    return {UNREAD: unread_text(counts), COUNT: sum(counts.values())} if counts else {}


def with_unread(metadata: Mapping[Any, Any], counts: Mapping[str, int]) -> Mapping[Any, Any]:
    """Return metadata that say which more parts were not read: the same mapping where all were."""
    if not counts:
        return metadata
    known = unread_in(metadata) or {f"{key} value": 1 for key in (UNREAD, COUNT) if key in metadata}  # the user's own
    return {**metadata, **unread_metadata(Counter(known) + Counter(counts))}


def unread_in(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Return the unread parts that metadata name; none for metadata of the user's own."""
    return unread_counts(metadata.get(UNREAD)) if metadata.get(COUNT) else {}


def unread_text(counts: Mapping[str, int], limit: int | None = None) -> str:
    """Return numbers of parts in words, the most frequent first.

    Example:
        >>> unread_text({"picture": 1, "comment": 1_200})
        '1,200 comments, 1 picture'
    """
    return listed([f"{count:,} {_plural(kind, count)}" for kind, count in ranked(counts).items()], "kind", limit)


def unread_counts(text: object) -> dict[str, int]:
    """Return the numbers that `unread_text` has put into words; none for a value of another form."""
    amounts = [_AMOUNT.fullmatch(part) for part in text.split(", ")] if isinstance(text, str) else []
    if None in amounts:
        return {}
    pairs = [(amount[1], amount[2]) for amount in amounts if amount]
    return {kind if number == "1" else _singular(kind): int(number.replace(",", "")) for number, kind in pairs}


def ranked(counts: Mapping[str, int]) -> dict[str, int]:
    """Return numbers in their order, the highest first."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def listed(parts: Sequence[str], noun: str, limit: int | None) -> str:
    """Return parts in one line: the first ``limit``, and how many more there are."""
    more = len(parts) - len(parts[:limit])
    return ", ".join(parts[:limit]) + (f" and {more:,} more {_plural(noun, more)}" if more else "")


def _plural(noun: str, count: int) -> str:
    if count == 1:
        return noun
    return re.sub("y$", "ie", noun) + "s" if re.search("[^aeiou]y$", noun) else f"{noun}{'e' * noun.endswith('x')}s"


def _singular(noun: str) -> str:
    return re.sub("ies$", "y", noun) if noun.endswith("ies") else re.sub("xes$", "xs", noun)[:-1]
