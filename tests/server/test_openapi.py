"""The OpenAPI document holds: whatever is sent, there is no server error and no answer that it does not describe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, reject, settings, strategies as st
from hypothesis.errors import InvalidArgument
from schemathesis.checks import not_a_server_error
from schemathesis.core.errors import InvalidSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.support.service import RunningService, serving
from vlmsearch import Document
from vlmsearch.server.app import create_app
from vlmsearch.server.service import Service
from vlmsearch.server.settings import IndexSettings, ServerSettings

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    unsupported_method,
]
CONFIG = Path(__file__).parent / "schemathesis.toml"
QUICK, MANY = 6, 400
"""Cases of each operation, as documented and otherwise."""


def operations() -> list[Any]:
    """All operations of the document."""
    with Service.open(ServerSettings()) as service:
        document = create_app(service).openapi()
    config = schemathesis.Config.from_path(CONFIG)
    schema = schemathesis.openapi.from_dict(document, config=config)
    return [cast("Any", found).ok() for found in schema.get_all_operations()]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("api")
    (folder / "up").mkdir()
    index = IndexSettings(f"sqlite:{folder / 'index'}", "mock:", "extractive:", "mock:", allow=(str(folder / "up"),))
    with serving(ServerSettings(indexes={"default": index}, uploads=str(folder / "up"))) as running:
        running.service.indexes["default"].pipeline.add(
            Document(str(n), text=f"a dog of {n}", metadata={"n": n}) for n in range(20)
        )
        yield running


def check(service: RunningService, operation: Any, mode: Any, cases: int) -> int:
    """How many requests were sent, all of which were answered as documented.

    For some wrong requests, such as a string that is too long, the generator fails by chance: others are made instead.
    No failure is made shorter, which takes minutes.
    """
    sent = 0

    @st.composite
    def requests(draw: st.DrawFn) -> Any:
        try:
            return draw(operation.as_strategy(generation_mode=mode))
        except (InvalidArgument, InvalidSchema):
            return reject()

    @settings(max_examples=cases, suppress_health_check=list(HealthCheck), deadline=None, phases=[Phase.generate])
    @given(requests())
    def answer(case: Any) -> None:
        nonlocal sent
        sent += 1
        if len(str(case.path_parameters)) % 4 and "index" in case.path_parameters:
            case.path_parameters["index"] = "default"
        case.call_and_validate(base_url=service.url, checks=CHECKS)

    answer()
    return sent


POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
OPERATIONS: list[tuple[Any, Any]] = [
    (operation, mode)
    for operation in operations()
    for mode in (POSITIVE, NEGATIVE)
    if mode is POSITIVE or operation.body or operation.label.endswith(("image", "thumbnail"))
]
"""All operations, and for those where something can be wrong by the document, what is wrong."""


@pytest.mark.parametrize(
    ("operation", "mode"), OPERATIONS, ids=[f"{mode.value}-{operation.label}" for operation, mode in OPERATIONS]
)
def test_requests_are_answered_as_documented(service: RunningService, operation: Any, mode: Any) -> None:
    assert check(service, operation, mode, QUICK)


@pytest.mark.slow
def test_the_program_finds_nothing(service: RunningService, tmp_path: Path) -> None:
    """All checks, also those of sequences of requests: whether `Allow` is true, and what is deleted is gone."""
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", "--no-color"]
    options = ["--phases", "coverage,stateful", "--max-examples", "5", "--seed", "1"]
    done = subprocess.run(
        [*command, f"{service.url}/openapi.json", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    sent = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert sent
    assert sent[1] == sent[2]
    assert int(sent[1]) > 1000


@pytest.mark.parametrize("document", [{"raw_scores": 0}, {"raw_scores": True}, {"top_n": 1.5}, {"top_n": True}])
def test_numbers_are_no_bools(service: RunningService, document: dict[str, object]) -> None:
    form = {"query": "a dog", "documents": ["a dog", "a cat"]}
    assert service.http.post("/rerank", json={**form, "top_n": 1.0, "raw_scores": False}).status_code == 200
    assert service.http.post("/rerank", json={**form, **document}).status_code == 422


@pytest.mark.parametrize(
    ("where", "is_filter"),
    [
        ({"n": 3}, True),
        ({"n": {"$gte": 3, "$in": [1, "a"]}}, True),
        ({"$and": [{"n": 3}, {"$or": [{"n": {"$ne": True}}]}]}, True),
        ({}, True),
        ({"n": {}}, False),
        ({"n": None}, False),
        ({"n": {"$gte": "3"}}, False),
        ({"n": {"$in": []}}, False),
        ({"n": {"$no": 1}}, False),
        ({"$and": [{}]}, False),
        ({"$not": [{"n": 3}]}, False),
        ({"": 1}, False),
    ],
)
def test_the_document_says_what_a_filter_is(service: RunningService, where: dict[str, Any], is_filter: bool) -> None:
    schemas = service.http.get("/openapi.json").json()["components"]["schemas"]
    schema = {**schemas["SearchForm"]["properties"]["where"], "components": {"schemas": schemas}}
    assert jsonschema_rs.Draft202012Validator(schema).is_valid(where) is is_filter
    answers = [
        service.http.post("/api/v1/indexes/default/search", json={"text": "a dog", "where": where}),
        service.http.get("/api/v1/indexes/default/documents", params={"where": json.dumps(where)}),
    ]
    assert [answer.status_code for answer in answers] == [200 if is_filter else 400] * 2


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_ten_thousand_requests_are_answered_as_documented(service: RunningService) -> None:
    assert sum(check(service, operation, mode, MANY) for operation, mode in OPERATIONS) >= 10_000
