"""HEAD works where GET does, and a refused method gets the list of those that work."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.service import RunningService, serving
from vlmsearch.server.settings import IndexSettings, ServerSettings

INDEX = "/api/v1/indexes/notes"
READ = ["GET", "HEAD"]
PATHS = {
    "/": READ,
    "/page/app.js": READ,
    "/healthz": READ,
    "/openapi.json": READ,
    "/v1/models/some/model": READ,
    f"{INDEX}/documents": [*READ, "POST"],
    f"{INDEX}/search": ["POST"],
    "/api/v1/jobs/x/cancel": ["POST"],
    "/api/v1/session": ["DELETE", "POST"],
}


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "PATCH", "BREW"])
@pytest.mark.parametrize("path", PATHS)
def test_a_refused_method_gets_those_that_work(running_service: RunningService, path: str, method: str) -> None:
    refused = running_service.http.request(method, path)
    assert refused.status_code == 405
    assert refused.headers["allow"].split(", ") == PATHS[path]
    assert refused.json()["error"]["type"] == "method_not_allowed"


@pytest.mark.parametrize("path", [path for path in PATHS if "GET" in PATHS[path]])
def test_head_has_the_headers_of_get(running_service: RunningService, path: str) -> None:
    got, head = (running_service.http.request(method, path) for method in READ)
    assert head.status_code == got.status_code
    assert head.content == b""
    varies = {"date", "x-request-id"}
    assert {k: v for k, v in head.headers.items() if k not in varies} == {
        k: v for k, v in got.headers.items() if k not in varies
    }


def test_head_of_what_is_posted_is_refused(running_service: RunningService) -> None:
    head = running_service.http.head(f"{INDEX}/search")
    assert (head.status_code, head.headers["allow"]) == (405, "POST")


def test_after_a_head_the_connection_goes_on(running_service: RunningService) -> None:
    """What is sent after the headers of HEAD would be taken for the next answer."""
    address = urlsplit(running_service.url)
    host = f"HTTP/1.1\r\nHost: {address.netloc}\r\n"
    asked = f"HEAD /healthz {host}\r\n" * 2 + f"GET /healthz {host}Connection: close\r\n\r\n"
    with socket.create_connection((address.hostname or "", address.port or 0), 30) as connection:
        connection.sendall(asked.encode())
        data = b"".join(iter(lambda: connection.recv(4096), b""))
    parts = data.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [part.partition(b"\r\n\r\n")[2] for part in parts] == [b"", b"", b'{"status":"ok"}']


def test_the_head_of_a_stream_ends_at_once(tmp_path: Path) -> None:
    settings = ServerSettings(
        indexes={"default": IndexSettings("mock:", "mock:", allow=(str(tmp_path),))}, uploads=str(tmp_path / "uploads")
    )
    table = "\n".join(json.dumps({"id": f"{n:06}", "text": f"text {n}"}) for n in range(60_000))
    (tmp_path / "many.jsonl").write_text(table)
    with serving(settings) as service:
        work = {"kind": "index", "paths": ["many.jsonl"]}
        job = service.http.post("/api/v1/indexes/default/jobs", json=work).json()["id"]
        head = service.http.head(f"/api/v1/jobs/{job}/events", timeout=30)
        assert head.headers["content-type"].startswith("text/event-stream")
        assert service.http.get(f"/api/v1/jobs/{job}").json()["state"] in ("queued", "running")
