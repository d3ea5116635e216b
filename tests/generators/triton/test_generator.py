"""Language models of Triton: what is asked of a server to the letter, and what is made of its answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2 as kinds, service_pb2 as messages, service_pb2_grpc

from tests.support.scripted_triton import serve
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import BackendUnavailableError, OperationCancelledError
from vlmsearch.generators.triton.generator import TritonGenerator


class Endless(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """A model that streams, begins a text and goes on with it until it is stopped."""

    def __init__(self) -> None:
        self.stops: list[tuple[str, bool]] = []

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        model = kinds.ModelConfig(name=request.name)
        for name, kind in (("text_input", "STRING"), ("max_tokens", "INT32"), ("stop", "BOOL")):
            model.input.add(name=name, data_type=f"TYPE_{kind}", dims=[1], optional=name == "stop")
        model.model_transaction_policy.decoupled = True
        return messages.ModelConfigResponse(config=model)

    def ModelStreamInfer(self, requests: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        for request in requests:
            is_stop = any(tensor.name == "stop" for tensor in request.inputs)
            self.stops.append((request.id, is_stop))
            answer = messages.ModelInferResponse()
            answer.parameters["triton_final_response"].bool_param = is_stop
            if not is_stop:
                answer.outputs.add(name="text_output", datatype="BYTES", shape=[1])
                answer.raw_output_contents.append(b"\x02\0\0\0hi")
            for _ in range(1 + is_stop):
                yield messages.ModelStreamInferResponse(infer_response=answer)


@pytest.fixture
def scripted(request: pytest.FixtureRequest) -> Endless:
    kind: type[Endless] = request.param
    return kind()


@pytest.fixture
def address(scripted: Endless) -> Iterator[str]:
    with serve(scripted) as (_, port):
        yield f"//127.0.0.1:{port}"


@pytest.mark.parametrize("scripted", [Endless], indirect=True)
@pytest.mark.parametrize(
    ("limits", "message"),
    [((60.0, 2.0), "did not finish within 2 s"), ((2.0, 60.0), "sent nothing for 2 s")],
)
def test_a_text_that_is_given_up_is_stopped_on_the_server(
    scripted: Endless, address: str, limits: tuple[float, float], message: str
) -> None:
    timeout, deadline = limits
    with TritonGenerator(f"{address}/ensemble", timeout=timeout, deadline=deadline) as generator:
        stream = generator.stream("?")
        assert next(stream) == "hi"
        with pytest.raises(BackendUnavailableError, match=message):
            next(stream)
    (begun, _), (ended, _) = scripted.stops
    assert begun == ended
    assert [is_stop for _, is_stop in scripted.stops] == [False, True]


@pytest.mark.parametrize("scripted", [Endless], indirect=True)
def test_a_text_that_its_caller_gives_up_is_stopped_while_it_is_waited_for(scripted: Endless, address: str) -> None:
    token = CancelToken()
    with TritonGenerator(f"{address}/ensemble") as generator, running_under(token):
        stream = generator.stream("?")
        assert next(stream) == "hi"
        threading.Timer(0.2, token.cancel).start()
        started = time.monotonic()
        with pytest.raises(OperationCancelledError):
            next(stream)
        assert time.monotonic() - started < 60
    assert [is_stop for _, is_stop in scripted.stops] == [False, True]


class OneResponse(Endless):
    """A model that streams, and has made the whole text by its first response."""

    def ModelStreamInfer(self, requests: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        for response in super().ModelStreamInfer(requests, context):
            response.infer_response.parameters["triton_final_response"].bool_param = True
            yield response


@pytest.mark.parametrize("scripted", [OneResponse], indirect=True)
def test_a_text_that_has_ended_is_not_stopped(scripted: OneResponse, address: str) -> None:
    with TritonGenerator(f"{address}/ensemble") as generator:
        stream = generator.stream("?")
        assert next(stream) == "hi"
        stream.close()  # type: ignore[attr-defined]
    assert [is_stop for _, is_stop in scripted.stops] == [False]
