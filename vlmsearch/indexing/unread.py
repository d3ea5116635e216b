"""Parts of files that were not read, as metadata of their documents.

A filter on ``unread_count`` gives these documents: ``{"unread_count": {"$gte": 1}}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vlmsearch.types import Scalar

UNREAD, COUNT = "unread", "unread_count"
"""The keys of what was not read, such as ``2 comments, 1 chart``, and of the number of all these parts."""
HAS_UNREAD: Mapping[str, object] = {COUNT: {"$gte": 1}}
"""The filter that such documents pass."""


def unread_metadata(counts: Mapping[str, int]) -> dict[str, Scalar]:
    """Return the metadata that say which parts were not read; none where all were."""
    return {UNREAD: unread_text(counts), COUNT: sum(counts.values())} if counts else {}


def unread_text(counts: Mapping[str, int]) -> str:
    """Return numbers of parts in words.

    Example:
        >>> unread_text({"picture": 1, "comment": 1_200})
        '1,200 comments, 1 picture'
    """
    kinds = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {kind}{'s' if count != 1 else ''}" for kind, count in kinds)


def unread_counts(text: str) -> dict[str, int]:
    """Return the numbers that `unread_text` has put into words."""
    counts = {}
    for amount in text.split(", ") if text else ():
        number, _, kind = amount.partition(" ")
        counts[kind if number == "1" else re.sub("s$", "", kind)] = int(number.replace(",", ""))
    return counts
