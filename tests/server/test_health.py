"""Whether the service says how it is."""

from tests.support.service import RunningService


def test_a_service_whose_back_ends_answer_is_ready(running_service: RunningService) -> None:
    assert running_service.http.get("/healthz").json() == {"status": "ok"}
    assert running_service.http.get("/readyz").json() == {"status": "ok"}


def test_the_openapi_document_describes_the_search(running_service: RunningService) -> None:
    document = running_service.http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    body = document["paths"]["/api/v1/indexes/{index}/search"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "multipart/form-data"}
    assert "SearchForm" in document["components"]["schemas"]
