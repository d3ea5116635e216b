"""Reading the first matches again: the order, the scores, and the time that it may take."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st
from vlmsearch_mocks import MockReranker

from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.rerank import pooled, rerank
from vlmsearch.types import Document

RNG = np.random.default_rng(0)


class Slow(Reranker):
    """Gives each document the probability in its id, and takes a second a document on a clock of its own."""

    name = "slow"

    def __init__(self, second: float = 1.0) -> None:
        self.now = 0.0
        self.second = second
        self.sizes: list[int] = []

    def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
        self.now += self.second * len(documents)
        self.sizes.append(len(documents))
        return [None if document.id == "-" else float(document.id) for document in documents]


def matches(*pairs: tuple[str, float]) -> list[tuple[str, float, Document]]:
    return [(id, score, Document(id, text="x")) for id, score in pairs]


def test_the_first_are_read_and_the_others_stand_where_their_scores_belong() -> None:
    found = rerank("q", matches(("0.1", 0.9), ("0.95", 0.8), ("0.5", 0.6), ("0.99", 0.4)), Slow(), first=2, weight=0.5)
    assert [match.id for match in found] == ["0.95", "0.5", "0.1", "0.99"]
    assert [match.judged for match in found] == [0.95, None, 0.1, None]
    assert [match.score for match in found] == pytest.approx([pooled(0.95, 0.8, 0.5), 0.6, 0.5, 0.4])


@pytest.mark.parametrize("seconds", [1e308, math.inf])
def test_a_time_without_end_is_enough_for_all(seconds: float) -> None:
    given = matches(*((f"0.{n:02}", 0.5) for n in range(60)))
    found = rerank("q", given, Slow(), first=60, weight=1.0, seconds=seconds)
    assert [match.id for match in found] == [f"0.{n:02}" for n in reversed(range(60))]


def test_one_that_cannot_be_judged_keeps_its_score() -> None:
    found = rerank("q", matches(("-", 0.7), ("0.9", 0.7), ("0.2", 0.7)), Slow(), weight=1.0)
    assert [(match.id, match.score) for match in found] == [
        ("0.9", pytest.approx(0.9)), ("-", 0.7), ("0.2", pytest.approx(0.2)),
    ]  # fmt: skip


def test_equal_scores_keep_the_earlier_order() -> None:
    assert [match.id for match in rerank("q", matches(("0.50", 0.5), ("0.5", 0.5), ("0.500", 0.5)), Slow())] == [
        "0.50", "0.5", "0.500",
    ]  # fmt: skip
    assert rerank("q", [], Slow()) == []


def test_when_the_time_is_over_the_order_so_far_stands() -> None:
    reader = Slow()
    many = matches(*((f"0.{i:03}", 0.9 - i / 1000) for i in range(1, 101)))
    found = rerank("q", many, reader, first=100, seconds=10, clock=lambda: reader.now)
    assert reader.sizes == [4, 6]
    assert reader.now <= 10
    assert sum(match.judged is not None for match in found) == 10
    assert {match.id for match in found} == {id for id, _, _ in many}
    assert [match.id for match in found if match.judged is None] == [id for id, _, _ in many[10:]]


def test_a_slow_re_ranker_reads_one_small_batch_at_most() -> None:
    reader = Slow(60)
    rerank("q", matches(*((f"0.{i}", 0.5) for i in range(1, 10))), reader, seconds=1, clock=lambda: reader.now)
    assert reader.sizes == [4]


def test_without_a_limit_batches_are_large() -> None:
    reader = Slow()
    rerank("q", matches(*((f"0.{i:03}", 0.5) for i in range(1, 101))), reader, first=70)
    assert reader.sizes == [32, 32, 6]


@pytest.mark.parametrize(("first", "seconds", "weight"), [(0, None, 0.5), (1, 0, 0.5), (1, None, 1.5), (1, None, -1)])
def test_numbers_out_of_range_are_refused(first: int, seconds: float | None, weight: float) -> None:
    with pytest.raises(ConfigError, match="at least 1 match"):
        rerank("q", matches(("0.5", 0.5)), Slow(), first=first, seconds=seconds, weight=weight)


@pytest.mark.parametrize("scores", [[], [0.5, 0.5], [math.nan], [math.inf], [10**400], [-0.1]])
def test_a_re_ranker_that_gives_no_relevance_is_an_error_of_it(
    scores: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slow, "score", lambda *_: scores)
    with pytest.raises(BackendError, match="has no relevance from 0 to 1 for each of 1 documents"):
        rerank("q", matches(("0.5", 0.5)), Slow())


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_pooled_probability_lies_between_both(judged: float, score: float, weight: float) -> None:
    found = pooled(judged, score, weight)
    assert min(judged, score) - 1e-5 <= found <= max(judged, score) + 1e-5


def test_it_reads_what_the_query_says() -> None:
    documents = [("a", 0.6, Document("a", text="a blue car")), ("b", 0.5, Document("b", text="a dog in the snow"))]
    reranker = MockReranker()
    assert [match.id for match in rerank("dog snow", documents, reranker)] == ["b", "a"]
    assert reranker.read == [("a", "b")]
