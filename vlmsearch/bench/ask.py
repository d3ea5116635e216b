"""The time to the first word of an answer, by the number of pictures that the generator sees."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.demo.scenes import Scene, make_scene
from vlmsearch.generators.base import GenerationOptions, PictureOptions
from vlmsearch.pipeline import Pipeline
from vlmsearch.types import Document

SEED = 32_000_000
"""The seed of the first scene; no training used these."""
_SCENES = 24


@dataclass(frozen=True)
class AskFigures:
    """The figures of questions with a number of pictures.

    Attributes:
        pictures: Number of pictures in a prompt.
        questions: Number of questions.
        first_ms: Median time from the question to the first word, the search included.
        whole_ms: Median time to the end.
        words: Median number of words of an answer.
        prompt_tokens: Median number of tokens that the generator read; None where it does not say.
        seen: Mean number of pictures that it saw.
    """

    pictures: int
    questions: int
    first_ms: float
    whole_ms: float
    words: float
    prompt_tokens: float | None
    seen: float


def measure_answers(
    generator: str,
    encoder: str,
    pictures: Sequence[int],
    *,
    questions: int,
    max_tokens: int,
    on_question: Callable[[], None] | None = None,
) -> Iterator[AskFigures]:
    """Ask about drawn scenes without captions, and yield the figures of each number of pictures.

    Args:
        generator: URL of the generator.
        encoder: URL of the encoder.
        pictures: Numbers of pictures.
        questions: Number of questions for each, after one that is not counted.
        max_tokens: Maximum number of tokens of an answer.
        on_question: Called after each question.

    Yields:
        The figures.
    """
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as folder:
        scenes = [make_scene(SEED + number) for number in range(_SCENES)]
        store = f"sqlite:{folder}/index"
        with Pipeline.open(encoder=encoder, store=store, generator=generator) as pipeline:
            pipeline.add(_drawn(scenes, Path(folder)))
            for count in pictures:
                asked = [_question(scene) for scene in (scenes * (questions // _SCENES + 1))[: questions + 1]]
                rows = []
                for question in asked:
                    rows.append(_ask(pipeline, question, count, max_tokens))
                    if on_question:
                        on_question()
                first, whole, words, tokens, seen = zip(*rows[1:])
                yield AskFigures(
                    count,
                    questions,
                    statistics.median(first),
                    statistics.median(whole),
                    statistics.median(words),
                    None if None in tokens else statistics.median(token for token in tokens if token is not None),
                    statistics.mean(seen),
                )


def _drawn(scenes: Sequence[Scene], folder: Path) -> Iterator[Document]:
    for scene in scenes:
        path = folder / f"scene-{scene.seed}.png"
        scene.draw(512).save(path)
        yield Document(path.stem, image=path)


def _question(scene: Scene) -> str:
    group = scene.groups[0]
    return f"How many {group.colour} {group.shape}s are there?"


def _ask(
    pipeline: Pipeline, question: str, pictures: int, max_tokens: int
) -> tuple[float, float, int, int | None, int]:
    options, shown = GenerationOptions(max_tokens=max_tokens), PictureOptions(limit=pictures)
    begun, first = time.perf_counter(), None
    limit = max(pictures, 1)
    with pipeline.ask(question, stream=True, options=options, pictures=shown, limit=limit, min_score=0.0) as parts:
        for _ in parts:
            first = first or time.perf_counter()
        answer = parts.answer()
    ended = time.perf_counter()
    seen = sum(read in ("picture", "both") for read in answer.read_as.values())
    words = len(answer.text.split())
    return 1000 * ((first or ended) - begun), 1000 * (ended - begun), words, answer.prompt_tokens, seen
