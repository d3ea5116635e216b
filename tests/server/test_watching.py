"""Request ids, spans of requests, and log lines."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable

import httpx
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from tests.support.service import RunningService
from tests.support.spans import Spans, trace_of
from vlmsearch._util.tracing import operation
from vlmsearch.server.logs import REQUEST_ID, configured
from vlmsearch.server.settings import Log

SEARCH = "/api/v1/indexes/notes/search"
CALLER = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """What was logged."""
    return lambda: capsys.readouterr().err.splitlines()


def test_a_request_keeps_the_id_that_it_comes_with(running_service: RunningService) -> None:
    http = running_service.http
    assert http.get("/healthz", headers={"X-Request-ID": "abc-1.2_3"}).headers["X-Request-ID"] == "abc-1.2_3"
    for bad in ("", 'a"b', "x" * 129, "a b"):
        made = http.get("/healthz", headers={"X-Request-ID": bad}).headers["X-Request-ID"]
        assert re.fullmatch("[0-9a-f]{32}", made)


def test_an_error_names_the_id_of_its_request(running_service: RunningService) -> None:
    answer = running_service.http.post(SEARCH, json={"limit": 0, "text": "dog"}, headers={"X-Request-ID": "mine"})
    assert answer.json()["error"]["request_id"] == "mine" == answer.headers["X-Request-ID"]


def test_a_bug_is_logged_under_the_id_that_its_answer_has(
    running_service: RunningService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(type(running_service.service.indexes["notes"].pipeline), "_search", fail)
    answer = httpx.post(running_service.url + SEARCH, json={"text": "dog"}, headers={"X-Request-ID": "mine"})
    assert answer.status_code == 500
    assert answer.json()["error"]["request_id"] == "mine" == answer.headers["X-Request-ID"]
    assert "a bug" not in answer.text
    assert "request mine failed" in caplog.text


def test_a_search_is_one_trace_from_its_caller_to_the_store(running_service: RunningService, spans: Spans) -> None:
    headers = {"traceparent": f"00-{CALLER}-b7ad6b7169203331-01"}
    running_service.http.post(SEARCH, json={"text": "dog"}, headers=headers)
    request = spans.wait_for("POST /api/v1/indexes/{index}/search")
    assert {trace_of(span) for span in spans.all} == {CALLER}
    assert request.kind is SpanKind.SERVER
    assert request.attributes is not None
    assert request.attributes["http.route"] == "/api/v1/indexes/{index}/search"
    assert request.attributes["http.response.status_code"] == 200
    [search] = spans.named("search")
    assert spans.parent(search) == request.name
    assert spans.parent(spans.named("encode text")[0]) == "search"


def test_the_span_of_a_request_that_failed_says_so(
    running_service: RunningService, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(type(running_service.service.indexes["notes"].pipeline), "_search", fail)
    httpx.post(running_service.url + SEARCH, json={"text": "dog"})
    request = spans.wait_for("POST /api/v1/indexes/{index}/search")
    assert request.status.status_code is StatusCode.ERROR
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 500


def test_a_json_line_says_which_request_and_trace_it_is_about(lines: Callable[[], list[str]], spans: Spans) -> None:
    before = REQUEST_ID.set("mine")
    log = logging.getLogger("vlmsearch.audit")
    with configured("json"):
        with operation("GET", carrier={"traceparent": f"00-{CALLER}-b7ad6b7169203331-01"}):
            log.info("%s did %s", "ann", "GET /", extra={"who": "ann", "status": 200})
        REQUEST_ID.reset(before)
        log.error("it failed", exc_info=ZeroDivisionError("a bug\nof two lines"))
    first, second = map(json.loads, lines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info", "logger": "vlmsearch.audit", "message": "ann did GET /", "who": "ann", "status": 200,
        "request_id": "mine", "trace_id": CALLER,
    }  # fmt: skip
    assert second["level"] == "error"
    assert "ZeroDivisionError" in second["exception"]
    assert "request_id" not in second


@pytest.mark.parametrize("form", ["json", "text"])
def test_other_packages_log_what_is_wrong_alone(form: Log, lines: Callable[[], list[str]]) -> None:
    with configured(form):
        logging.getLogger("elsewhere").info("quiet")
        logging.getLogger("elsewhere").warning("loud")
    [line] = lines()
    assert "loud" in line


def test_what_was_set_before_is_set_again(lines: Callable[[], list[str]]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogger("vlmsearch").level
    with configured("text"):
        assert root.handlers != before[0]
    assert (root.handlers, root.level, logging.getLogger("vlmsearch").level) == before


def test_a_line_for_people_has_the_time_and_the_request(lines: Callable[[], list[str]]) -> None:
    before = REQUEST_ID.set("mine")
    with configured("text"):
        logging.getLogger("vlmsearch").info("it began")
    REQUEST_ID.reset(before)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z INFO it began \[mine\]", lines()[0])
