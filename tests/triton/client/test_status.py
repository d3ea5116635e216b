"""What a Triton server says of itself, made into a table."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any

import grpc
import pytest
from rich.console import Console
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc

from vlmsearch.triton.client.status import ServerStatus, table


class Scripted(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """A server with one model that has answered ``requests``, which waited and were computed for ``nanoseconds``."""

    def __init__(self) -> None:
        self.requests = self.nanoseconds = 0

    def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        return messages.ServerMetadataResponse(version="2.51.0")

    def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        answer = messages.RepositoryIndexResponse()
        answer.models.add(name="only", version="1", state="READY")
        return answer

    def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        answer = messages.ModelStatisticsResponse()
        found = answer.model_stats.add(name="only", version="1").inference_stats
        found.success.count = self.requests
        found.queue.ns = found.compute_infer.ns = self.nanoseconds
        return answer


@pytest.fixture
def server() -> Iterator[tuple[Scripted, ServerStatus]]:
    scripted = Scripted()
    with ThreadPoolExecutor(4) as threads:
        running = grpc.server(threads)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(scripted, running)
        port = running.add_insecure_port("127.0.0.1:0")
        running.start()
        with ServerStatus(f"127.0.0.1:{port}") as status:
            yield scripted, status
        running.stop(None).wait()


def test_times_of_the_last_seconds_are_exact_however_much_was_done_before(
    server: tuple[Scripted, ServerStatus],
) -> None:
    scripted, status = server
    scripted.requests, scripted.nanoseconds = 10_000_000, 20_004_000_000_000
    before = status.read()
    scripted.requests += 100
    scripted.nanoseconds += 100 * 5_000_000
    now = status.read()
    shown = StringIO()
    Console(file=shown, width=200).print(table(now, before))
    assert shown.getvalue().count("5.00") == 2
    (model,) = now.models
    assert (model.to_json()["queue_ms"], model.to_json()["compute_ms"]) == (2.0, 2.0)
