"""Streams of responses, from a server that does not end them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as messages, service_pb2_grpc

from tests.support.scripted_triton import serve
from vlmsearch.triton.client import stream
from vlmsearch.triton.client.connection import Connection


class Lingering(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers with the last response, and leaves the stream open."""

    is_over = threading.Event()

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802 - Triton's name
        next(requests)
        last = messages.ModelInferResponse(model_name="m")
        last.parameters["triton_final_response"].bool_param = True
        yield messages.ModelStreamInferResponse(infer_response=last)
        self.is_over.wait(60)


def test_a_server_that_leaves_a_stream_open_is_left_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_END_SECONDS", 0.5)
    with serve(Lingering()) as (_, port), Connection(f"127.0.0.1:{port}", timeout=5, deadline=5) as connection:
        started, inputs = time.monotonic(), {"x": np.zeros(1, np.float32)}
        assert list(stream.stream_responses(connection, "m", inputs, ["y"], timeout=0.5, deadline=0.5)) == []
        assert time.monotonic() - started < 20, "it would wait for 60"
        Lingering.is_over.set()
