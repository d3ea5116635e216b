"""The OpenAPI document holds: whatever is sent, there is no server error and no answer that it does not describe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
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
    unsupported_method,
]
QUICK, MANY = 10, 400
"""Cases of each operation, as documented and otherwise."""


def operations() -> list[Any]:
    """All operations of the document."""
    with Service.open(ServerSettings()) as service:
        document = create_app(service).openapi()
    return [cast("Any", found).ok() for found in schemathesis.openapi.from_dict(document).get_all_operations()]


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
    """How many requests were sent, all of which were answered as documented."""
    sent = 0

    @settings(max_examples=cases, suppress_health_check=list(HealthCheck), deadline=None)
    @given(operation.as_strategy(generation_mode=mode))
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


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_ten_thousand_requests_are_answered_as_documented(service: RunningService) -> None:
    assert sum(check(service, operation, mode, MANY) for operation, mode in OPERATIONS) >= 10_000
