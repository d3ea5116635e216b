"""Language models behind the real Triton: the Python baseline with the tensors of TensorRT-LLM's ensemble."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb
from vlmsearch_mocks.contracts import GeneratorContract

from tests.support.llm_servers import (
    BUNDLE,
    MODEL,
    location,
    metrics,
    post,
    prompts,
)
from tests.support.triton_check import faults
from tests.support.triton_server import Running
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, InvalidInputError
from vlmsearch.generators.base import CountsTokens, GenerationOptions, Generator
from vlmsearch.generators.triton.generator import TritonGenerator
from vlmsearch.registry import open_generator
from vlmsearch.triton.repository.transformers import LlmOptions, make_config, requirements, write_repository

if TYPE_CHECKING:
    from vlmsearch.generators.local.transformers import TransformersGenerator

PROMPTS = prompts(32)
LIKELIEST = GenerationOptions(max_tokens=48)
ENDLESS = GenerationOptions(max_tokens=700, temperature=4.0, seed=5)
"""Gibberish that goes on: at this temperature the end is one token of a thousand."""


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    """More only wait for each other with a model this small."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def local() -> Iterator[TransformersGenerator]:
    from vlmsearch.generators.local.transformers import TransformersGenerator

    with TransformersGenerator(MODEL) as generator:
        yield generator


@pytest.fixture(scope="module")
def ensemble(llm: Running) -> Iterator[TritonGenerator]:
    with TritonGenerator(location(llm)) as generator:
        yield generator


class TestEnsemble(GeneratorContract):
    url = ""

    @pytest.fixture(autouse=True)
    def _serve(self, llm: Running) -> None:
        type(self).url = f"triton:{location(llm)}"

    def make_generator(self) -> Generator:
        return open_generator(self.url)


class TestUnary(GeneratorContract):
    url = ""

    @pytest.fixture(autouse=True)
    def _serve(self, unary: Running) -> None:
        type(self).url = f"triton:{location(unary)}"

    def make_generator(self) -> Generator:
        return open_generator(self.url)


def test_answers_are_those_of_transformers(
    ensemble: TritonGenerator, unary: Running, local: TransformersGenerator
) -> None:
    asked = PROMPTS[:10]
    expected = [local.generate(prompt, LIKELIEST) for prompt in asked]
    assert ["".join(ensemble.stream(prompt, LIKELIEST)) for prompt in asked] == expected
    with TritonGenerator(location(unary)) as once:
        assert [once.generate(prompt, LIKELIEST) for prompt in asked] == expected
        assert len(list(once.stream(PROMPTS[0], LIKELIEST))) == 1
    assert len(list(ensemble.stream(PROMPTS[0], LIKELIEST))) > 3


def test_texts_that_are_made_together_are_those_made_alone(
    ensemble: TritonGenerator, local: TransformersGenerator
) -> None:
    expected = [local.generate(prompt, LIKELIEST) for prompt in PROMPTS]
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(lambda prompt: ensemble.generate(prompt, LIKELIEST), PROMPTS)) == expected


@pytest.mark.parametrize(
    "options",
    [
        GenerationOptions(max_tokens=40, temperature=3.0, seed=7),
        GenerationOptions(max_tokens=40, temperature=1.5, top_k=30, top_p=0.9, seed=8, repetition_penalty=1.2),
        GenerationOptions(max_tokens=40, repetition_penalty=1.4),
        GenerationOptions(max_tokens=40, bad_words=("source", "Source", "the")),
        GenerationOptions(max_tokens=40, stop=("]",)),
    ],
    ids=["sampling", "everything", "repetition", "bad words", "stop"],
)
def test_options_mean_what_they_mean_in_process(
    ensemble: TritonGenerator, local: TransformersGenerator, options: GenerationOptions
) -> None:
    for prompt in PROMPTS[:3]:
        expected = local.generate(prompt, options)
        assert ensemble.generate(prompt, options) == expected


def test_the_prompt_comes_back_only_where_it_is_asked_for(llm: Running) -> None:
    body = {"text_input": "a red star one two", "max_tokens": 4, "end_id": 5}
    without = json.loads(post(llm, "ensemble/generate", **body))["text_output"]
    assert without
    assert json.loads(post(llm, "ensemble/generate", **body, exclude_input_in_output=False))["text_output"] == (
        body["text_input"] + without
    )


def test_curl_generates(llm: Running, local: TransformersGenerator) -> None:
    expected = local.generate(PROMPTS[0], LIKELIEST)
    answer = json.loads(post(llm, "ensemble/generate", text_input=PROMPTS[0], max_tokens=48))
    assert answer["text_output"] == expected
    assert answer["model_name"] == "ensemble"
    stopped = json.loads(
        post(llm, "ensemble/generate", text_input=PROMPTS[0], max_tokens=48, stop_words=["]"], bad_words=[""])
    )
    assert stopped["text_output"].rstrip(".").endswith("]")
    assert expected.startswith(stopped["text_output"])


def test_curl_streams(llm: Running, local: TransformersGenerator) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", llm.ends.http, timeout=60)
    body = json.dumps({"text_input": PROMPTS[0], "max_tokens": 48, "stream": True})
    connection.request("POST", "/v2/models/ensemble/generate_stream", body)
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    lines = [line for line in answer.read().decode().splitlines() if line]
    connection.close()
    assert all(line.startswith("data: ") for line in lines)
    pieces = [json.loads(line.removeprefix("data: "))["text_output"] for line in lines]
    assert len(pieces) > 3
    assert "".join(pieces) == local.generate(PROMPTS[0], LIKELIEST)


def test_32_streams_cancelled_half_way_leave_the_server_idle(
    llm: Running, ensemble: TritonGenerator, local: TransformersGenerator
) -> None:
    streams = [ensemble.stream(prompt, replace(ENDLESS, seed=number)) for number, prompt in enumerate(PROMPTS)]
    with ThreadPoolExecutor(32) as pool:
        begun = list(pool.map(lambda stream: [next(stream, "") for _ in range(8)], streams))
        assert all(len(pieces) == 8 for pieces in begun)
        assert _active(llm) > 16
        ended = time.monotonic()
        list(pool.map(lambda stream: stream.close(), streams))
    while _active(llm) and time.monotonic() < ended + 8:  # uncancelled they would go on for 20 s
        time.sleep(0.02)
    assert _active(llm) == 0
    assert ensemble.generate(PROMPTS[0], LIKELIEST) == local.generate(PROMPTS[0], LIKELIEST)


def _active(running: Running) -> float:
    """Texts that the model works on or that wait."""
    waiting = metrics(running, "nv_inference_pending_request_count")
    return sum(metrics(running, "nv_trt_llm_request_metrics").values()) + sum(waiting.values())


def test_what_is_wrong_with_a_request_is_said(llm: Running, ensemble: TritonGenerator) -> None:
    with pytest.raises(BackendError, match="the model reads 1024"):
        ensemble.generate("a star " * 900)
    with pytest.raises(InvalidInputError):
        ensemble.generate("")
    with pytest.raises(HTTPError) as caught:
        post(llm, "ensemble/generate", text_input="a star", max_tokens=0)
    assert "`max_tokens` is at least 1, not 0" in caught.value.read().decode()
    assert ensemble.generate(PROMPTS[0], LIKELIEST)


def test_a_piece_that_does_not_come_is_given_up(llm: Running) -> None:
    expected = pytest.raises(BackendUnavailableError, match=r"sent nothing for|did not finish within")
    with TritonGenerator(location(llm), timeout=0.001, deadline=0.01) as generator, expected:
        generator.generate(PROMPTS[0], ENDLESS)


def test_other_models_are_refused(llm: Running) -> None:
    with pytest.raises(BackendUnavailableError, match="does not serve nothing"):
        TritonGenerator(location(llm, "nothing"))
    with pytest.raises(ConfigError, match="is triton://HOST:PORT/MODEL"):
        TritonGenerator("host/model")


def test_only_a_generator_with_tokenizer_and_context_counts(
    llm: Running, ensemble: TritonGenerator, local: TransformersGenerator
) -> None:
    assert not isinstance(ensemble, CountsTokens)
    with TritonGenerator(location(llm), tokenizer=BUNDLE, context=1024) as counting:
        assert isinstance(counting, CountsTokens)
        assert counting.count_tokens(PROMPTS[0]) == local.count_tokens(PROMPTS[0])


def test_the_chat_template_is_used_where_the_tokenizer_has_one(llm: Running, tmp_path: Path) -> None:
    from vlmsearch.generators.local.transformers import TransformersGenerator

    shutil.copytree(BUNDLE, tmp_path / "chat")
    settings = tmp_path / "chat" / "tokenizer_config.json"
    template = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}\nAnswer:"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": template}))
    with TransformersGenerator(str(tmp_path / "chat"), chat=False) as plain:
        expected = plain.generate("user: Which sources show a star?\nAnswer:", LIKELIEST)
        assert expected != plain.generate("Which sources show a star?", LIKELIEST)
    with TritonGenerator(location(llm), tokenizer=tmp_path / "chat") as generator:
        assert generator.generate("Which sources show a star?", LIKELIEST) == expected
    settings.write_text(json.dumps({"chat_template": "{{ raise_exception('no') }}"}))
    with (
        TritonGenerator(location(llm), tokenizer=tmp_path / "chat") as generator,
        pytest.raises(ConfigError, match="refuses the prompt: no; add chat=false"),
    ):
        generator.generate("a", LIKELIEST)


def test_llmapi_is_spoken_to_by_its_own_names(unary: Running, local: TransformersGenerator) -> None:
    with TritonGenerator(location(unary, "tensorrt_llm")) as generator:
        for prompt in PROMPTS[:4]:
            pieces = list(generator.stream(prompt, LIKELIEST))
            assert "".join(pieces) == local.generate(prompt, LIKELIEST)
            assert len(pieces) > 3
        text = local.generate(PROMPTS[0], LIKELIEST)
        assert generator.generate(PROMPTS[0], replace(LIKELIEST, stop=("[",))) == text[: text.index("[")]
        assert generator.generate(PROMPTS[0], GenerationOptions(temperature=0.5, seed=2**64 - 1)) == (
            "seed 18446744073709551615 temperature 0.5"
        )
        for options in (replace(LIKELIEST, bad_words=("a",)), replace(LIKELIEST, beam_width=2)):
            with pytest.raises(ConfigError, match="tensorrt_llm of the server has no"):
                generator.generate(PROMPTS[0], options)
        made = Path(unary.command[1].partition("=")[2]) / "tensorrt_llm" / "1" / "made"
        before = len(made.read_text().split())
        stream = generator.stream("a star", replace(LIKELIEST, max_tokens=900))
        assert next(stream)
        stream.close()  # type: ignore[attr-defined]
        end = time.monotonic() + 60
        while len(made.read_text().split()) == before and time.monotonic() < end:
            time.sleep(0.05)
        assert int(made.read_text().split()[before]) < 450


def test_the_model_has_the_tensors_of_tensorrt_llms_ensemble(tmp_path: Path) -> None:
    made = write_repository(MODEL, tmp_path / "repository")
    assert made.models == ("ensemble",)
    config = text_format.Parse((made.folder / "ensemble" / "config.pbtxt").read_text(), pb.ModelConfig())
    assert not faults([config])
    inputs = {tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in config.input}
    assert inputs["text_input"] == (pb.TYPE_STRING, [1])
    assert inputs["seed"] == (pb.TYPE_UINT64, [1])
    assert inputs["stop_words"] == (pb.TYPE_STRING, [-1])
    assert {"stream", "top_k", "top_p", "stop"} <= inputs.keys()
    assert config.model_transaction_policy.decoupled
    assert make_config("x", LlmOptions(device="gpu", gpu=1)).instance_group[0].gpus == [1]
    assert requirements()[0].startswith("numpy")
    assert any(line.startswith("torch") for line in requirements())


def test_a_repository_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        write_repository("/nowhere", tmp_path / "repository")
    assert not (tmp_path / "repository").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").write_text("mine")
    with pytest.raises(ConfigError, match="choose another `out`"):
        write_repository(MODEL, tmp_path / "other")
    with pytest.raises(ConfigError, match="at least 1"):
        write_repository(MODEL, tmp_path / "repository", LlmOptions(max_sequences=0))
