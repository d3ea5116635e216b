"""HTTP servers on a free port of this machine; one of them answers what a test tells it to."""

from __future__ import annotations

import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    """One answer to all methods, which `answer` gives, over connections that are kept."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """Head and body leave together: a small packet waits until the one before has been confirmed."""

    def answer(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.answer()

    do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815 - the names are the standard library's

    def log_message(self, *_: object) -> None:
        pass

    def body(self) -> bytes:
        """What was sent."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def send(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Answer."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class QuietServer(ThreadingHTTPServer):
    """A server that does not mind when its clients go."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that has gone is no error
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def running(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL of a server."""
    with QuietServer(("127.0.0.1", 0), handler) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="http")
        thread.start()
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Answer:
    """What is sent back: None as a status closes the connection without a word.

    A body may be a function of the headers that were sent.
    """

    status: int | None
    body: bytes | Callable[[str], bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    is_last: bool = False
    """Whether the connection is closed after it, which the client is not told."""


@dataclass
class ScriptedServer:
    """The answers that are left to give, the last one again and again; and what was asked."""

    answers: list[Answer]
    url: str = ""
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0


@contextmanager
def scripted_server(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """A server on a free port of this machine."""
    script = ScriptedServer(list(answers))

    class Handler(QuietHandler):
        def setup(self) -> None:
            script.connections += 1
            super().setup()

        def answer(self) -> None:
            script.requests.append((self.command, self.path, dict(self.headers.items()), self.body()))
            answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            self.close_connection = answer.status is None or answer.is_last
            if answer.status is not None:
                data = answer.body if isinstance(answer.body, bytes) else answer.body(str(self.headers))
                self.send(answer.status, data, answer.headers)

    with running(Handler, tls) as script.url:
        yield script
