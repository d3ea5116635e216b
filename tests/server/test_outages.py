"""Databases that die behind the service: clear errors, and everything works again without a restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.mongo_servers import MongoServer
from tests.support.servers import chroma_command, free_port, running
from tests.support.service import RunningService, serving
from vlmsearch.server.settings import IndexSettings, ServerSettings

PLACE = "/api/v1/indexes/default"
START_SECONDS = 60


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
