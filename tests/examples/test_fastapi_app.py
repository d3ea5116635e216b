"""The application of FastAPI among the examples: its own tests, and what a user of it sees by a real server."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.openai_server import OpenAIServer, Script
from tests.support.paths import ROOT
from tests.support.servers import free_port
from vlmsearch.demo.scenes import make_scene

EXAMPLE = ROOT / "examples" / "fastapi_app"


@dataclass(frozen=True)
class RunningApp:
    """The application behind uvicorn, with its generator and the database of its index."""

    http: httpx.Client
    script: Script
    database: Path


@contextmanager
def uvicorn(folder: Path, **settings: str) -> Iterator[httpx.Client]:
    """The application in a process of its own, as its README starts it."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", str(EXAMPLE), "--port", str(port)]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, env=os.environ | settings, stdout=log, stderr=log) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as http,
    ):
        try:
            while process.poll() is None:
                with suppress(httpx.TransportError):
                    http.get("/health")
                    break
                time.sleep(0.1)
            yield http
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    folder = tmp_path_factory.mktemp("app")
    with OpenAIServer() as server:
        settings = {
            "APP_STORE": "sqlite:./index?timeout=0.2",
            "APP_ENCODER": "onnx:demo",
            "APP_GENERATOR": f"openai:{server.url}?model=tiny",
        }
        with uvicorn(folder, **settings) as http:
            yield RunningApp(http, server.script, folder / "index")


def scene(number: int, folder: Path) -> bytes:
    path = folder / f"{number}.png"
    make_scene(number).draw(96).save(path)
    return path.read_bytes()


def upload(app: RunningApp, id: str, data: bytes, **form: str) -> httpx.Response:
    return app.http.post("/pictures", data={"id": id, **form}, files={"file": data})


def ids(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [match["document"]["id"] for match in answer.json()["matches"]]


def test_its_own_tests_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(EXAMPLE), str(EXAMPLE)]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^[5-9] passed", done.stdout, re.MULTILINE)


def test_what_is_added_is_found_by_text_and_by_a_picture_until_it_is_deleted(app: RunningApp, tmp_path: Path) -> None:
    for number in range(3):
        answer = upload(app, f"scene {number}/a", scene(number, tmp_path))
        assert (answer.status_code, answer.json()["added"]) == (201, 1)
    note = {"id": "museum", "text": "The museum opens at nine.", "metadata": {"year": 2024, "rooms": ["A", "B"]}}
    assert app.http.post("/notes", json=note).status_code == 201
    assert ids(app.http.get("/search", params={"text": "When does the museum open?"}))[0] == "museum"
    assert ids(app.http.post("/search", files={"file": scene(2, tmp_path)}, params={"limit": 1})) == ["scene 2/a"]
    assert app.http.get("/documents/museum").json() == {**note, "image": None}
    before = app.http.get("/health").json()["documents"]
    assert app.http.delete("/documents/scene 1/a").status_code == 204
    assert app.http.get("/health").json() == {"documents": before - 1}


def test_an_answer_is_streamed_with_its_sources(app: RunningApp) -> None:
    app.http.post("/notes", json={"id": "star", "text": "A red star stands above the beach."})
    app.script.reply = "It shows a red star [1]."
    with app.http.stream("GET", "/answer", params={"question": "What is above the beach?"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line and not line.startswith(":")]
    assert lines.count("event: text") > 2
    assert lines[-4:] == [
        "event: source",
        'data: {"number": 1, "id": "star", "passage": null}',
        "event: end",
        'data: ""',
    ]


def test_a_client_that_leaves_stops_the_generator(app: RunningApp) -> None:
    app.http.post("/notes", json={"id": "star", "text": "A red star stands above the beach."})
    app.script.reply, app.script.delay = "star " * 100_000, 0.01
    app.script.cancelled.clear()
    try:
        with app.http.stream("GET", "/answer", params={"question": "What is above the beach?"}) as answer:
            assert next(answer.iter_lines()) == "event: text"
            assert not app.script.cancelled.is_set()
        assert app.script.cancelled.wait(60)
    finally:
        app.script.delay = 0.0


def test_wrong_requests_are_told_what_is_wrong(app: RunningApp) -> None:
    answer = upload(app, "text", b"no image")
    assert (answer.status_code, "the image is in no format" in answer.json()["detail"]) == (400, True)
    assert upload(app, "a\nb", b"no image").status_code == 400
    answer = app.http.post("/search", files={"file": b"\x89PNG\r\n\x1a\n"})
    assert (answer.status_code, list(answer.json())) == (400, ["detail"])
    assert app.http.get("/search", params={"text": "  "}).status_code == 400
    assert app.http.get("/answer", params={"question": "  "}).status_code == 400
    assert app.http.get("/search").status_code == 422
    assert upload(app, "large", b"\0" * 2**24).status_code == 413
    for request in (app.http.get, app.http.delete):
        answer = request("/documents/not there")
        assert (answer.status_code, answer.json()) == (404, {"detail": "no document has the id 'not there'"})


def test_a_store_that_is_busy_is_temporary(app: RunningApp) -> None:
    note = {"id": "busy", "text": "a blue circle"}
    app.http.post("/notes", json={"id": "first", "text": "a green square"})
    other = sqlite3.connect(app.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        answer = app.http.post("/notes", json=note)
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert (answer.status_code, answer.json()) == (503, {"detail": "the index does not answer now"})
    assert int(answer.headers["Retry-After"]) > 0
    assert app.http.post("/notes", json=note).status_code == 201


def test_a_generator_that_fails_within_an_answer_ends_it(app: RunningApp) -> None:
    app.http.post("/notes", json={"id": "star", "text": "A red star stands above the beach."})
    app.script.faults.append("cut 4")
    answer = app.http.get("/answer", params={"question": "What is above the beach?"})
    assert answer.text.rstrip().endswith('event: error\ndata: "the answer ends here: ask again"')


def test_the_description_of_its_interface_names_the_values(app: RunningApp) -> None:
    described = app.http.get("/openapi.json").json()
    assert {"Matches", "IndexReport", "FieldScore"} <= described["components"]["schemas"].keys()
