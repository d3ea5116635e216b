"""A language model of Triton whose server is away for a while: the request waits for it."""

from __future__ import annotations

from typing import Any

import grpc
from tritonclient.grpc import model_config_pb2 as kinds, service_pb2 as messages, service_pb2_grpc

from tests.support.scripted_triton import serve
from vlmsearch.generators.triton.generator import TritonGenerator


class Restarting(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Tells its configuration once, then fails a request, and is away when it is asked again."""

    def __init__(self) -> None:
        self.asked = self.requests = 0

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        self.asked += 1
        if self.asked in (2, 3):
            context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        model = kinds.ModelConfig(name=request.name)
        for name, kind in (("text_input", kinds.TYPE_STRING), ("max_tokens", kinds.TYPE_INT32)):
            model.input.add(name=name, data_type=kind).dims.append(1)
        model.model_transaction_policy.decoupled = True
        return messages.ModelConfigResponse(config=model)

    def ModelStreamInfer(self, requests: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        for _ in requests:
            self.requests += 1
            if self.requests == 1:
                context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")
            answer = messages.ModelInferResponse()
            answer.parameters["triton_final_response"].bool_param = True
            answer.outputs.add(name="text_output", datatype="BYTES", shape=[1])
            answer.raw_output_contents.append(b"\x02\0\0\0hi")
            yield messages.ModelStreamInferResponse(infer_response=answer)


def test_a_server_that_is_still_away_when_it_is_asked_what_it_is_is_waited_for() -> None:
    scripted = Restarting()
    with serve(scripted) as (_, port), TritonGenerator(f"//127.0.0.1:{port}/ensemble") as generator:
        assert "".join(generator.stream("hello")) == "hi"
    assert (scripted.requests, scripted.asked) == (2, 4)
