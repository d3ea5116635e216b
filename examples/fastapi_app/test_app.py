"""The application without a model and without servers."""

import io
from collections.abc import Iterator

import pytest
from app import MAX_UPLOAD_BYTES, app, get_pipeline
from fastapi.testclient import TestClient
from PIL import Image
from vlmsearch_mocks import Faults, MockEncoder

from vlmsearch import AsyncPipeline, Pipeline

NOTE = {"id": "1", "text": "The museum opens at nine.", "metadata": {"year": 2024}}


@pytest.fixture
def vlmsearch_encoder() -> MockEncoder:
    return MockEncoder(neighbours={"a dog": ["puppy on a lawn"]})


@pytest.fixture
def client(vlmsearch_pipeline: Pipeline) -> Iterator[TestClient]:
    pipeline = AsyncPipeline(vlmsearch_pipeline)
    app.dependency_overrides[get_pipeline] = lambda: pipeline
    yield TestClient(app)
    app.dependency_overrides.clear()


def picture(colour: str = "red") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (32, 32), colour).save(file, "PNG")
    return file.getvalue()


def test_notes_are_found_and_deleted(client: TestClient) -> None:
    assert client.post("/notes", json=NOTE).json()["added"] == 1
    assert client.post("/notes", json={"id": "2", "text": "puppy on a lawn"}).status_code == 201
    [match] = client.get("/search", params={"text": "a dog", "limit": 1}).json()["matches"]
    assert match["document"]["text"] == "puppy on a lawn"
    assert client.get("/documents/1").json() == {**NOTE, "image": None}
    assert client.delete("/documents/1").status_code == 204
    assert client.delete("/documents/1").status_code == 404
    assert client.get("/documents/1").status_code == 404
    assert client.get("/health").json() == {"documents": 1}


def test_pictures_are_found_by_a_picture(client: TestClient) -> None:
    for name in ("red", "blue"):
        answer = client.post("/pictures", data={"id": name}, files={"file": picture(name)})
        assert answer.status_code == 201
    matches = client.post("/search", files={"file": picture("blue")}).json()["matches"]
    assert matches[0]["document"]["id"] == "blue"


def test_an_answer_comes_in_pieces(client: TestClient) -> None:
    client.post("/notes", json=NOTE)
    with client.stream("GET", "/answer", params={"question": "When does the museum open?"}) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[:2] == ["event: text", 'data: "A"']
    assert lines[-4:-1] == ["event: source", 'data: {"number": 1, "id": "1", "passage": null}', "event: end"]


def test_bad_input_is_said(client: TestClient) -> None:
    answer = client.post("/pictures", data={"id": "1"}, files={"file": b"no image"})
    assert answer.status_code == 400
    assert "the image is in no format that can be read" in answer.json()["detail"]
    assert client.get("/search", params={"text": " "}).status_code == 400
    assert client.get("/answer", params={"question": ""}).status_code == 400
    assert client.get("/search", params={"text": "a dog", "limit": 0}).status_code == 422
    files = {"file": b"\0" * (MAX_UPLOAD_BYTES + 1)}
    assert client.post("/pictures", data={"id": "1"}, files=files).status_code == 413


def test_a_store_that_is_down_is_temporary(client: TestClient, vlmsearch_faults: Faults) -> None:
    client.post("/notes", json=NOTE)
    vlmsearch_faults.fail("mongo", times=1000)
    for answer in (client.get("/health"), client.post("/notes", json={"id": "2", "text": "a red car"})):
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert answer.json() == {"detail": "the index does not answer now"}
    vlmsearch_faults.clear()
    assert client.get("/health").json() == {"documents": 1}
