"""HTTP/1.1 to one server: connections that are kept, limits of answers, streams of events, and further attempts."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TypeVar

import httpx

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


@dataclass(frozen=True)
class HttpOptions(AttemptOptions):
    """Options of the back ends that use a model server. In a URL, each is one of the back end.

    Attributes:
        timeout: Seconds that the server may be silent, from 0.001 to 1,000,000.
        connect_timeout: Seconds that it may take to connect, likewise.
        retries: Number of further attempts, from 0 to 20, while the server is unreachable, busy or starting.
        key_variable: Environment variable with the key, whose name ends in ``_API_KEY``; by default the back end's.
        plaintext_key: Whether the key may cross a network without TLS, for one that is trusted. Without it, over plain
            HTTP, the key is sent to this machine alone.
    """

    timeout: float = seconds(60.0)
    connect_timeout: float = seconds(10.0)
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
        self._timeouts = httpx.Timeout(options.timeout, connect=options.connect_timeout, pool=None).as_dict()
        try:
            self._client = httpx.Client(
                verify=tls_context() if is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=_MAX_IDLE),
                trust_env=uses_proxies and not is_loopback(self.host),
            )
        except (ImportError, OSError, ValueError) as exc:
            raise ConfigError(f"{self.name}: the environment's proxy or certificates cannot be used: {exc}") from exc

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
        request = httpx.Request(
            method,
            self.url + target,
            content=data,
            headers={**headers, **trace_headers()},
            extensions={"timeout": self._timeouts},
        )
        try:
            with closing(self._send(request)) as response, on_cancel(partial(_hang_up, response)):
                yield response
        except httpx.HTTPError as exc:
            check_cancelled()  # the connection was broken for that
            raise BackendUnavailableError(f"{self.name} {self._reason(exc)}") from exc

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
            self._check_length(data, max_bytes)
        return bytes(data)

    def events(self, response: httpx.Response, max_bytes: int) -> Iterator[tuple[str, str]]:
        """Yield the name and the data of each event of a stream. See section 9.2.6 of WHATWG HTML.

        One that the end of the stream cuts off is left out.

        Raises:
            BackendError: It is compressed, or a line is longer than ``max_bytes``.
        """
        self._check_plain(response)
        name, data = "", list[str]()
        for line in self._lines(response.iter_raw(), max_bytes):
            key, _, value = line.partition(":")
            if not line:
                if data:
                    yield name, "\n".join(data)
                name, data = "", []
            elif key == "event":
                name = value.removeprefix(" ")
            elif key == "data":
                data.append(value.removeprefix(" "))

    def _lines(self, pieces: Iterable[bytes], max_bytes: int) -> Iterator[str]:
        """Yield lines, which end in LF or CR LF alone: text in JSON may hold every other separator of Unicode."""
        rest = bytearray()
        for piece in pieces:
            *ends, tail = piece.split(b"\n")
            for end in ends:
                yield (rest + end).removesuffix(b"\r").decode("utf-8", "replace")
                rest.clear()
            rest += tail
            self._check_length(rest, max_bytes)

    def _check_plain(self, response: httpx.Response) -> None:
        if is_packed(response):
            raise BackendError(f"{self.name} sent a compressed answer, which was not asked for")

    def _check_length(self, data: bytearray, max_bytes: int) -> None:
        if len(data) > max_bytes:
            raise BackendError(f"{self.name} sent more than {max_bytes:,} bytes, which no such answer has")

    def _reason(self, exc: httpx.HTTPError) -> str:
        known: dict[type[Exception], str] = {
            httpx.ConnectError: "cannot be reached",
            httpx.ConnectTimeout: "did not accept a connection in time",
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


def _hang_up(response: httpx.Response) -> None:
    """Break the connection of a response that another thread waits for. Closing it would not wake that up."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream else None
    if connection is not None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


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
