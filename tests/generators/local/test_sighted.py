"""`transformers:` with models that see: tiny ones of the real architectures, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from vlmsearch_mocks.contracts import GeneratorContract

from tests.support.tiny_vision import write_idefics3, write_llava, write_qwen2_5_vl
from vlmsearch import Document, GenerationOptions, ModelUnavailableError, Picture, PicturesRefusedError, Pipeline
from vlmsearch.generators.base import Generator
from vlmsearch.generators.local.transformers import TransformersGenerator
from vlmsearch.registry import open_generator

GREEDY = GenerationOptions(max_tokens=12)
WRITERS = {"llava": write_llava, "idefics3": write_idefics3}


@pytest.fixture(scope="module", params=WRITERS)
def generator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TransformersGenerator:
    write: Callable[[Path], Path] = WRITERS[request.param]
    return TransformersGenerator(str(write(tmp_path_factory.mktemp(request.param))))


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llava(tmp_path_factory.mktemp("llava"))


class TestLlava(GeneratorContract):
    @pytest.fixture(autouse=True)
    def _folder(self, llava: Path) -> None:
        self.folder = llava

    def make_generator(self) -> Generator:
        return open_generator(f"transformers:{self.folder}")


def picture(seed: int, size: tuple[int, int] = (120, 80)) -> Picture:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    return Picture(PIL.Image.fromarray(pixels))


def prompt(*seeds: int) -> list[str | Picture]:
    parts: list[str | Picture] = []
    for number, seed in enumerate(seeds, 1):
        parts += [f"[{number}] a\n", picture(seed)]
    return [*parts, "\nQuestion: where is the star?"]


def own_text(generator: TransformersGenerator, parts: list[str | Picture], **options: Any) -> str:
    """Return what transformers makes of the same prompt by itself."""
    inputs = generator._inputs(parts)
    model: Any = generator._model
    made = model.model.generate(**inputs, max_new_tokens=12, do_sample=False, **options)
    return generator.decode(made[0, inputs["input_ids"].shape[1] :].tolist())


@pytest.mark.parametrize("seeds", [(1,), (1, 2), (3, 2, 1)])
def test_the_text_is_that_of_transformers(generator: TransformersGenerator, seeds: tuple[int, ...]) -> None:
    assert "".join(generator.stream_parts(prompt(*seeds), GREEDY)) == own_text(generator, prompt(*seeds))


def test_beams_find_what_transformers_finds(generator: TransformersGenerator) -> None:
    text = "".join(generator.stream_parts(prompt(1, 2), GenerationOptions(max_tokens=12, beam_width=3)))
    assert text == own_text(generator, prompt(1, 2), num_beams=3)


def test_other_pixels_make_other_logits(generator: TransformersGenerator) -> None:
    model: Any = generator._model
    first, second = (generator._inputs(prompt(seed)) for seed in (1, 2))
    assert first["input_ids"].tolist() == second["input_ids"].tolist()
    assert float((model.model(**first).logits - model.model(**second).logits).abs().max()) > 1e-3


def test_the_tokens_of_pictures_are_known_before_and_counted_after(generator: TransformersGenerator) -> None:
    counts: list[int] = []
    for parts in (prompt(1), prompt(1, 2)):
        list(generator.stream_parts(parts, GREEDY, on_usage=counts.append))
    alone = generator.picture_tokens(120, 80)
    assert alone >= 16
    assert counts[1] - counts[0] - alone == len(generator._tokenizer("[2] a\n")["input_ids"])


def test_texts_at_once_do_not_mix(generator: TransformersGenerator) -> None:
    prompts = [prompt(*range(1, 1 + n % 3 + 1)) for n in range(6)]
    alone = ["".join(generator.stream_parts(parts, GREEDY)) for parts in prompts]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda parts: "".join(generator.stream_parts(parts, GREEDY)), prompts))
    assert together == alone


def test_a_text_alone_is_read_as_before(generator: TransformersGenerator) -> None:
    assert generator.generate("where is the star?", GREEDY)
    assert generator.count_tokens("where is the star?") > 3


def test_a_model_of_texts_alone_sees_nothing() -> None:
    generator = TransformersGenerator("demo-gpt2", pictures=2)
    assert generator.max_pictures == 0
    with pytest.raises(PicturesRefusedError):
        list(generator.stream_parts(prompt(1)))


def test_a_processor_that_needs_a_package_names_it(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ModelUnavailableError, match="pip install torchvision"):
        open_generator(f"transformers:{write_qwen2_5_vl(tmp_path)}")


def test_a_pipeline_shows_it_as_many_pictures_as_it_is_opened_with(llava: Path, tmp_path: Path) -> None:
    with Pipeline.open(encoder="onnx:demo", store="mock:", generator=f"transformers:{llava}?pictures=1") as pipeline:
        for seed in (1, 2):
            picture(seed).image.save(tmp_path / f"{seed}.png")
            pipeline.add(Document(str(seed), image=tmp_path / f"{seed}.png"))
        answer = pipeline.ask("a star", min_score=0.0, options=GREEDY)
    assert [answer.read_as[match.document.id] for match in answer.matches] == ["picture", "neither"]
    assert answer.prompt_tokens is not None
    assert answer.prompt_tokens > 16
