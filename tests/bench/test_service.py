"""`vlmsearch bench serve`: what many clients get of a service, beside a pipeline."""

from __future__ import annotations

import json

import pytest

from tests.support.cli import assert_one_line, ok, run
from tests.support.scripted_http import Answer, scripted_server
from tests.support.service import RunningService

OPTIONS = ("--clients", "1,3", "--seconds", "0.05", "--rounds", "2")


@pytest.mark.parametrize("verb", ["search", "embed"])
def test_a_service_is_timed_beside_a_pipeline(running_service: RunningService, verb: str) -> None:
    given = ("bench", "serve", running_service.url, "--index", "notes", "--verb", verb, "--encoder", "mock:", *OPTIONS)
    figures = json.loads(ok(*given, "--store", "mock:", "--json"))["figures"]
    assert [(figure["who"], figure["clients"]) for figure in figures] == [
        ("service", 1), ("pipeline", 1), ("service", 3), ("pipeline", 3),
    ]  # fmt: skip
    for figure in figures:
        assert figure["rate"] > 0
        assert 0 < figure["p50_ms"] <= figure["p99_ms"]
    said = ok(*given)
    assert "service" in said
    assert "pipeline" not in said


def test_a_service_that_cannot_be_measured_is_told(running_service: RunningService) -> None:
    for url, index, message in (
        (running_service.url, "empty", "is empty"),
        (running_service.url, "nowhere", "answered 404"),
        ("http://127.0.0.1:1", "notes", "cannot be reached"),
    ):
        assert_one_line(run("bench", "serve", url, "--index", index, *OPTIONS), message)


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[" * 100_000, b"[]", b'{"data": 5}', b'{"documents": 1e999, "data": [1]}', b"\xff"]
)
def test_an_answer_of_another_server_is_one_line(answer: bytes) -> None:
    with scripted_server(Answer(200, answer)) as server:
        for verb in ("search", "embed"):
            failed = run("bench", "serve", server.url, "--verb", verb, *OPTIONS)
            assert_one_line(failed, "sent what is not an answer of vlmsearch")
