"""An explicit null is left out, on every route: as litellm, Dify and tools in strict mode send it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.service import RunningService, serving
from vlmsearch import Document
from vlmsearch.server.app import create_app
from vlmsearch.server.service import Service
from vlmsearch.server.settings import IndexSettings, ServerSettings

INDEX = "/api/v1/indexes/{index}"
JUDGED = [{"query": "a dog", "relevant": ["a"], "id": "1"}]
BODIES: dict[str, list[dict[str, Any]]] = {
    f"{INDEX}/search": [{"text": "a dog"}],
    f"{INDEX}/search_many": [{"queries": [{"text": "a dog"}]}],
    f"{INDEX}/explain": [{"text": "a dog", "id": "a"}],
    f"{INDEX}/ask": [{"question": "Which dog?"}, {"question": "Which dog?", "options": {}, "pictures": {}}],
    f"{INDEX}/label": [{"labels": ["dog"]}],
    f"{INDEX}/eval": [{"queries": JUDGED}],
    f"{INDEX}/documents": [{"documents": [{"id": "a", "text": "a dog"}]}],
    f"{INDEX}/documents/delete": [{"ids": ["nobody"]}],
    f"{INDEX}/documents/metadata": [{"ids": ["nobody"]}],
    f"{INDEX}/jobs": [{"kind": "check"}, {"kind": "duplicates"}, {"kind": "eval", "queries": JUDGED}],
    "/v1/embeddings": [{"model": "default/minilm", "input": "a dog"}],
    "/v1/chat/completions": [{"model": "default", "messages": [{"role": "user", "content": "Which dog?"}]}],
    "/v1/rerank": [{"query": "a dog", "documents": ["a dog", "a car"]}],
    "/v2/rerank": [{"model": "default", "query": "a dog", "documents": ["a dog", "a car"]}],
    "/rerank": [{"query": "a dog", "texts": ["a dog", "a car"]}, {"query": "a dog", "documents": ["a dog", "a car"]}],
}
"""Requests that are answered, by route."""
CHANGING = {"id", "created", "seconds", "p50", "p95", "request_id", "ended", "state", "result", "done", "total"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("nulls")
    settings = IndexSettings(store=f"sqlite:{folder}/index", encoder="onnx:demo", reranker="onnx:demo-reranker")
    with serving(ServerSettings(indexes={"default": settings}, uploads=f"{folder}/uploads")) as opened:
        opened.service.indexes["default"].pipeline.add([Document("a", text="a dog"), Document("b", text="a car")])
        yield opened


def resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference names."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def with_nulls(given: Any, schema: dict[str, Any], document: dict[str, Any]) -> Any:
    """A request with a null for every key that it leaves out, within its values too."""
    schema = resolved(schema, document)
    kinds = schema.get("anyOf") or schema.get("oneOf") or [schema]
    for kind in (resolved(kind, document) for kind in kinds):
        properties = kind.get("properties", {})
        if isinstance(given, dict) and given.keys() <= properties.keys():
            constant = {name: properties[name].get("const", given[name]) for name in given}
            if constant == given:
                inner = {name: with_nulls(value, properties[name], document) for name, value in given.items()}
                return dict.fromkeys(properties) | inner
        if isinstance(given, list) and "items" in kind:
            return [with_nulls(item, kind["items"], document) for item in given]
    return given


def steady(value: Any) -> Any:
    """An answer without what changes from one to the next."""
    if isinstance(value, dict):
        return {name: steady(part) for name, part in value.items() if name not in CHANGING}
    return [steady(part) for part in value] if isinstance(value, list) else value


def documented() -> dict[str, Any]:
    with Service.open(ServerSettings()) as opened:
        return create_app(opened).openapi()


def test_every_route_leaves_nulls_out(service: RunningService) -> None:
    document, sent = documented(), 0
    posts = {path: item["post"] for path, item in document["paths"].items() if "requestBody" in item.get("post", {})}
    assert {path for path in posts if not path.endswith("/session")} == BODIES.keys()
    for path, bodies in BODIES.items():
        schema = posts[path]["requestBody"]["content"]["application/json"]["schema"]
        for body in bodies:
            nulls = with_nulls(body, schema, document)
            answers = [service.http.post(path.format(index="default"), json=given) for given in (body, nulls)]
            assert [answer.is_success for answer in answers] == [True, True], (path, nulls, answers[1].text)
            assert steady(answers[0].json()) == steady(answers[1].json()), path
            sent += len(nulls) - len(body)
    assert sent > 100


@pytest.mark.parametrize("empty", [{"where": {}}, {"without": ""}, {"without": []}, {"weights": {}}, {"like": []}])
def test_an_empty_filter_and_an_empty_text_are_left_out(service: RunningService, empty: dict[str, Any]) -> None:
    path = "/api/v1/indexes/default/search"
    answer = service.http.post(path, json={"text": "a dog", **empty})
    assert answer.json() == service.http.post(path, json={"text": "a dog"}).json()


@pytest.mark.parametrize("where", ["", "{}", " "])
def test_an_empty_filter_of_an_address_is_left_out(service: RunningService, where: str) -> None:
    for path in ("/api/v1/indexes/default/documents", "/api/v1/indexes/default/facets"):
        assert service.http.get(path, params={"where": where}).json() == service.http.get(path).json()


def test_a_null_where_something_is_needed_is_refused(service: RunningService) -> None:
    for path, body in (("ask", {"question": None}), ("label", {"labels": None}), ("explain", {"id": None})):
        assert service.http.post(f"/api/v1/indexes/default/{path}", json=body).status_code == 422
