"""Requests that are wrong in many places: each is refused at the first, and nothing in them is without a bound."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema

from tests.support.service import RunningService
from vlmsearch.schema import FILTER
from vlmsearch.server.app import BODIES
from vlmsearch.server.bodies import MAX_VALUES
from vlmsearch.server.forms import SearchForm
from vlmsearch.server.routes.session import SessionForm

SEARCH = "/api/v1/indexes/notes/search"
JSON = {"Content-Type": "application/json"}


def unbounded(schema: Any, place: str) -> Iterator[str]:
    """The places of a schema where a list, a string or a mapping may have any length."""
    if isinstance(schema, dict) and FILTER.items() <= schema.items():
        return  # as many values as the JSON of a request has
    if isinstance(schema, list):
        for number, each in enumerate(schema):
            yield from unbounded(each, f"{place}[{number}]")
    elif isinstance(schema, dict):
        is_fixed = "const" in schema or "enum" in schema
        bounds = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
        kind = schema.get("type")
        bound = bounds.get(kind) if isinstance(kind, str) else None
        is_form = kind == "object" and "properties" in schema
        if bound and not (bound in schema or is_fixed or is_form):
            yield place
        is_narrowed = is_form or "$ref" in schema  # the rules beside a form repeat a part of it
        for name, each in schema.items():
            if name not in ("default", "example") and not (is_narrowed and name == "anyOf"):
                yield from unbounded(each, f"{place}.{name}")


def test_every_list_string_and_mapping_of_a_request_has_a_bound() -> None:
    forms: tuple[type[BaseModel], ...] = (*BODIES, SessionForm)
    _, found = models_json_schema([(form, "validation") for form in forms])
    assert len(found["$defs"]) > 25
    assert list(unbounded(found["$defs"], "")) == []


ONES = "[" + ",".join("1" * 100_000) + "]"
MANY = {
    "a list": f'{{"text": "x", "facets": {ONES}}}',
    "a list of ids": f'{{"text": "x", "like": {ONES}}}',
    "one of several forms": f'{{"text": "x", "without": {ONES}}}',
    "a mapping": '{"text": "x", "weights": {' + ",".join(f'"{n}": "x"' for n in range(50_000)) + "}}",
    "unknown keys": '{"text": "x", ' + ",".join(f'"{n}": 1' for n in range(50_000)) + "}",
    "unknown keys below": '{"text": "x", "without": {' + ",".join(f'"{n}": 1' for n in range(50_000)) + "}}",
}


@pytest.mark.parametrize("body", MANY.values(), ids=MANY)
def test_a_request_is_refused_at_its_first_errors(body: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SearchForm.model_validate_json(body)
    assert caught.value.error_count() < 10


@pytest.mark.parametrize("body", MANY.values(), ids=MANY)
def test_what_is_wrong_many_times_is_answered_with_the_first(running_service: RunningService, body: str) -> None:
    tracemalloc.start()
    try:
        found = running_service.http.post(SEARCH, content=body, headers=JSON)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.status_code, found.json()["error"]["type"]) == (422, "invalid_request")
    assert len(found.json()["error"]["message"]) < 1000
    assert most < 40 * len(body)


def test_an_unknown_key_is_named(running_service: RunningService) -> None:
    question = {"question": "a", "options": {"colour": "red", "size": 3}}
    error = running_service.http.post("/api/v1/indexes/notes/ask", json=question).json()["error"]
    assert error["param"] == "options.colour"
    error = running_service.http.post(SEARCH, json={"colour": "red", "size": 3}).json()["error"]
    assert error["param"] == "colour"


@pytest.mark.parametrize("inner", ["1,", "[],", "{},", '"",', '"\\\\",', '"\\"",'])
def test_a_body_of_too_many_values_is_not_parsed(running_service: RunningService, inner: str) -> None:
    body = '{"text": "x", "where": {"n": {"$in": [' + inner * MAX_VALUES + "1]}}}"
    for path in (SEARCH, "/api/v1/indexes/notes/documents", "/v1/embeddings", "/rerank"):
        found = running_service.http.post(path, content=body, headers=JSON)
        assert (found.status_code, found.json()["error"]["type"]) == (413, "too_large"), path
        assert f"{MAX_VALUES:,} values" in found.json()["error"]["message"]


def test_what_a_text_says_is_no_value(running_service: RunningService) -> None:
    text = 'a, [b], {"c"} and \\ ' * MAX_VALUES
    document = {"id": "long", "text": text[: 2**20]}
    found = running_service.http.post("/api/v1/indexes/empty/documents", json={"documents": [document]})
    assert found.status_code == 200, found.text
    running_service.http.post("/api/v1/indexes/empty/documents/delete", json={"ids": ["long"]})


WRONG_ENTRIES: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/embeddings", {"model": "notes", "input": ["a", ""]}, "input[1]: String should have at least 1 character"),
    ("/v1/embeddings", {"model": "notes", "input": [[1], [2, "a"]]}, "input[1][1]: Input should be a valid integer"),
    ("/v1/embeddings", {"model": "notes", "input": ["a"] * 2049}, "input: List should have at most 2048 items"),
    (SEARCH, {"text": "a", "without": ["a", ""]}, "without[1]: String should have at least 1 character"),
    ("/api/v1/indexes/notes/jobs", {"kind": "index", "paths": [""]}, "paths[0]: String should have at least 1"),
    ("/v1/rerank", {"query": "a", "documents": ["a", {"words": 1}]}, "documents[1].text: Field required"),
    ("/rerank", {"query": "a", "texts": ["a", 3]}, "texts[1]: Input should be a valid string"),
    ("/v1/embeddings", {"model": "notes", "input": 3}, "input: Input should be a valid string or Input should be a"),
]


@pytest.mark.parametrize(("path", "body", "said"), WRONG_ENTRIES)
def test_a_wrong_entry_is_named_without_the_kinds_of_a_union(
    running_service: RunningService, path: str, body: dict[str, Any], said: str
) -> None:
    answer = running_service.http.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (422, said.partition(":")[0])
    assert error["message"].startswith(said)
