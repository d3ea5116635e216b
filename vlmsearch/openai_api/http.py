"""HTTP/1.1 to one server: connections that are kept, limits of answers, streams of events, and further attempts."""

from __future__ import annotations

import math
import os
import socket
import ssl
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from io import IncrementalNewlineDecoder
from itertools import chain
from typing import Any, TypeVar

import httpcore
import httpx
from typing_extensions import Self

from vlmsearch._util.address import is_loopback, parse_address
from vlmsearch._util.cancellation import check_cancelled, on_cancel
from vlmsearch._util.closable import Closable
from vlmsearch._util.credentials import check_unencrypted, redact
from vlmsearch._util.retry import AttemptOptions, retrying, seconds
from vlmsearch._util.tracing import trace_headers
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, OverloadedError, one_line

T = TypeVar("T")
MAX_WAIT = 60.0
"""Seconds that a server may ask to wait; for more, the caller decides."""
_MAX_IDLE = 32
"""Maximum number of connections that are kept while nobody uses them."""
_SILENCES = 10
"""Times of silence that a whole answer may take, unless an option says it."""
_WRITE_BYTES = 2**16
"""Bytes that are sent in one step of a request, whose time is counted."""
_FIRST_BYTES = 2**16
"""Bytes that are read of an answer that is an error, or of another kind."""


@dataclass(frozen=True)
class HttpOptions(AttemptOptions):
    """Options of the back ends that use a model server. In a URL, each is one of the back end.

    Attributes:
        timeout: Seconds that the server may be silent, from 0.001 to 1,000,000.
        connect_timeout: Seconds that it may take to connect, likewise.
        answer_timeout: Seconds that a request and its whole answer may take, likewise; by default ten times
            ``timeout``.
        retries: Number of further attempts, from 0 to 20, while the server is unreachable, busy or starting.
        key_variable: Environment variable with the key, whose name ends in ``_API_KEY``; by default the back end's.
        plaintext_key: Whether the key may cross a network without TLS, for one that is trusted. Without it, over plain
            HTTP, the key is sent to this machine alone.
    """

    timeout: float = seconds(60.0)
    connect_timeout: float = seconds(10.0)
    answer_timeout: float | None = seconds(None)
    key_variable: str = ""
    plaintext_key: bool = False


DEFAULT_OPTIONS = HttpOptions()


class HttpClient(Closable):
    """Requests to one server. Several threads may use it; nothing is sent before it is used.

    A connection that the server closed is replaced. Redirects are not followed, cookies are not kept, and the name and
    password of a ``.netrc`` are not sent. The certificates of this machine and those of Mozilla are trusted.

    Args:
        url: ``http://host:8080`` or ``https://host/prefix``.
        options: Times, attempts, and where the key is.
        key: Secret that every request carries, "" for none; by default that in the environment.
        advice: How to encrypt a connection, for the message.
        uses_proxies: Whether the proxies of the environment are used, for every server but this machine.
        scheme: Name of the back end with a colon, for messages.

    Attributes:
        url: The URL without a slash at its end.
        name: The URL behind the scheme.
        host: Name or address of the server.
        key: Secret without white space around it.

    Raises:
        ConfigError: A value cannot be used, or the secret would cross a network in plain text.
    """

    def __init__(
        self,
        url: str,
        options: HttpOptions,
        *,
        key: str | None = None,
        advice: str = "give an https:// URL",
        uses_proxies: bool = False,
        scheme: str = "",
    ) -> None:
        limit = options.answer_timeout
        self._answer_timeout = _SILENCES * options.timeout if limit is None else limit
        parsed = _server_url(url, scheme, options.key_variable)
        self.url = str(parsed).rstrip("/")
        self.host = parsed.raw_host.decode()
        self.name = scheme + self.url
        self.options = options
        given = os.environ.get(options.key_variable, "") if key is None else key
        self.key = given.strip()  # a key from a file comes with the end of its line
        if not (self.key.isascii() and self.key.isprintable()):
            raise ConfigError(f"{options.key_variable} holds characters that no key has")
        is_encrypted = parsed.scheme == "https"
        if self.key and not is_encrypted and not options.plaintext_key:
            check_unencrypted(options.key_variable, parsed.host, advice)
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "vlmsearch"}
        self._headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            self._client = httpx.Client(
                verify=tls_context() if is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=_MAX_IDLE),
                trust_env=uses_proxies and not is_loopback(self.host),
            )
        except (ImportError, OSError, ValueError) as exc:
            raise ConfigError(f"{self.name}: the environment's proxy or certificates cannot be used: {exc}") from exc
        transports: Iterable[Any] = (self._client._transport, *self._client._mounts.values())  # noqa: SLF001
        for transport in filter(None, transports):  # httpx has no argument for it
            transport._pool._network_backend = _Network()  # noqa: SLF001

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """Return a client of the same connections that sends further headers."""
        other = copy(self)
        other._headers = {**self._headers, **headers}  # noqa: SLF001
        return other

    @contextmanager
    def exchange(self, method: str, target: str, data: bytes | None = None) -> Iterator[httpx.Response]:
        """Send a request and yield the response, unread. The connection is kept where it was read to its end.

        Args:
            method: ``GET`` or ``POST``.
            target: Path and query below the URL, percent-encoded.
            data: JSON of the request.

        Raises:
            BackendUnavailableError: The server cannot be reached, went away or did not answer in time.
            BackendError: The client is closed.
        """
        check_cancelled()
        headers = {**self._headers, **({"Content-Type": "application/json"} if data is not None else {})}
        clock = _Clock(self._answer_timeout)
        silence = partial(clock.left, self.options.timeout)
        timeouts = {"connect": partial(clock.left, self.options.connect_timeout), "read": silence, "write": silence}
        request = httpx.Request(
            method,
            self.url + target,
            content=data,
            headers={**headers, **trace_headers()},
            extensions={"timeout": timeouts, "clock": clock},
        )
        try:
            with on_cancel(clock.cancel), closing(self._send(request)) as response:
                yield response
                check_cancelled()  # what ends where the connection was broken is no answer
        except httpx.HTTPError as exc:
            check_cancelled()  # the connection was broken for that
            raise BackendUnavailableError(f"{self.name} {self._reason(exc, clock)}") from exc

    def _send(self, request: httpx.Request) -> httpx.Response:
        try:
            return self._client.send(request, stream=True)
        except RuntimeError as exc:  # which httpx raises once it is closed
            raise BackendError(f"{self.name} is closed") from exc

    def again(self, attempt: Callable[[], T], *, is_repeatable: bool = True) -> T:
        """Return the result of an attempt, which is repeated while the server is away or busy.

        It is not repeated after a long silence. What is not repeatable is, where the server did not look at it.
        """

        def passes(exc: BackendError) -> bool:
            is_safe = is_repeatable or isinstance(exc, OverloadedError)
            is_silent = isinstance(exc.__cause__, (httpx.ReadTimeout, httpx.WriteTimeout))
            is_away = isinstance(exc, BackendUnavailableError) and exc.retry_after <= MAX_WAIT
            return is_away and is_safe and not is_silent

        return retrying(attempt, self.options.retries, passes)

    def read(self, response: httpx.Response, max_bytes: int) -> bytes:
        """Return the body, which is not unpacked: a few bytes may hold gigabytes.

        Raises:
            BackendError: It is compressed, or longer than ``max_bytes``.
        """
        self._check_plain(response)
        data = bytearray()
        for piece in response.iter_raw():
            data += piece
            self._check_length(len(data), max_bytes)
        return bytes(data)

    def events(self, response: httpx.Response, max_event: int, max_bytes: int | None) -> Iterator[tuple[str, str]]:
        """Yield the name and the data of each event of a stream. See section 9.2.6 of WHATWG HTML.

        One that the end of the stream cuts off is left out. Without ``max_bytes``, the stream may take any time.

        Raises:
            BackendError: It is of another type, compressed or too long, or an event is longer than ``max_event``.
        """
        self._check_plain(response)
        kind = response.headers.get("content-type", "").lower()
        is_stream = "text/event-stream" in kind
        if kind and not is_stream:
            raise self.other("a stream of events", self.beginning(response))
        if max_bytes is None:
            response.request.extensions["clock"].end = math.inf
        decoder = IncrementalNewlineDecoder(getincrementaldecoder("utf-8-sig")("replace"), translate=True)
        name, data, rest, size, total, first = "", list[str](), list[str](), 0, 0, b""
        for piece in chain(response.iter_raw(), (b"",)):
            first = first or piece
            size, total = size + len(piece), total + len(piece)
            self._check_length(size, max_event)
            self._check_length(total, max_bytes or total)
            *ends, tail = decoder.decode(piece, final=not piece).split("\n")
            for end in ends:
                line, rest = "".join([*rest, end]), []
                key, _, value = line.partition(":")
                if not line:
                    if data:
                        is_stream = True  # also one whose type is not said
                        yield name, "\n".join(data)
                    name, data, size = "", [], 0
                elif key == "event":
                    name = value.removeprefix(" ")
                elif key == "data":
                    data.append(value.removeprefix(" "))
            rest.append(tail)
        if not is_stream:
            raise self.other("a stream of events", first.decode("utf-8", "replace"))

    def beginning(self, response: httpx.Response) -> str:
        """Return the first bytes of a body as a text; "" of one that is compressed."""
        data = bytearray()
        for piece in () if is_packed(response) else response.iter_raw():
            data += piece
            if len(data) >= _FIRST_BYTES:
                break
        return data[:_FIRST_BYTES].decode("utf-8", "replace")

    def other(self, expected: str, data: str) -> BackendError:
        """Return the error for an answer that is not what was expected."""
        return BackendError(f"{self.name} sent what is not {expected}: {redact(data, [self.key], max_chars=100)!r}")

    def _check_plain(self, response: httpx.Response) -> None:
        if is_packed(response):
            raise BackendError(f"{self.name} sent a compressed answer, which was not asked for")

    def _check_length(self, size: int, max_bytes: int) -> None:
        if size > max_bytes:
            raise BackendError(f"{self.name} sent more than {max_bytes:,} bytes, which no such answer has")

    def _reason(self, exc: httpx.HTTPError, clock: _Clock) -> str:
        if isinstance(exc, httpx.TimeoutException) and time.monotonic() >= clock.end:
            option = "timeout" if self.options.answer_timeout is None else "answer_timeout"
            return f"did not end its answer within {self._answer_timeout:g} seconds; a larger {option} waits longer"
        known: dict[type[Exception], str] = {
            httpx.ConnectError: "cannot be reached: check its URL, and that it runs",
            httpx.ConnectTimeout: "did not accept a connection in time",
            httpx.WriteTimeout: f"took nothing for {self.options.timeout:g} seconds; a larger timeout waits longer",
            httpx.ReadTimeout: f"was silent for {self.options.timeout:g} seconds; a larger timeout waits longer",
        }
        return f"{known.get(type(exc), 'broke the connection')} ({redact(one_line(exc), [self.key])})"

    def check_open(self) -> None:
        """Raise BackendError once it is closed."""
        if self._client.is_closed:
            raise BackendError(f"{self.name} is closed")

    def close(self) -> None:
        """Close the connections; requests that are under way fail."""
        self._client.close()


def wait_asked(response: httpx.Response) -> float:
    """Return the seconds that a server asks to wait; 0 where it does not say."""
    asked = response.headers.get("retry-after", "0")
    try:
        if asked.replace(".", "", 1).isdecimal():
            return float(asked)
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    except ValueError:
        return 0.0


def is_packed(response: httpx.Response) -> bool:
    """Return whether a body is compressed."""
    return str(response.headers.get("content-encoding", "identity")) != "identity"


class _Clock:
    """The time that a request and its answer have, and the connection that they wait for."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self._stream: Any = None
        self._is_cancelled = False

    def left(self, max_seconds: float, stream: httpcore.NetworkStream | None = None) -> float:
        """Return how long a step may wait on a connection; ReadTimeout where the time is over."""
        self._stream = stream or self._stream
        left = self.end - time.monotonic()
        if self._is_cancelled or left <= 0:
            raise httpcore.ReadTimeout
        return min(max_seconds, left)

    def cancel(self) -> None:
        """Break the connection, for a thread that waits for it. Closing it would not wake that up."""
        self._is_cancelled = True
        with suppress(AttributeError, OSError):  # where there is none yet, or none any more
            self._stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class _Network(httpcore.SyncBackend):
    """Connections whose steps ask a clock how long they may wait. httpcore hands it on in place of seconds."""

    def connect_tcp(self, host: str, port: int, timeout: Any = None, *args: Any, **options: Any) -> _Stream:
        """Return a connection to a server or a proxy."""
        return _Stream(super().connect_tcp(host, port, timeout(), *args, **options), timeout)


class _Stream(httpcore.NetworkStream):
    """A connection; ``clock`` is for steps that httpcore gives no time, those of SOCKS."""

    def __init__(self, stream: Any, clock: Any) -> None:
        self._stream, self._clock = stream, clock
        self.close, self.get_extra_info = stream.close, stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: Any = None) -> Any:
        """Return what comes next; b"" at the end."""
        return self._stream.read(max_bytes, (timeout or self._clock)(self))

    def write(self, buffer: bytes, timeout: Any = None) -> None:
        """Send bytes."""
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._stream.write(buffer[start : start + _WRITE_BYTES], (timeout or self._clock)(self))

    def start_tls(self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: Any = None) -> Any:
        """Return the connection, encrypted from here on."""
        clock = timeout or self._clock
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, clock(self)), clock)


@cache
def tls_context() -> ssl.SSLContext:
    """Return the trusted certificates; reading them takes longer than all else that opening a client does."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context


def _server_url(text: str, scheme: str, key_variable: str) -> httpx.URL:
    """Return the URL of a server; ConfigError without repeating what may be a secret."""
    example = "a server is named by a URL such as http://127.0.0.1:8080"
    if scheme:
        example = f"{scheme} takes the base URL of a server, such as {scheme}http://host:8000/v1"
    try:
        url = httpx.URL(text)
        _ = url.host  # which is decoded where a name is in Punycode
    except (httpx.InvalidURL, ValueError):
        raise ConfigError(example) from None
    if url.userinfo:
        raise ConfigError(
            f"the URL of {scheme or 'a server'} takes no user and password; a key goes into {key_variable}"
        )
    if url.scheme not in ("http", "https") or parse_address(url.netloc.decode()) is None or url.query or url.fragment:
        raise ConfigError(f"{example}, not {text.partition('?')[0]}")
    return url
