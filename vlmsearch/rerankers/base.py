"""What a re-ranker is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from vlmsearch._util.closable import Closable
from vlmsearch.types import Document


class Reranker(Closable, ABC):
    """Judge how relevant documents are to a query by reading both together. Several threads may use one re-ranker.

    Subclasses set ``name`` and implement `score`.

    Example:
        >>> class Exact(Reranker):
        ...     name = "exact"
        ...     def score(self, query, documents):
        ...         return [None if d.text is None else float(query in d.text) for d in documents]
        >>> Exact().score("a dog", [Document("a", text="a dog in the snow"), Document("b")])
        [1.0, None]
    """

    name: str
    """Name in messages; it never holds a secret."""

    @abstractmethod
    def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
        """Judge a batch of documents.

        Args:
            query: What is asked.
            documents: Any number of them. Of one that is longer than the model reads, the beginning is read.

        Returns:
            For each document the probability that it is what was asked for, from 0 to 1, comparable between queries;
            None for a document that cannot be judged, such as one without a text.

        Raises:
            InvalidInputError: The query is not valid Unicode.
            BackendError: The model or its server failed.
        """
