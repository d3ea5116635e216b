"""Clients that send too much or too slowly, over real connections to uvicorn."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from random import Random

import httpx
import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.support.service import RunningService, free_socket
from vlmsearch.server.limits import BodyLimits, TokenBuckets

MOST = 1000


class Tiny:
    """An application that answers with the length of the body; of ``/stream`` it gives more than a socket holds."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        answer: Response
        if scope["path"] == "/stream":
            answer = StreamingResponse(self._endless())
        else:
            answer = JSONResponse(len(await request.body()))
        await answer(scope, receive, send)

    async def _endless(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 65536
                await asyncio.sleep(0)
        finally:
            self.stopped.set()


@pytest.fixture(scope="module")
def app() -> Tiny:
    return Tiny()


@pytest.fixture(scope="module")
def address(app: Tiny) -> Iterator[tuple[str, int]]:
    limited = BodyLimits(app, max_bytes=MOST, grace=0.5, min_rate=500)
    server = uvicorn.Server(
        uvicorn.Config(limited, http="h11", ws="none", log_config=None, lifespan="off", timeout_keep_alive=30)
    )
    with free_socket() as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listening.getsockname()
        server.should_exit = True
        thread.join(30)


def connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    data = b""
    try:
        while more := connection.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


def head(length: int | None, path: str = "/") -> bytes:
    body = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{body}\r\n\r\n".encode()


def answer_of(connection: socket.socket) -> tuple[int, object]:
    """Status and JSON of the next answer."""
    file = connection.makefile("rb")
    status = int(file.readline().split()[1])
    length = 0
    while (line := file.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return status, json.loads(file.read(length))


def test_a_body_within_the_limit_passes(address: tuple[str, int]) -> None:
    url = f"http://{address[0]}:{address[1]}/"
    assert httpx.post(url, content=b"x" * MOST).json() == MOST
    assert httpx.post(url, content=iter([b"x" * 400] * 2)).json() == 800


def test_a_body_that_says_it_is_too_long_is_not_waited_for(address: tuple[str, int]) -> None:
    with closing(connect(address)) as connection:
        connection.sendall(head(10**15))
        status, said = answer_of(connection)
    assert status == 413
    assert isinstance(said, dict)
    assert said["error"]["type"] == "too_large"
    assert "1,000 bytes" in said["error"]["message"]


def test_a_body_that_does_not_say_it_is_too_long_is_counted(address: tuple[str, int]) -> None:
    with closing(connect(address)) as connection:
        connection.sendall(head(None) + (b"%x\r\n" % 600 + b"x" * 600 + b"\r\n") * 2)
        assert answer_of(connection)[0] == 413


def test_a_client_that_sends_on_after_it_was_refused_can_read_why(address: tuple[str, int]) -> None:
    with closing(connect(address)) as connection:
        connection.sendall(head(500_000) + b"x" * 500_000)
        assert answer_of(connection)[0] == 413
        connection.sendall(head(3) + b"abc")
        assert answer_of(connection) == (200, 3)


@pytest.mark.parametrize("pause", [0.1, 60])
def test_a_body_that_comes_too_slowly_is_refused(address: tuple[str, int], pause: float) -> None:
    started = time.monotonic()
    with closing(connect(address)) as connection:
        connection.sendall(head(100) + b"x")
        connection.settimeout(pause)
        data = b""
        while not data:
            try:
                data = connection.recv(65536)
            except TimeoutError:
                connection.sendall(b"x")
        connection.settimeout(60)
        while b"request_id" not in data:
            data += connection.recv(65536)
    assert data.split()[1] == b"408"
    assert b"500 bytes a second" in data
    assert 0.4 < time.monotonic() - started < 50


def test_a_slow_body_within_the_pace_passes(address: tuple[str, int]) -> None:
    with closing(connect(address)) as connection:
        connection.sendall(head(900))
        for _ in range(6):
            connection.sendall(b"x" * 150)
            time.sleep(0.15)
        assert answer_of(connection) == (200, 900)


def test_a_half_closed_body_harms_nobody(address: tuple[str, int], caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        with closing(connect(address)) as connection:
            connection.sendall(head(100) + b"x" * 10)
            connection.shutdown(socket.SHUT_WR)
            assert b" 200 " not in read_all(connection)
    assert httpx.post(f"http://{address[0]}:{address[1]}/", content=b"abc").json() == 3


def test_a_connection_may_rest_between_requests(address: tuple[str, int]) -> None:
    with closing(connect(address)) as connection:
        for _ in range(2):
            connection.sendall(head(3) + b"abc")
            assert answer_of(connection) == (200, 3)
            time.sleep(0.8)


def test_two_requests_at_once_are_both_answered(address: tuple[str, int]) -> None:
    with closing(connect(address)) as connection:
        connection.sendall(head(3) + b"abc" + head(2) + b"ab")
        time.sleep(0.8)
        connection.shutdown(socket.SHUT_WR)
        said = read_all(connection)
    assert said.count(b" 200 ") == 2


def test_a_reader_that_reads_is_not_left(address: tuple[str, int], app: Tiny) -> None:
    app.stopped.clear()
    with closing(connect(address)) as connection:
        connection.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        ends = time.monotonic() + 1.5
        while time.monotonic() < ends:
            assert connection.recv(65536)
            time.sleep(0.001)
        assert not app.stopped.is_set()
    assert app.stopped.wait(60)


def test_the_service_refuses_bodies_beyond_its_setting(running_service: RunningService) -> None:
    url = httpx.URL(running_service.url)
    with closing(connect((url.host, url.port or 0))) as connection:
        connection.sendall(head(64 * 2**20 + 1, "/api/v1/indexes/notes/search"))
        said = connection.recv(65536)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"x-content-type-options: nosniff" in said


def test_the_service_refuses_a_head_without_end(running_service: RunningService) -> None:
    url = httpx.URL(running_service.url)
    endless = b"GET / HTTP/1.1\r\n" + b"X-Header: y\r\n" * 1_000_000
    with (
        closing(connect((url.host, url.port or 0))) as connection,
        pytest.raises((BrokenPipeError, ConnectionResetError)),
    ):
        connection.sendall(endless)
    with closing(connect((url.host, url.port or 0))) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 70_000)
        assert read_all(connection).startswith(b"HTTP/1.1 400 ")


def damaged_requests(count: int) -> Iterator[bytes]:
    """Requests of the service with some bytes changed, left out, put in or repeated, the same at each run."""
    random = Random(0)
    body = b'{"text": "a dog", "limit": 3, "where": {"n": {"$lt": 3}}, "model": "notes/clip", "input": "a"}'
    paths = [b"/api/v1/indexes/notes/search", b"/v1/embeddings", b"/rerank", b"/api/v1/indexes/notes/image?id=a", b"/"]
    for _ in range(count):
        start = random.choice([b"POST", b"GET"]) + b" " + random.choice(paths) + b" HTTP/1.1\r\nHost: localhost\r\n"
        data = bytearray(start + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        for _ in range(random.randint(1, 6)):
            at, other = random.randrange(len(data)), random.randrange(len(data))
            piece = random.choice([random.randbytes(3), data[min(at, other) : max(at, other)], b"", b"\r\n", b"\x00"])
            data[at : at + random.randint(0, 3)] = piece
        yield bytes(data)


def check_damaged_requests(service: RunningService, count: int) -> None:
    url = httpx.URL(service.url)
    answered = 0
    for data in damaged_requests(count):
        with closing(connect((url.host, url.port or 0))) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            said = read_all(connection)
        answered += bool(said)
        assert not re.search(rb"HTTP/1.1 5\d\d", said), (data, said)
        assert b"Traceback" not in said
    assert answered > count / 3
    assert service.http.get("/readyz").status_code == 200


def test_damaged_requests_are_no_errors_of_the_server(running_service: RunningService) -> None:
    check_damaged_requests(running_service, 300)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_ten_thousand_damaged_requests_are_no_errors_of_the_server(running_service: RunningService) -> None:
    check_damaged_requests(running_service, 10_000)


def test_a_bucket_fills_again() -> None:
    now = [0.0]
    buckets = TokenBuckets(2, clock=lambda: now[0])
    taken = [buckets.take("page") for _ in range(21)]
    assert taken == [0.0] * 20 + [0.5]
    now[0] = 0.5
    assert [buckets.take("page"), buckets.take("page")] == [0.0, 0.5]
    now[0] = 1000
    assert [buckets.take("page") for _ in range(21)] == [0.0] * 20 + [0.5]
