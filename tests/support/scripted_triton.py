"""A Triton whose answers are written down."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2 as messages, service_pb2_grpc as service

from tests.support.triton_bundles import BOTH
from vlmsearch.triton.repository.options import RepoOptions
from vlmsearch.triton.repository.writer import make_configs

CONFIGS = make_configs(BOTH, RepoOptions())


Failure = tuple[grpc.StatusCode, str]


@dataclass
class Scripted(service.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """A server whose first answers are given; afterwards every image is [its length, 0, ...]."""

    failures: list[Failure | float | threading.Event] = field(default_factory=list)
    requests: list[messages.ModelInferRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    under_way: int = 0
    max_under_way: int = 0
    cancelled: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    """Set once a call is over, also while the answer of one that was cancelled is held back."""
    slow: threading.Event | None = None
    """Until it is set, a configuration is not told."""
    version: str = "2.51.0"

    def ServerMetadata(  # noqa: N802
        self, request: messages.ServerMetadataRequest, context: grpc.ServicerContext
    ) -> messages.ServerMetadataResponse:
        return messages.ServerMetadataResponse(name="triton", version=self.version)

    def ModelConfig(self, request: messages.ModelConfigRequest, context: grpc.ServicerContext) -> object:  # noqa: N802
        if self.slow:
            self.slow.wait(30)
        if request.name not in CONFIGS:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.name}' is not found")
        return messages.ModelConfigResponse(config=CONFIGS[request.name])

    def ModelInfer(self, request: messages.ModelInferRequest, context: grpc.ServicerContext) -> object:  # noqa: N802
        with self.lock:
            self.requests.append(request)
            self.headers.append(dict(context.invocation_metadata()))
            failure = self.failures.pop(0) if self.failures else None
            self.under_way += 1
            self.max_under_way = max(self.max_under_way, self.under_way)
        time.sleep(0.02)
        if isinstance(failure, float):
            time.sleep(failure)
        if isinstance(failure, threading.Event):
            context.add_callback(self.ended.set)
            failure.wait(60)
        if isinstance(failure, float | threading.Event):
            self.cancelled += not context.is_active()
        with self.lock:
            self.under_way -= 1
        if isinstance(failure, tuple):
            context.abort(*failure)
        return _answer(request)


def _answer(request: messages.ModelInferRequest) -> messages.ModelInferResponse:
    response = messages.ModelInferResponse(model_name=request.model_name)
    count = request.inputs[0].shape[0]
    for output in request.outputs:
        name = output.name
        if name == "IMAGE_STATUS":
            raw = b"".join(len(text).to_bytes(4, "little") + text for text in _statuses(request))
            kind, shape = "BYTES", [count, 1]
        elif name.endswith("_TOKENS"):
            raw, kind, shape = (
                np.array([[len(t.split())] for t in _items(request)], np.int32).tobytes(),
                "INT32",
                [count, 1],
            )
        else:
            rows = np.zeros((count, 384 if name == "MINILM" else 512), np.float32)
            rows[:, 0] = [len(item) + 1 for item in _items(request)]
            raw, kind, shape = rows.tobytes(), "FP32", list(rows.shape)
        response.outputs.add(name=name, datatype=kind, shape=shape)
        response.raw_output_contents.append(raw)
    return response


def _items(request: messages.ModelInferRequest) -> list[bytes]:
    return strings(request.raw_input_contents[0])


def strings(raw: bytes) -> list[bytes]:
    """Return the strings of a tensor."""
    items = []
    while raw:
        end = 4 + int.from_bytes(raw[:4], "little")
        items.append(raw[4:end])
        raw = raw[end:]
    return items


def _statuses(request: messages.ModelInferRequest) -> list[bytes]:
    return [b"corrupt: it is bad" if item.startswith(b"bad") else b"" for item in _items(request)]


@dataclass
class Place:
    scripted: Scripted
    port: int
    server: grpc.Server

    @property
    def location(self) -> str:
        return f"//127.0.0.1:{self.port}/vlm"


@contextmanager
def serve_script() -> Iterator[Place]:
    """A server whose answers are given by its `Scripted`."""
    scripted = Scripted()
    with serve(scripted) as (server, port):
        yield Place(scripted, port, server)


@contextmanager
def serve(servicer: service.GRPCInferenceServiceServicer) -> Iterator[tuple[grpc.Server, int]]:
    """Serve what answers as Triton does; the server and its port."""
    with futures.ThreadPoolExecutor(16) as threads:
        server = grpc.server(threads)
        service.add_GRPCInferenceServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield server, port
        server.stop(None).wait()


def first(vectors: NDArray[np.float32]) -> list[float]:
    return [float(value) for value in vectors[:, 0]]
