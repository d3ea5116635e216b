"""The rules of model servers: keys, errors, waits, and what is no answer. Back ends rely on them."""

from __future__ import annotations

import json
import threading
import time
from email.utils import formatdate
from typing import Any

import pytest

from tests.support.scripted_http import Answer, scripted_server
from vlmsearch import BackendError, BackendUnavailableError, ConfigError, VlmsearchError
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import OperationCancelledError
from vlmsearch.openai_api.api import JsonApi, RefusedError
from vlmsearch.openai_api.http import HttpOptions
from vlmsearch.registry import open_encoder, open_generator, open_reranker

FINE = Answer(200, b'{"fine": 1}')


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def ask(*answers: Answer, key: str = "", **options: Any) -> tuple[Any, list[dict[str, str]]]:
    """Answer of a server to a request, and the headers of all that it was sent."""
    with scripted_server(*answers) as server, JsonApi("openai", f"{server.url}/v1", HttpOptions(**options)) as api:
        answer = api.post("embeddings", {"input": "é"}, max_bytes=2**20)
    assert {(path, body) for _, path, _, body in server.requests} == {("/v1/embeddings", '{"input":"é"}'.encode())}
    return answer, [headers for *_, headers, _ in server.requests]


def failing(status: int, message: str = "no message", **headers: str) -> Answer:
    body = json.dumps({"error": {"message": message}}).encode()
    return Answer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("passing", [*map(failing, (429, 502, 503, 504)), Answer(None)], ids=str)
def test_what_passes_is_waited_out(passing: Answer) -> None:
    answer, requests = ask(passing, passing, FINE)
    assert (answer, len(requests)) == ({"fine": 1}, 3)
    with pytest.raises(BackendUnavailableError, match=r"is busy or starting|broke the connection"):
        ask(passing, passing, FINE, retries=1)


def test_a_wait_that_is_asked_for_is_kept() -> None:
    for is_date in (False, True):
        started = time.monotonic()
        ask(failing(429, Retry_After=formatdate(time.time() + 2, usegmt=True) if is_date else "1"), FINE)
        assert 1 <= time.monotonic() - started < 60


def test_a_wait_too_long_is_left_to_the_caller() -> None:
    with pytest.raises(BackendUnavailableError, match="asks to wait 3600 s") as caught:
        ask(failing(429, Retry_After="3600"), FINE)
    assert caught.value.retry_after == 3600


def test_a_wait_ends_when_the_call_is_given_up() -> None:
    token = CancelToken()
    threading.Timer(0.2, token.cancel).start()
    started = time.monotonic()
    with running_under(token), pytest.raises(OperationCancelledError):
        ask(failing(429, Retry_After="25"), FINE)
    assert time.monotonic() - started < 23


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (failing(500), BackendError, r"failed \(500: no message\)"),
        (failing(424, "the model died"), BackendError, r"failed \(424: the model died\)"),
        (failing(404), ConfigError, r"has nothing there \(no message\): the base URL usually ends in /v1"),
        (failing(405), ConfigError, r"refused the request \(405"),
        (failing(302), ConfigError, r"refused the request \(302"),
        (Answer(500, b"<html>\n  nginx"), BackendError, r"failed \(500: <html> nginx\)"),
        (Answer(500), BackendError, r"failed \(500: Internal Server Error\)"),
        (Answer(500, b"x" * 2**20), BackendError, r"x{300}\)$"),
    ],
)
def test_errors_say_what_went_wrong(answer: Answer, kind: type[VlmsearchError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        ask(answer)
    assert type(caught.value) is kind
    assert str(caught.value).startswith("openai:http://127.0.0.1:")


@pytest.mark.parametrize(
    ("status", "message", "is_too_long"),
    [(400, "bad top_k", False), (413, "too big", True), (422, "maximum context length is 9", True)],
)
def test_a_refused_request_is_left_to_whoever_asked(status: int, message: str, is_too_long: bool) -> None:
    with pytest.raises(RefusedError) as caught:
        ask(failing(status, message))
    assert (caught.value.status, caught.value.message, caught.value.is_too_long) == (status, message, is_too_long)
    assert str(caught.value.error).endswith(f"refused the request ({status}: {message})")


def test_a_parameter_that_is_refused_is_named() -> None:
    body = json.dumps({"error": {"message": "Unsupported", "param": "seed", "code": "unsupported_parameter"}})
    with pytest.raises(RefusedError) as caught:
        ask(Answer(400, body.encode()))
    assert caught.value.message == "seed: Unsupported"


@pytest.mark.parametrize("body", [b"no json", b'{"data": NaN}', b"[" * 2**19, b"\xff\xfe"], ids=repr)
def test_what_is_not_json_is_an_error_of_the_server(body: bytes) -> None:
    with pytest.raises(BackendError, match="sent what is not JSON: ") as caught:
        ask(Answer(200, body))
    assert len(str(caught.value)) < 400


def test_the_key_comes_from_the_variable_that_is_named_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JINA_API_KEY", "jina-secret\n")
    said = failing(401, "Incorrect key: jina-secret")
    _, [headers] = ask(FINE, key_variable="JINA_API_KEY")
    assert headers["Authorization"] == "Bearer jina-secret"
    _, [headers] = ask(FINE)
    assert "Authorization" not in headers
    with pytest.raises(ConfigError, match="needs a key: set OPENAI_API_KEY"):
        ask(said)
    with pytest.raises(ConfigError, match=r"refused the key in JINA_API_KEY \(401: Incorrect key: \*\*\*\)"):
        ask(said, key_variable="JINA_API_KEY")
    with pytest.raises(ConfigError, match="JINA_API_KEY would cross the network to host unencrypted"):
        JsonApi("openai", "http://host/v1", HttpOptions(key_variable="JINA_API_KEY"))


@pytest.mark.parametrize("key", ["sk-\nsecret", "sk-\x7fsecret", "sk-sécret", "漢"])
def test_a_key_has_no_odd_characters(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match=r"^OPENAI_API_KEY holds characters that no key has$"):
        ask(FINE)


@pytest.mark.parametrize("opened", [open_encoder, open_generator, open_reranker])
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://u:sk-secret@localhost/v1?", "takes no user and password; a key goes into (OPENAI|CO)_API_KEY"),
        ("localhost:8000?", "takes the base URL of a server, such as (openai|cohere):http://host:8000/v1, not local"),
        ("http://localhost/v1?retries=-1&", "^`retries` is from 0 to 20, not -1$"),
        ("http://localhost/v1?key_variable=sk-secret&", "name of an environment variable"),
        ("http://localhost/v1?key_variable=AWS_SECRET_ACCESS_KEY&", "ends in _API_KEY"),
        *(
            (f"http://localhost/v1?{name}={value}&", f"^`{name}` is from 0.001 to 1,000,000, not ")
            for name in ("timeout", "connect_timeout")
            for value in ("-1", "0", "nan", "inf", "1e300")
        ),
    ],
)
def test_a_wrong_option_of_any_back_end_is_refused_at_once(opened: Any, url: str, message: str) -> None:
    scheme = "cohere" if opened is open_reranker else "openai"
    with pytest.raises(ConfigError, match=message) as caught:
        opened(f"{scheme}:{url}model=m")
    assert "sk-secret" not in str(caught.value)
