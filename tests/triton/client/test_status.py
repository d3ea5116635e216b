"""What a Triton server says of itself, made into a table."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console
from tritonclient.grpc import service_pb2 as messages, service_pb2_grpc

from tests.support.scripted_triton import serve
from vlmsearch.triton.client.status import read_status, table


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


def test_times_are_those_of_a_request() -> None:
    scripted = Scripted()
    scripted.requests, scripted.nanoseconds = 10_000_000, 20_004_000_000_000
    with serve(scripted) as (_, port):
        now = read_status(f"127.0.0.1:{port}")
    shown = StringIO()
    Console(file=shown, width=200).print(table(now))
    assert shown.getvalue().count("2.00") == 2
    (model,) = now.models
    assert (model.to_json()["queue_ms"], model.to_json()["compute_ms"]) == (2.0, 2.0)
