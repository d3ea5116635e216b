"""Language models in this process: ONNX Runtime and transformers."""

from __future__ import annotations

import gc
import json
import re
import shutil
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gpt2_graph import Gpt2Sizes, add_graph
from questions import UNANSWERED, Gallery
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from vlmsearch_mocks.contracts import GeneratorContract

from tests.support.llm_servers import BUNDLE, prompts
from vlmsearch.answers.prompts import TEMPLATE
from vlmsearch.errors import BackendError, ConfigError, InvalidInputError, ModelUnavailableError
from vlmsearch.generators.base import CountsTokens, GenerationOptions, Generator
from vlmsearch.generators.local.onnx import OnnxGenerator
from vlmsearch.generators.local.sampling import Sampler
from vlmsearch.generators.text import Detokenizer
from vlmsearch.registry import open_generator

if TYPE_CHECKING:
    from vlmsearch.generators.local.transformers import TransformersGenerator

PROMPTS = prompts(12)
LIKELIEST = GenerationOptions(max_tokens=64)
GIBBERISH = GenerationOptions(max_tokens=48, temperature=3.0, seed=11)


class TestOnnxContract(GeneratorContract):
    def make_generator(self) -> Generator:
        return open_generator("onnx:demo-gpt2")


class TestTransformersContract(GeneratorContract):
    def make_generator(self) -> Generator:
        return open_generator("transformers:demo-gpt2")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    """More only wait for each other with a model this small."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def onnx() -> Iterator[OnnxGenerator]:
    with OnnxGenerator("demo-gpt2") as generator:
        yield generator


@pytest.fixture(scope="module")
def local() -> Iterator[TransformersGenerator]:
    from vlmsearch.generators.local.transformers import TransformersGenerator

    with TransformersGenerator("demo-gpt2") as generator:
        yield generator


class Reference:
    """transformers' own `generate`."""

    def __init__(self) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model: Any = AutoModelForCausalLM.from_pretrained(BUNDLE, dtype=torch.float32)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(BUNDLE)

    def __call__(self, prompt: str, **settings: object) -> str:
        inputs = self.tokenizer(prompt, return_tensors="pt")
        made = self.model.generate(**inputs, do_sample=False, pad_token_id=0, **settings)
        return str(self.tokenizer.decode(made[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


def test_answers_are_those_of_transformers_itself(
    onnx: OnnxGenerator, local: TransformersGenerator, reference: Reference
) -> None:
    expected = [reference(prompt, max_new_tokens=64) for prompt in PROMPTS]
    assert [local.generate(prompt, LIKELIEST) for prompt in PROMPTS] == expected
    assert [onnx.generate(prompt, LIKELIEST) for prompt in PROMPTS] == expected


@pytest.mark.parametrize("settings", [(2, 1.0), (4, 1.0), (3, 1.2), (1, 1.3)], ids=str)
def test_beams_and_penalty_are_those_of_transformers_itself(
    onnx: OnnxGenerator, local: TransformersGenerator, reference: Reference, settings: tuple[int, float]
) -> None:
    width, penalty = settings
    options = GenerationOptions(max_tokens=24, beam_width=width, repetition_penalty=penalty)
    for prompt in PROMPTS[:4]:
        expected = reference(prompt, max_new_tokens=24, num_beams=width, repetition_penalty=penalty)
        assert local.generate(prompt, options) == expected
        assert onnx.generate(prompt, options) == expected


def test_the_model_answers_and_cites(onnx: OnnxGenerator) -> None:
    """Check 80 questions; `train.py --evaluate` prints the figures of 1,000 others."""
    gallery = Gallery(range(40_000_000, 40_000_400))
    right = cited = 0
    for number in range(80):
        asked = gallery.ask(40_000_000 + number)
        sources = "\n".join(f"[{i}] {source}" for i, source in enumerate(asked.sources, 1))
        text = onnx.generate(TEMPLATE.substitute(sources=sources, question=asked.question), LIKELIEST)
        right += text.strip() == asked.answer
        cited += {int(digits) for digits in re.findall(r"\[(\d+)\]", text)} == set(asked.citations)
    assert right >= 0.9 * 80
    assert cited >= 0.95 * 80


def test_it_says_so_where_the_sources_do_not_answer(onnx: OnnxGenerator) -> None:
    prompt = TEMPLATE.substitute(
        sources="[1] a large red star in the centre against snow\n[2] the image scene-0003.png",
        question="What is the capital of France?",
    )
    assert onnx.generate(prompt, LIKELIEST).strip() == UNANSWERED


def test_one_seed_samples_one_text_on_every_runtime(onnx: OnnxGenerator, local: TransformersGenerator) -> None:
    texts = {onnx.generate(PROMPTS[0], replace(GIBBERISH, seed=seed)) for seed in range(6)}
    assert len(texts) == 6
    for options in (GIBBERISH, replace(GIBBERISH, temperature=1.5, top_k=20, top_p=0.9, repetition_penalty=1.2)):
        assert onnx.generate(PROMPTS[0], options) == local.generate(PROMPTS[0], options)
    with ThreadPoolExecutor(4) as pool:
        same = list(pool.map(lambda _: local.generate(PROMPTS[0], GIBBERISH), range(8)))
    assert set(same) == {onnx.generate(PROMPTS[0], GIBBERISH)}


def test_without_a_seed_texts_differ(onnx: OnnxGenerator) -> None:
    options = replace(GIBBERISH, seed=None, temperature=100.0)  # every token about as likely: no text comes twice
    assert len({onnx.generate(PROMPTS[0], options) for _ in range(3)}) == 3


@pytest.mark.parametrize("words", [("s", "a"), ("show", "Source"), (" ",), ("[", "]")], ids=str)
def test_bad_words_are_kept_out_however_they_are_cut(onnx: OnnxGenerator, words: tuple[str, ...]) -> None:
    for options in (LIKELIEST, GIBBERISH, replace(LIKELIEST, beam_width=2, max_tokens=12)):
        text = onnx.generate(PROMPTS[0], replace(options, bad_words=words))
        assert not any(word in text for word in words)


def test_pieces_end_between_characters(onnx: OnnxGenerator) -> None:
    for seed in range(8):
        options = replace(GIBBERISH, seed=seed)
        pieces = list(onnx.stream("Σ ünï \U0001f436?", options))
        assert "".join(pieces) == onnx.generate("Σ ünï \U0001f436?", options)
        assert all(pieces)


def test_the_context_is_the_limit(onnx: OnnxGenerator, local: TransformersGenerator) -> None:
    for generator in (onnx, local):
        assert isinstance(generator, CountsTokens)
        assert generator.context == 1024
        word = "a star " * 800
        with pytest.raises(InvalidInputError, match="reads 1024") as caught:
            generator.generate(word)
        assert caught.value.code == "too_long"
        with pytest.raises(InvalidInputError):
            generator.generate("")
        prompt = PROMPTS[0] + " star" * (1020 - generator.count_tokens(PROMPTS[0]))
        assert generator.count_tokens(prompt) == 1020
        assert len(generator.encode(generator.generate(prompt, GIBBERISH))) <= 8


@pytest.mark.parametrize("kind", ["onnx", "transformers"])
def test_closed_it_lets_go_of_its_model_and_ends_what_is_under_way(kind: str) -> None:
    generator = open_generator(f"{kind}:demo-gpt2")
    options = GenerationOptions(max_tokens=12)
    whole = generator.generate("Sources:", options)
    stream = generator.stream("Sources:", options)
    first = next(stream)
    model = weakref.ref(generator._model)  # type: ignore[attr-defined]
    generator.close()
    assert first + "".join(stream) == whole
    generator.close()
    with pytest.raises(BackendError, match="demo-gpt2 is closed"):
        generator.generate("Sources:", options)
    del stream
    gc.collect()
    assert model() is None


@pytest.mark.parametrize("width", [1, 2])
def test_a_model_that_fails_while_it_runs_is_named(width: int) -> None:
    from vlmsearch.generators.local.transformers import TransformersGenerator

    with TransformersGenerator("demo-gpt2") as generator:
        generator._model.model.resize_token_embeddings(8)  # type: ignore[union-attr] # fewer than the tokenizer has
        with pytest.raises(BackendError, match=r"^transformers failed: index out of range in self$"):
            generator.generate("a star", GenerationOptions(beam_width=width))


def test_wrong_names_and_damage_are_clear(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no language model 'gpt9' for ONNX Runtime; there is demo-gpt2"):
        open_generator("onnx:gpt9")
    with pytest.raises(ConfigError, match="`threads` is from 1 to 1,024"):
        open_generator("onnx:demo-gpt2?threads=0")
    with pytest.raises(ConfigError, match="is not a folder"):
        open_generator(f"transformers:{tmp_path}/none")
    shutil.copytree(BUNDLE, tmp_path / "bundle")
    (tmp_path / "bundle" / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelUnavailableError, match="is damaged"):
        open_generator(f"onnx:{tmp_path}/bundle")
    (tmp_path / "bundle" / "generator.json").unlink()
    with pytest.raises(ModelUnavailableError, match=r"engines/gpt2_graph\.py"):
        open_generator(f"onnx:{tmp_path}/bundle")


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(ModelUnavailableError, match=f"transformers:demo-gpt2 cannot be put on device={device}: "):
        open_generator(f"transformers:demo-gpt2?device={device}")


@pytest.mark.parametrize("damaged", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: str) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    folder = tmp_path / "generators" / "mine"
    shutil.copytree(BUNDLE, folder)
    (folder / damaged).write_bytes((folder / damaged).read_bytes()[:100])
    for location in ("mine", str(folder)):
        with pytest.raises(ModelUnavailableError, match=f"^transformers cannot load {re.escape(str(folder))}: "):
            open_generator(f"transformers:{location}")


def test_a_chat_template_is_used_where_there_is_one(tmp_path: Path) -> None:
    from vlmsearch.generators.local.transformers import TransformersGenerator

    shutil.copytree(BUNDLE, tmp_path / "chat")
    settings = tmp_path / "chat" / "tokenizer_config.json"
    template = (
        "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    )
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": template}))
    with TransformersGenerator(str(tmp_path / "chat")) as chat, TransformersGenerator("demo-gpt2") as plain:
        assert chat.decode(chat.encode("hello")) == "<user> hello\n>"
        assert chat.count_tokens("hello") > plain.count_tokens("hello")
        assert plain.decode(plain.encode("hello")) == "hello"
    with TransformersGenerator(str(tmp_path / "chat"), chat=False) as generator:
        assert generator.decode(generator.encode("hello")) == "hello"


def test_thoughts_that_a_chat_template_begins_are_no_answer(tmp_path: Path) -> None:
    from vlmsearch.generators.local.transformers import TransformersGenerator

    shutil.copytree(BUNDLE, tmp_path / "chat")
    settings = tmp_path / "chat" / "tokenizer_config.json"
    template = {"chat_template": "{{ messages[0].content }}\nAnswer: <think>\n"}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | template))
    with TransformersGenerator(str(tmp_path / "chat")) as generator:
        assert next(generator.stream("Why?")) == "<think>"
        assert generator.next_word_likelihoods(["Why?"], ["no"]) is None
        with pytest.raises(InvalidInputError, match="ended within its thoughts"):
            generator.generate("Why?", GenerationOptions(max_tokens=3))


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_a_graph_is_written_for_other_sizes_and_types(tmp_path: Path, prefix: str) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import GPT2Config, GPT2LMHeadModel

    from vlmsearch.generators.local.transformers import TransformersGenerator

    torch.manual_seed(1)
    config = GPT2Config(vocab_size=1024, n_positions=96, n_embd=48, n_layer=2, n_head=3, eos_token_id=0, bos_token_id=0,
                        initializer_range=0.3)  # fmt: skip
    model = GPT2LMHeadModel(config)
    config.save_pretrained(tmp_path)
    tensors = {name.replace("transformer.", prefix): value.to(torch.bfloat16 if prefix else torch.float32).contiguous()
               for name, value in model.state_dict().items() if name != "lm_head.weight"}  # fmt: skip
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUNDLE / name, tmp_path / name)
    add_graph(tmp_path)
    assert Gpt2Sizes.read(tmp_path).context == 96
    with OnnxGenerator(str(tmp_path)) as onnx, TransformersGenerator(str(tmp_path)) as local:
        options = GenerationOptions(max_tokens=30)
        for prompt in ("a red star", "one two three"):
            assert onnx.generate(prompt, options) == local.generate(prompt, options) != ""


def test_other_checkpoints_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match="is not a checkpoint"):
        add_graph(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ConfigError, match="a graph is written for GPT-2"):
        add_graph(tmp_path)


def test_what_top_k_and_top_p_leave_out_is_never_sampled() -> None:
    logits = np.log(np.array([0.5, 0.2, 0.15, 0.1, 0.05], np.float32))
    for options, allowed in (
        (GenerationOptions(temperature=1.0, top_k=2, seed=1), {0, 1}),
        (GenerationOptions(temperature=1.0, top_p=0.8, seed=1), {0, 1, 2}),
        (GenerationOptions(temperature=1.0, top_p=0.01, seed=1), {0}),
        (GenerationOptions(temperature=1e-38, seed=1), {0}),
        (GenerationOptions(temperature=5e-324, top_k=3, seed=1), {0}),
        (GenerationOptions(temperature=1.0, seed=1), {0, 1, 2, 3, 4}),
        (GenerationOptions(temperature=0.0), {0}),
    ):
        sampler = Sampler(options)
        chosen = [sampler.choose(logits, [], lambda token: False) for _ in range(2000)]
        assert set(chosen) == allowed
    sampler = Sampler(GenerationOptions(temperature=1.0, seed=1))
    shares = np.bincount([sampler.choose(logits, [], lambda token: False) or 0 for _ in range(20_000)]) / 20_000
    assert np.allclose(shares, np.exp(logits), atol=0.015)
    assert Sampler(GenerationOptions()).choose(logits, [], lambda token: token == 0) == 1
    assert Sampler(GenerationOptions()).choose(logits, [], lambda token: True) is None


def test_the_detokenizer_gives_what_decoding_at_once_gives() -> None:
    tokenizer = Tokenizer.from_file(str(BUNDLE / "tokenizer.json"))
    text = "Sources [1] and [2]: \U0001f436 ünï  Σ\n\ta é\u200d\U0001f469\U0001f3fd"
    whole = tokenizer.encode(text).ids
    stream = Detokenizer(lambda ids: tokenizer.decode(list(ids)))
    pieces = [stream.push(token) for token in whole]
    assert "".join(pieces) + stream.finish() == text
    assert "\ufffd" not in "".join(pieces)
    cut = Detokenizer(lambda ids: tokenizer.decode(list(ids)))
    dog = tokenizer.encode("a\U0001f436").ids[:-1]
    assert "".join(map(cut.push, dog)) + cut.finish() == tokenizer.decode(dog)


LLAMA_2 = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


@pytest.mark.parametrize("decoder", [decoders.Metaspace(), decoders.WordPiece(), LLAMA_2], ids=["3", "bert", "2"])
def test_a_word_behind_a_token_that_is_not_shown_has_its_space(decoder: decoders.Decoder) -> None:
    """A tokenizer's decoder drops the space before the first word of what it is given."""
    tokenizer = Tokenizer(WordLevel({"▁the": 0, "▁star": 1, "▁red": 2, "<|user|>": 3}))
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<|user|>"])
    for ids in ([3, 0, 3, 3, 1, 2], [0, 3, 1], [0, 1, 3, 2, 3], [3]):
        stream = Detokenizer(lambda ids: tokenizer.decode(list(ids)))
        assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids)


def test_models_that_are_loaded_together_have_their_weights() -> None:
    def load(_: int) -> str:
        with open_generator("transformers:demo-gpt2") as generator:
            return generator.generate(PROMPTS[0], GenerationOptions(max_tokens=8))

    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(load, range(12)))
    assert texts == [load(0)] * 12
