"""Secrets: who is not given them, which connections do not carry them, and where they are not shown."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from pymongo.errors import OperationFailure
from tritonclient.utils import InferenceServerException

from tests.support.scripted_http import Answer, scripted_server
from tests.support.triton_server import free_ports
from vlmsearch import ConfigError, Document, VlmsearchError
from vlmsearch._util.credentials import child_environment
from vlmsearch._util.process import Command, run_logged
from vlmsearch.registry import open_encoder, open_generator, open_reranker, open_store
from vlmsearch.stores.mongodb.connection import MongoAddress, MongoOptions, connect
from vlmsearch.triton.client.connection import Connection
from vlmsearch.triton.client.security import Security
from vlmsearch.triton.server.server import Server

SECRETS = {
    "OPENAI_API_KEY": "sk-secret",
    "VLMSEARCH_CHROMA_TOKEN": "chroma-secret",
    "VLMSEARCH_MONGO_PASSWORD": "mongo-secret",
    "VLMSEARCH_TRITON_TOKEN": "triton-secret",
    "VLMSEARCH_TRITON_HEADERS": "authorization: Basic secret",
    "AWS_SECRET_ACCESS_KEY": "aws-secret",
    "AWS_ACCESS_KEY_ID": "aws-id",
    "GITHUB_PAT": "github-secret",
    "PGPASSWORD": "postgres-secret",
    "PGPASSFILE": "/pgpass",
    "PGSSLKEY": "/key.pem",
    "MYSQL_PWD": "mysql-secret",
    "GOOGLE_APPLICATION_CREDENTIALS": "/secret.json",
    "HF_TOKEN": "hub-secret",
    "DATABASE_URL": "postgres://me:secret@host/db",
}
NEEDED = {
    "PATH": "/usr/bin:/bin",
    "PWD": "/tmp",
    "OMPI_MCA_btl": "self",
    "CUDA_VISIBLE_DEVICES": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "TRTLLM_MAX_NUM_TOKENS": "8192",
    "HTTPS_PROXY": "http://me:secret@proxy:3128",
    "HF_HOME": "/models",
    "KEYBOARD_LAYOUT": "de",
}
SHOW = "import json, os, sys; print('ENV' + json.dumps(dict(os.environ)), flush=True)"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SECRETS, **NEEDED}.items():
        monkeypatch.setenv(name, value)


def seen(text: str) -> dict[str, str]:
    """What a process that ran `SHOW` had in its environment."""
    found: dict[str, str] = json.loads(text[text.index("ENV{") + 3 :].splitlines()[0])
    return found


@pytest.mark.usefixtures("environment")
def test_no_secret_is_handed_on_and_all_else_is() -> None:
    given = child_environment()
    assert not SECRETS.keys() & given.keys()
    assert {name: given.get(name) for name in NEEDED} == NEEDED


@pytest.mark.usefixtures("environment")
def test_a_step_of_a_build_gets_no_secret(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_logged(Command([sys.executable, "-c", SHOW], {"CHOSEN": "1"}), log, show=lambda _: None)
    found = seen(log.read_text().split("\n", 1)[1])
    assert not SECRETS.keys() & found.keys()
    assert found["CUDA_VISIBLE_DEVICES"] == "0"
    assert found["CHOSEN"] == "1"


@pytest.mark.usefixtures("environment")
def test_a_server_gets_no_secret_but_what_it_is_given() -> None:
    lines: list[str] = []
    server = Server([sys.executable, "-c", SHOW], free_ports(), environment={"HF_TOKEN": "given"}, show=lines.append)
    with server.start():
        server.wait()
    found = seen("\n".join(lines))
    assert SECRETS.keys() & found.keys() == {"HF_TOKEN"}
    assert (found["HF_TOKEN"], found["OMPI_MCA_btl"]) == ("given", "self")


# ---- which connections do not carry them

SECRET = "s3cret/Pa55"
CARRIERS: list[tuple[str, str, Callable[[str], object], str]] = [
    ("OPENAI_API_KEY", "openai:http://{}:8000/v1?model=m", open_generator, "https://.*plaintext_key=true"),
    ("OPENAI_API_KEY", "openai:http://{}:8000/v1?model=m", open_encoder, "https://.*plaintext_key=true"),
    ("CO_API_KEY", "cohere:http://{}:8000/v1?model=m", open_reranker, "https://.*plaintext_key=true"),
    ("VLMSEARCH_CHROMA_TOKEN", "chroma://{}:8000/name", open_store, "ssl=true"),
    ("VLMSEARCH_CHROMA_TOKEN", "mongodb+chroma://h/db?chroma=http://{}:8000", open_store, "https://"),
    ("VLMSEARCH_MONGO_PASSWORD", "mongodb://127.0.0.1,{}/db?auth_mechanism=PLAIN", open_store, "tls=true"),
    ("VLMSEARCH_TRITON_TOKEN", "triton://{}:8001/vlm", open_encoder, "tls=true"),
    ("VLMSEARCH_TRITON_HEADERS", "triton://{}:8001/vlm", open_encoder, "tls=true"),
]


def give(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    if variable == "VLMSEARCH_MONGO_PASSWORD":
        monkeypatch.setenv("VLMSEARCH_MONGO_USER", "me")
    monkeypatch.setenv(variable, f"Authorization: {SECRET}" if variable.endswith("HEADERS") else SECRET)


@pytest.mark.parametrize(("variable", "url", "opened", "advice"), CARRIERS)
def test_no_secret_crosses_a_network_unencrypted(
    variable: str, url: str, opened: Callable[[str], object], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, variable)
    for host in ("gpu-host", "10.0.0.7", "127.0.0.1.example.org", "[fd00::1]", "0.0.0.0"):
        with pytest.raises(ConfigError, match=f"{variable}.* cross the network .*unencrypted: .*{advice}") as caught:
            opened(url.format(host))
        assert SECRET not in str(caught.value), host
        assert "\n" not in str(caught.value), host


@pytest.mark.parametrize(
    ("variable", "url", "opened"),
    [
        ("OPENAI_API_KEY", "openai:http://localhost:8000/v1?model=m", open_generator),
        ("OPENAI_API_KEY", "openai:http://[::1]:8000/v1?model=m", open_generator),
        ("OPENAI_API_KEY", "openai:https://gpu-host:8000/v1?model=m", open_generator),
        ("OPENAI_API_KEY", "openai:http://gpu-host:8000/v1?model=m&plaintext_key=true", open_generator),
        ("OPENAI_API_KEY", "openai:https://gpu-host:8000/v1?model=m", open_encoder),
        ("OPENAI_API_KEY", "openai:http://gpu-host:8000/v1?model=m&plaintext_key=true", open_encoder),
        ("CO_API_KEY", "cohere:http://127.0.0.1:8000/v1?model=m", open_reranker),
        ("VLMSEARCH_CHROMA_TOKEN", "chroma://127.8.0.1:8000/name", open_store),
        ("VLMSEARCH_CHROMA_TOKEN", "chroma://gpu-host:8000/name?ssl=true", open_store),
        ("VLMSEARCH_CHROMA_TOKEN", "mongodb+chroma://h/db?chroma=https://gpu-host", open_store),
        ("VLMSEARCH_MONGO_PASSWORD", "mongodb://gpu-host/db?auth_mechanism=PLAIN&tls=true", open_store),
        ("VLMSEARCH_MONGO_PASSWORD", "mongodb://localhost/db?auth_mechanism=PLAIN", open_store),
        ("VLMSEARCH_MONGO_PASSWORD", "mongodb://gpu-host/db", open_store),
        ("NO_SECRET", "openai:http://gpu-host:8000/v1?model=m", open_generator),
        ("NO_SECRET", "chroma://gpu-host:8000/name", open_store),
    ],
)
def test_what_is_encrypted_or_stays_on_this_machine_may(
    variable: str, url: str, opened: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, variable)
    opened(url).close()  # type: ignore[attr-defined]


# ---- where they are not shown


@contextmanager
def answering(status: int, body: Callable[[str], str]) -> Iterator[str]:
    """The address of a server that answers everything with ``body`` of the headers that it was sent."""
    with scripted_server(Answer(status, lambda headers: body(headers).encode())) as server:
        yield server.url.removeprefix("http://")


def echo(headers: str) -> str:
    """The headers as an error, and as the names of models; sorted, since messages show how an answer begins."""
    headers = "\n".join(sorted(headers.splitlines()))
    return json.dumps({"error": headers, "data": [{"id": headers}, {"id": "other"}]})


@pytest.mark.parametrize("status", [200, 301, 400, 401, 404, 413, 422, 424, 500, 503])
def test_the_keys_of_models_are_not_shown_by_a_server_that_repeats_them(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("CO_API_KEY", SECRET)
    with (
        answering(status, echo) as address,
        open_generator(f"openai:http://{address}/v1?retries=0") as unnamed,
        open_generator(f"openai:http://{address}/v1?retries=0&model=m") as named,
        open_encoder(f"openai:http://{address}/v1?model=m&retries=0&dim=2") as encoder,
        open_reranker(f"cohere:http://{address}/v1?retries=0") as reranker,
    ):
        for call in (
            lambda: unnamed.generate("?"),
            lambda: named.generate("?"),
            lambda: encoder.encode_texts(["a"]),
            lambda: reranker.score("a", [Document("a", text="a")]),
        ):
            with pytest.raises(VlmsearchError, match=r"Bearer \*\*\*") as caught:
                call()
            assert SECRET not in str(caught.value)


@pytest.mark.parametrize("cut", range(280, 300, 3))
def test_no_part_of_a_key_is_left_where_a_message_is_cut(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with (
        answering(500, lambda _: "x" * cut + SECRET) as address,
        open_generator(f"openai:http://{address}/v1?model=m&retries=0") as generator,
    ):
        with pytest.raises(VlmsearchError, match=r"x{280}") as caught:
            generator.generate("?")
        assert SECRET[:2] not in str(caught.value)


@pytest.mark.parametrize("status", [400, 422, 500, 503])
def test_chromas_token_is_not_shown_by_a_server_that_repeats_it(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMSEARCH_CHROMA_TOKEN", SECRET)
    with answering(status, echo) as address, open_store(f"chroma://{address}/name?retries=0") as store:
        with pytest.raises(VlmsearchError) as caught:
            store.manifest()
        assert SECRET not in str(caught.value)


def test_mongodbs_password_is_shown_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, "VLMSEARCH_MONGO_PASSWORD")
    listener = socket.create_server(("127.0.0.1", 0))
    address = MongoAddress.parse(f"//127.0.0.1:{listener.getsockname()[1]}/db")
    connection = connect(address, MongoOptions(retries=0))
    assert SECRET not in repr(connection)

    def fail(_: object) -> None:
        raise OperationFailure(f"{'x' * 293} you sent {SECRET}")

    with listener, pytest.raises(VlmsearchError, match="xxx") as caught:
        connection.run("c", "read", fail)
    assert SECRET[:3] not in str(caught.value)


def test_postgresqls_password_is_shown_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, "PGPASSWORD")

    def fail(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(f"{'x' * 293} you sent {SECRET}")

    with open_store("postgresql://me@127.0.0.1/db?retries=0") as store:
        assert SECRET not in repr(vars(store))
        monkeypatch.setattr(psycopg.generators, "connect", fail)
        with pytest.raises(VlmsearchError, match="could not be reached to look for the index: xxx") as caught:
            store.manifest()
    assert SECRET[:3] not in str(caught.value)


def test_tritons_token_is_shown_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, "VLMSEARCH_TRITON_TOKEN")
    monkeypatch.setenv("VLMSEARCH_TRITON_HEADERS", "x-api-key: an0ther\nx-team: 7")
    security = Security.from_environment(tls=False, host="127.0.0.1")
    assert SECRET not in repr(security)
    assert "an0ther" not in repr(security)
    connection = Connection("127.0.0.1:8001", timeout=1, deadline=1)
    for status in (None, "StatusCode.UNAVAILABLE", "StatusCode.NOT_FOUND"):
        exc = InferenceServerException(f"you of team 7 sent Bearer {SECRET} and an0ther", status)
        said = str(connection.error(exc, "vlm"))
        assert "you of team 7 sent" in said
        assert SECRET not in said
        assert "an0ther" not in said
    connection.close()
