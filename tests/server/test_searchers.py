"""Processes that search: they answer as one process does, are replaced, share memory, and end with the service."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import psutil
import pytest

from tests.cli.test_serve import served
from tests.support.cli import assert_one_line, run
from tests.support.servers import free_port
from vlmsearch import Document, Pipeline
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import BackendUnavailableError, ConfigError, OperationCancelledError
from vlmsearch.principals import HEADER
from vlmsearch.search.options import SearchOptions
from vlmsearch.search.query import Query
from vlmsearch.server.logs import REQUEST_ID
from vlmsearch.server.searchers import Searchers, _answer, _Searcher
from vlmsearch.server.service import pipelines
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.stores.readers import readable
from vlmsearch.types import Matches
from vlmsearch.wire import to_json

QUERIES = ["a red dog", "two dogs", "a cat in the snow", "number 7"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[psutil.Process, str, Path]]:
    """Yield a service with two processes that search, its URL, and the folder of its index."""
    folder = tmp_path_factory.mktemp("searchers")
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}") as pipeline:
        pipeline.add([Document(f"{n:03}", text=f"a {'red dog' if n % 3 else 'cat'}, number {n}") for n in range(300)])
    with served(folder, "--workers", "2") as (process, url):
        yield psutil.Process(process.pid), url, folder


def search(url: str, text: str, index: str = "default", **options: object) -> httpx.Response:
    return httpx.post(f"{url}/api/v1/indexes/{index}/search", json={"text": text, **options}, timeout=60)


def searchers_of(service: psutil.Process) -> list[psutil.Process]:
    [nursery] = service.children()
    return [child for child in nursery.children() if child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.server
def test_they_answer_as_one_process_does(service: tuple[psutil.Process, str, Path]) -> None:
    process, url, folder = service
    assert len(searchers_of(process)) == 2
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda text: search(url, text, min_score=0).json(), QUERIES * 10))
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}") as pipeline:
        for text, answer in zip(QUERIES * 10, answers):
            assert answer == to_json(pipeline.search(text, min_score=0))
    took = [child.cpu_times().user for child in searchers_of(process)]
    assert min(took) > 0


@pytest.mark.server
def test_errors_and_measurements_come_from_them(service: tuple[psutil.Process, str, Path]) -> None:
    _, url, _ = service
    refused = search(url, "a dog", weights={"clip/sound": 1})
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request")
    assert "no field 'clip/sound'" in refused.json()["error"]["message"]
    counted = 'vlmsearch_stage_duration_seconds_count{operation="search",stage="fuse"} '
    before = float(metrics(url).partition(counted)[2].split()[0])
    assert search(url, "a dog").is_success
    assert float(metrics(url).partition(counted)[2].split()[0]) > before


@pytest.mark.server
def test_stages_belong_to_the_verb_that_searches(service: tuple[psutil.Process, str, Path]) -> None:
    _, url, _ = service
    asked = httpx.post(f"{url}/api/v1/indexes/default/ask", json={"question": "Which dog?"}, timeout=60)
    assert asked.is_success
    assert 'vlmsearch_stage_duration_seconds_count{operation="ask",stage="fuse"} ' in metrics(url)


@pytest.mark.server
def test_what_is_written_to_any_store_is_in_the_next_search(
    tmp_path: Path, postgres_url: str, mongo_address: str, chroma_address: str
) -> None:
    stores = {
        "memory": "mock:",  # which only the process has that writes
        "postgresql": f"{postgres_url}?table=searchers",
        "mongodb": f"mongodb://{mongo_address}/searchers",
        "chroma": f"chroma://{chroma_address}/searchers",
        "pair": f"mongodb+chroma://{mongo_address}/searched?chroma=http://{chroma_address}",
    }
    tables = (f'[indexes.{name}]\nstore = "{store}"\nencoder = "mock:"\n' for name, store in stores.items())
    (tmp_path / "serve.toml").write_text("workers = 2\n" + "".join(tables))
    with served(tmp_path, "--config", str(tmp_path / "serve.toml")) as (_, url):
        for name in stores:
            written = {"documents": [{"id": "new", "text": "an unheard zebra"}]}
            assert httpx.post(f"{url}/api/v1/indexes/{name}/documents", json=written, timeout=60).is_success
            for _ in range(3):
                assert search(url, "zebra", index=name, min_score=0).json()["matches"][0]["id"] == "new"


@pytest.mark.server
def test_images_of_any_size_are_searched_for(service: tuple[psutil.Process, str, Path]) -> None:
    _, url, folder = service
    noise = np.random.default_rng(1).integers(0, 256, (1200, 1200, 3), np.uint8)
    PIL.Image.fromarray(noise).save(image := BytesIO(), "PNG")
    data, files = {"request": '{"min_score": 0}'}, {"image": image.getvalue()}
    answer = httpx.post(f"{url}/api/v1/indexes/default/search", data=data, files=files, timeout=60).json()
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}") as pipeline:
        assert answer == to_json(pipeline.search(image=image.getvalue(), min_score=0))


def metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics").text


@pytest.mark.server
def test_what_is_written_is_in_the_next_search_of_each(service: tuple[psutil.Process, str, Path]) -> None:
    _, url, _ = service
    written = {"documents": [{"id": "new", "text": "an unheard zebra"}]}
    assert httpx.post(f"{url}/api/v1/indexes/default/documents", json=written, timeout=60).is_success
    with ThreadPoolExecutor(4) as threads:
        for answer in threads.map(lambda _: search(url, "zebra", min_score=0, limit=1).json(), range(12)):
            assert answer["matches"][0]["id"] == "new"


@pytest.mark.server
def test_one_that_is_killed_is_replaced_and_no_search_is_lost(service: tuple[psutil.Process, str, Path]) -> None:
    process, url, _ = service
    old = searchers_of(process)
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda text: search(url, text).status_code, QUERIES * 25)
        time.sleep(0.1)
        for child in old:
            child.send_signal(signal.SIGKILL)
        assert set(answers) == {200}
    replaced = searchers_of(process)
    assert len(replaced) == 2
    assert {child.pid for child in replaced}.isdisjoint(child.pid for child in old)


@pytest.mark.server
def test_a_service_that_can_start_none_is_not_ready(tmp_path: Path) -> None:
    with served(tmp_path, "--workers", "2") as (process, url):
        written = {"documents": [{"id": "new", "text": "an unheard zebra"}]}
        assert httpx.post(f"{url}/api/v1/indexes/default/documents", json=written, timeout=60).is_success
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        time.sleep(1)  # as long as an answer of the probe holds
        refused = search(url, "zebra")
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "backend_unavailable")
        assert "start the service again" in refused.json()["error"]["message"]
        assert httpx.get(f"{url}/readyz", timeout=60).status_code == 503


@pytest.mark.server
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_they_end_with_the_service(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path, "--workers", "2") as (process, _):
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) == 3
        process.send_signal(number)
        process.wait(30)
        _, left = psutil.wait_procs(family, timeout=30)
        assert left == []


@pytest.mark.slow
def test_what_cannot_be_opened_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    before = psutil.Process().children(recursive=True)
    result = run("serve", "--workers", "2", "--store", f"sqlite:{tmp_path / 'none'}", "--port", str(free_port()))
    assert_one_line(result, "no index at")
    assert psutil.Process().children(recursive=True) == before


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigError, match="needs Linux: start several services"):
        Searchers(ServerSettings(workers=2), pipelines)


def ask(searcher: _Searcher) -> object:
    return searcher.search("default", None, [Query("a dog")], SearchOptions())


def started(
    answer: Callable[[Connection], object], threads: ThreadPoolExecutor
) -> tuple[_Searcher, list[Future[object]]]:
    """Return what a service has of a process, and the threads that stand for processes."""
    processes: list[Future[object]] = []

    def order() -> Connection:
        here, there = Pipe()
        there.send("")
        processes.append(threads.submit(answer, there))
        return here

    return _Searcher(order), processes


def test_a_search_that_is_given_up_is_given_up_there() -> None:
    token = CancelToken()

    def answer(service: Connection) -> None:
        number, _ = service.recv()
        token.cancel()
        assert service.recv() == (number, None)
        service.send((OperationCancelledError("it was cancelled"), []))
        service.recv()
        service.send(([], []))

    with ThreadPoolExecutor(1) as threads:
        searcher, [answered] = started(answer, threads)
        with running_under(token), pytest.raises(OperationCancelledError):
            ask(searcher)
        assert ask(searcher) == [], "the next search may use it"
        answered.result()


def test_a_search_is_given_up_where_its_process_has_ended() -> None:
    token = CancelToken()

    def end(service: Connection) -> None:
        service.recv()
        service.close()
        token.cancel()  # which raises nothing

    with ThreadPoolExecutor(1) as threads:
        searcher, processes = started(end, threads)
        with running_under(token), pytest.raises(OperationCancelledError):
            ask(searcher)
        processes[0].result()


def test_processes_that_end_again_and_again_are_said() -> None:
    def end(service: Connection) -> None:
        service.recv()
        service.close()

    with ThreadPoolExecutor(4) as threads:
        searcher, processes = started(end, threads)
        with pytest.raises(BackendUnavailableError, match="3 processes ended"):
            ask(searcher)
        searcher.close()
        assert len(processes) == 4, "the last one is for the next search"


def test_searches_wait_in_turn_and_may_be_given_up(tmp_path: Path) -> None:
    settings = ServerSettings(indexes={"default": IndexSettings(f"sqlite:{tmp_path / 'index'}", "mock:")}, workers=1)
    with Searchers(settings, pipelines) as searchers, ThreadPoolExecutor(4) as threads:
        searchers.start()
        taken, order, tokens = searchers._take(), list[int](), [CancelToken() for _ in range(4)]

        def wait(number: int) -> None:
            with running_under(tokens[number]):
                searcher = searchers._take()
            order.append(number)
            searchers._give(searcher)

        waiting = []
        for number in range(4):
            waiting.append(threads.submit(wait, number))
            while len(searchers._waiting) <= number:
                time.sleep(0.001)
        tokens[1].cancel()
        with pytest.raises(OperationCancelledError):
            waiting[1].result(10)
        searchers._give(taken)
        for number in (0, 2, 3):
            waiting[number].result(10)
        assert order == [0, 2, 3]


class _BrokenPipeline:
    def _search(self, *_: object) -> list[Matches]:
        assert REQUEST_ID.get() == "of-the-request", "so that log lines have it"
        raise KeyError("a bug")


def test_a_bug_is_told_with_its_traceback() -> None:
    broken: Any = {"default": _BrokenPipeline()}
    result, _ = _answer(
        broken, CancelToken(), ("of-the-request", {}, "default", None, [Query("a dog")], SearchOptions())
    )
    assert isinstance(result, RuntimeError)
    assert "in _search" in str(result)
    assert "KeyError: 'a bug'" in str(result)


def test_a_process_searches_within_the_scope_of_a_search() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        pipeline.add([Document("pay", text="a dog", readers=["group:hr"]), Document("map", text="a dog")])
        found = {}
        for name, scope in (("all", None), ("hr", readable(["group:hr"])), ("none", readable([]))):
            arguments: Any = ("of-the-request", {}, "default", scope, [Query("a dog")], SearchOptions(min_score=0))
            result: Any = _answer({"default": pipeline}, CancelToken(), arguments)[0]
            found[name] = {match.document.id for match in result[0]}
    assert found == {"all": {"pay", "map"}, "hr": {"pay", "map"}, "none": {"map"}}


@pytest.mark.server
def test_a_request_is_answered_within_its_principals(service: tuple[psutil.Process, str, Path]) -> None:
    _, url, _ = service
    documents = [{"id": "pay", "text": "a quagga of hr", "readers": ["group:hr"]}, {"id": "zoo", "text": "a quagga"}]
    path = f"{url}/api/v1/indexes/default"
    added = httpx.post(f"{path}/documents", json={"documents": documents}, timeout=60)
    assert added.json().get("added") == 2, added.text
    form = {"text": "a quagga", "min_score": 0, "limit": 50}
    for principals, expected in (("group:hr", {"pay", "zoo"}), ("*", {"zoo"}), ("group:hr;*", {"zoo"})):
        answer = httpx.post(f"{path}/search", json=form, headers={HEADER: principals}, timeout=60).json()
        assert {match["id"] for match in answer["matches"] if "quagga" in match["text"]} == expected
    httpx.post(f"{path}/documents/delete", json={"ids": ["pay", "zoo"]}, timeout=60).raise_for_status()
