"""Parts that were not read, by index and by run, and files that nothing takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vlmsearch._util.unread import HAS_UNREAD, UNREAD, listed, ranked, unread_counts, unread_text
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.listing import count_documents
from vlmsearch.types import IndexReport

if TYPE_CHECKING:
    from vlmsearch.stores.base import Store

SHOWN = 5
"""Kinds and endings that a line names."""


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
    return listed([f"{ending} {count:,}" for ending, count in ranked(others).items()], "ending", limit)
