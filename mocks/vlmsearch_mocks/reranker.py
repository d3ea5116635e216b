"""A re-ranker without a model: it counts words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vlmsearch._util.text import utf8_bytes
from vlmsearch.errors import BackendError
from vlmsearch.rerankers.base import Reranker
from vlmsearch.types import Document

_WORD = re.compile(r"\w+")


class MockReranker(Reranker):
    """Scores a document by the share of the query's words that its text has: from 0.02 for none to 0.98 for all.

    ``queries`` are what it was asked, in order, and ``read`` the ids of the documents that it was given each time.
    """

    def __init__(self) -> None:
        self.name = "mock:"
        self.queries: list[str] = []
        self.read: list[tuple[str, ...]] = []
        self._closed = False

    def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
        """Return the shares; None for a document without a text."""
        if self._closed:
            raise BackendError("the re-ranker mock: is closed")
        utf8_bytes(query)
        self.queries.append(query)
        self.read.append(tuple(document.id for document in documents))
        asked = set(_WORD.findall(query.lower()))
        return [_share(asked, document.text) for document in documents]

    def close(self) -> None:
        """Refuse what comes after."""
        self._closed = True


def _share(asked: set[str], text: str | None) -> float | None:
    if text is None or not text.strip():
        return None
    shared = asked & set(_WORD.findall(text.lower()))
    return 0.02 + 0.96 * len(shared) / max(len(asked), 1)
