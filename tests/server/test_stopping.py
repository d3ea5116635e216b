"""What ends early: requests whose clients go, and the service itself."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from vlmsearch_mocks import MemoryStore

from tests.support.service import RunningService, serving
from vlmsearch import Document, GenerationOptions, Generator
from vlmsearch._util.cancellation import pause
from vlmsearch.server.settings import IndexSettings, ServerSettings

SETTINGS = ServerSettings(indexes={"default": IndexSettings("mock:", "mock:")}, threads=2)


class SlowGenerator(Generator):
    """A word every 20 ms, without end."""

    name = "slow"

    def __init__(self) -> None:
        self.made = 0
        self.stopped = threading.Event()

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        try:
            while True:
                self.made += 1
                pause(0.02)
                yield "word "
        finally:
            self.stopped.set()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    with serving(SETTINGS) as running:
        running.service.indexes["default"].pipeline.add(Document("a", text="a dog"))
        yield running


def slow_down(monkeypatch: pytest.MonkeyPatch, begun: threading.Event, go: Callable[[], object]) -> None:
    """Have searches of the store wait."""
    search = MemoryStore.search

    def slowly(self: MemoryStore, *args: Any, **options: Any) -> Any:
        begun.set()
        go()
        return search(self, *args, **options)

    monkeypatch.setattr(MemoryStore, "search", slowly)


def request(url: str, path: str, body: dict[str, object]) -> socket.socket:
    """A connection on which a request was sent."""
    host, _, port = url.removeprefix("http://").partition(":")
    data = json.dumps(body).encode()
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n".encode()
        + data
    )
    return connection


def until(is_so: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_client_that_goes_stops_the_generator(service: RunningService) -> None:
    generator = service.service.indexes["default"].pipeline.generator = SlowGenerator()
    connection = request(service.url, "/api/v1/indexes/default/ask", {"question": "a dog", "stream": True})
    assert b"event-stream" in connection.recv(4096)
    until(lambda: generator.made > 5)
    connection.close()
    assert generator.stopped.wait(60)
    until(lambda: service.service.threads.in_use == (0, 0))


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_early_frees_its_thread(
    service: RunningService, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    begun, gone = threading.Event(), threading.Event()

    def wait() -> None:
        try:
            pause(30)
        finally:
            gone.set()

    slow_down(monkeypatch, begun, wait)
    connection = request(service.url, "/api/v1/indexes/default/ask", {"question": "a dog", "stream": stream})
    assert begun.wait(60)
    connection.close()
    assert gone.wait(60)
    until(lambda: service.service.threads.in_use == (0, 0))
    assert service.http.get("/healthz").status_code == 200


def test_a_full_server_says_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()
    slow_down(monkeypatch, begun, lambda: go.wait(30))
    with serving(SETTINGS) as service:
        service.service.indexes["default"].pipeline.add(Document("a", text="a dog"))
        room = 2 + 16 * 2
        path = "/api/v1/indexes/default/search"
        waiting: Sequence[socket.socket] = [request(service.url, path, {"text": "dog"}) for _ in range(room)]
        until(lambda: service.service.threads.in_use == (2, room - 2))
        refused = service.http.post(path, json={"text": "dog"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        go.set()
        for connection in waiting:
            assert connection.recv(64).startswith(b"HTTP/1.1 200")
            connection.close()
