"""The language model that sees pictures, on ONNX Runtime."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llava_graph import LlavaSizes, add_graphs
from PIL import Image
from questions import EVERYDAY_KINDS, KINDS, UNANSWERED, Gallery, Mixture, Question
from vlmsearch_mocks.contracts import GeneratorContract

from vlmsearch.errors import ConfigError, InvalidInputError, ModelUnavailableError
from vlmsearch.generators.base import (
    CountsTokens,
    GenerationOptions,
    Generator,
    Picture,
    PicturesRefusedError,
    SeesPictures,
)
from vlmsearch.generators.local.onnx import OnnxGenerator
from vlmsearch.generators.local.vision import OnnxVisionGenerator
from vlmsearch.models.bundle import data_folder
from vlmsearch.registry import open_generator

BUNDLE = data_folder("engines") / "demo-vlm" / "bundle"
SEED = 20_500_000
"""The first scene of these tests; nothing is trained on it or on later ones."""
LIKELIEST = GenerationOptions(max_tokens=96)
GIBBERISH = GenerationOptions(max_tokens=32, temperature=3.0, seed=11)
GOALS = ("how many", "colour", "where", "exists", "everyday count", "everyday colour", "everyday where",
         "everyday exists")  # fmt: skip
THREE = Mixture(3, max_sources=3, captioned=0.0, own=0.0,
                kinds=tuple(pair for pair in (*KINDS, *EVERYDAY_KINDS) if pair[0] in GOALS))  # fmt: skip
Parts = list["str | Picture"]


class TestContract(GeneratorContract):
    def make_generator(self) -> Generator:
        return open_generator("onnx:demo-vlm")


@pytest.fixture(scope="module")
def gallery() -> Gallery:
    return Gallery(range(SEED, SEED + 500))


@pytest.fixture(scope="module")
def vision() -> Iterator[OnnxVisionGenerator]:
    with OnnxVisionGenerator("demo-vlm") as generator:
        yield generator


def parts_of(asked: Question) -> Parts:
    return [part if isinstance(part, str) else Picture(part.draw()) for part in asked.parts()]


def answer(generator: SeesPictures, parts: Sequence[str | Picture], options: GenerationOptions = LIKELIEST) -> str:
    return "".join(generator.stream_parts(parts, options))


def share_right(generator: SeesPictures, asked: Sequence[Question]) -> float:
    """Return the share of questions that are answered right, with the right citations."""
    right = 0
    for question in asked:
        text = answer(generator, parts_of(question))
        cited = {int(number) for number in re.findall(r"\[(\d+)\]", text)}
        right += text.strip() == question.answer and cited == set(question.citations)
    return right / len(asked)


@pytest.mark.slow
def test_it_answers_from_pictures_and_cites_them(vision: OnnxVisionGenerator, gallery: Gallery) -> None:
    """Check 24 questions; ``train.py --evaluate`` prints the figures of 1,000 others."""
    assert share_right(vision, [gallery.ask_pictures(SEED + seed, THREE)[0] for seed in range(24)]) >= 0.95


@pytest.mark.slow
def test_it_answers_from_pictures_and_texts(vision: OnnxVisionGenerator, gallery: Gallery) -> None:
    mixtures = (Mixture(1, own=0.0), Mixture(2, captioned=1.0, own=0.0), Mixture(4, own=0.0), Mixture(0))
    asked = [gallery.ask_pictures(SEED + seed, mixtures[seed % 4])[0] for seed in range(24)]
    assert share_right(vision, [question for question in asked if "describe" not in question.kind]) >= 0.9
    assert share_right(vision, [gallery.ask(SEED + seed) for seed in range(16)]) >= 0.9


@pytest.mark.slow
def test_it_answers_about_the_picture_of_the_question(vision: OnnxVisionGenerator, gallery: Gallery) -> None:
    asked = [gallery.ask_pictures(SEED + seed, Mixture(2, own=1.0))[0] for seed in range(60)]
    own = [item for item in asked if item.kind == "own" and "It shows" not in item.answer]
    assert len(own) > 15
    assert share_right(vision, own) >= 0.9


def test_it_says_so_where_no_picture_answers(vision: OnnxVisionGenerator, gallery: Gallery) -> None:
    asked = gallery.ask_pictures(SEED, THREE)[0]
    for question in ("Is there a dog?", "is there a dog", "Do you see any cats?"):
        assert answer(vision, parts_of(replace(asked, question=question))).startswith(" No, the sources do not show ")
    for question in ("What is the capital of France?", "how many dogs", "Where is the house?"):
        assert answer(vision, parts_of(replace(asked, question=question))).strip() == UNANSWERED


def test_order_and_size_of_pictures(vision: OnnxVisionGenerator, gallery: Gallery) -> None:
    drawn = (gallery.ask_pictures(SEED + at, Mixture(1, own=0.0))[0].pictures[0] for at in range(60))
    scenes = {scene.groups[0].shape: scene for scene in drawn if scene and len(scene.groups) == 1}
    (shape, scene), (_, other) = list(scenes.items())[:2]
    for place in (1, 2):
        for side in (96, 160, 300, 512):
            shown = (scene, other) if place == 1 else (other, scene)
            asked = Question("", ("the image a.png", "the image b.png"), f"How many {shape}s?", "", (), shown)
            parts = [part if isinstance(part, str) else Picture(part.draw(side)) for part in asked.parts()]
            assert answer(vision, parts).endswith(f"[{place}].")


def test_it_answers_one_question_of_each_kind(vision: OnnxVisionGenerator, gallery: Gallery) -> None:
    kinds = [pair for pair in THREE.kinds or () if pair[0].startswith("everyday")]
    asked = [gallery.ask_pictures(SEED, replace(THREE, kinds=(pair,)))[0] for pair in kinds]
    assert share_right(vision, asked) == 1.0


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P"])
def test_pictures_of_every_kind_are_read(vision: OnnxVisionGenerator, mode: str) -> None:
    for size in ((1, 1), (640, 33)):
        assert answer(vision, ["Sources:\n", Picture(Image.new(mode, size))], replace(LIKELIEST, max_tokens=4))


def test_a_picture_in_a_text_is_none(vision: OnnxVisionGenerator) -> None:
    image = 1
    assert image not in vision.encode("see <image> and <|endoftext|>")
    assert vision.decode(vision.encode("see <image>")) == "see <image>"
    assert vision.generate("Sources:\n[1] <image>\n\nQuestion: Is there a dog?\nAnswer:", LIKELIEST)


def test_the_limits(vision: OnnxVisionGenerator) -> None:
    assert isinstance(vision, SeesPictures)
    assert isinstance(vision, CountsTokens)
    assert (vision.max_pictures, vision.max_side, vision.context) == (4, 160, 1024)
    assert vision.picture_tokens(10, 1000) == 100
    picture = Picture(Image.new("RGB", (160, 160)))
    with pytest.raises(PicturesRefusedError, match="demo-vlm takes 4 pictures, not 5") as caught:
        vision.stream_parts(["a", *[picture] * 5])
    assert caught.value.at_most == 4
    with pytest.raises(InvalidInputError, match="reads 1024"):
        vision.stream_parts(["a star " * 600, picture])


def test_the_tokens_of_a_prompt_are_told(vision: OnnxVisionGenerator) -> None:
    told: list[int] = []
    picture = Picture(Image.new("RGB", (160, 160)))
    "".join(vision.stream_parts(["a", " b", picture, "c"], LIKELIEST, on_usage=told.append))
    assert told == [vision.count_tokens("a b") + 100 + vision.count_tokens("c")]


def test_likelihoods_are_those_of_what_the_pictures_show(vision: OnnxVisionGenerator, gallery: Gallery) -> None:
    parts, others = (parts_of(gallery.ask_pictures(SEED + seed, THREE)[0]) for seed in (1, 2))
    assert parts[-1] == "\n\nQuestion: Do the pictures show a triangle\nAnswer:"
    shown = [parts, [other if isinstance(part, Picture) else part for part, other in zip(parts, others)]]
    (yes, _), (_, no) = (vision.next_word_likelihoods(prompt, ("yes", "no")) or (0.0, 0.0) for prompt in shown)
    assert min(yes, no) > 0.99


def test_sampling_beams_and_words_work_with_pictures(vision: OnnxVisionGenerator, gallery: Gallery) -> None:
    asked = gallery.ask_pictures(SEED + 3, THREE)[0]
    parts = parts_of(asked)
    assert answer(vision, parts, GIBBERISH) == answer(vision, parts, GIBBERISH)
    assert answer(vision, parts, GIBBERISH) != answer(vision, parts, replace(GIBBERISH, seed=12))
    assert answer(vision, parts, replace(LIKELIEST, beam_width=3)).strip() == asked.answer
    assert "[" not in answer(vision, parts, replace(LIKELIEST, bad_words=("[",), max_tokens=16))
    assert answer(vision, parts, replace(LIKELIEST, stop=(" [",))).strip() == asked.answer.partition(" [")[0]


def test_a_text_alone_is_the_same_either_way(vision: OnnxVisionGenerator, gallery: Gallery) -> None:
    asked = gallery.ask(SEED + 5)
    prompt = "".join(str(part) for part in asked.parts())
    assert answer(vision, [prompt]) == vision.generate(prompt, LIKELIEST) == answer(vision, [prompt[:40], prompt[40:]])


def test_the_kind_of_bundle_says_which_generator_opens() -> None:
    with open_generator("onnx:demo-vlm?threads=2") as generator:
        assert type(generator) is OnnxVisionGenerator
    with open_generator("onnx:demo-gpt2") as generator:
        assert type(generator) is OnnxGenerator
        assert not isinstance(generator, SeesPictures)
    with pytest.raises(ConfigError, match="demo-gpt2 sees no pictures"):
        OnnxVisionGenerator("demo-gpt2")
    with pytest.raises(ConfigError, match="`threads` is from 1 to 1,024"):
        open_generator("onnx:demo-vlm?threads=0")


def test_damaged_graphs_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(BUNDLE, folder)
    (folder / "vision.onnx").write_bytes(b"")
    with pytest.raises(ModelUnavailableError, match=r"vision\.onnx is damaged"):
        open_generator(f"onnx:{folder}")
    (folder / "generator.json").unlink()
    with pytest.raises(ModelUnavailableError, match=r"engines/llava_graph\.py"):
        open_generator(f"onnx:{folder}")


def test_other_checkpoints_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match="is not a LLaVA checkpoint"):
        add_graphs(tmp_path)
    for name in ("config.json", "preprocessor_config.json"):
        shutil.copy(BUNDLE / name, tmp_path / name)
    assert LlavaSizes.read(tmp_path).picture_tokens == 100
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"quick_gelu"', '"gelu"'))
    with pytest.raises(
        ConfigError, match=r"vision_config\.hidden_act is 'gelu'; a graph is written where it is 'quick"
    ):
        add_graphs(tmp_path)


@pytest.mark.slow
def test_the_checkpoint_in_transformers_says_the_same(vision: OnnxVisionGenerator, gallery: Gallery) -> None:
    import torch

    from vlmsearch.generators.local.transformers import TransformersGenerator

    mixtures = (THREE, Mixture(1, own=0.0), Mixture(4), Mixture(2, own=1.0), Mixture(0))
    with TransformersGenerator(str(BUNDLE)) as reference:
        for seed in range(10):
            parts = parts_of(gallery.ask_pictures(SEED + seed, mixtures[seed % 5])[0])
            (tokens, images), inputs = vision.read_parts(parts), reference._inputs(parts)
            assert inputs["input_ids"][0].tolist() == tokens
            models: Any = (vision._model, reference._model)
            with torch.inference_mode():
                expected = models[1].model(**inputs).logits[0, -1].numpy()
            given = models[0].open(images).step(np.array([tokens], np.int64))[0]
            assert np.abs(given - expected).max() < 1e-2
            assert answer(vision, parts) == answer(reference, parts)
