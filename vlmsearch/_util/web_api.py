"""The JSON interface of a server over HTTP: its key, what passes by itself, answers of bounded size, and errors."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from email.utils import parsedate_to_datetime
from functools import cache, partial
from typing import Any, TypeVar

import httpx

from vlmsearch._util.address import parse_address
from vlmsearch._util.cancellation import check_cancelled, on_cancel, pause
from vlmsearch._util.closable import Closable
from vlmsearch._util.credentials import check_unencrypted, redact
from vlmsearch._util.retry import check_seconds, pauses
from vlmsearch._util.strict_json import parse_json
from vlmsearch._util.tracing import trace_headers
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, VlmsearchError, one_line

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

OPENAI_KEY = "OPENAI_API_KEY"
"""Environment variable with the key, unless another one is named."""
LONGEST_WAIT = 30.0
"""Seconds that a server may ask to wait; for more, the caller decides."""
_ERROR_BYTES = 2**16
"""Bytes that are read of an answer that is an error."""
_BUSY = frozenset({429, 502, 503, 504})
_REFUSED = frozenset({400, 413, 422})
_FAILED_DEPENDENCY = 424
"""Status of text-embeddings-inference for a failure of the model."""
_TOO_LONG = re.compile(
    r"context[ _-]?(length|size|window)|max_(seq_len|model_len)|maximum (input |sequence |allowed )*(length|token)"
    r"|less than \d+ tokens|too long",
    re.IGNORECASE,
)
_KEY_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*_API_KEY")


class Passing(Exception):  # noqa: N818 - no error yet: another try may help
    """``error`` unless a further try, ``wait`` seconds from now at the earliest, does better."""

    def __init__(self, error: VlmsearchError, *, wait: float = 0.0, at_once: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait = wait
        self.at_once = at_once


class RefusedError(Exception):
    """A request whose content the server refused; whoever asked knows whether an item or an option is wrong.

    Attributes:
        status: Status of the answer: 400, 413 or 422.
        message: Reason, in the words of the server.
        error: Error for a request that is wrong as a whole.
    """

    def __init__(self, name: str, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.error = ConfigError(f"{name} refused the request ({status}: {message})")

    @property
    def is_too_long(self) -> bool:
        """Return whether the request was larger than the server or the model reads."""
        return self.status == 413 or _TOO_LONG.search(self.message) is not None


class JsonApi(Closable):
    """The interface of a server under a base URL. Several threads may use it; nothing is sent before it is used.

    Args:
        scheme: Name of the back end, for messages.
        location: Base URL, such as ``http://host:8000/v1``.
        timeout: Seconds that the server may be silent.
        connect_timeout: Seconds that it may take to connect.
        retries: Number of further attempts while the server is unreachable, busy or starting.
        key_variable: Environment variable with the key; its name ends in ``_API_KEY``.
        plaintext_key: Whether the key may cross a network without TLS.
        hint: End of the message where the server has nothing under a path.

    Raises:
        ConfigError: A value cannot be used, or the key would cross a network in plain text.
    """

    def __init__(
        self,
        scheme: str,
        location: str,
        *,
        timeout: float,
        connect_timeout: float,
        retries: int,
        key_variable: str = OPENAI_KEY,
        plaintext_key: bool = False,
        hint: str = "the base URL usually ends in /v1",
    ) -> None:
        if retries < 0:
            raise ConfigError(f"retries is at least 0, not {retries}")
        check_seconds(timeout=timeout, connect_timeout=connect_timeout)
        if not _KEY_VARIABLE.fullmatch(key_variable):  # the message does not repeat what may be the key itself
            raise ConfigError(f"{scheme}: key_variable is the name of an environment variable that ends in _API_KEY")
        url = _base_url(scheme, location, key_variable)
        self.name = f"{scheme}:{url}"
        self.retries = retries
        self.key_variable = key_variable
        self.key = os.environ.get(key_variable, "").strip()  # a key from a file comes with the end of its line
        if not (self.key.isascii() and self.key.isprintable()):
            raise ConfigError(f"{key_variable} holds characters that no key has")
        if self.key and url.scheme == "http" and not plaintext_key:
            advice = "use https://, or say ?plaintext_key=true where that network is trusted"
            check_unencrypted(key_variable, url.host, advice)
        self._hint = hint
        self.client = httpx.Client(
            base_url=url,
            headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {self.key}"} if self.key else {})},
            verify=_tls_context(),
            timeout=httpx.Timeout(timeout, connect=connect_timeout, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
        )

    def post(self, path: str, body: Mapping[str, object], *, max_bytes: int) -> Any:
        """Send a request, again while the server is away or busy, and return the JSON of the answer.

        Args:
            path: Path below the base URL.
            body: What is asked, as JSON.
            max_bytes: Size of the largest answer that is read.

        Returns:
            The parsed answer.

        Raises:
            RefusedError: The server refused the content of the request.
            ConfigError: The server refused the key or the path.
            BackendError: The server failed, or sent what is not JSON or is too large.
        """
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        return self._ask("POST", path, data, max_bytes)

    def get(self, path: str, *, max_bytes: int) -> Any:
        """Return the JSON under a path; errors as `post`, and ConfigError for a request that is refused."""
        try:
            return self._ask("GET", path, None, max_bytes)
        except RefusedError as exc:
            raise exc.error from exc

    def _ask(self, method: str, path: str, data: bytes | None, max_bytes: int) -> Any:
        waits = pauses(self.retries)
        while True:
            check_cancelled()
            try:
                return self._ask_once(method, path, data, max_bytes)
            except Passing as exc:
                seconds = next(waits, None)
                if seconds is None:
                    raise exc.error from exc.__cause__
                pause(max(seconds, exc.wait))

    def _ask_once(self, method: str, path: str, data: bytes | None, max_bytes: int) -> Any:
        self.check_open()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        request = self.client.build_request(method, path, content=data, headers={**headers, **trace_headers()})
        try:
            response = self.client.send(request, stream=True)
            with closing(response), on_cancel(partial(hang_up, response)):
                if not response.is_success:
                    raise self.failure(response)
                text = self._read(response, max_bytes)
        except httpx.HTTPError as exc:
            check_cancelled()  # the connection was broken for that
            raise self.passing(exc) from exc
        try:
            return parse_json(text.decode())
        except ValueError as exc:
            raise self.other("JSON", text.decode("utf-8", "replace")) from exc

    def _read(self, response: httpx.Response, max_bytes: int) -> bytes:
        """Return the body, which is not unpacked: a few bytes may hold gigabytes."""
        if _is_packed(response):
            raise BackendError(f"{self.name} sent a compressed answer, which was not asked for")
        data = bytearray()
        for piece in response.iter_raw():
            data += piece
            if len(data) > max_bytes:
                raise BackendError(f"{self.name} sent more than {max_bytes:,} bytes, which no such answer has")
        return bytes(data)

    def failure(self, response: httpx.Response) -> Exception:
        """Return the error for an unread response that is none of success: `Passing` where another try may help."""
        message = self._detail(response)
        status, where = response.status_code, f"{self.name} "
        if status in (401, 403):
            what = f"refused the key in {self.key_variable}" if self.key else f"needs a key: set {self.key_variable}"
            return ConfigError(f"{where}{what} ({status}: {message})")
        if status == 404:
            return ConfigError(f"{where}has nothing there ({message}): {self._hint}")
        if status in _REFUSED:
            return RefusedError(self.name, status, message)
        if status in _BUSY:
            wait, asked = wait_asked(response), response.headers.get("retry-after", "")
            when = f", and asks to wait {asked} s" if asked.isdecimal() else ""
            busy = f"{where}is busy or starting ({status}: {message}){when}"
            return Passing(BackendUnavailableError(busy), wait=wait) if wait <= LONGEST_WAIT else _away(busy, wait)
        if status >= 500 or status == _FAILED_DEPENDENCY:
            return BackendError(f"{where}failed ({status}: {message})")
        return ConfigError(f"{where}refused the request ({status}: {message})")

    def _detail(self, response: httpx.Response) -> str:
        """Return what a response says of its error, in one line; the key is never in it."""
        data = bytearray()
        for piece in () if _is_packed(response) else response.iter_raw():
            data += piece
            if len(data) >= _ERROR_BYTES:
                break
        text = data[:_ERROR_BYTES].decode("utf-8", "replace")
        said: object = text
        with suppress(ValueError):
            said = parse_json(text)
        for name in ("error", "message", "detail"):
            if isinstance(said, dict) and name in said:
                said = said[name]
        return redact(str(said) or response.reason_phrase, [self.key], max_chars=300)

    def other(self, expected: str, data: str) -> BackendError:
        """Return the error for an answer that is not what was expected."""
        return BackendError(f"{self.name} sent what is not {expected}: {redact(data, [self.key], max_chars=100)!r}")

    def passing(self, exc: httpx.HTTPError) -> Exception:
        """Return the failure of a connection; another try helps unless the server was silent for too long."""
        error = self.lost(exc)
        return error if isinstance(exc, (httpx.ReadTimeout, httpx.WriteTimeout)) else Passing(error)

    def lost(self, exc: httpx.HTTPError) -> BackendUnavailableError:
        """Return the error of a connection that failed."""
        known: dict[type[Exception], str] = {
            httpx.ConnectError: "cannot be reached",
            httpx.ConnectTimeout: "did not accept a connection in time",
            httpx.ReadTimeout: "was silent for too long; a larger ?timeout= waits longer",
        }
        what = known.get(type(exc), "broke the connection")
        return BackendUnavailableError(f"{self.name} {what} ({redact(one_line(exc), [self.key])})")

    def check_open(self) -> None:
        """Raise BackendError once it is closed."""
        if self.client.is_closed:
            raise BackendError(f"{self.name} is closed")

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


def in_parts(
    items: Sequence[Item],
    ask: Callable[[Sequence[Item]], Sequence[Outcome]],
    alone: Callable[[Item, RefusedError], Outcome],
) -> list[Outcome]:
    """Ask about items together and, where the server refuses them, about halves, to find those that it refuses.

    Args:
        items: At least one.
        ask: Asks about some items; raises RefusedError.
        alone: Takes one item that was refused by itself.

    Returns:
        An outcome for each item, in order.
    """
    try:
        return list(ask(items))
    except RefusedError as exc:
        if len(items) == 1:
            return [alone(items[0], exc)]
    middle = len(items) // 2
    return [*in_parts(items[:middle], ask, alone), *in_parts(items[middle:], ask, alone)]


def half_of(text: str) -> int:
    """Return the place after the last space of the first half of a text, or its middle; at least 1.

    >>> half_of("one two three four"), half_of("abcdef")
    (8, 3)
    """
    middle = len(text) // 2
    return max(text.rfind(" ", middle // 2, middle) + 1 or middle, 1)


def wait_asked(response: httpx.Response) -> float:
    """Return the seconds that a server asks to wait; 0 where it does not say."""
    asked = response.headers.get("retry-after", "0")
    try:
        return float(asked) if asked.replace(".", "", 1).isdecimal() else _until(asked)
    except ValueError:
        return 0.0


def hang_up(response: httpx.Response) -> None:
    """Break the connection of a response that another thread may be waiting for; closing it would not wake that up."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream else None
    if connection is not None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the trusted certificates; reading them takes longer than all else that opening a client does."""
    return httpx.create_ssl_context()


def _is_packed(response: httpx.Response) -> bool:
    return str(response.headers.get("content-encoding", "identity")) != "identity"


def _away(message: str, wait: float) -> BackendUnavailableError:
    return BackendUnavailableError(message, retry_after=wait)


def _until(date: str) -> float:
    return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())


def _base_url(scheme: str, location: str, key_variable: str) -> httpx.URL:
    """Return the base URL; ConfigError without repeating what may be a secret."""
    example = f"{scheme}: takes the base URL of a server, such as {scheme}:http://host:8000/v1"
    try:
        url = httpx.URL(location)
    except httpx.InvalidURL:
        raise ConfigError(example) from None
    if url.userinfo:
        raise ConfigError(f"the URL of {scheme}: takes no user and password; a key goes into {key_variable}")
    if url.scheme not in ("http", "https") or parse_address(url.netloc.decode()) is None:
        raise ConfigError(f"{example}, not {location}")
    return url.copy_with(path=url.path.rstrip("/"))
