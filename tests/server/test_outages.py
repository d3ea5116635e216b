"""Back ends that die behind the service: clear errors, and everything works again without a restart."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.mongo_servers import MongoServer
from tests.support.postgres_servers import postgres_server
from tests.support.servers import chroma_command, free_port, running
from tests.support.service import RunningService, serving
from tests.support.triton_scenes import picture
from tests.support.triton_server import started
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.triton.server.commands import Binary

PLACE = "/api/v1/indexes/default"
START_SECONDS = 240


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(httpx.HTTPError):
            if is_so():
                return
        assert time.monotonic() < deadline
        time.sleep(0.2)


def until_ready(service: RunningService) -> None:
    until(lambda: service.http.get("/readyz").status_code == 200)


def add(service: RunningService, start: int) -> int:
    documents = [{"id": f"{n:03}", "text": f"a dog of {n}"} for n in range(start, start + 20)]
    return service.http.post(f"{PLACE}/documents", json={"documents": documents}).status_code


@pytest.mark.parametrize("victim", ["mongod", "chroma"])
def test_a_database_is_killed_and_comes_back(tmp_path: Path, victim: str) -> None:
    mongo = MongoServer(tmp_path)
    chroma = f"127.0.0.1:{free_port()}"
    commands: dict[str, Callable[[], list[str]]] = {
        "mongod": mongo.command,
        "chroma": lambda: chroma_command(tmp_path, chroma),
    }
    store = f"mongodb+chroma://{mongo.address}/outage?chroma=http://{chroma}&timeout=3&retries=0"
    with ExitStack() as stack:
        log = tmp_path / "log"
        processes = {name: stack.enter_context(running(command(), log)) for name, command in commands.items()}
        mongo.wait_until_ready()
        until(lambda: httpx.get(f"http://{chroma}/api/v2/heartbeat").is_success)
        settings = ServerSettings(indexes={"default": IndexSettings(store, "mock:")}, uploads=str(tmp_path / "uploads"))
        service = stack.enter_context(serving(settings))
        until_ready(service)
        assert add(service, 0) == 200
        search = {"text": "dog of 7", "limit": 3}
        before = service.http.post(f"{PLACE}/search", json=search).json()
        assert before["matches"]

        processes[victim].kill()
        processes[victim].wait()
        until(lambda: service.http.get("/readyz").status_code == 503)
        for method, path, body in (
            ("POST", f"{PLACE}/search", search),
            ("POST", f"{PLACE}/documents", {"documents": [{"id": "900", "text": "a cat"}]}),
            ("GET", "/readyz", None),
        ):
            found = service.http.request(method, path, json=body)
            assert found.status_code in (502, 503), (path, found.text)
            assert found.json()["error"]["type"] in ("backend_failed", "backend_unavailable")
            assert "Traceback" not in found.text
        assert service.http.get("/healthz").status_code == 200

        stack.enter_context(running(commands[victim](), log))
        until_ready(service)
        assert service.http.post(f"{PLACE}/search", json=search).json()["matches"] == before["matches"]
        assert add(service, 20) == 200
        assert service.http.get(PLACE).json()["documents"] in (40, 41)  # and what was sent while it was away, perhaps
        assert service.service.indexes["default"].pipeline.check(repair=True).missing == ()


def test_postgresql_is_killed_and_comes_back(tmp_path: Path) -> None:
    search = {"text": "dog of 7", "limit": 3}
    with postgres_server(fsync="on") as server:
        store = f"{server.make_database('outage')}?timeout=3&retries=0"
        settings = ServerSettings(indexes={"default": IndexSettings(store, "mock:")}, uploads=str(tmp_path / "uploads"))
        with serving(settings) as service:
            until_ready(service)
            assert add(service, 0) == 200
            before = service.http.post(f"{PLACE}/search", json=search).json()
            assert before["matches"]
            server.kill()
            until(lambda: service.http.get("/readyz").status_code == 503)
            found = service.http.post(f"{PLACE}/search", json=search)
            assert found.status_code == 503, found.text
            assert found.json()["error"]["type"] == "backend_unavailable"
            assert service.http.get("/healthz").status_code == 200
            server.start()
            until_ready(service)
            assert service.http.post(f"{PLACE}/search", json=search).json()["matches"] == before["matches"]
            assert add(service, 20) == 200
            assert service.http.get(PLACE).json()["documents"] == 40
            assert service.service.indexes["default"].pipeline.check().clean


def test_triton_is_killed_and_comes_back(binary: Binary, repository: Path, tmp_path: Path) -> None:
    """Who waits for long is answered in the end, who does not is told so, and what needs no vectors goes on."""
    patient = "/api/v1/indexes/patient"
    picture_of_one = base64.b64encode(picture(1)).decode()
    with started(binary, repository) as triton, ThreadPoolExecutor(1) as threads:
        indexes = {
            "default": IndexSettings(f"sqlite:{tmp_path / 'index'}", f"{triton.url}?deadline=2"),
            "patient": IndexSettings(f"sqlite:{tmp_path / 'index'}", triton.url),
        }
        with serving(ServerSettings(indexes=indexes, uploads=str(tmp_path / "uploads"))) as service:
            until_ready(service)
            assert add(service, 0) == 200
            search = {"text": "dog of 7", "limit": 3}
            by_image = {"image": picture_of_one, "limit": 3}
            before = [service.http.post(f"{PLACE}/search", json=each).json()["matches"] for each in (search, by_image)]
            assert all(before)
            model = service.http.get("/v1/models").json()["data"][0]["id"]

            triton.kill()
            waiting = threads.submit(service.http.post, f"{patient}/search", json=search, timeout=120)
            until(lambda: service.http.get("/readyz").status_code == 503)
            for path, body in (
                (f"{PLACE}/search", search),
                (f"{PLACE}/search", by_image),
                (f"{PLACE}/documents", {"documents": [{"id": "900", "text": "a cat"}]}),
                (f"{PLACE}/documents", {"documents": [{"id": "901", "image": picture_of_one}]}),
                ("/v1/embeddings", {"model": model, "input": "a dog"}),
            ):
                found = service.http.post(path, json=body)
                assert found.status_code in (502, 503), (path, found.text)
                assert found.json()["error"]["type"] in ("backend_failed", "backend_unavailable")
                assert "Traceback" not in found.text
            assert service.http.get("/healthz").status_code == 200
            assert service.http.get(f"{PLACE}/documents", params={"id": "007"}).json()["documents"]
            assert not waiting.done()

            triton.again()
            until_ready(service)
            answered = waiting.result(120)
            assert (answered.status_code, answered.json()["matches"]) == (200, before[0])
            after = [service.http.post(f"{PLACE}/search", json=each).json()["matches"] for each in (search, by_image)]
            assert after == before
            assert add(service, 20) == 200
            assert service.http.get(PLACE).json()["documents"] == 40
            assert not list((tmp_path / "uploads").rglob("*.jpg"))  # nothing is left of what was refused
