"""`triton:` with pictures: what TensorRT-LLM's llmapi model is sent, and what is made of what it says of pictures."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import PIL.Image
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tritonclient.grpc import model_config_pb2 as kinds, service_pb2 as messages, service_pb2_grpc

from tests.support.scripted_triton import serve, strings
from vlmsearch import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    Document,
    Picture,
    PicturesRefusedError,
    Pipeline,
)
from vlmsearch.demo.scenes import make_scene
from vlmsearch.generators.base import SeesPictures
from vlmsearch.generators.triton.generator import TritonGenerator
from vlmsearch.registry import open_generator

TEXT = "It shows a red star [1]."
INPUTS = {
    "text_input": ("STRING", -1),
    "image_url": ("STRING", -1),
    "sampling_param_max_tokens": ("INT32", 1),
    "sampling_param_exclude_input_from_output": ("BOOL", 1),
}


class Llmapi(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """TensorRT-LLM's llmapi model, not decoupled, whose answer is always the same."""

    def __init__(self) -> None:
        self.inputs = dict(INPUTS)
        self.is_multimodal = True
        self.faults: list[str | tuple[grpc.StatusCode, str]] = []
        self.requests: list[dict[str, list[bytes]]] = []
        self.probes = 0

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        assert not request.version
        model = kinds.ModelConfig(name=request.name)
        for name, (kind, size) in self.inputs.items():
            model.input.add(name=name, data_type=f"TYPE_{kind}", dims=[size], optional=name != "text_input")
        return messages.ModelConfigResponse(config=model)

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - Triton's name
        tensors = zip(request.inputs, request.raw_input_contents)
        given = {tensor.name: strings(raw) for tensor, raw in tensors if tensor.datatype == "BYTES"}
        if given.get("image_url") == [b"data:image/jpeg;base64,"]:
            self.probes += 1
            if self.is_multimodal:
                context.abort(grpc.StatusCode.INTERNAL, "Error generating request: cannot identify image file")
        else:
            self.requests.append(given)
            if self.faults:
                fault = self.faults.pop(0)
                status, message = (grpc.StatusCode.INTERNAL, fault) if isinstance(fault, str) else fault
                context.abort(status, message)
        answer = messages.ModelInferResponse()
        answer.outputs.add(name="text_output", datatype="BYTES", shape=[1])
        answer.raw_output_contents.append(len(TEXT).to_bytes(4, "little") + TEXT.encode())
        return answer


@pytest.fixture
def model() -> Llmapi:
    return Llmapi()


@pytest.fixture
def url(model: Llmapi) -> Iterator[str]:
    with serve(model) as (_, port):
        yield f"triton://127.0.0.1:{port}/tensorrt_llm"


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline.open(encoder="onnx:demo", store="mock:", generator=None) as pipeline:
        for number in range(5):
            make_scene(number).draw(128).save(tmp_path / f"{number}.png")
            pipeline.add(Document(str(number), image=tmp_path / f"{number}.png"))
        yield pipeline


def images_of(request: dict[str, list[bytes]]) -> list[PIL.Image.Image]:
    urls = [url.decode() for url in request.get("image_url", [])]
    assert all(url.startswith("data:image/jpeg;base64,") for url in urls)
    return [PIL.Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) for url in urls]


def text_of(request: dict[str, list[bytes]]) -> str:
    [text] = request["text_input"]
    return text.decode()


def seen(pipeline: Pipeline) -> int:
    answer = pipeline.ask("a red star", min_score=0.0)
    assert answer.text == TEXT
    assert answer.prompt_tokens is None
    return sum(read == "picture" for read in answer.read_as.values())


def picture(number: int, size: int = 64) -> Picture:
    return Picture(make_scene(number).draw(size))


def test_pictures_are_a_list_and_the_text_says_where_each_belongs(model: Llmapi, url: str) -> None:
    generator = open_generator(url)
    assert isinstance(generator, SeesPictures)
    parts: list[str | Picture] = ["[1] a\n", picture(1, 200), "\n[2] b\n", picture(2, 100), "\nQuestion"]
    told: list[int] = []
    assert "".join(generator.stream_parts(parts, on_usage=told.append)) == TEXT
    [request] = model.requests
    assert text_of(request) == "[1] a\n(picture 1)\n[2] b\n(picture 2)\nQuestion"
    assert [image.size for image in images_of(request)] == [(200, 200), (100, 100)]
    assert told == []


def test_an_answer_says_which_pictures_were_seen(model: Llmapi, url: str, pipeline: Pipeline) -> None:
    pipeline.generator = open_generator(url)
    assert [seen(pipeline) for _ in range(2)] == [4, 4]
    assert model.probes == 1
    for request in model.requests:
        assert len(images_of(request)) == 4
        places = re.findall(r"^\[(\d)\] the image \d\.png\n\(picture (\d)\)$", text_of(request), re.MULTILINE)
        assert places == [(number, number) for number in "1234"]


def test_a_model_without_the_input_gets_texts(model: Llmapi, url: str, pipeline: Pipeline) -> None:
    del model.inputs["image_url"]
    pipeline.generator = generator = open_generator(url)
    assert isinstance(generator, TritonGenerator)
    assert generator.max_pictures == 0
    assert seen(pipeline) == 0
    [request] = model.requests
    assert request.keys() == {"text_input"}
    assert "(picture" not in text_of(request)
    assert model.probes == 0


@pytest.mark.parametrize("other", [("STRING", 1), ("UINT8", -1)])
def test_an_input_of_that_name_that_is_another_is_left_out(
    model: Llmapi, url: str, pipeline: Pipeline, other: tuple[str, int]
) -> None:
    model.inputs["image_url"] = other
    pipeline.generator = open_generator(url)
    assert seen(pipeline) == 0


def test_a_model_that_ignores_the_input_gets_texts(model: Llmapi, url: str, pipeline: Pipeline) -> None:
    model.is_multimodal = False
    pipeline.generator = generator = open_generator(url)
    assert [seen(pipeline) for _ in range(2)] == [0, 0]
    assert model.probes == 1
    assert ["image_url" in request or "(picture" in text_of(request) for request in model.requests] == [False] * 2
    with pytest.raises(PicturesRefusedError, match="takes 0 pictures"):
        generator.stream_parts([picture(1)])  # type: ignore[attr-defined]
    with (
        open_generator(url) as fresh,
        pytest.raises(PicturesRefusedError, match="ignores pictures: set `multimodal: true`") as refused,
    ):
        list(fresh.stream_parts([picture(1)]))  # type: ignore[attr-defined]
    assert refused.value.at_most == 0


@pytest.mark.parametrize(
    ("complaint", "counts"),
    [
        ("Error generating request: At most 1 image(s) may be provided in one request.", [4, 1, 1]),
        ("Error generating request: tiny is not a multimodal model", [4, 0, 0]),
        ("cannot import name 'async_build_multimodal_prompt' from 'tensorrt_llm.inputs'", [4, 0, 0]),
        ("`default_max_tokens` (-152) must be greater than 0 = max_seq_len (8192) - `splited_prompt_len`", [4, 2, 4]),
        ("prompt length (9000) should not exceed max_num_tokens (8192)", [4, 2, 4]),
        ("This model's maximum context length is 8192 tokens. However, your messages are 9000.", [4, 2, 4]),
    ],
)  # fmt: skip
def test_where_a_server_complains_of_pictures_it_gets_fewer(
    pipeline: Pipeline, model: Llmapi, url: str, complaint: str, counts: list[int]
) -> None:
    pipeline.generator = open_generator(url)
    model.faults.append(complaint)
    assert seen(pipeline) == counts[1]
    assert seen(pipeline) == counts[2], "what a server takes is remembered"
    assert [len(images_of(request)) for request in model.requests] == counts


def test_a_complaint_of_something_else_is_told(pipeline: Pipeline, model: Llmapi, url: str) -> None:
    pipeline.generator = open_generator(url)
    model.faults.append("CUDA out of memory")
    with pytest.raises(BackendError, match="CUDA out of memory") as failure:
        seen(pipeline)
    assert not isinstance(failure.value, PicturesRefusedError)
    assert seen(pipeline) == 4


def test_a_server_that_is_away_is_no_refusal(model: Llmapi, url: str) -> None:
    with pytest.raises(BackendUnavailableError, match=r"127\.0\.0\.1:1"):
        open_generator("triton://127.0.0.1:1/tensorrt_llm")
    model.faults += [(grpc.StatusCode.UNAVAILABLE, "no image of the server is ready")] * 1000
    with TritonGenerator(url.removeprefix("triton:"), deadline=0.5) as generator:
        assert generator.max_pictures == 16
        with pytest.raises(BackendUnavailableError, match="no image of the server is ready"):
            list(generator.stream_parts(["a", picture(1)]))
        assert generator.max_pictures == 16


def test_options_limit_and_count_pictures(model: Llmapi, url: str, pipeline: Pipeline) -> None:
    pipeline.generator = open_generator(f"{url}?pictures=0")
    assert seen(pipeline) == 0
    pipeline.generator = generator = open_generator(f"{url}?pictures=2&picture_tokens=576")
    assert seen(pipeline) == 2
    assert isinstance(generator, SeesPictures)
    assert generator.picture_tokens(1024, 768) == 576
    with open_generator(url) as other:
        assert isinstance(other, SeesPictures)
        assert other.picture_tokens(1024, 768) == 32 * 24
        assert max(images_sent(model, other, PIL.Image.new("RGB", (4000, 3000))).size) == 2048
    with pytest.raises(ConfigError, match="`pictures` is from 0 to 16"):
        open_generator(f"{url}?pictures=-1")


def images_sent(model: Llmapi, generator: SeesPictures, image: PIL.Image.Image) -> PIL.Image.Image:
    list(generator.stream_parts([Picture(image)]))
    [sent] = images_of(model.requests[-1])
    return sent


def test_a_server_renders_the_chat_template_where_there_are_pictures(model: Llmapi, url: str, tmp_path: Path) -> None:
    Tokenizer(WordLevel({"a": 0}, "a")).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "<user>{{ messages[0].content }}</user>"})
    )
    with TritonGenerator(url.removeprefix("triton:"), tokenizer=tmp_path) as generator:
        generator.generate("a")
        list(generator.stream_parts(["a ", picture(1)]))
        list(generator.stream_parts(["a"]))
    assert [text_of(request) for request in model.requests] == ["<user>a</user>", "a (picture 1)", "<user>a</user>"]
