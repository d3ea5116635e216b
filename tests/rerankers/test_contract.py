"""Every re-ranker, through the suite that a user's own runs too."""

from vlmsearch_mocks import MockReranker
from vlmsearch_mocks.contracts import RerankerContract

from vlmsearch.rerankers.base import Reranker


class TestMockReranker(RerankerContract):
    def make_reranker(self) -> Reranker:
        return MockReranker()
