"""HTTP/1.1 to one server, over connections that are kept alive, with what Python has."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from vlmsearch._util.address import is_loopback
from vlmsearch._util.closable import Closable
from vlmsearch.errors import BackendUnavailableError, ConfigError, one_line

_MOST_IDLE = 16


class HttpConnections(Closable):
    """Connections to a server. Several threads may use them: each has a connection of its own while it asks.

    Args:
        url: ``http://host:8080`` or ``https://host/prefix``.
        timeout: Seconds without a byte after which a request fails.

    Raises:
        ConfigError: The URL is not of that form.
    """

    def __init__(self, url: str, *, timeout: float) -> None:
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError as exc:
            raise ConfigError(f"{url!r} is not the URL of a server: {exc}") from exc
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigError(f"a server is named by a URL such as http://127.0.0.1:8080, not {url!r}")
        if parts.username is not None or parts.query or parts.fragment:
            raise ConfigError("the URL of a server has no user name, query or fragment: http://127.0.0.1:8080")
        self.url = url.rstrip("/")
        self.is_encrypted = parts.scheme == "https"
        self.is_here = is_loopback(host)
        self.host = host
        self._port, self._prefix = port, parts.path.rstrip("/")
        self._timeout = timeout
        self._idle: list[HTTPConnection] = []
        self._lock = threading.Lock()

    @contextmanager
    def exchange(
        self, method: str, target: str, *, body: bytes | None = None, headers: dict[str, str]
    ) -> Iterator[HTTPResponse]:
        """Send a request and yield the response, unread; the connection is kept where it was read to its end.

        Raises:
            BackendUnavailableError: The server cannot be reached, went away or did not answer in time.
        """
        connection = self._take()
        is_kept = False
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before it read all
                connection.request(method, self._prefix + target, body, headers)
            response = connection.getresponse()
            yield response
            is_kept = response.isclosed() and not response.will_close
        except TimeoutError as exc:
            raise BackendUnavailableError(f"{self.url} did not answer in {self._timeout:g} seconds") from exc
        except (OSError, HTTPException) as exc:
            raise BackendUnavailableError(f"{self.url} cannot be reached: {one_line(exc)}") from exc
        finally:
            self._give(connection, is_kept)

    def _take(self) -> HTTPConnection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                kind = HTTPSConnection if self.is_encrypted else HTTPConnection
                return kind(self.host, self._port, timeout=self._timeout)
            if _is_quiet(connection):
                return connection
            connection.close()  # by the server, or in the middle of something

    def _give(self, connection: HTTPConnection, is_kept: bool) -> None:
        with self._lock:
            if is_kept and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections that nobody uses; a request that is under way closes its own."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _is_quiet(connection: HTTPConnection) -> bool:
    """Return whether a connection is open with nothing to read: a server that closes one writes its end."""
    if connection.sock is None:
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(connection.sock, selectors.EVENT_READ)
        return not selector.select(0)
