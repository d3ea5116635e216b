"""TensorRT-LLM's models of texts as NVIDIA's programs answer: what becomes of the tokens of each piece of a stream."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2 as kinds, service_pb2 as messages, service_pb2_grpc

from tests.support.llm_servers import BUNDLE
from tests.support.scripted_triton import serve
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError
from vlmsearch.generators.base import GenerationOptions
from vlmsearch.generators.text import open_tokenizer
from vlmsearch.generators.triton.generator import TritonGenerator

TOKENIZER = open_tokenizer(BUNDLE)
PROMPT = "where is it?"
TEXT = f"{PROMPT} In 東京, by a 🙂."
INPUTS = {
    "text_input": ("STRING", 1), "max_tokens": ("INT32", 1), "top_k": ("INT32", 1), "stream": ("BOOL", 1),
    "beam_width": ("INT32", 1),
}  # fmt: skip
ID_INPUTS = {"input_ids": ("INT32", -1), "input_lengths": ("INT32", 1), "request_output_len": ("INT32", 1)}


@dataclass
class Nvidia(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """The ensemble or ``tensorrt_llm_bls`` around an engine; ``pieces`` are what a stream of it sends.

    ``echoes`` says whether the engine repeats the prompt before a whole answer, ``seconds`` how long that takes.
    """

    pieces: Sequence[str]
    decoupled: bool = True
    is_ensemble: bool = False
    accumulates: bool | None = None
    echoes: bool = False
    seconds: float = 0.0
    error: str = ""
    ids: Sequence[int] | None = None
    asked: list[bool] = field(default_factory=list)
    """Whether each request was for a stream."""

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        model = kinds.ModelConfig(name=request.name)
        inputs = INPUTS if self.ids is None else ID_INPUTS
        for name, (kind, size) in inputs.items():
            model.input.add(name=name, data_type=f"TYPE_{kind}", dims=[size])
        model.model_transaction_policy.decoupled = self.decoupled
        if request.name == "engine":
            model.parameters["exclude_input_in_output"].string_value = str(not self.echoes).lower()
        elif self.is_ensemble:
            for step in ("preprocessing", "engine", "postprocessing"):
                model.ensemble_scheduling.step.add(model_name=step)
        elif self.accumulates is not None:
            model.parameters["accumulate_tokens"].string_value = str(self.accumulates).lower()
            model.parameters["tensorrt_llm_model_name"].string_value = "engine"
        return messages.ModelConfigResponse(config=model)

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        (answer,) = self._answers(request)
        return answer

    def ModelStreamInfer(self, requests: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        for request in requests:
            if self.error:
                yield messages.ModelStreamInferResponse(error_message=self.error)
            for answer in self._answers(request):
                yield messages.ModelStreamInferResponse(infer_response=answer)

    def _answers(self, request: Any) -> Iterator[Any]:
        raw = {tensor.name: data for tensor, data in zip(request.inputs, request.raw_input_contents)}
        is_streamed = raw.get("stream") == b"\1"
        self.asked.append(is_streamed)
        time.sleep(self.seconds)
        texts = self.pieces if is_streamed else [PROMPT * self.echoes + TEXT]
        for number, text in enumerate(texts, 1):
            answer = messages.ModelInferResponse()
            answer.parameters["triton_final_response"].bool_param = number == len(texts)
            if self.ids is None:
                answer.outputs.add(name="text_output", datatype="BYTES", shape=[1])
                answer.raw_output_contents.append(len(text.encode()).to_bytes(4, "little") + text.encode())
            else:
                for name, values in (("output_ids", self.ids), ("sequence_length", [len(self.ids)])):
                    answer.outputs.add(name=name, datatype="INT32", shape=[1, 1, len(values)])
                    answer.raw_output_contents.append(np.array(values, np.int32).tobytes())
            yield answer


IDS = TOKENIZER.encode(TEXT).ids
APART = [TOKENIZER.decode([token]) for token in IDS]
SO_FAR = [TOKENIZER.decode(IDS[:count]) for count in range(1, len(IDS) + 1)]


def answered(server: Nvidia, options: GenerationOptions | None = None, **settings: Any) -> list[str]:
    with serve(server) as (_, port), TritonGenerator(f"//127.0.0.1:{port}/model", **settings) as generator:
        return list(generator.stream(PROMPT, options))


def test_pieces_that_are_decoded_by_themselves_would_lose_characters() -> None:
    assert "".join(APART) != TEXT == SO_FAR[-1]


@pytest.mark.parametrize("settings", [{"is_ensemble": True}, {"accumulates": False}], ids=["ensemble", "bls"])
def test_a_model_that_decodes_pieces_by_themselves_is_asked_for_the_whole_text(settings: dict[str, Any]) -> None:
    server = Nvidia(APART, **settings)
    assert answered(server) == [TEXT]
    assert server.asked == [False]


@pytest.mark.parametrize("cut", [0, 1])
def test_a_model_that_decodes_all_tokens_so_far_streams(cut: int) -> None:
    server = Nvidia(SO_FAR[: len(SO_FAR) - cut], accumulates=True)
    pieces = answered(server)
    assert "".join(pieces) == SO_FAR[-1 - cut]
    assert len(pieces) > 5
    assert server.asked == [True]


def test_a_character_that_the_model_does_not_end_is_shown_at_the_end() -> None:
    count = next(count for count, text in enumerate(SO_FAR, 1) if text.endswith("\ufffd"))
    assert "".join(answered(Nvidia(SO_FAR[:count], accumulates=True))) == SO_FAR[count - 1]


@pytest.mark.parametrize("echoes", [False, True])
@pytest.mark.parametrize(
    ("decoupled", "settings"),
    [(False, {"accumulates": True}), (False, {"is_ensemble": True}), (True, {"is_ensemble": True})],
)
def test_a_prompt_is_taken_off_where_the_engine_repeats_it_and_nowhere_else(
    settings: dict[str, Any], echoes: bool, decoupled: bool
) -> None:
    """The answer itself begins with the prompt. Several beams come whole."""
    server = Nvidia(SO_FAR, decoupled=decoupled, echoes=echoes, **settings)
    assert answered(server, GenerationOptions(beam_width=2)) == [TEXT]


def test_tokens_are_accumulated_for_one_beam() -> None:
    """Source: ``postprocess`` of ``Decoder`` in NVIDIA's tensorrt_llm_bls, which refuses more in a stream."""
    with pytest.raises(ConfigError, match="model of the server accumulates the tokens of one beam: ask `ensemble`"):
        answered(Nvidia(SO_FAR, accumulates=True), GenerationOptions(beam_width=2))


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_whole_text_has_all_the_time_and_is_asked_for_once(decoupled: bool) -> None:
    server = Nvidia(APART, decoupled=decoupled, is_ensemble=True, seconds=2)
    assert answered(server, timeout=0.5, deadline=60) == [TEXT]
    assert server.asked == [False]


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_request_that_is_too_slow_is_not_sent_again(decoupled: bool) -> None:
    server = Nvidia(SO_FAR, decoupled=decoupled, accumulates=True, seconds=4)
    with pytest.raises(BackendUnavailableError, match=r"did not (answer|finish) within|sent nothing for 1 s"):
        answered(server, timeout=1.0, deadline=2.0)
    assert server.asked == [decoupled]


def test_an_error_within_a_stream_is_told_as_it_is() -> None:
    with pytest.raises(BackendError, match=r": model: no room is left$"):
        answered(Nvidia(SO_FAR, accumulates=True, error="no room is left"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 3_000_000_000}, "max_tokens of model is INT32, which cannot be 3000000000"),
        ({"top_k": 2**31, "temperature": 1.0}, "top_k of model is INT32, which cannot be 2147483648"),
        ({"bad_words": ("the",)}, "model of the server has no bad_words"),
        ({"bad_words": ("the", "a red star")}, "model of the server has no bad_words"),
    ],
)
def test_an_option_that_a_model_cannot_have_is_named(options: dict[str, Any], message: str) -> None:
    for server, settings in ((Nvidia(APART), {}), (Nvidia(APART, ids=IDS), {"tokenizer": BUNDLE})):
        if server.ids is not None and "top_k" in options:
            continue
        said = message.replace("max_tokens of", "request_output_len of") if server.ids is not None else message
        with pytest.raises(ConfigError, match=re.escape(said)):
            answered(server, GenerationOptions(**options), **settings)


@pytest.mark.parametrize("token", [9_999_999, -1])
def test_a_token_that_the_tokenizer_does_not_have_is_no_silence(token: int) -> None:
    with pytest.raises(BackendError, match=f"answers with token {token}, which the tokenizer does not have"):
        answered(Nvidia([""], decoupled=False, ids=[*IDS, token]), tokenizer=BUNDLE)
