"""Files that somebody else made hold up no request, no other job and no end of the service."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.hostile_files import nested_forms, write_hostile
from tests.support.pdf_files import write_pdf
from tests.support.service import RunningService, serving
from vlmsearch import ImageLimits
from vlmsearch.server.settings import IndexSettings, ServerSettings

API = "/api/v1/indexes/default"
LIMITS = ImageLimits(memory_bytes=2**29, decoded_bytes=2**29, cpu_seconds=3, seconds=10)
LONG = ImageLimits(cpu_seconds=600, seconds=600)


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    (tmp_path / "in").mkdir()
    index = IndexSettings(f"sqlite:{tmp_path / 'index'}", "mock:", allow=(str(tmp_path / "in"),))
    return ServerSettings(indexes={"default": index}, uploads=str(tmp_path / "up"), image_limits=LIMITS)


@pytest.fixture
def service(settings: ServerSettings) -> Iterator[RunningService]:
    with serving(settings) as running:
        yield running


def start(service: RunningService, *paths: Path) -> str:
    request = {"kind": "index", "paths": list(map(str, paths)), "pdf": True, "video": True, "office": True}
    answer = service.http.post(f"{API}/jobs", json=request)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def wait(service: RunningService, id: str) -> dict[str, Any]:
    until = time.monotonic() + 240
    while (job := service.http.get(f"/api/v1/jobs/{id}").json())["state"] in ("queued", "running"):
        assert time.monotonic() < until
        time.sleep(0.1)
    found: dict[str, Any] = job
    return found


@pytest.mark.slow
def test_a_job_rejects_hostile_files_and_indexes_what_is_beside_them(service: RunningService, tmp_path: Path) -> None:
    write_hostile(tmp_path / "in")
    (tmp_path / "in" / "z.txt").write_text("a blue car")
    tables = [tmp_path / "in" / name for name in ("long-name.tar", "repeating.parquet")]
    job = wait(service, start(service, tmp_path / "in", *tables))
    assert job["state"] == "done", job
    codes = {Path(reject["id"]).name: reject["code"] for reject in job["result"]["rejects"]}
    assert codes["nested.epub"] == codes["nested.odt"] == "corrupt"
    assert codes["wide.docx"] == codes["sparse.xlsx"] == codes["long-name.tar"] == "too_large"
    found = service.http.get(f"{API}/documents", params={"id": str(tmp_path / "in" / "z.txt")}).json()
    assert found["documents"][0]["text"] == "a blue car"


def test_a_job_that_reads_what_takes_long_is_cancelled(settings: ServerSettings, tmp_path: Path) -> None:
    from dataclasses import replace

    (tmp_path / "in" / "slow.pdf").write_bytes(nested_forms(5))
    with serving(replace(settings, image_limits=LONG)) as service:
        id = start(service, tmp_path / "in")
        time.sleep(1)
        assert service.http.post(f"/api/v1/jobs/{id}/cancel").status_code == 202
        assert wait(service, id)["state"] == "cancelled"
        start(service, tmp_path / "in")
        time.sleep(1)
        stopped = time.monotonic()  # and the end of the service cancels the other one
    assert time.monotonic() - stopped < 60


@pytest.mark.slow
def test_thumbnails_that_take_long_hold_up_no_search(service: RunningService, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "in" / "a.pdf", ["one", "two"])
    assert wait(service, start(service, tmp_path / "in"))["result"]["added"] == 3
    path.write_bytes(nested_forms(5))

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
    again = ask(100, 60)  # and nothing is read again
    assert again.json()["error"]["message"] == last.json()["error"]["message"]
