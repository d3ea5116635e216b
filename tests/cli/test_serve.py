"""``vlmsearch serve`` in a process of its own: start, stop, and what is refused."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.cli import assert_one_line, ok, run
from tests.support.servers import free_port


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, when it answers."""
    port = free_port()
    command = [sys.executable, "-m", "vlmsearch", "serve", "--port", str(port), *options]
    if "--config" not in options:
        command += ["--store", f"sqlite:{folder / 'index'}", "--encoder", "mock:"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with suppress(httpx.HTTPError):
                if httpx.get(f"{url}/readyz").is_success:
                    break
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.1)
        yield process, url
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_what_was_accepted_is_finished_after_sigterm(tmp_path: Path) -> None:
    body = json.dumps({"documents": [{"id": "a", "text": "a dog"}]}).encode()
    with served(tmp_path) as (process, url):
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(
                f"POST /api/v1/indexes/default/documents HTTP/1.1\r\nHost: {host}:{port}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body[:10]
            )
            httpx.get(f"{url}/healthz")  # by now the server has read what was sent before
            process.send_signal(signal.SIGTERM)
            for _ in range(100):
                with suppress(ConnectionError), socket.create_connection((host, int(port)), timeout=5):
                    time.sleep(0.05)
                    continue
                break
            else:
                pytest.fail("the server accepts connections after SIGTERM")
            connection.sendall(body[10:])
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert said.splitlines()[0] == f"Serving default at {url}"
    assert "Traceback" not in said
    assert json.loads(ok("info", "--store", f"sqlite:{tmp_path / 'index'}", "--json"))["documents"] == 1


@pytest.mark.slow
def test_a_job_is_cancelled_and_its_followers_are_let_go_when_the_server_stops(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    rows = (json.dumps({"id": f"{n:06}", "text": f"text {n}"}) for n in range(60_000))
    (folder / "many.jsonl").write_text("\n".join(rows))
    with served(tmp_path, "--allow", str(folder)) as (process, url):
        job = httpx.post(f"{url}/api/v1/indexes/default/jobs", json={"kind": "index", "paths": ["many.jsonl"]}).json()
        with httpx.stream("GET", f"{url}/api/v1/jobs/{job['id']}/events", timeout=60) as events:
            lines = events.iter_lines()
            while next(lines) != "event: progress" or json.loads(next(lines)[6:])["done"] == 0:
                pass
            process.send_signal(signal.SIGINT)
            rest = list(lines)
        assert not any(line == "event: done" for line in rest)
        _, said = process.communicate(timeout=120)
    assert (process.returncode, "Traceback" in said) == (0, False), said
    store = f"sqlite:{tmp_path / 'index'}"
    assert 0 < json.loads(ok("info", "--store", store, "--json"))["documents"] < 60_000
    assert json.loads(ok("check", "--store", store, "--json"))["clean"]


@pytest.mark.slow
def test_several_indexes_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text(
        """
        max_body = 1
        [indexes.photos]
        store = "sqlite:./photos"
        encoder = "mock:"
        allow = ["pictures"]
        [indexes.notes]
        store = "mock:"
        encoder = "mock:"
        generator = ""
        """
    )
    with served(tmp_path, "--config", "serve.toml") as (_, url):
        found = httpx.get(f"{url}/api/v1/indexes").json()["indexes"]
    assert [(each["name"], each["can"]["ask"]) for each in found] == [("photos", True), ("notes", False)]


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert_one_line(run("serve", "--store", "mock:", "--encoder", "mock:", "--port", str(port)), "in use")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 can be reached from other machines: name a file of --tokens"),
        (["--store", "onyx:"], "onyx:"),
        (["--reranker", "onyx:"], "onyx:"),
        (["--tls-cert", "cert.pem"], "--tls-key"),
        (["--host", "256.0.0.1", "--tokens", "tokens.json"], "cannot listen on 256.0.0.1"),
        (["--config", "nowhere.toml"], "nowhere.toml cannot be read"),
    ],
)
def test_bad_settings_are_one_line(tmp_path: Path, options: list[str], said: str) -> None:
    port = str(free_port())
    given = ["--store", "mock:"] if "--store" not in options and "--config" not in options else []
    assert_one_line(run("serve", "--encoder", "mock:", "--port", port, *given, *options, cwd=tmp_path), said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", "unknown key 'prot'; did you mean 'port'?"),
        ('port = "x"', "port is a whole number"),
        ("[indexes.'a/b']\nstore = 'mock:'", "an index is named by"),
        ("[indexes.a]\nstores = 'mock:'", "unknown key 'stores'"),
        ("threads = 0", "--threads is from 1 to 16,777,216"),
        ("port = 70000", "--port is from 0 to 65,535"),
    ],
)
def test_a_bad_file_of_settings_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "serve.toml").write_text(text)
    assert_one_line(run("serve", "--config", "serve.toml", cwd=tmp_path), said)


def test_a_missing_index_is_named(tmp_path: Path) -> None:
    done = run("serve", "--store", "sqlite:./nosuch", "--port", str(free_port()), cwd=tmp_path)
    assert_one_line(done, "no index at sqlite:nosuch: make one with `vlmsearch index PATHS --store sqlite:./nosuch`")
    assert "or give --encoder for a new one" in done.stderr
    assert not (tmp_path / "nosuch").exists()


def test_indexes_of_a_file_are_not_named_twice(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text("[indexes.a]\nstore = 'mock:'\nencoder = 'mock:'")
    refused = run("serve", "--config", "serve.toml", "--store", "mock:", cwd=tmp_path)
    assert_one_line(refused, "serve.toml names the indexes: leave out --store")
