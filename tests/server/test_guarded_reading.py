"""Files that take their reader memory, time or life hold up no request, no other job and no end of the service.

The readers are those of `tests.support.isolated_functions`, and the files are harmless text.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.pdf_files import write_pdf
from tests.support.service import RunningService, serving
from vlmsearch import ImageLimits
from vlmsearch._util import isolation
from vlmsearch.indexing import containers, reading
from vlmsearch.media import images
from vlmsearch.server.settings import IndexSettings, ServerSettings

API = "/api/v1/indexes/default"
HERE = "tests.support.isolated_functions"
LIMITS = ImageLimits(memory_bytes=2**29, cpu_seconds=2, seconds=60)


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    (tmp_path / "in").mkdir()
    index = IndexSettings(f"sqlite:{tmp_path / 'index'}", "mock:", allow=(str(tmp_path / "in"),))
    return ServerSettings(indexes={"default": index}, uploads=str(tmp_path / "up"), image_limits=LIMITS)


def start(service: RunningService, *paths: Path) -> str:
    answer = service.http.post(f"{API}/jobs", json={"kind": "index", "paths": list(map(str, paths)), "pdf": True})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def wait(service: RunningService, id: str) -> dict[str, Any]:
    until = time.monotonic() + 240
    while (job := service.http.get(f"/api/v1/jobs/{id}").json())["state"] in ("queued", "running"):
        assert time.monotonic() < until
        time.sleep(0.02)
    finished: dict[str, Any] = job
    return finished


def test_a_job_rejects_what_cannot_be_read_and_indexes_what_is_beside_it(
    settings: ServerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "CHILD", f"{HERE}:read_by_name")
    codes = {"abort": "corrupt", "allocate": "too_large", "kill": "unreadable"}
    for name in (*codes, "z"):
        (tmp_path / "in" / f"{name}.pdf").write_text("a blue car")
    with serving(settings) as service:
        job = wait(service, start(service, tmp_path / "in"))
        assert job["state"] == "done", job
        assert {Path(reject["id"]).stem: reject["code"] for reject in job["result"]["rejects"]} == codes
        answer = service.http.get(f"{API}/documents", params={"id": str(tmp_path / "in" / "z.pdf")}).json()
    assert answer["documents"][0]["text"] == "a blue car"


def test_a_job_that_reads_what_takes_long_is_cancelled_also_by_the_end_of_the_service(
    settings: ServerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in" / "sleep.pdf").write_text("a dog")
    started = threading.Event()

    def stream(*arguments: Any, **options: Any) -> Iterator[object]:
        for result in isolation.stream(*arguments, **options):
            started.set()
            yield result

    monkeypatch.setattr(reading, "stream", stream)
    monkeypatch.setattr(containers, "CHILD", f"{HERE}:read_by_name")
    with serving(replace(settings, image_limits=ImageLimits(seconds=600))) as service:
        id = start(service, tmp_path / "in")
        assert started.wait(60)
        assert service.http.post(f"/api/v1/jobs/{id}/cancel").status_code == 202
        assert wait(service, id)["state"] == "cancelled"
        started.clear()
        start(service, tmp_path / "in")
        assert started.wait(60)
        stopped = time.monotonic()
    assert time.monotonic() - stopped < 60


def test_thumbnails_that_take_long_hold_up_no_search(
    settings: ServerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_pdf(tmp_path / "in" / "a.pdf", ["one", "two"])
    calls = list[str]()

    def call(_: str, __: object, limits: isolation.ProcessLimits, **given: Any) -> object:
        calls.append(given["name"])
        return isolation.call(f"{HERE}:sleep", 600, replace(limits, seconds=2), **given)

    monkeypatch.setattr(images, "call", call)
    with serving(settings) as service:
        assert wait(service, start(service, tmp_path / "in"))["result"]["added"] == 3

        def ask(size: int, seconds: float) -> httpx.Response:
            query: dict[str, str | int] = {"id": f"{path}#page=1", "size": size}
            return httpx.get(f"{service.url}{API}/thumbnail", params=query, timeout=seconds)

        def give_up(size: int) -> None:
            with suppress(httpx.HTTPError):
                ask(size, 0.5)

        threads = [threading.Thread(target=give_up, args=(size,)) for size in range(20, 90)]
        for thread in threads:
            thread.start()
        answer = service.http.post(f"{API}/search", json={"text": "one"})
        assert answer.status_code == 200
        for thread in threads:
            thread.join()
        last = ask(99, 60)
        assert (last.status_code, last.json()["error"]["code"]) == (400, "timeout")
        read = len(calls)
        again = ask(100, 60)  # and nothing is read again
        assert (again.json()["error"]["message"], len(calls)) == (last.json()["error"]["message"], read)
