"""Parts of files that were not read, as metadata, and files that nothing takes.

A filter on ``unread_count`` gives these documents: ``{"unread_count": {"$gte": 1}}``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.listing import count_documents
from vlmsearch.types import IndexReport, Scalar

if TYPE_CHECKING:
    from vlmsearch.stores.base import Store

UNREAD, COUNT = "unread", "unread_count"
"""The keys of the unread parts, such as ``2 comments, 1 chart``, and of their number."""
HAS_UNREAD: Mapping[str, object] = {COUNT: {"$gte": 1}}
"""The filter that such documents pass."""
SHOWN = 5
"""Kinds and endings that a line names."""
_AMOUNT = re.compile(r"([1-9][0-9,]*) (.+)")


def unread_metadata(counts: Mapping[str, int]) -> dict[str, Scalar]:
    """Return the metadata that say which parts were not read; none where all were."""
    return {UNREAD: unread_text(counts), COUNT: sum(counts.values())} if counts else {}


def unread_in(metadata: Mapping[str, object]) -> dict[str, int]:
    """Return the unread parts that metadata name; none for metadata of the user's own."""
    return unread_counts(metadata.get(UNREAD)) if metadata.get(COUNT) else {}


def unread_text(counts: Mapping[str, int], limit: int | None = None) -> str:
    """Return numbers of parts in words, the most frequent first.

    Example:
        >>> unread_text({"picture": 1, "comment": 1_200})
        '1,200 comments, 1 picture'
    """
    return _listed([f"{count:,} {_plural(kind, count)}" for kind, count in ranked(counts).items()], "kind", limit)


def unread_counts(text: object) -> dict[str, int]:
    """Return the numbers that `unread_text` has put into words; none for a value of another form."""
    amounts = [_AMOUNT.fullmatch(part) for part in text.split(", ")] if isinstance(text, str) else []
    if None in amounts:
        return {}
    pairs = [(amount[1], amount[2]) for amount in amounts if amount]
    return {kind if number == "1" else _singular(kind): int(number.replace(",", "")) for number, kind in pairs}


def unread_info(store: Store) -> dict[str, object]:
    """Return what `count_unread` counts, in the form of JSON."""
    return dict(zip(("partly_read", "unread"), count_unread(store)))


def count_unread(store: Store) -> tuple[int | None, dict[str, int]]:
    """Return how many documents have unread parts, and the numbers of these by kind.

    The first is None where the store cannot count without reading too many documents.
    """
    counted = count_documents(store, [UNREAD], parse_filter(HAS_UNREAD))
    known = [(unread_counts(text), count) for text, count in counted.values[UNREAD].items()]
    sums: Counter[str] = Counter()
    for counts, count in known:
        sums.update({kind: number * count for kind, number in counts.items()})
    documents = None if counted.total is None else sum(count for counts, count in known if counts)
    return documents, ranked(sums)


def partly_read(report: IndexReport, limit: int | None = SHOWN) -> str:
    """Return which parts a run did not read, in words; "" for none.

    Where it read all, that is how many documents in the index have such parts.
    """
    count, where = report.partly_read or report.partly_read_in_all, "" if report.partly_read else " in the index"
    which = f": {unread_text(report.unread, limit)}" if report.unread else ""
    have = "document{} has" if count == 1 else "documents{} have"
    return f"{count:,} {have.format(where)} parts that were not read{which}" if count else ""


def endings_text(others: Mapping[str, int], limit: int | None = SHOWN) -> str:
    """Return numbers of files by ending in words, the most frequent first.

    Example:
        >>> endings_text({".odp": 2, ".csv": 10, "(none)": 1}, limit=2)
        '.csv 10, .odp 2 and 1 more ending'
    """
    return _listed([f"{ending} {count:,}" for ending, count in ranked(others).items()], "ending", limit)


def ranked(counts: Mapping[str, int]) -> dict[str, int]:
    """Return numbers in their order, the highest first."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _listed(parts: Sequence[str], noun: str, limit: int | None) -> str:
    more = len(parts) - len(parts[:limit])
    return ", ".join(parts[:limit]) + (f" and {more:,} more {_plural(noun, more)}" if more else "")


def _plural(noun: str, count: int) -> str:
    if count == 1:
        return noun
    return re.sub("y$", "ie", noun) + "s" if re.search("[^aeiou]y$", noun) else f"{noun}{'e' * noun.endswith('x')}s"


def _singular(noun: str) -> str:
    return re.sub("ies$", "y", noun) if noun.endswith("ies") else re.sub("xes$", "xs", noun)[:-1]
