"""Postings in pages of some kilobytes: a search reads those of its terms alone.

The terms of a segment are in the order of their signed keys. A page holds those from its first key on. A term with many
postings has pages of its own, one part after another. The body of a page is in little-endian numbers. It says how many
terms there are (16 bits), their keys (64), and how many postings each has (16). Then come the places of all of them
(16), and how often the terms are there (16).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmsearch.stores.postings import Postings

PAGE = 500
"""Postings of a page at about, where it has several terms."""
PART = 1_900
"""Postings of a term in one page at most."""
_COST_OF_TERM = 2.5
"""Room that a term takes beside its postings, in postings."""


class PostingPage(NamedTuple):
    """A page of a segment.

    Attributes:
        first: The signed key of its first term.
        part: Which part of that term's postings it has; 0 for a page with several terms.
        body: The postings.
    """

    first: int
    part: int
    body: bytes


def packed(postings: Postings) -> Iterator[PostingPage]:
    """Yield the pages of a segment."""
    order = np.argsort(keys := postings.keys.view(np.int64))
    starts = postings.starts.astype(np.int64)
    counts: NDArray[np.int64] = np.diff(starts)[order]
    starts = starts[:-1][order]
    keys = keys[order]
    ends = np.cumsum(counts + _COST_OF_TERM)
    first = 0
    while first < len(keys):
        if counts[first] > PART // 4:
            for part, start in enumerate(range(0, int(counts[first]), PART)):
                some = np.arange(start, min(start + PART, int(counts[first]))) + starts[first]
                yield _page(postings, keys[first : first + 1], np.array([len(some)]), some, part)
            first += 1
            continue
        reached = ends[first - 1] if first else 0.0
        last = max(int(np.searchsorted(ends, reached + PAGE, "right")), first + 1)
        long = np.flatnonzero(counts[first:last] > PART // 4)
        last = first + int(long[0]) if len(long) else last
        of_terms = counts[first:last]
        offsets = np.repeat(starts[first:last] - np.cumsum(of_terms) + of_terms, of_terms)
        yield _page(postings, keys[first:last], of_terms, offsets + np.arange(len(offsets)), 0)
        first = last


def _page(
    postings: Postings, keys: NDArray[np.int64], counts: NDArray[Any], some: NDArray[np.int64], part: int
) -> PostingPage:
    arrays = [(np.array([len(keys)]), "<u2"), (keys, "<i8"), (counts, "<u2")]
    arrays += [(postings.places[some], "<u2"), (postings.times[some], "<u2")]
    return PostingPage(int(keys[0]), part, b"".join(array.astype(kind).tobytes() for array, kind in arrays))


class PageTerms(NamedTuple):
    """The terms of a page: ``keys`` and ``counts`` have one value a term, ``places`` and ``times`` one a posting."""

    keys: NDArray[np.uint64]
    counts: NDArray[np.uint16]
    places: NDArray[np.uint16]
    times: NDArray[np.uint16]


def terms_of_page(body: bytes) -> PageTerms:
    """Return what a page holds."""
    count = int.from_bytes(body[:2], "little")
    keys = np.frombuffer(body, "<u8", count, 2)
    counts = np.frombuffer(body, "<u2", count, 2 + 8 * count)
    start = 2 + 10 * count
    total = (len(body) - start) // 4
    places = np.frombuffer(body, "<u2", total, start)
    return PageTerms(keys, counts, places, np.frombuffer(body, "<u2", total, start + 2 * total))


PostingItems = tuple[NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint16]]
"""Keys, places and times of postings: one of each a posting."""


def unpacked(bodies: Iterable[bytes]) -> PostingItems:
    """Return the postings of all pages, which are in order."""
    pages = [terms_of_page(body) for body in bodies]
    return (
        np.concatenate([np.empty(0, np.uint64), *(np.repeat(page.keys, page.counts) for page in pages)]),
        np.concatenate([np.empty(0, np.uint16), *(page.places for page in pages)]),
        np.concatenate([np.empty(0, np.uint16), *(page.times for page in pages)]),
    )
