"""`openai:` with pictures: what is sent, and what servers say of pictures that they do not take."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from tests.support.openai_server import OpenAIServer, Script
from vlmsearch import BackendError, ConfigError, Document, GenerationOptions, Picture, PicturesRefusedError, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.generators.base import SeesPictures
from vlmsearch.generators.openai.generator import OpenAIGenerator
from vlmsearch.registry import open_generator


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with OpenAIServer(Script("It shows a red star [1].")) as running:
        yield running


@pytest.fixture
def pipeline(server: OpenAIServer, tmp_path: Path) -> Iterator[Pipeline]:
    generator = f"openai:{server.url}?retries=0"
    with Pipeline.open(encoder="onnx:demo", store="mock:", generator=generator) as pipeline:
        for number in range(5):
            make_scene(number).draw(128).save(tmp_path / f"{number}.png")
            pipeline.add(Document(str(number), image=tmp_path / f"{number}.png"))
        yield pipeline


def content_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    [message] = request["messages"]
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def images_of(request: dict[str, Any]) -> list[PIL.Image.Image]:
    urls = [part["image_url"]["url"] for part in content_of(request) if part["type"] == "image_url"]
    assert all(url.startswith("data:image/jpeg;base64,") for url in urls)
    return [PIL.Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) for url in urls]


def seen(pipeline: Pipeline) -> tuple[int, str]:
    answer = pipeline.ask("a red star", min_score=0.0)
    assert answer.text == "It shows a red star [1]."
    return sum(read == "picture" for read in answer.read_as.values()), str(answer.prompt_tokens)


def test_pictures_are_parts_of_the_message_in_the_order_of_the_prompt(server: OpenAIServer) -> None:
    generator = open_generator(f"openai:{server.url}?detail=low")
    assert isinstance(generator, SeesPictures)
    pictures = [Picture(make_scene(1).draw(200)), Picture(make_scene(2).draw(100))]
    told: list[int] = []
    pieces = generator.stream_parts(
        ["[1] a\n", pictures[0], "\n[2] b\n", pictures[1], "\nQuestion"], on_usage=told.append
    )
    assert "".join(pieces) == "It shows a red star [1]."
    [request] = server.script.requests
    content = content_of(request)
    assert [part["type"] for part in content] == ["text", "image_url", "text", "image_url", "text"]
    assert [part["text"] for part in content[::2]] == ["[1] a\n", "\n[2] b\n", "\nQuestion"]
    assert [image.size for image in images_of(request)] == [(200, 200), (100, 100)]
    assert content[1]["image_url"]["detail"] == "low"
    assert request["stream_options"] == {"include_usage": True}
    assert told == [205]


def test_an_answer_says_which_pictures_were_seen_and_how_many_tokens_were_read(pipeline: Pipeline) -> None:
    count, tokens = seen(pipeline)
    assert count == 4
    assert int(tokens) > 400


@pytest.mark.parametrize(
    ("complaint", "counts"),
    [
        ("400 At most 1 image(s) may be provided in one request.", [4, 1, 1]),
        ("400 At most 0 image(s) may be provided in one request.", [4, 0, 0]),
        ("400 Too many images: the maximum is 2 images per prompt", [4, 2, 2]),
        ("400 tiny is not a multimodal model", [4, 0, 0]),
        ("500 image input is not supported - you may need to provide the mmproj", [4, 0, 0]),
        ("400 This model's maximum context length is 4096 tokens. However, you requested 9000 tokens.", [4, 2, 4]),
        ("413 Payload Too Large", [4, 2, 4]),
    ],
)  # fmt: skip
def test_where_a_server_complains_of_pictures_it_gets_fewer(
    pipeline: Pipeline, server: OpenAIServer, complaint: str, counts: list[int]
) -> None:
    server.script.faults.append(complaint)
    assert seen(pipeline)[0] == counts[1]
    assert seen(pipeline)[0] == counts[2], "what a server takes is remembered"
    assert [len(images_of(request)) for request in server.script.requests] == counts


def test_a_complaint_of_something_else_is_told(pipeline: Pipeline, server: OpenAIServer) -> None:
    server.script.faults += ["400 temperature is out of range", "500 out of memory"]
    with pytest.raises(ConfigError, match="temperature is out of range"):
        pipeline.ask("a red star", min_score=0.0)
    with pytest.raises(BackendError, match="out of memory"):
        pipeline.ask("a red star", min_score=0.0)


def test_without_pictures_the_prompt_is_one_string(pipeline: Pipeline, server: OpenAIServer) -> None:
    pipeline.generator = OpenAIGenerator(server.url, pictures=0)
    assert seen(pipeline) == (0, "None")
    pipeline.generator = OpenAIGenerator(server.url, api="completions")
    assert seen(pipeline) == (0, "None")
    assert isinstance(server.script.requests[0]["messages"][0]["content"], str)
    assert isinstance(server.script.requests[1]["prompt"], str)


def test_large_pictures_are_made_small_before_they_are_sent(pipeline: Pipeline, server: OpenAIServer) -> None:
    photo = PIL.Image.effect_noise((4000, 3000), 80)
    pipeline.ask("What is this?", image=photo, min_score=0.0)
    [request] = server.script.requests
    assert max(images_of(request)[-1].size) <= 1024


def test_tokens_are_estimated_or_given(server: OpenAIServer) -> None:
    assert OpenAIGenerator(server.url).picture_tokens(1024, 768) == 32 * 24
    assert OpenAIGenerator(server.url).picture_tokens(8, 8) == 1
    assert OpenAIGenerator(server.url, picture_tokens=576).picture_tokens(1024, 768) == 576
    for wrong in ({"pictures": -1}, {"picture_tokens": 0}):
        with pytest.raises(ConfigError, match=r"`(pictures|picture_tokens)` is from"):
            OpenAIGenerator(server.url, **wrong)  # type: ignore[arg-type]
    with pytest.raises(PicturesRefusedError) as refused:
        OpenAIGenerator(server.url, pictures=1).stream_parts([Picture(make_scene(1).draw(64))] * 2, GenerationOptions())
    assert refused.value.at_most == 1
