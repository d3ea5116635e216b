"""What every re-ranker has to do, as tests."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor

import pytest

from vlmsearch.errors import BackendError, InvalidInputError
from vlmsearch.rerankers.base import Reranker
from vlmsearch.types import Document
from vlmsearch_mocks.contracts.records import once_a_class

QUERY = "a red star"
DOCUMENTS = (
    Document("star", text="a large red star in the centre against a white background"),
    Document("circle", text="two small blue circles against a meadow"),
    Document("unicode", text="Σ ünï \U0001f436 \ud800 half"),
    Document("long", text="three green hexagons " * 400),
)


class RerankerContract(ABC):
    """A suite in which every sentence of `Reranker` is a test.

    Subclass it as ``Test...`` and say how a re-ranker is made.
    """

    @abstractmethod
    def make_reranker(self) -> Reranker:
        """Return a re-ranker that tells a red star from blue circles."""

    @pytest.fixture
    def reranker(self, request: pytest.FixtureRequest) -> Reranker:
        """Return one re-ranker for all tests of the class."""
        return once_a_class(request, self.make_reranker)

    def test_it_says_what_it_is(self, reranker: Reranker) -> None:
        assert reranker.name

    def test_there_is_a_probability_for_each_document(self, reranker: Reranker) -> None:
        scores = reranker.score(QUERY, DOCUMENTS)
        assert len(scores) == len(DOCUMENTS)
        assert all(score is not None and 0 <= score <= 1 for score in scores)

    def test_scores_are_in_the_order_of_the_documents(self, reranker: Reranker) -> None:
        backwards = reranker.score(QUERY, DOCUMENTS[::-1])
        assert backwards[::-1] == pytest.approx(reranker.score(QUERY, DOCUMENTS), abs=0.02)

    def test_what_is_asked_for_is_likelier_than_what_is_not(self, reranker: Reranker) -> None:
        star, circle, *_ = reranker.score(QUERY, DOCUMENTS)
        assert star is not None
        assert circle is not None
        assert star > 0.5 > circle

    @pytest.mark.parametrize("text", [None, "", " \n"], ids=["none", "empty", "blank"])
    def test_a_document_without_a_text_is_not_judged(self, reranker: Reranker, text: str | None) -> None:
        scores = reranker.score(QUERY, [DOCUMENTS[0], Document("x", text=text), DOCUMENTS[1]])
        assert scores[1] is None
        assert [scores[0], scores[2]] == pytest.approx(reranker.score(QUERY, DOCUMENTS[:2]), abs=0.02)

    def test_no_documents_give_no_scores(self, reranker: Reranker) -> None:
        assert reranker.score(QUERY, []) == []

    def test_a_query_that_is_not_valid_unicode_is_refused(self, reranker: Reranker) -> None:
        with pytest.raises(InvalidInputError):
            reranker.score("half \ud800", DOCUMENTS)

    def test_an_empty_query_is_answered(self, reranker: Reranker) -> None:
        assert all(score is not None and 0 <= score <= 1 for score in reranker.score("", DOCUMENTS))

    def test_it_can_be_used_from_several_threads(self, reranker: Reranker) -> None:
        queries = [QUERY, "two blue circles", "green hexagons"] * 4
        alone = [reranker.score(query, DOCUMENTS) for query in queries]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda query: reranker.score(query, DOCUMENTS), queries))
        assert together == alone

    def test_it_can_be_closed_twice_and_then_does_nothing(self) -> None:
        reranker = self.make_reranker()
        reranker.close()
        reranker.close()
        with pytest.raises(BackendError, match="closed"):
            reranker.score(QUERY, DOCUMENTS)
