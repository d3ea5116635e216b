"""Answers about pictures without captions, from the search to the citation.

Drawn scenes are indexed as pictures alone. Questions ask how many objects of a colour and a shape there are: of objects
that one scene alone has, and of others that no scene has. An answer is right if it has the number and cites that scene,
or, where there is nothing, if it cites no scene. What the search finds is counted beside it.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.common import print_figures
from benchmarks.reranking_pictures import draw
from vlmsearch.demo.scenes import COLOURS, SHAPES, Scene, make_scene
from vlmsearch.demo.vocabulary import SHAPES as WORDS
from vlmsearch.pipeline import Pipeline

SEED = 33_000_000
_NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}


@dataclass(frozen=True)
class SeenFigures:
    """The figures of questions about an index of pictures.

    Attributes:
        found: Share of the questions for which the search has the right scene among the sources.
        right: Share that is answered with the right number, and cites that scene alone.
        right_of_found: Share of those that were found.
        refused: Share of the questions about nothing that cite no scene.
    """

    found: float
    right: float
    right_of_found: float
    refused: float


@click.command()
@click.option("--generator", default="onnx:demo-vlm", show_default=True, metavar="URL", help="The generator.")
@click.option("--encoder", default="onnx:demo", show_default=True, metavar="URL", help="The encoder.")
@click.option("--scenes", default=60, show_default=True, type=click.IntRange(2), help="Pictures of an index.")
@click.option("--indexes", default=10, show_default=True, type=click.IntRange(1), help="Number of indexes.")
def main(generator: str, encoder: str, scenes: int, indexes: int) -> None:
    """Measure answers about pictures."""
    figures = measure(generator, encoder, scenes, indexes)
    names = ("found by the search", "right answer and citation", "of those found", "nothing there: no citation")
    print_figures(
        f"{indexes} indexes of {scenes} pictures without captions",
        names,
        [tuple(f"{value:.3f}" for value in vars(figures).values())],
    )


def measure(generator: str, encoder: str, scenes: int, indexes: int) -> SeenFigures:
    """Return the figures of all questions about some indexes."""
    rows: list[tuple[bool, bool]] = []
    refused: list[bool] = []
    for number in range(indexes):
        drawn = [make_scene(SEED + number * scenes + at) for at in range(scenes)]
        with (
            tempfile.TemporaryDirectory(prefix="vlmsearch-") as folder,
            Pipeline.open(encoder=encoder, store=f"sqlite:{folder}/index", generator=generator) as pipeline,
        ):
            pipeline.add(draw({str(scene.seed): scene for scene in drawn}, Path(folder)))
            for question, id, count in _questions(drawn):
                answer = pipeline.ask(question)
                cited = [citation.id for citation in answer.citations]
                if id is None:
                    refused.append(not cited)
                else:
                    said = answer.text.lower().split()
                    sources = {match.document.id for match in answer.matches}
                    rows.append((id in sources, cited == [id] and _NUMBERS[count] in said))
    return SeenFigures(
        statistics.mean(is_found for is_found, _ in rows),
        statistics.mean(is_right for _, is_right in rows),
        statistics.mean(is_right for is_found, is_right in rows if is_found),
        statistics.mean(refused),
    )


def _questions(scenes: Sequence[Scene]) -> list[tuple[str, str | None, int]]:
    """Return questions, each with the only scene that answers it and the number; None for one about nothing."""
    having = defaultdict(list)
    for scene in scenes:
        for group in scene.groups:
            having[group.colour, group.shape].append((scene, group))
    asked: list[tuple[str, str | None, int]] = []
    for colour, shape in itertools.product(COLOURS, SHAPES):
        question = f"How many {colour} {WORDS[shape][0][1]} are there?"
        hits = having[colour, shape]
        if len(hits) == 1:
            asked.append((question, str(hits[0][0].seed), hits[0][1].count))
        elif not hits:
            asked.append((question, None, 0))
    answered = [row for row in asked if row[1] is not None]
    return answered + [row for row in asked if row[1] is None][: len(answered)]


if __name__ == "__main__":
    main()
