"""Whether the service says how it is."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from vlmsearch_mocks import MemoryStore

from tests.support.service import RunningService, serving
from vlmsearch._util.cancellation import pause
from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    IndexMismatchError,
    InvalidInputError,
    MissingDependencyError,
    ModelUnavailableError,
    OverloadedError,
)
from vlmsearch.server.routes import health
from vlmsearch.server.settings import IndexSettings, ServerSettings


def test_a_service_whose_back_ends_answer_is_ready(running_service: RunningService) -> None:
    assert running_service.http.get("/healthz").json() == {"status": "ok"}
    assert running_service.http.get("/readyz").json() == {"status": "ok"}


def test_the_openapi_document_describes_the_search(running_service: RunningService) -> None:
    document = running_service.http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    body = document["paths"]["/api/v1/indexes/{index}/search"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "multipart/form-data"}
    assert "SearchForm" in document["components"]["schemas"]


@pytest.fixture
def asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer of the back ends holds for the next request."""
    monkeypatch.setattr(health, "_KEPT", 0.0)


@pytest.mark.parametrize("error", [None, BackendUnavailableError("x")])
def test_many_probes_ask_the_back_ends_once_a_second(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception | None
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: now))
    manifest, asked = MemoryStore.manifest, []

    def count(self: MemoryStore) -> object:
        asked.append(self)
        if error is not None:
            raise error
        return manifest(self)

    settings = ServerSettings(indexes={"notes": IndexSettings("mock:", "mock:", generator="")}, uploads=str(tmp_path))
    with serving(settings) as service:
        monkeypatch.setattr(MemoryStore, "manifest", count)

        def probe(_: object) -> int:
            return service.http.get("/readyz").status_code

        expected = 503 if error else 200
        for turn in (1, 2):
            with ThreadPoolExecutor(8) as threads:
                assert set(threads.map(probe, range(8))) == {expected}
            assert len(asked) == turn
            now += health._KEPT


@pytest.mark.usefixtures("asked_each_time")
def test_a_service_is_not_ready_while_a_back_end_does_not_answer(
    running_service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: MemoryStore) -> None:
        raise BackendUnavailableError("mock: at secret-host is not reached")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "manifest", fail)
        found = running_service.http.get("/readyz")
    assert (found.status_code, found.json()["error"]["type"]) == (503, "backend_unavailable")
    assert "secret-host" not in found.text
    assert int(found.headers["retry-after"]) >= 1
    assert running_service.http.get("/healthz").status_code == 200
    assert running_service.http.get("/readyz").status_code == 200


@pytest.mark.usefixtures("asked_each_time")
def test_a_back_end_that_hangs_is_not_waited_for(
    running_service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_PATIENCE", 0.2)
    monkeypatch.setattr(MemoryStore, "manifest", lambda _: pause(20))
    begun = time.monotonic()
    assert running_service.http.get("/readyz").status_code == 503
    assert time.monotonic() - begun < 18


def test_indexes_share_the_encoder_of_one_url(running_service: RunningService) -> None:
    notes, empty = (running_service.service.indexes[name].pipeline for name in ("notes", "empty"))
    assert notes.encoder is empty.encoder
    assert notes.store is not empty.store


@pytest.mark.parametrize(
    ("error", "status", "type"),
    [
        (ConfigError("x"), 400, "invalid_request"),
        (InvalidInputError("empty", "x"), 400, "invalid_request"),
        (IndexMismatchError("x"), 409, "index_mismatch"),
        (MissingDependencyError("x"), 501, "missing_dependency"),
        (ModelUnavailableError("x"), 501, "model_unavailable"),
        (BackendError("x"), 502, "backend_failed"),
        (BackendUnavailableError("x"), 503, "backend_unavailable"),
        (OverloadedError("x", retry_after=2.5), 429, "overloaded"),
        (TimeoutError("x"), 504, "timeout"),
        (ZeroDivisionError("secret"), 500, "internal"),
    ],
)
def test_every_error_of_a_back_end_has_its_status(
    running_service: RunningService, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, type: str
) -> None:
    def fail(self: MemoryStore) -> None:
        raise error

    monkeypatch.setattr(MemoryStore, "manifest", fail)
    found = running_service.http.get("/api/v1/indexes/empty")
    assert (found.status_code, found.json()["error"]["type"]) == (status, type)
    assert found.json()["error"]["code"] == getattr(error, "code", None)
    assert "secret" not in found.text
    if status in (429, 503):
        assert found.headers["retry-after"] == ("3" if status == 429 else "1")
