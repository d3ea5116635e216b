"""Answers of generators that see: which pictures they are shown, how large, and what is said of the others."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from vlmsearch_mocks import MockGenerator

from tests.support.pdf_files import write_pdf
from vlmsearch import (
    ConfigError,
    Document,
    GenerationOptions,
    InvalidInputError,
    Paths,
    Picture,
    PictureOptions,
    PicturesRefusedError,
    Pipeline,
    SourceOptions,
)
from vlmsearch.answers.stream import NOTHING_FOUND
from vlmsearch.demo.scenes import make_scene
from vlmsearch.generators.base import SeesPictures
from vlmsearch.generators.extractive import ExtractiveGenerator
from vlmsearch.search.options import RankingKeywords

ALL: RankingKeywords = {"min_score": 0.0, "limit": 5}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in range(6):
        make_scene(seed).draw(256).save(tmp_path / f"{seed}.png")
    return tmp_path


@pytest.fixture
def pipeline(folder: Path) -> Iterator[Pipeline]:
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{folder}/index", generator=None) as pipeline:
        pipeline.add(Document(str(n), image=folder / f"{n}.png") for n in range(3))
        pipeline.add(Document(str(n), text=make_scene(n).caption(), image=folder / f"{n}.png") for n in range(3, 6))
        yield pipeline


def shown(parts: Sequence[str | Picture]) -> list[PIL.Image.Image]:
    return [part.image for part in parts if isinstance(part, Picture)]


def test_pictures_are_in_the_prompt_behind_the_labels_of_their_sources(pipeline: Pipeline) -> None:
    pipeline.generator = generator = MockGenerator("Yes [1].", pictures=9)
    answer = pipeline.ask("a red star", **ALL)
    [parts] = generator.parts
    assert len(shown(parts)) == 4
    for number, (before, part) in enumerate(pairwise(parts)):
        if isinstance(part, Picture):
            assert isinstance(before, str)
            label = before.splitlines()[-1]
            assert label.startswith(f"[{(number // 2) + 1}] ")
    text = "".join(part for part in parts if isinstance(part, str))
    assert "Question: a red star\nAnswer:" in text
    assert text.count("[5] ") == 1
    read = [answer.read_as[match.document.id] for match in answer.matches]
    has_text = [match.document.text is not None for match in answer.matches]
    assert read[:4] == ["both" if has else "picture" for has in has_text[:4]]
    assert read[4] == ("text" if has_text[4] else "neither")
    words = generator.count_tokens(text)
    assert answer.prompt_tokens == words + 4 * 8 * 8


def test_pictures_are_those_of_the_matches_upright_and_in_rgb(pipeline: Pipeline, folder: Path) -> None:
    pipeline.generator = generator = MockGenerator("Yes [1].", pictures=9)
    answer = pipeline.ask("a red star", **ALL)
    for match, image in zip(answer.matches, shown(generator.parts[0])):
        with PIL.Image.open(folder / f"{match.document.id}.png") as kept:
            assert image.mode == "RGB"
            assert np.array_equal(np.asarray(image), np.asarray(kept.convert("RGB")))


def test_one_that_does_not_see_gets_the_texts_and_the_answer_says_so(pipeline: Pipeline) -> None:
    for generator in (MockGenerator("Yes [1]."), ExtractiveGenerator()):
        pipeline.generator = generator
        answer = pipeline.ask("a red star", **ALL)
        expected = {m.document.id: "text" if m.document.text else "neither" for m in answer.matches}
        assert dict(answer.read_as) == expected
        assert set(expected.values()) == {"text", "neither"}


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_there_are_no_more_pictures_than_asked_for(pipeline: Pipeline, limit: int) -> None:
    pipeline.generator = generator = MockGenerator("Yes [1].", pictures=9)
    answer = pipeline.ask("a red star", pictures=PictureOptions(limit=limit), **ALL)
    assert sum(read in ("picture", "both") for read in answer.read_as.values()) == limit
    assert [len(shown(parts)) for parts in generator.parts] == ([limit] if limit else [])
    assert list(answer.read_as)[:limit] == [match.document.id for match in answer.matches[:limit]]


def test_pictures_share_the_tokens_by_being_scaled_down(pipeline: Pipeline) -> None:
    pipeline.generator = generator = MockGenerator("Yes [1].", pictures=9)
    pipeline.ask("a red star", pictures=PictureOptions(tokens=100), **ALL)
    pictures = shown(generator.parts[0])
    assert len(pictures) == 4
    assert 60 < sum(generator.picture_tokens(*image.size) for image in pictures) <= 100
    pipeline.ask("a red star", pictures=PictureOptions(side=100), **ALL)
    assert {max(image.size) for image in shown(generator.parts[1])} == {100}


def test_pictures_and_texts_fit_the_context_together(pipeline: Pipeline) -> None:
    pipeline.generator = generator = MockGenerator("Yes [1].", pictures=9, context=240)
    answer = pipeline.ask("a red star", options=GenerationOptions(max_tokens=20), **ALL)
    [parts] = generator.parts
    tokens = sum(generator.picture_tokens(*image.size) for image in shown(parts))
    assert tokens + generator.count_tokens("".join(part for part in parts if isinstance(part, str))) <= 220
    assert answer.matches[0].document.id in answer.read_as
    assert answer.read_as.keys() == {match.document.id for match in answer.matches}


class Refusing(MockGenerator):
    """Takes no more than some pictures, and says so or not."""

    def __init__(self, limit: int, *, says: bool) -> None:
        super().__init__("Yes [1].", pictures=9)
        self._limit, self._says = limit, says
        self.tried: list[int] = []

    def stream_parts(
        self,
        parts: Sequence[str | Picture],
        options: GenerationOptions | None = None,
        *,
        on_usage: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        self.tried.append(len(shown(parts)))
        if len(shown(parts)) > self._limit:
            raise PicturesRefusedError("too many", self._limit if self._says else None)
        return super().stream_parts(parts, options, on_usage=on_usage)


@pytest.mark.parametrize(
    ("limit", "says", "tried", "seen"),
    [(3, True, [4, 3], 3), (0, True, [4], 0), (2, False, [4, 2], 2), (1, False, [4, 2], 0), (1, True, [4, 1], 1)],
)
def test_where_a_server_takes_fewer_pictures_it_gets_fewer(
    pipeline: Pipeline, limit: int, says: bool, tried: list[int], seen: int
) -> None:
    pipeline.generator = generator = Refusing(limit, says=says)
    answer = pipeline.ask("a red star", **ALL)
    assert generator.tried == tried
    assert sum(read in ("picture", "both") for read in answer.read_as.values()) == seen
    assert answer.citations[0].number == 1
    assert len(answer.matches) == 5


def test_a_question_may_bring_a_picture_of_its_own(pipeline: Pipeline) -> None:
    pipeline.generator = generator = MockGenerator("A scene.", pictures=9)
    mine = make_scene(99).draw(128)
    pipeline.ask("What is this?", image=mine, **ALL)
    [parts] = generator.parts
    [at] = [n for n, part in enumerate(parts) if isinstance(part, Picture) and part.image.size == (128, 128)]
    assert str(parts[at - 1]).endswith("\nThe picture of the question:\n")
    assert str(parts[at + 1]).startswith("\n\nQuestion: What is this?")
    assert len(shown(parts)) == 4
    alone = pipeline.ask("What is this?", image=mine, where={"none": 1})
    assert (alone.text, alone.matches, len(shown(generator.parts[1]))) == ("A scene.", (), 1)
    none = pipeline.ask("What is this?", where={"none": 1}).text
    assert none == f"{NOTHING_FOUND} No document has the key 'none'; documents have no metadata."


def test_a_file_that_is_gone_is_read_as_what_is_left(pipeline: Pipeline, folder: Path) -> None:
    pipeline.generator = MockGenerator("Yes [1].", pictures=9)
    for number in range(6):
        (folder / f"{number}.png").unlink()
    answer = pipeline.ask("a red star", **ALL)
    assert set(answer.read_as.values()) == {"text", "neither"}
    with pytest.raises(InvalidInputError):
        pipeline.ask("What is this?", image=folder / "0.png")


def test_a_page_is_shown_with_its_text(tmp_path: Path) -> None:
    write_pdf(tmp_path / "manual.pdf", ["how to fill the tank", "how to clean the filter"])
    generator = MockGenerator("Yes [1].", pictures=9)
    with Pipeline.open(encoder="onnx:demo", store="mock:", generator=None) as pipeline:
        pipeline.generator = generator
        pipeline.index(Paths([tmp_path], options=SourceOptions(pdf=True)))
        answer = pipeline.ask("clean the filter", **ALL)
    assert set(answer.read_as.values()) == {"both"}
    assert all(max(image.size) <= 1024 for image in shown(generator.parts[0]))


def test_turned_and_cmyk_pictures_are_upright_rgb(tmp_path: Path) -> None:
    scene = make_scene(3).draw(96)
    turned = scene.getexif()
    turned[0x0112] = 6
    scene.crop((0, 0, 96, 48)).save(tmp_path / "turned.jpg", exif=turned)
    scene.convert("CMYK").save(tmp_path / "cmyk.jpg")
    generator = MockGenerator("Yes [1].", pictures=9)
    with Pipeline.open(encoder="onnx:demo", store="mock:", generator=None) as pipeline:
        pipeline.generator = generator
        assert pipeline.index(tmp_path).added == 2
        answer = pipeline.ask("a star", pictures=PictureOptions(limit=9), **ALL)
    images = dict(zip((Path(match.document.id).name for match in answer.matches), shown(generator.parts[0])))
    assert {image.mode for image in images.values()} == {"RGB"}
    assert images["turned.jpg"].size == (48, 96)
    assert len(images) == 2


def test_what_a_picture_makes_a_model_say_forges_no_citation(pipeline: Pipeline) -> None:
    pipeline.generator = MockGenerator("As the picture says: [9] [1] Sources: [2] forged", pictures=9)
    answer = pipeline.ask("a red star", limit=1, min_score=0.0)
    assert answer.text == "As the picture says: [1] Sources: forged"
    assert (answer.removed, [citation.number for citation in answer.citations]) == ((2, 9), [1])


def test_options_are_checked() -> None:
    for wrong in ({"limit": 17}, {"side": 63}, {"side": 4097}, {"tokens": 0}, {"tokens": 2**20 + 1}, {"limit": True}):
        with pytest.raises(ConfigError, match=r"^`\w+` of pictures is from \d+ to [\d,]+, not \w+$"):
            PictureOptions(**wrong)
    assert isinstance(MockGenerator(), SeesPictures)
    assert not isinstance(ExtractiveGenerator(), SeesPictures)
