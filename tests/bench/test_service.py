"""`vlmsearch bench serve`: what many clients get of a service, beside a pipeline."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from tests.support.cli import assert_one_line, ok, run
from tests.support.service import RunningService
from vlmsearch.bench.service import ServiceClient, measure_service
from vlmsearch.errors import BackendError, ConfigError

TEXTS = [f"a dog of {number}" for number in range(40)]


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


def test_bench_serve_asks_a_service(running_service: RunningService) -> None:
    options = ("--clients", "2", "--seconds", "0.05", "--rounds", "1", "--encoder", "mock:")
    own = ("bench", "serve", running_service.url, "--index", "notes", "--verb", "embed")
    found = json.loads(ok(*own, *options, "--store", "mock:", "--json"))
    assert [(each["who"], each["clients"]) for each in found["figures"]] == [("service", 2), ("pipeline", 2)]
    said = ok(*own, *options)
    assert "service" in said
    assert "pipeline" not in said
    assert_one_line(run("bench", "serve", "http://127.0.0.1:1", *options), "cannot be reached")
