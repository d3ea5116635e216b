"""Pages of one ranking, while others write.

A `Cursor` knows which documents the pages before it showed, and the next page is the best of the others. So no document
is shown twice, whatever is written meanwhile. Each one that is relevant and in the index throughout is shown: at its
place, or at the top of the next page if its place has been passed. While nobody writes, pages are the parts of one long
one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.errors import ConfigError
from vlmsearch.search.options import MAX_PAGE, SearchOptions
from vlmsearch.search.query import Query
from vlmsearch.types import ImageInput, Match, RemoteImage, group_of, local_image

_ID_BYTES = 6
"""Bytes of the digest of an id: among 10,000 that are shown, two in three million searches confuse two."""
_QUERY_BYTES = 12


@dataclass(frozen=True)
class Cursor:
    """Which documents the pages of a query have shown, by digests of their ids."""

    query: bytes
    groups: bool
    """Whether a file is on one page with all of its parts."""
    shown: frozenset[bytes] = frozenset()

    @classmethod
    def start(cls, query: Query, options: SearchOptions) -> Cursor:
        """Return where the options say that the page begins.

        ConfigError for a cursor that is not of this query.
        """
        digest = _digest_of(query, options)
        if options.cursor is None:
            return cls(digest, options.group)
        try:
            data = base64.b64decode(options.cursor.encode("ascii"), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            data = b""
        count, rest = divmod(len(data) - _QUERY_BYTES, _ID_BYTES)
        if rest or not 0 < count <= MAX_PAGE:
            raise ConfigError(f"not a cursor of a search: {options.cursor[:40]!r}; begin without one")
        if data[:_QUERY_BYTES] != digest:
            raise ConfigError("the cursor is of another query: all but the limit stays the same from page to page")
        parts = (data[at : at + _ID_BYTES] for at in range(_QUERY_BYTES, len(data), _ID_BYTES))
        return cls(digest, options.group, frozenset(parts))

    def has(self, match: Match) -> bool:
        """Return whether a page has shown the document."""
        return bool(self.shown) and self._digest(match.document.id) in self.shown

    def after(self, page: Iterable[Match]) -> str | None:
        """Return the cursor of the next page, as a string; None where `MAX_PAGE` documents are shown."""
        shown = self.shown.union(self._digest(match.document.id) for match in page)
        if len(shown) >= MAX_PAGE:
            return None
        return base64.urlsafe_b64encode(b"".join([self.query, *sorted(shown)])).decode()

    def _digest(self, id: str) -> bytes:
        shown = group_of(id) if self.groups else id
        return hashlib.blake2b(shown.encode(), digest_size=_ID_BYTES).digest()


def _digest_of(query: Query, options: SearchOptions) -> bytes:
    """Return what tells this query from others: all that decides which documents there are, and in which order."""
    reranker = (options.reranker.name, options.rerank_first) if options.reranker else None
    chosen = (
        options.where,
        options.weights,
        options.min_score,
        options.sort,
        options.diversity,
        options.group,
        reranker,
    )
    text = repr([_identity(query), *map(_identity, query.without), chosen])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_QUERY_BYTES).digest()


def _identity(query: Query) -> tuple[object, ...]:
    return query.text, _image_identity(query.image), query.like, *query.phrases


def _image_identity(image: ImageInput | RemoteImage | None) -> str:
    image = None if image is None else local_image(image)
    if image is None or isinstance(image, Path):
        return str(image)
    data = image if isinstance(image, bytes) else repr(image.size).encode() + image.tobytes()
    return hashlib.blake2b(data).hexdigest()
