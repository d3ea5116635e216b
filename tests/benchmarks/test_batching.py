"""What many clients get."""

from __future__ import annotations

import pytest

from benchmarks.batching import main
from tests.support.tables import table


def test_every_contender_has_its_figures() -> None:
    # a model at work lets other threads ask; the mock answers before they have a turn
    rows = table(main, "onnx:demo-minilm", "--clients", "1,4", "--seconds", "0.2", "--rounds", "2")
    assert [row["what"] for row in rows] == [
        "one text alone",
        "batches of 4",
        "batches of 32",
        "1 clients",
        "4 clients",
        "1 client beside requests of 1,000",
        "4 clients at random, 25% load",
        "4 clients at random, 50% load",
    ]
    batches = [float(row["batch"]) for row in rows]
    assert batches[:4] == pytest.approx([1, 4, 32, 1])
    assert 1 < batches[4] <= 4
    assert batches[5] > 1
    for row in rows:
        assert float(row["texts/s"]) > 0
        assert 0 < float(row["p50 ms"]) <= float(row["p99 ms"])
