"""Relevance on what no fit has seen: pictures as queries, questions as people put them, single words and numbers.

Every figure is of `Pipeline.search`, as a user calls it. *Right first* and *right shown* are shares of the queries that
a document answers; *unanswered shown* is the share of the others for which anything is shown. *Surest* is the mean
score of what scores 0.8 or more, beside the share of it that is right.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.common import print_figures
from benchmarks.labelled import LabelledCollection, own_questions, read_cisi, read_questions
from vlmsearch.building.data import passages, unanswered
from vlmsearch.demo.scenes import make_scene
from vlmsearch.pipeline import Pipeline
from vlmsearch.types import Document

_SEED = 31_000_000
_SURE = 0.8
_CUT = 10
SMALL = (
    "a yellow heart against a beach",
    "two red stars by the sea",
    "green rings",
    "a blue square in the snow",
    "some sand",
)
"""Five short texts, as in a first try."""


@dataclass(frozen=True)
class OutsideFigures:
    """The figures of one collection; None where it has no such queries.

    Attributes:
        first: The share of the answered queries whose first match is right.
        shown: The share of the answered queries for which a right match is shown.
        unanswered_shown: The share of the other queries for which anything is shown.
        brier: The mean squared difference of scores from 1 for a right match and 0 for another, of all candidates.
        surest: The mean score of what scores 0.8 or more.
        surest_right: The share of it that is right.
    """

    first: float | None
    shown: float | None
    unanswered_shown: float | None
    brier: float | None = None
    surest: float | None = None
    surest_right: float | None = None


@click.command()
@click.option("--photos", type=click.Path(path_type=Path), metavar="DIR", help="A folder of photographs.")
@click.option("--questions", type=click.Path(path_type=Path), metavar="FILE",
              help='Questions: JSON lines of {"id", "question", "answers", "queries"}.')  # fmt: skip
@click.option("--cisi", type=click.Path(path_type=Path), metavar="DIR", help="A folder in CISI's format.")
@click.option("--encoder", default="onnx:all-minilm-l6-v2", show_default=True, metavar="URL", help="Model of texts.")
def main(photos: Path | None, questions: Path | None, cisi: Path | None, encoder: str) -> None:
    """Measure relevance on collections that no fit has seen; those that are not named are left out."""
    rows = {"scenes, a picture as the query": measure_pictures(drawn_pictures(200), 100)}
    if photos:
        pictures = (Document(path.name, image=path) for path in sorted(photos.glob("*.jpg"))[:300])
        rows["photographs, a picture as the query"] = measure_pictures([*pictures, *own_texts(81)], 100)
    rows["six sets of a dozen questions"] = measure_together(own_questions(), encoder)
    if questions:
        rows["questions, half of them without an answer"] = measure_together([read_questions(questions)], encoder)
    if cisi:
        rows["CISI, and 120 foreign questions"] = measure_together(
            [read_cisi(cisi).with_unanswered(unanswered())], encoder
        )
    rows["one word of five texts"] = measure_word("onnx:demo")
    rows["a number in 5,000 captions"] = measure_number(encoder, 5000)
    names = ("collection", "right first", "right shown", "unanswered shown", "Brier", "surest", "of it right")
    table = [
        (name, *("" if value is None else f"{value:.3f}" for value in vars(figures).values()))
        for name, figures in rows.items()
    ]
    print_figures("Relevance outside", names, table)


@contextmanager
def index(documents: Iterable[Document], encoder: str) -> Iterator[Pipeline]:
    """Give an index of documents, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as folder:  # noqa: SIM117 - the index is closed first
        with Pipeline.open(store=f"sqlite:{folder}/index", encoder=encoder, generator=None) as pipeline:
            pipeline.add(documents)
            yield pipeline


def drawn_pictures(count: int) -> list[Document]:
    """Return drawn scenes, half of them with captions."""
    scenes = [make_scene(_SEED + number) for number in range(count)]
    return [
        Document(
            f"scene-{number:03}", scene.captions(1, 3, style="full")[0] if number % 2 else None, image=scene.draw()
        )
        for number, scene in enumerate(scenes)
    ]


def own_texts(count: int) -> list[Document]:
    """Return texts about other things."""
    return [Document(passage.id, text=passage.text) for passage in passages()[:count]]


def measure_pictures(documents: Sequence[Document], count: int) -> OutsideFigures:
    """Ask for the first pictures of a collection by the pictures themselves."""
    asked = [document for document in documents if document.image is not None][:count]
    with index(documents, "onnx:demo") as pipeline:
        found = [[match.document.id for match in pipeline.search(image=one.image)] for one in asked]
    first = [bool(ids) and ids[0] == one.id for one, ids in zip(asked, found)]
    return OutsideFigures(
        statistics.mean(first), statistics.mean(one.id in ids for one, ids in zip(asked, found)), None
    )


def measure_together(collections: Iterable[LabelledCollection], encoder: str) -> OutsideFigures:
    """Ask all queries of collections, each in an index of its own; one without unanswered queries gets foreign ones."""
    seen = list[tuple[bool, list[tuple[float, bool]]]]()
    threshold = 0.0
    for collection in collections:
        asked = (
            collection if collection.unanswered else collection.with_unanswered(unanswered()[: len(collection.queries)])
        )
        with index(asked.documents, encoder) as pipeline:
            for id, query in asked.queries.items():
                matches = pipeline.search(query, limit=_CUT, min_score=0)
                threshold = pipeline.search(query, limit=1).threshold
                right = asked.relevance[id]
                seen.append((bool(right), [(m.score, m.document.id in right) for m in matches]))
    return _summary(seen, threshold)


def _summary(seen: Sequence[tuple[bool, list[tuple[float, bool]]]], threshold: float) -> OutsideFigures:
    answered = [scores for has_answer, scores in seen if has_answer]
    others = [scores for has_answer, scores in seen if not has_answer]
    every = [pair for _, scores in seen for pair in scores]
    sure = [(score, is_right) for score, is_right in every if score >= _SURE]
    return OutsideFigures(
        _mean(bool(scores) and scores[0][1] for scores in answered),
        _mean(any(is_right and score >= threshold for score, is_right in scores) for scores in answered),
        _mean(any(score >= threshold for score, _ in scores) for scores in others),
        _mean((score - is_right) ** 2 for score, is_right in every),
        _mean(score for score, _ in sure),
        _mean(is_right for _, is_right in sure),
    )


def measure_word(encoder: str) -> OutsideFigures:
    """Ask for a word that one of five texts has."""
    return _one_query([Document(str(number), text=text) for number, text in enumerate(SMALL)], "heart", "0", encoder)


def measure_number(encoder: str, count: int) -> OutsideFigures:
    """Ask for a number among captions that differ in theirs; the one that has it says something else otherwise."""
    captions = [
        Document(f"runner-{number}", text=f"a runner with the number {100 + number * 7 % 900} on the {place}")
        for number, place in zip(range(count), ("track", "road", "hill", "beach") * count)
    ]
    wanted = Document("wanted", text="a boy in a shirt with 77 on the back kicks a ball")
    return _one_query([*captions, wanted], "number 77", "wanted", encoder)


def _one_query(documents: Sequence[Document], query: str, wanted: str, encoder: str) -> OutsideFigures:
    with index(documents, encoder) as pipeline:
        ids = [match.document.id for match in pipeline.search(query)]
    return OutsideFigures(float(ids[:1] == [wanted]), float(wanted in ids), None)


def _mean(values: Iterable[float]) -> float | None:
    given = list(values)
    return statistics.mean(given) if given else None


if __name__ == "__main__":
    main()
