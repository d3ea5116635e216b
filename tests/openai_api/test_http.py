"""HTTP to one server: what is sent, what is kept, what is bounded, and what is said when it goes wrong."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import trustme

from tests.support.scripted_http import Answer, ScriptedServer, scripted_server
from vlmsearch import BackendError, BackendUnavailableError, ConfigError
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import OperationCancelledError
from vlmsearch.openai_api import http
from vlmsearch.openai_api.http import HttpClient, HttpOptions, tls_context

MIB = 2**20
PATIENT = HttpOptions(timeout=30)
VARIABLES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


@pytest.fixture
def silent() -> Iterator[str]:
    """URL of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def ask(server: ScriptedServer, *, uses_proxies: bool = False) -> bytes:
    with HttpClient(server.url, PATIENT, uses_proxies=uses_proxies) as client:
        return body_of(client)


def body_of(client: HttpClient, data: bytes | None = None) -> bytes:
    with client.exchange("GET" if data is None else "POST", "/", data) as response:
        return client.read(response, MIB)


def test_a_request_says_what_is_asked_and_nothing_that_a_server_said() -> None:
    cookie = {"Set-Cookie": "id=1"}
    answers = (Answer(200, b"{}", cookie), Answer(200, b"{}", cookie, is_last=True), Answer(200, b"{}"))
    with scripted_server(*answers) as server, HttpClient(server.url, PATIENT) as client:
        for data in (None, b"{}", None):
            with client.exchange("GET", "/a?b=c%2Fd", data) as response:
                client.read(response, MIB)
            time.sleep(0.1)  # until the server has closed the connection that it closes
    (method, target, headers, _), (*_, second, body), (*_, third, _) = server.requests
    assert (method, target, body, server.connections) == ("GET", "/a?b=c%2Fd", b"{}", 2)
    assert set(headers) == set(third) == {"Host", "Accept", "Accept-Encoding", "User-Agent"}
    assert set(second) - set(headers) == {"Content-Type", "Content-Length"}


def test_no_redirect_is_followed() -> None:
    with scripted_server(Answer(302, b"", {"Location": "/elsewhere"})) as server:
        assert ask(server) == b""
        assert len(server.requests) == 1


def test_a_server_is_known_by_the_certificates_that_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    monkeypatch.setattr("vlmsearch.openai_api.http.tls_context", tls_context.__wrapped__)
    with scripted_server(Answer(200, b"secret"), tls=tls) as server:
        with pytest.raises(BackendUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(server)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert ask(server) == b"secret"


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("uses_proxies", [False, True])
def test_no_proxy_stands_before_this_machine(
    variable: str, uses_proxies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with scripted_server(Answer(200, b"here")) as server:
        assert ask(server, uses_proxies=uses_proxies) == b"here"


@pytest.mark.parametrize(("uses_proxies", "asked"), [(False, 0), (True, 1)])
def test_a_proxy_of_the_environment_is_used_where_it_may_be(
    uses_proxies: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_server(Answer(200, b"proxy")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with HttpClient("http://no.such.invalid", HttpOptions(retries=0), uses_proxies=uses_proxies) as client:
            try:
                with client.exchange("GET", "/a") as response:
                    assert client.read(response, MIB) == b"proxy"
            except BackendUnavailableError:
                assert not uses_proxies
        assert [target for _, target, *_ in proxy.requests] == ["http://no.such.invalid/a"] * asked


def test_a_tunnel_through_a_proxy_is_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("no.such.invalid").configure_cert(tls)
    monkeypatch.setattr("vlmsearch.openai_api.http.tls_context", tls_context.__wrapped__)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    def serve() -> None:
        connection, _ = listening.accept()
        connection.recv(2**10)
        connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        with tls.wrap_socket(connection, server_side=True) as tunnel:
            tunnel.recv(2**10)
            tunnel.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve).start()
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listening.getsockname()[1]}")
        with HttpClient("https://no.such.invalid", PATIENT, uses_proxies=True) as client:
            assert body_of(client) == b"there"


def test_a_proxy_that_cannot_be_used_is_an_error_of_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "nonsense://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"^http://host: the environment's proxy .* cannot be used"):
        HttpClient("http://host", PATIENT, uses_proxies=True)


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_takes_no_more_memory_than_one_of_its_kind(packed: bool) -> None:
    body = gzip.compress(bytes(64 * MIB)) if packed else bytes(64 * MIB)
    with scripted_server(Answer(200, body, {"Content-Encoding": "gzip"} if packed else {})) as server:
        tracemalloc.start()
        try:
            with pytest.raises(BackendError, match="compressed answer" if packed else "more than 1,048,576 bytes"):
                ask(server)
            assert tracemalloc.get_traced_memory()[1] < 8 * MIB
        finally:
            tracemalloc.stop()


def test_an_answer_that_is_cut_short_is_none() -> None:
    with (
        scripted_server(Answer(200, b"half", {"Content-Length": "8"}, is_last=True)) as server,
        pytest.raises(BackendUnavailableError, match="broke the connection"),
    ):
        ask(server)


def stream_of(*pieces: bytes, kind: str = "text/event-stream; charset=utf-8", **headers: str) -> httpx.Response:
    return httpx.Response(200, content=iter(pieces), headers={"Content-Type": kind, **headers})


WIRE = "\ufeffdata: a\u2028\U0001f436\r\n\r\n: comment\revent: x\rdata:c\ndata\ndata:  d\n\n"
WIRE += "id: 1\n\nevent: y\n\ndata: e\r\r"


@pytest.mark.parametrize("cut", ["data: cut off", "data: cut off\r\n", "\ufeff"])
def test_events_may_come_in_any_pieces(silent: str, cut: str) -> None:
    wire = (WIRE + cut).encode()
    events = [("", "a\u2028\U0001f436"), ("x", "c\n\n d"), ("", "e")]
    with HttpClient(silent, PATIENT) as client:
        for place in range(len(wire)):
            assert list(client.events(stream_of(wire[:place], wire[place:]), 999, 999)) == events
        assert list(client.events(stream_of(*(bytes([byte]) for byte in wire)), 999, 999)) == events
        listed = stream_of(wire, kind="application/json, text/event-stream; charset=utf-8")  # as Triton says
        for response in (listed, httpx.Response(200, content=iter([wire]))):
            assert list(client.events(response, 999, 999)) == events


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (stream_of(*[b"12345"] * 3), "more than 9 bytes"),
        (stream_of(*[b"data\n"] * 3), "more than 9 bytes"),
        (stream_of(*[b": ping\n"] * 3), "more than 9 bytes"),
        (stream_of(*[b"data: a\n\n"] * 3), "more than 20 bytes"),
        (stream_of(b"", **{"Content-Encoding": "gzip"}), "compressed answer"),
        (stream_of(b"<html>\n sk-secret", kind="text/html"), r"not a stream of events: '<html> \*\*\*'$"),
        (stream_of(*[b"x" * 2**20] * 300, kind="text/html"), r"not a stream of events: 'x{100}'$"),
    ],
)
def test_a_stream_is_bounded_and_one_of_events(silent: str, response: httpx.Response, message: str) -> None:
    with HttpClient(silent, PATIENT, key="sk-secret") as client, pytest.raises(BackendError, match=message):
        list(client.events(response, 9, 20))


@contextmanager
def dripping(head: bytes, piece: bytes) -> Iterator[tuple[str, threading.Event]]:
    """URL of a server that sends a piece every 50 ms after the head, or reads so where there is none.

    The event is set once its client has hung up.
    """
    gone = threading.Event()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(2**10)
            connection.sendall(head)
            try:
                while not gone.wait(0.05) and (piece or connection.recv(2**12)):
                    connection.sendall(piece)
            except OSError:
                pass
            gone.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
        threading.Thread(target=serve).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", gone
        finally:
            gone.set()


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
DRIPS = {
    "head": (OK, b"A: b\r\n"),
    "interim heads": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (OK + b"Content-Length: 9999\r\n\r\n", b" "),
    "body without a length": (OK + b"\r\n", b" "),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "extension of a chunk": (CHUNKED + b"1;", b"x"),
    "trailer": (CHUNKED + b"0\r\n", b"A: b\r\n"),
    "redirect": (b"HTTP/1.1 307 No\r\nLocation: /\r\nContent-Length: 9999\r\n\r\n", b" "),
    "request": (b"", b""),
    "handshake": (b"\x16\x03\x03\x0f\xff", b"\x02"),
}


@pytest.mark.parametrize("is_given_up", [False, True])
@pytest.mark.parametrize("name", DRIPS)
def test_a_server_that_drips_is_left_when_its_time_is_over_or_the_call_is_given_up(
    name: str, is_given_up: bool
) -> None:
    token, started = CancelToken(), time.monotonic()
    options = HttpOptions(connect_timeout=1, answer_timeout=30 if is_given_up else 0.2)
    if is_given_up:
        threading.Timer(0.1, token.cancel).start()
    kind = OperationCancelledError if is_given_up else BackendUnavailableError
    message = "^it was cancelled$" if is_given_up else r"did not end its answer within 0\.2 seconds; a larger answer_"
    with dripping(*DRIPS[name]) as (url, gone), running_under(token):
        url = url.replace("http:", "https:") if name == "handshake" else url
        with HttpClient(url, options) as client, pytest.raises(kind, match=message):
            body_of(client, b"x" * (2**23 if name == "request" else 9))
        assert time.monotonic() - started < 15
        assert name == "request" or gone.wait(10)


def test_a_whole_answer_may_take_ten_times_as_long_as_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    events = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", b"data: a\n\n"
    assert http._SILENCES == 10
    monkeypatch.setattr(http, "_SILENCES", 1)  # with a silence that a busy machine does not reach by chance
    for is_endless in (False, True):
        with dripping(*events) as (url, _), HttpClient(url, HttpOptions(timeout=2.5)) as client:
            data, begun = list[str](), time.monotonic()
            with suppress(BackendUnavailableError), client.exchange("GET", "/") as response:
                for _, piece in client.events(response, 99, None if is_endless else 999):
                    data.append(piece)
                    if len(data) == 70:
                        break
            assert (len(data) == 70) is is_endless
            assert time.monotonic() - begun > 2


def test_a_silent_server_times_out_and_is_not_asked_again(silent: str) -> None:
    tries: list[int] = []

    def attempt() -> None:
        tries.append(1)
        with client.exchange("GET", "/"):
            raise AssertionError

    with (
        HttpClient(silent, HttpOptions(timeout=0.3)) as client,
        pytest.raises(BackendUnavailableError, match=rf"^{silent} was silent for 0\.3 seconds; a larger timeout"),
    ):
        client.again(attempt)
    assert tries == [1]


def test_a_call_that_is_given_up_breaks_the_connection_of_a_silent_server() -> None:
    token = CancelToken()
    with scripted_server(Answer(200, b"half", {"Content-Length": "8"})) as server, running_under(token):
        threading.Timer(0.3, token.cancel).start()
        started = time.monotonic()
        with pytest.raises(OperationCancelledError):
            ask(server)
    assert time.monotonic() - started < 25, "it would wait for 30"


def test_a_server_that_is_not_there_is_named_and_found_when_it_comes_back() -> None:
    with scripted_server(Answer(200)) as server:
        assert ask(server) == b""
    with pytest.raises(BackendUnavailableError, match=f"^{server.url} cannot be reached"):
        ask(server)


def test_closed_it_says_so_and_what_is_under_way_fails() -> None:
    closed = threading.Event()
    with scripted_server(Answer(200, lambda _: b"late" * closed.wait(30))) as server:
        client = HttpClient(server.url, PATIENT)

        def close() -> None:
            client.close()
            closed.set()

        threading.Timer(0.3, close).start()
        for kind, message in ((BackendUnavailableError, "broke the connection"), (BackendError, r"is closed$")):
            with pytest.raises(kind, match=f"^{server.url} {message}"), client.exchange("GET", "/"):
                pass


@pytest.mark.parametrize(
    "url",
    ["localhost:8080", "ftp://host", "http://", "http://h?a=b", "http://h#a", "http://h:x", "http://h:99999",
     "http://[::1", "http://xn--/", "http://h h/", "http://a..b"],
)  # fmt: skip
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^a server is named by a URL such as [^?=]*$"):
        HttpClient(url, PATIENT)


def test_urls_have_every_form_of_a_host() -> None:
    for url in ("http://[::1]:8080", "https://bücher.example/a b/", "http://HOST", "http://a_b:1/v1"):
        HttpClient(url, PATIENT).close()
