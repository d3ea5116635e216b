"""What many clients get is measured, whoever is measured."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from vlmsearch_mocks import MockEncoder

from benchmarks.batching import measure_async, measure_batching
from tests.support.cli import assert_one_line, ok, run
from tests.support.service import RunningService
from vlmsearch import Document, Pipeline
from vlmsearch.bench.service import ServiceClient, measure_service
from vlmsearch.errors import BackendError, ConfigError
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


@pytest.mark.parametrize("verb", ["search", "embed"])
def test_a_service_is_timed_beside_a_pipeline(
    running_service: RunningService, verb: Literal["search", "embed"]
) -> None:
    pipeline = running_service.service.indexes["notes"].pipeline
    with ServiceClient(running_service.url, "notes") as client:
        found = measure_service(client, pipeline, TEXTS, verb=verb, clients=[1, 3], seconds=0.05, rounds=2)
    assert [(figure.who, figure.clients) for figure in found] == [
        ("service", 1),
        ("pipeline", 1),
        ("service", 3),
        ("pipeline", 3),
    ]
    for figure in found:
        assert figure.rate > 0
        assert 0 < figure.p50_ms <= figure.p99_ms


def test_a_service_that_cannot_be_measured_is_told(running_service: RunningService) -> None:
    def measure(index: str) -> None:
        with ServiceClient(running_service.url, index) as client:
            measure_service(client, None, TEXTS, verb="search", clients=[1], seconds=0.05, rounds=1)

    with pytest.raises(ConfigError, match="is empty"):
        measure("empty")
    with pytest.raises(BackendError, match="answered 404"):
        measure("nowhere")


def test_bench_serve_starts_a_service_or_asks_one(running_service: RunningService) -> None:
    options = ("--clients", "2", "--seconds", "0.05", "--rounds", "1", "--encoder", "mock:")
    found = json.loads(ok("bench", "serve", *options, "--json"))
    assert [(each["who"], each["clients"]) for each in found["figures"]] == [("service", 2), ("pipeline", 2)]
    said = ok("bench", "serve", running_service.url, "--index", "notes", "--verb", "embed", *options)
    assert "service" in said
    assert "pipeline" not in said
    assert_one_line(run("bench", "serve", "http://127.0.0.1:1", *options), "cannot be reached")
