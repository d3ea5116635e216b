"""HTTP to one server: what is sent, what is kept, what is bounded, and what is said when it goes wrong."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from tests.support.scripted_http import Answer, ScriptedServer, scripted_server
from vlmsearch import BackendError, BackendUnavailableError, ConfigError
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import OperationCancelledError
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
    with HttpClient(server.url, PATIENT, uses_proxies=uses_proxies) as client, client.exchange("GET", "/") as response:
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


def test_events_may_come_in_any_pieces(silent: str) -> None:
    wire = "data: a\u2028b\r\n\r\n: comment\nevent: x\ndata:c\ndata: d\n\n\nid: 1\n\ndata: cut off".encode()
    with HttpClient(silent, PATIENT) as client:
        for size in (1, 2, 3, 100):
            pieces = [wire[start : start + size] for start in range(0, len(wire), size)]
            response = httpx.Response(200, content=iter(pieces))
            assert list(client.events(response, 100)) == [("", "a\u2028b"), ("x", "c\nd")]
        for body, message in ((iter([b"12345"] * 2), "more than 9 bytes"), (b"", "compressed answer")):
            headers = {} if body else {"Content-Encoding": "gzip"}
            with pytest.raises(BackendError, match=message):
                list(client.events(httpx.Response(200, content=body, headers=headers), 9))


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
