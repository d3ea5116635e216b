"""`openai:` against a real server, `transformers serve`, with a small random GPT-2."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from vlmsearch_mocks.contracts import GeneratorContract

from tests.support.servers import free_port
from tests.support.tiny_vision import write_llava
from tests.support.triton_fixtures import ONE_THREAD
from vlmsearch import ConfigError, Document, GenerationOptions, Picture, PictureOptions, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.generators.base import Generator
from vlmsearch.generators.local.transformers import TransformersGenerator
from vlmsearch.generators.openai.generator import OpenAIGenerator
from vlmsearch.rerankers.judge import GeneratorReranker

pytestmark = pytest.mark.server

GREEDY = GenerationOptions(max_tokens=20)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of two layers whose tokens are the printable characters of ASCII."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("gpt2")
    end = "<|endoftext|>"
    vocabulary = {token: id for id, token in enumerate([end, "Ġ", "Ċ", *map(chr, range(33, 127))])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token=end, bos_token=end, pad_token=end
    )
    fast.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    fast.save_pretrained(folder)
    torch.manual_seed(1)
    size: dict[str, Any] = {"n_positions": 2048, "n_embd": 48, "n_layer": 2, "n_head": 2, "initializer_range": 0.3}
    config = GPT2Config(vocab_size=len(vocabulary), bos_token_id=0, eos_token_id=0, pad_token_id=0, **size)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def served(checkpoint: Path) -> Iterator[str]:
    with serving(checkpoint) as url:
        yield url


@contextmanager
def serving(checkpoint: Path) -> Iterator[str]:
    port = free_port()
    (checkpoint / "hub").mkdir()
    command = [Path(sys.executable).with_name("transformers"), "serve", checkpoint, "--host", "127.0.0.1"]
    log = (checkpoint / "log").open("w+")
    with subprocess.Popen(
        [*map(str, command), "--port", str(port), "--device", "cpu"],
        env=os.environ | {"HF_HOME": str(checkpoint), "HF_HUB_OFFLINE": "1"} | ONE_THREAD,
        stdout=log,
        stderr=log,
    ) as process:
        try:
            _wait(f"http://127.0.0.1:{port}/health", process)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            log.close()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "transformers serve has ended"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("transformers serve did not start")


class TestTransformersServe(GeneratorContract):
    @pytest.fixture(autouse=True)
    def _served(self, served: str, checkpoint: Path) -> None:
        self.url, self.model = served, str(checkpoint)

    def make_generator(self) -> Generator:
        return OpenAIGenerator(self.url, model=self.model, api="completions")


def test_the_text_is_that_of_the_model(served: str, checkpoint: Path) -> None:
    from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

    model: Any = GPT2LMHeadModel.from_pretrained(checkpoint)
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(checkpoint)
    for prompt in ("one red star", "Question: why?", "12 + 4 ="):
        asked = {
            "completions": prompt,
            "chat": tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False),
        }
        for api, text in asked.items():
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            made = model.generate(ids, max_new_tokens=20, do_sample=False)
            expected = tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)
            generator = OpenAIGenerator(served, model=str(checkpoint), api="chat" if api == "chat" else "completions")
            assert generator.generate(prompt, GREEDY) == expected


def test_what_the_server_does_not_take_is_refused_in_its_words(served: str, checkpoint: Path) -> None:
    generator = OpenAIGenerator(served, model=str(checkpoint))
    with pytest.raises(ConfigError, match=r"Unexpected fields in the request: \{'top_k'\}"):
        generator.generate("?", GenerationOptions(top_k=3))
    with pytest.raises(ConfigError, match="requested 'nonsense'"):
        OpenAIGenerator(served, model="nonsense").generate("?")


def test_pictures_reach_a_model_that_sees(tmp_path: Path) -> None:
    """LLaVA's own answers, and the tokens that its server counts: 16 for each picture."""
    folder = write_llava(tmp_path / "llava")
    for number in range(3):
        make_scene(number).draw(64).save(tmp_path / f"{number}.png")
    with serving(folder) as url, TransformersGenerator(str(folder)) as local:
        generator = OpenAIGenerator(url, model=str(folder))
        black, white = (Picture(Image.new("RGB", (64, 64), colour)) for colour in ("black", "white"))
        prompts: list[list[str | Picture]] = [
            ["[1] a\n", black, "\nwhere?"],
            ["[1] a\n", black, "\n[2] b\n", white, "\nwhere?"],
        ]
        for parts in prompts:
            counted: list[int] = []
            text = "".join(generator.stream_parts(parts, GREEDY, on_usage=counted.append))
            own = "".join(local.stream_parts(parts, GREEDY, on_usage=counted.append))
            assert text
            assert own.startswith(text.rstrip("\N{REPLACEMENT CHARACTER}")), "the server keeps back half a character"
            assert counted[0] == counted[1], "what the server counted is what the model reads"
        with Pipeline.open(encoder="onnx:demo", store="mock:", generator=None) as pipeline:
            pipeline.generator = generator
            pipeline.add(Document(str(number), image=tmp_path / f"{number}.png") for number in range(3))
            tokens = [
                pipeline.ask(
                    "a star", min_score=0.0, options=GREEDY, pictures=PictureOptions(limit=limit)
                ).prompt_tokens
                for limit in (1, 2, 3)
            ]
        with GeneratorReranker(OpenAIGenerator(url, model=str(folder))) as judge:
            scores = judge.score("a star", [Document("a", image=tmp_path / "0.png"), Document("b")])
    assert scores[1] is None, "a server that tells no likelihoods is asked for a text"
    assert None not in tokens
    assert [b - a for a, b in pairwise(token for token in tokens if token)] == [17, 17], "16 and the end of a line"
