"""Whether the service says how it is."""

import time

import pytest
from vlmsearch_mocks import MemoryStore

from tests.support.service import RunningService
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


def test_a_service_whose_back_ends_answer_is_ready(running_service: RunningService) -> None:
    assert running_service.http.get("/healthz").json() == {"status": "ok"}
    assert running_service.http.get("/readyz").json() == {"status": "ok"}


def test_the_openapi_document_describes_the_search(running_service: RunningService) -> None:
    document = running_service.http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    body = document["paths"]["/api/v1/indexes/{index}/search"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "multipart/form-data"}
    assert "SearchForm" in document["components"]["schemas"]


def test_a_service_is_not_ready_while_a_back_end_does_not_answer(
    running_service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: MemoryStore) -> None:
        raise BackendUnavailableError("mock: at secret-host is not reached")

    monkeypatch.setattr(MemoryStore, "manifest", fail)
    found = running_service.http.get("/readyz")
    assert (found.status_code, found.json()["error"]["type"]) == (503, "backend_unavailable")
    assert "secret-host" not in found.text
    assert int(found.headers["retry-after"]) >= 1
    assert running_service.http.get("/healthz").status_code == 200
    monkeypatch.undo()
    assert running_service.http.get("/readyz").status_code == 200


def test_a_back_end_that_hangs_is_not_waited_for(
    running_service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_PATIENCE", 0.2)
    monkeypatch.setattr(MemoryStore, "manifest", lambda _: pause(20))
    begun = time.monotonic()
    assert running_service.http.get("/readyz").status_code == 503
    assert time.monotonic() - begun < 5


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
        (MissingDependencyError("x"), 501, "not_available"),
        (ModelUnavailableError("x"), 501, "not_available"),
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
