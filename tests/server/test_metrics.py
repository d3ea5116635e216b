"""What Prometheus reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from vlmsearch_mocks import MemoryStore

from tests.support.service import RunningService, serving
from vlmsearch import BackendUnavailableError, Document
from vlmsearch._util.tracing import stage
from vlmsearch.server import metrics as server_metrics
from vlmsearch.server.app import create_app
from vlmsearch.server.caller import Caller
from vlmsearch.server.dependencies import get_caller
from vlmsearch.server.metrics import Metrics
from vlmsearch.server.service import Service
from vlmsearch.server.settings import IndexSettings, ServerSettings

Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]
SEARCH = "/api/v1/indexes/{index}/search"


def figures_of(page: str) -> Figures:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def figure(figures: Figures, name: str, **labels: str) -> float:
    return figures.get((name, tuple(sorted(labels.items()))), 0.0)


def figures(running: RunningService) -> Figures:
    answer = running.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == server_metrics.CONTENT_TYPE
    return figures_of(answer.text)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningService]:
    settings = ServerSettings(indexes={"notes": IndexSettings(f"sqlite:{tmp_path}/notes", "mock:")})
    with serving(settings) as opened:
        yield opened


def test_requests_are_counted_by_the_template_of_their_route(running: RunningService) -> None:
    for path in ("/api/v1/indexes/notes/search", "/api/v1/indexes/secret/search"):
        running.http.post(path, json={"text": "dog"})
    running.http.get("/api/v1/indexes/notes/search")
    running.http.get("/nothing/here")
    found = figures(running)
    count = "vlmsearch_http_requests_total"
    assert figure(found, count, method="POST", route=SEARCH, status="200") == 1
    assert figure(found, count, method="POST", route=SEARCH, status="404") == 1
    assert figure(found, count, method="GET", route=SEARCH, status="405") == 1
    assert figure(found, count, method="GET", route="other", status="404") == 1
    assert figure(found, "vlmsearch_http_request_duration_seconds_count", method="POST", route=SEARCH) == 2
    assert figure(found, "vlmsearch_http_requests_in_progress") == 1, "that of the figures themselves"
    assert not any("secret" in value for _, labels in found for _, value in labels)


def test_the_stages_of_a_search_are_measured(running: RunningService) -> None:
    running.service.indexes["notes"].pipeline.add(Document("a", text="a dog"))
    before = figures(running)
    running.http.post("/api/v1/indexes/notes/search", json={"text": "dog"})
    after = figures(running)
    for each in ("encode", "store", "fuse"):
        name = "vlmsearch_stage_duration_seconds_count"
        labels = {"operation": "search", "stage": each}
        assert figure(after, name, **labels) > figure(before, name, **labels)


def test_a_stage_that_fails_is_counted_by_its_error(running: RunningService) -> None:
    with pytest.raises(BackendUnavailableError), stage("store"):
        raise BackendUnavailableError("gone")
    found = figures(running)
    labels = {"operation": "", "stage": "store", "error": "BackendUnavailableError"}
    assert figure(found, "vlmsearch_stage_failures_total", **labels) == 1


def test_the_documents_of_an_index_are_counted(running: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_metrics, "_COUNT_EVERY", 0.0)
    assert figure(figures(running), "vlmsearch_index_documents", index="notes") == 0
    running.service.indexes["notes"].pipeline.add(Document(str(n), text=f"dog {n}") for n in range(3))
    found = figures(running)
    assert figure(found, "vlmsearch_index_documents", index="notes") == 3
    assert figure(found, "vlmsearch_index_up", index="notes") == 1


def test_a_store_that_does_not_answer_holds_no_scrape_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_metrics, "_COUNT_EVERY", 0.0)
    monkeypatch.setattr(server_metrics, "_COUNT_FOR", 0.05)
    silent, gone = threading.Event(), threading.Event()

    def manifest(store: MemoryStore) -> None:
        silent.wait()
        gone.set()
        raise BackendUnavailableError("it is away")

    settings = ServerSettings(indexes={"notes": IndexSettings("mock:", "mock:")})
    with Service.open(settings) as service:
        metrics = Metrics(service)
        with metrics.counting():
            assert figure(figures_of(metrics.page().decode()), "vlmsearch_index_up", index="notes") == 1
            monkeypatch.setattr(MemoryStore, "manifest", manifest)
            for _ in range(3):
                assert figure(figures_of(metrics.page().decode()), "vlmsearch_index_up", index="notes") == 1
            silent.set()
            assert gone.wait(60)
            page = metrics.page().decode()
            while "vlmsearch_index_documents{" in page:
                page = metrics.page().decode()
            assert figure(figures_of(page), "vlmsearch_index_up", index="notes") == 0
            monkeypatch.undo()


def test_a_service_that_has_ended_listens_no_more(tmp_path: Path) -> None:
    settings = ServerSettings(indexes={"notes": IndexSettings("mock:", "mock:")})
    with serving(settings) as running:
        from vlmsearch._util import tracing

        assert len(tracing._listeners) >= 1
        mine = tracing._listeners[-1]
        assert running.http.get("/healthz").status_code == 200
    assert mine not in tracing._listeners


def test_batches_and_the_queue_before_them_are_counted(running: RunningService) -> None:
    running.http.post("/api/v1/indexes/notes/search", json={"text": "dog"})  # an empty index encodes nothing
    running.service.indexes["notes"].pipeline.add(Document("a", text="a dog"))
    before = figure(figures(running), "vlmsearch_batch_items_sum", kind="query")
    running.http.post("/api/v1/indexes/notes/search", json={"text": "dog"})
    found = figures(running)
    assert figure(found, "vlmsearch_batch_items_sum", kind="query") == before + 1
    assert figure(found, "vlmsearch_batch_requests_count", kind="document") == 1
    [encoder] = running.service.encoders.values()
    assert found["vlmsearch_queue_requests", (("encoder", encoder.fingerprint),)] == 0
    assert found["vlmsearch_queue_refused_total", (("encoder", encoder.fingerprint),)] == 0


def test_jobs_are_counted_by_their_state(running: RunningService) -> None:
    running.service.indexes["notes"].pipeline.add(Document("a", text="a dog"))
    job = running.http.post("/api/v1/indexes/notes/jobs", json={"kind": "check"}).json()
    while running.http.get(f"/api/v1/jobs/{job['id']}").json()["state"] not in ("done", "failed"):
        time.sleep(0.01)
    assert figure(figures(running), "vlmsearch_jobs", kind="check", state="done") == 1


@pytest.mark.parametrize(("indexes", "status"), [(None, 200), (frozenset({"notes"}), 403)])
def test_a_token_that_does_not_see_all_indexes_reads_no_figures(indexes: frozenset[str] | None, status: int) -> None:
    with Service.open(ServerSettings(indexes={"notes": IndexSettings("mock:", "mock:")})) as service:
        app = create_app(service)
        app.dependency_overrides[get_caller] = lambda: Caller("prometheus", "read", indexes)
        with TestClient(app, base_url="http://127.0.0.1") as client:
            answer = client.get("/metrics")
    assert answer.status_code == status
    assert ("vlmsearch_index_documents" in answer.text) is (status == 200)
