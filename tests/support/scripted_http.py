"""An HTTP server that answers what a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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

    url: str
    answers: list[Answer]
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0


@contextmanager
def scripted_server(*answers: Answer) -> Iterator[ScriptedServer]:
    """A server on a free port of this machine."""
    script = ScriptedServer("", list(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            script.connections += 1
            super().setup()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            script.requests.append((self.command, self.path, dict(self.headers.items()), body))
            answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            self.close_connection = answer.status is None or answer.is_last
            if answer.status is None:
                return
            data = answer.body if isinstance(answer.body, bytes) else answer.body(str(self.headers))
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(data)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST  # noqa: N815 - the names are the standard library's
        do_DELETE = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        script.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="scripted http")
        thread.start()
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()
