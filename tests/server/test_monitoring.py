"""Request ids, spans of requests, and log lines."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Callable

import httpx
import pytest
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.parser import text_string_to_metric_families

from tests.support.service import RunningService
from tests.support.spans import Spans, trace_of
from vlmsearch._util.tracing import operation
from vlmsearch.search.query import Query
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


HOSTILE = "dog\n2026-01-01T00:00:00.000Z INFO ann POST / notes 200 1 ms\r\x1b[2J\x85\u2028\u202e\u2066"


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_a_client_sent_looks_like_no_other_line(
    running_service: RunningService, monkeypatch: pytest.MonkeyPatch, form: Log, lines: Callable[[], list[str]]
) -> None:
    def fail(_: object, queries: list[Query], *__: object) -> None:
        raise ZeroDivisionError(f"cannot divide {queries[0].text}" + "x" * 10_000_000)

    monkeypatch.setattr(type(running_service.service.indexes["notes"].pipeline), "_search", fail)
    with configured(form):
        assert running_service.http.post(SEARCH, json={"text": HOSTILE}).status_code == 500
        logging.getLogger("vlmsearch").error("cannot read %s", HOSTILE)
    written = lines()
    assert not any(
        re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", line) for line in written
    )
    assert sum(map(len, written)) < 1_000_000
    records = [json.loads(line)["logger"] for line in written] if form == "json" else []
    starts = [line for line in written if re.match(r"\d{4}-", line)]
    assert len(records or starts) == 3
    assert any("cannot divide dog" in line for line in written)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/v1/indexes/a%0d%0aINFO%20ann%1b%5b2J%E2%80%AE/image?id=%0aINFO HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /" + b"x" * 60_000 + b" HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: local\x1b[2Jhost\xe2\x80\xae\r\nX-Request-ID: a\x1b\x85b\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\ntraceparent: 00-\x1b[2J\r\nAuthorization: Bearer \x1b\xff\r\n",
        b"PROPFIND / HTTP/1.1\r\nHost: localhost\r\n",
        b"GE\x1bT / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /v1/models/%0aINFO%22%5c HTTP/1.1\r\nHost: localhost\r\nContent-Type: a\x1bb\r\nContent-Length: 0\r\n",
    ],
)
@pytest.mark.parametrize("form", ["json", "text"])
def test_no_head_of_a_request_forges_a_line_or_a_label(
    running_service: RunningService, form: Log, head: bytes, lines: Callable[[], list[str]]
) -> None:
    url = httpx.URL(running_service.url)
    with configured(form):
        with socket.create_connection((url.host, url.port or 0), 10) as connection:
            connection.sendall(head + b"Connection: close\r\n\r\n")
            while connection.recv(65536):
                pass
        figures = running_service.http.get("/metrics").text
    written = lines()
    assert len([line for line in written if "GET /metrics" not in line]) == 1  # that of the test before may come late
    assert all(line.isprintable() and len(line) < 1000 for line in written), written
    assert not any("INFO ann" in line or "xxx" in line for line in written)
    labels = {
        label
        for each in text_string_to_metric_families(figures)
        for one in each.samples
        for label in one.labels.values()
    }
    assert all(label.isprintable() and len(label) < 200 for label in labels)
    assert not any("INFO" in label or "PROPFIND" in label for label in labels)
