"""Searches over HTTP: the same as the pipeline's, as JSON and as a form."""

import base64
import json

import pytest
from PIL import Image

from tests.support.odd_images import encoded
from tests.support.service import RunningService
from vlmsearch.demo.scenes import make_scene
from vlmsearch.wire import to_json

SEARCH = "/api/v1/indexes/notes/search"


def png() -> bytes:
    return encoded(make_scene(1).draw(64), "PNG")


def test_a_search_gives_what_the_pipeline_gives(running_service: RunningService) -> None:
    pipeline = running_service.service.indexes["notes"].pipeline
    request = {"text": "a dog -car", "where": {"n": {"$lt": 10}}, "limit": 2, "count": True, "facets": ["n"]}
    found = running_service.http.post(SEARCH, json=request)
    assert found.status_code == 200, found.text
    assert found.json() == to_json(
        pipeline.search("a dog -car", where={"n": {"$lt": 10}}, limit=2, count=True, facets=["n"])
    )
    assert {match["id"] for match in found.json()["matches"]} == {"a", "c"}


@pytest.mark.parametrize("as_data_url", [True, False])
def test_an_image_in_json_and_as_a_file_finds_the_same(running_service: RunningService, as_data_url: bool) -> None:
    encoded = base64.b64encode(png()).decode()
    start = "data:image/png;base64," if as_data_url else ""
    in_json = running_service.http.post(SEARCH, json={"image": start + encoded, "limit": 1}).json()
    as_file = running_service.http.post(
        SEARCH, data={"request": json.dumps({"limit": 1})}, files={"image": ("a.png", png(), "image/png")}
    ).json()
    assert in_json["matches"][0]["id"].endswith("1.png")
    assert in_json == as_file


def test_without_an_image_leaves_it_out(running_service: RunningService) -> None:
    every = running_service.http.post(SEARCH, json={"image": base64.b64encode(png()).decode(), "min_score": 0}).json()
    left = running_service.http.post(
        SEARCH,
        data={"request": json.dumps({"image": base64.b64encode(png()).decode(), "min_score": 0})},
        files={"without_image": ("a.png", png())},
    ).json()
    assert any(match["id"].endswith("1.png") for match in every["matches"])
    assert not any(match["id"].endswith("1.png") for match in left["matches"])


@pytest.mark.parametrize(
    ("request_", "status", "said"),
    [
        ({}, 400, "a query needs a text"),
        ({"text": "a", "limit": 0}, 422, "limit"),
        ({"text": "a", "limit": "3"}, 422, "limit"),
        ({"text": "a", "colour": "red"}, 422, "colour"),
        ({"text": "a", "where": {"$near": 3}}, 400, "$near"),
        ({"text": "a", "like": ["nowhere"]}, 400, "nowhere"),
        ({"text": "a", "image": "%%%"}, 400, "Base64"),
        ({"image": base64.b64encode(b"no image").decode()}, 400, "no format"),
        ({"text": "a", "cursor": "x"}, 400, "cursor"),
        ({"text": "\ud800"}, 422, "Invalid JSON"),
    ],
)
def test_a_bad_request_is_answered_in_one_form(
    running_service: RunningService, request_: dict[str, object], status: int, said: str
) -> None:
    found = running_service.http.post(
        SEARCH, content=json.dumps(request_), headers={"Content-Type": "application/json"}
    )
    assert found.status_code == status, found.text
    error = found.json()["error"]
    assert error["type"] == "invalid_request"
    assert said in error["message"]
    assert set(error) == {"type", "message", "code", "param", "request_id"}


@pytest.mark.parametrize("index", ["notes", "empty"])
def test_a_broken_image_is_refused_by_a_full_and_by_an_empty_index(running_service: RunningService, index: str) -> None:
    found = running_service.http.post(
        f"/api/v1/indexes/{index}/search", json={"image": base64.b64encode(png()[:99]).decode()}
    )
    assert (found.status_code, found.json()["error"]["code"]) == (400, "truncated")


def test_an_image_beyond_the_limits_of_a_server_is_refused(running_service: RunningService) -> None:
    wide = encoded(Image.new("1", (12_001, 10_000)), "PNG")  # within what the command line reads
    image = base64.b64encode(wide).decode()
    embed = {"model": "notes/clip", "input": f"data:image/png;base64,{image}", "modality": "image"}
    for path, body in (
        (SEARCH, {"image": image}),
        ("/api/v1/indexes/empty/search", {"image": image}),
        ("/v1/embeddings", embed),
    ):
        found = running_service.http.post(path, json=body)
        assert (found.status_code, found.json()["error"]["code"]) == (400, "too_large"), path
        assert "120,000,000" in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "type"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("POST", "/api/v1/indexes/nowhere/search", 404, "not_found"),
        ("GET", SEARCH, 405, "method_not_allowed"),
    ],
)
def test_what_is_not_there_is_said_in_the_same_form(
    running_service: RunningService, method: str, path: str, status: int, type: str
) -> None:
    found = running_service.http.request(method, path, json={"text": "a"} if method == "POST" else None)
    assert (found.status_code, found.json()["error"]["type"]) == (status, type)


def test_a_body_of_another_kind_is_refused(running_service: RunningService) -> None:
    found = running_service.http.post(SEARCH, content=b"text=a", headers={"Content-Type": "text/plain"})
    assert (found.status_code, found.json()["error"]["type"]) == (415, "unsupported_media_type")


def test_the_indexes_are_listed_with_what_can_be_done(running_service: RunningService) -> None:
    found = {each["name"]: each for each in running_service.http.get("/api/v1/indexes").json()["indexes"]}
    assert found["notes"]["documents"] == 6
    assert found["notes"]["can"] == {
        "write": True, "admin": True, "ask": True, "rerank": True, "images": True, "words": True, "jobs": True,
        "describe": False,
    }  # fmt: skip
    assert not found["empty"]["can"]["ask"]
    assert not found["empty"]["can"]["rerank"]


def test_re_ranking_is_the_servers(running_service: RunningService) -> None:
    assert running_service.http.post(SEARCH, json={"text": "a dog", "rerank": True}).status_code == 200
    missing = running_service.http.post("/api/v1/indexes/empty/search", json={"text": "a dog", "rerank": True})
    assert (missing.status_code, missing.json()["error"]["type"]) == (501, "not_available")
