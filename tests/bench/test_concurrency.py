"""What many clients get is measured, whoever is measured."""

from __future__ import annotations

import json

import pytest
from vlmsearch_mocks import MockEncoder

from tests.support.cli import ok
from vlmsearch import Document, Pipeline
from vlmsearch.bench.concurrency import measure_async, measure_batching
from vlmsearch.registry import open_store

TEXTS = [f"a dog of {number}" for number in range(40)]


def test_every_contender_has_its_figures() -> None:
    figures = measure_batching(MockEncoder(), TEXTS, clients=[1, 4], seconds=0.05, rounds=2)
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


def test_both_pipelines_are_timed() -> None:
    pipeline = Pipeline(MockEncoder(), open_store("mock:"))
    pipeline.add(Document(text, text=text) for text in TEXTS)
    plain, awaited = measure_async(pipeline, TEXTS[:5], rounds=2)
    assert plain > 0
    assert awaited > 0


def test_the_commands_print_what_was_measured() -> None:
    batched = ("bench", "batching", "mock:", "--clients", "2", "--seconds", "0.02", "--rounds", "1")
    found = json.loads(ok(*batched, "--json"))
    assert found["encoder"] == "mock:"
    assert {"name", "rate", "p50_ms", "p99_ms", "batch"} == set(found["figures"][0])
    assert "2 clients" in ok(*batched)
    searched = ("bench", "async", "--encoder", "mock:", "--count", "3", "--rounds", "1")
    assert json.loads(ok(*searched, "--json"))["ratio"] > 0
    assert "AsyncPipeline" in ok(*searched)
