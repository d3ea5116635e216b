"""What many clients get, and searches that are awaited."""

from __future__ import annotations

import pytest
from vlmsearch_mocks import MockEncoder

from benchmarks import async_search, batching
from tests.support.tables import table

TEXTS = [f"a dog of {number}" for number in range(40)]


def test_every_contender_has_its_figures() -> None:
    figures = batching.measure_batching(MockEncoder(), TEXTS, clients=[1, 4], seconds=0.05, rounds=2)
    assert [figure.name for figure in figures] == [
        "one text alone",
        "batches of 4",
        "batches of 32",
        "1 clients",
        "4 clients",
        "1 client beside requests of 1,000",
        "4 clients at random, 25% load",
        "4 clients at random, 50% load",
    ]
    assert [figure.batch for figure in figures[:4]] == pytest.approx([1, 4, 32, 1])
    for figure in figures:
        assert figure.rate > 0
        assert 0 < figure.p50_ms <= figure.p99_ms
    assert 1 < figures[4].batch <= 4
    assert figures[5].batch > 1


def test_what_was_measured_is_printed() -> None:
    rows = table(batching.main, "mock:", "--clients", "2", "--seconds", "0.02", "--rounds", "1")
    assert "2 clients" in [row["what"] for row in rows]
    (row,) = table(async_search.main, "--encoder", "mock:", "--count", "3", "--rounds", "1")
    ratio = float(row["AsyncPipeline ms"]) / float(row["Pipeline ms"])
    assert float(row["ratio"]) == pytest.approx(ratio, rel=0.05)
