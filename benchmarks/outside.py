"""Relevance on what no fit has seen: pictures as queries, questions as people put them, single words and numbers.

Every figure is of `Pipeline.search`, as a user calls it. *Right first* and *right shown* are shares of the queries that
a document answers; *unanswered shown* is the share of the others for which anything is shown. The last columns have the
share that is right of what scores so much, and how many documents that are.

Beside *right first* are rankings in code of this module: by bm25s with stems, by cosine, by reciprocal ranks of both
(Cormack, Clarke and Büttcher, SIGIR 2009) and by the sum of their z-scores. In brackets is the 95 % interval of the
difference from vlmsearch over the same queries. Without `pip install bm25s` there is the cosine alone.
"""

from __future__ import annotations

import io
import statistics
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import click
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from benchmarks import long_texts
from benchmarks.common import print_figures
from benchmarks.labelled import (
    OWN_LANGUAGES,
    LabelledCollection,
    draw_company,
    own_questions,
    read_cisi,
    read_questions,
    read_xquad,
)
from vlmsearch.building.data import passages, unanswered
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.base import Encoder
from vlmsearch.media.images import open_image
from vlmsearch.pipeline import Pipeline
from vlmsearch.search.evaluation import Estimate, estimate
from vlmsearch.stores.terms import LANGUAGES
from vlmsearch.types import Document, ImageSource, Match, local_image

_SEED = 31_000_000
_CUT = 10
_RRF = 60
_PICTURES = 60
"""Drawn scenes that photographs of the company show."""
BINS = (0.5, 0.7, 0.8, 0.9)
"""Scores at which the bins of scores begin; the last one ends at 1."""
SMALL = (
    "a yellow heart against a beach",
    "two red stars by the sea",
    "green rings",
    "a blue square in the snow",
    "some sand",
)
"""Five short texts, as in a first try."""
Scores: TypeAlias = NDArray[np.float64]
"""A row for each query, a column for each document."""


@dataclass(frozen=True)
class OutsideFigures:
    """The figures of one collection; None where it has no such queries.

    Attributes:
        first: The share of the answered queries whose first match is right.
        shown: The share of the answered queries for which a right match is shown.
        offered: The share of the answered queries for which a right document is shown, as a match or as closest.
        unanswered_shown: The share of the other queries for which a match is shown.
        brier: The mean squared difference of scores from 1 for a right match and 0 for another, of all candidates.
        precision: The share of all that is shown that is right.
        ndcg: The mean nDCG@10 of the answered queries (Järvelin and Kekäläinen, ACM TOIS 20(4), 2002).
        by_words: The same, by words alone.
        bins: Of each bin of scores, the share of the candidates that is right, and their number.
        beside: By the name of another ranking, how much more of its first matches are right, with the interval.
    """

    first: float | None
    shown: float | None
    offered: float | None
    unanswered_shown: float | None
    brier: float | None = None
    precision: float | None = None
    ndcg: float | None = None
    by_words: float | None = None
    bins: Sequence[tuple[float | None, int]] = ()
    beside: Mapping[str, Estimate] = field(default_factory=dict)


@click.group(invoke_without_command=True)
@click.option("--photos", type=click.Path(path_type=Path), metavar="DIR", help="A folder of photographs.")
@click.option("--questions", type=click.Path(path_type=Path), metavar="FILE",
              help='Questions: JSON lines of {"id", "question", "answers", "queries"}.')  # fmt: skip
@click.option("--xquad", type=click.Path(path_type=Path), metavar="DIR",
              help='A folder of LANGUAGE.json: {"docs": {ID: TEXT}, "queries": [{"id", "text", "doc"}]}.')  # fmt: skip
@click.option("--cisi", type=click.Path(path_type=Path), metavar="DIR", help="A folder in CISI's format.")
@click.option("--encoder", default="onnx:all-minilm-l6-v2", show_default=True, metavar="URL", help="Model of texts.")
@click.pass_context
def main(
    context: click.Context,
    photos: Path | None,
    questions: Path | None,
    xquad: Path | None,
    cisi: Path | None,
    encoder: str,
) -> None:
    """Measure relevance on collections that no fit has seen.

    Those that are not named are left out.
    """
    if context.invoked_subcommand:
        return
    rows = {
        "scenes, a picture as the query": measure_pictures(drawn_pictures(200), 100),
        "scenes, a changed picture as the query": measure_pictures(drawn_pictures(200), 100, CHANGES),
    }
    if photos:
        pictures = (Document(path.name, image=path) for path in sorted(photos.glob("*.jpg"))[:300])
        photographs = [*pictures, *own_texts(81)]
        rows["photographs, a picture as the query"] = measure_pictures(photographs, 100)
        rows["photographs, a changed picture as the query"] = measure_pictures(photographs, 100, CHANGES)
    collections = {"six sets of a dozen questions": list(own_questions())}
    for file in sorted(OWN_LANGUAGES.glob("*.json")):
        collections[f"40 paragraphs in {file.stem}, some left out"] = [read_xquad(file)]
    if questions:
        collections["questions, half of them without an answer"] = [read_questions(questions)]
    for file in sorted(xquad.glob("*.json")) if xquad else ():
        collections[f"XQuAD {file.stem}, some of its articles left out"] = [read_xquad(file)]
    if cisi:
        collections["CISI, and 120 foreign questions"] = [read_cisi(cisi).with_unanswered(unanswered())]
    rows |= {name: measure_together(some, encoder) for name, some in collections.items()}
    for count in (0, 300, 3000):
        rows[f"a company's 80 documents, {count:,} photographs"] = measure_company(count, encoder)
    rows["one word of five texts"] = measure_word("onnx:demo")
    rows["a number in 5,000 captions"] = measure_number(encoder, 5000)
    shares = {
        "right first": "first",
        "right shown": "shown",
        "or closest": "offered",
        "unanswered shown": "unanswered_shown",
        "right of shown": "precision",
        "nDCG@10": "ndcg",
        "by words": "by_words",
        "Brier": "brier",
    }
    bins = [f"{low} to {high}" for low, high in zip(BINS, (*BINS[1:], 1))]
    table = [
        (
            name,
            *(_shown(getattr(figures, attribute)) for attribute in shares.values()),
            *(f"{right:.3f} of {count:,}" if count else "" for right, count in figures.bins or [(None, 0)] * len(bins)),
        )
        for name, figures in rows.items()
    ]
    print_figures("Relevance outside", ("collection", *shares, *bins), table)
    beside = [
        (name, _shown(figures.first), *(_difference(figures.first or 0, gain) for gain in figures.beside.values()))
        for name, figures in rows.items()
        if figures.beside
    ]
    names = next(figures.beside for figures in rows.values() if figures.beside)
    print_figures("Right first, beside other rankings", ("collection", "vlmsearch", *names), beside)


def _shown(share: float | None) -> str:
    return "" if share is None else f"{share:.3f}"


def _difference(first: float, gain: Estimate) -> str:
    return f"{first + gain.value:.3f} ({gain.low:+.3f} to {gain.high:+.3f})"


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


def measure_pictures(
    documents: Sequence[Document], count: int, changes: Sequence[Callable[[Image.Image], Image.Image]] = ()
) -> OutsideFigures:
    """Ask for the first pictures of a collection by the pictures, or by their changed forms."""
    asked = [(document.id, local_image(document.image)) for document in documents if document.image is not None]
    seen = []
    with index(documents, "onnx:demo") as pipeline:
        for id, picture in asked[:count]:
            changed: list[ImageSource] = [change(open_image(picture)) for change in changes]
            for image in changed or [picture]:
                matches = pipeline.search(image=image)
                ids, closest = ([match.document.id for match in some] for some in (matches, matches.closest))
                seen.append((ids[:1] == [id], id in ids, id in ids + closest))
    first, shown, offered = (statistics.mean(column) for column in zip(*seen))
    return OutsideFigures(first, shown, offered, None)


def _crop(picture: Image.Image) -> Image.Image:
    width, height = picture.size
    return picture.crop((width // 10, height // 10, width - width // 10, height - height // 10))


def _compress(picture: Image.Image) -> Image.Image:
    written = io.BytesIO()
    picture.convert("RGB").save(written, "JPEG", quality=25)
    return Image.open(written)


CHANGES = (
    _crop,
    _compress,
    lambda picture: picture.resize((picture.width // 4, picture.height // 4)),
    lambda picture: ImageEnhance.Brightness(picture).enhance(1.4),
)
"""The middle alone, strong compression, a quarter of the size, and more light."""


def measure_together(collections: Iterable[LabelledCollection], encoder: str) -> OutsideFigures:
    """Ask all queries of collections, each in an index of its own.

    A collection without unanswered queries gets foreign ones. Images do not count.
    """
    outcomes: list[QueryOutcome] = []
    for collection in collections:
        asked = (
            collection if collection.unanswered else collection.with_unanswered(unanswered()[: len(collection.queries)])
        )
        with index(asked.documents, encoder) as pipeline:
            weights = {f"{space.name}/image": 0.0 for space in pipeline.encoder.spaces if "image" in space.modalities}
            words_alone = {str(field): 0.0 for space in pipeline.encoder.spaces for field in space.fields}
            beside = first_beside(asked, pipeline.encoder)
            for id, query in asked.queries.items():
                matches = pipeline.search(query, limit=_CUT, min_score=0, weights=weights)
                shown = pipeline.search(query, limit=_CUT, weights=weights)
                words = pipeline.search(query, limit=_CUT, min_score=0, weights=words_alone)
                right = asked.relevance[id].keys()
                outcomes.append(
                    QueryOutcome(
                        bool(right),
                        [(match.score, match.document.id in right) for match in matches],
                        [match.document.id in right for match in shown],
                        any(match.document.id in right for match in shown.closest),
                        {name: firsts[id] in right for name, firsts in beside.items()} if right else {},
                        (_ndcg(matches, right), _ndcg(words, right)),
                    )
                )
    return summarise(outcomes)


def measure_company(photographs: int, encoder: str) -> OutsideFigures:
    """Ask for a company's documents that lie among photographs without texts.

    The model of ``demo-clip`` joins an ``onnx:`` encoder for the photographs.
    """
    company = draw_company()
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as folder:
        pictures = [Path(folder, f"IMG_{number:04}.png") for number in range(photographs)]
        for number, path in enumerate(pictures):
            if number < _PICTURES:
                make_scene(_SEED + number).draw().save(path)
            else:
                path.hardlink_to(pictures[number % _PICTURES])
        images = (Document(path.name, image=path) for path in pictures)
        mixed = replace(company, documents=(*company.documents, *images))
        return measure_together([mixed], encoder.replace("onnx:", "onnx:demo-clip+", 1))


@dataclass(frozen=True)
class QueryOutcome:
    """The outcome of a query.

    Attributes:
        has_answer: Whether a document answers it.
        candidates: The score of each of the best documents, and whether it is right.
        shown: Whether each match that is shown is right.
        is_closest_right: Whether one of the closest is right.
        beside: By the names of other rankings, whether their first document is right.
        ndcg: The nDCG@10 of all candidates, and of those by words alone.
    """

    has_answer: bool
    candidates: Sequence[tuple[float, bool]]
    shown: Sequence[bool]
    is_closest_right: bool
    beside: Mapping[str, bool] = field(default_factory=dict)
    ndcg: tuple[float, float] = (0.0, 0.0)


def summarise(outcomes: Sequence[QueryOutcome]) -> OutsideFigures:
    """Return the figures of what queries brought."""
    answered = [outcome for outcome in outcomes if outcome.has_answer]
    firsts = [any(is_right for _, is_right in outcome.candidates[:1]) for outcome in answered]
    candidates = [candidate for outcome in outcomes for candidate in outcome.candidates]
    binned: list[list[bool]] = [[] for _ in BINS]
    for score, is_right in candidates:
        if score >= BINS[0]:
            binned[np.searchsorted(BINS, score, side="right") - 1].append(is_right)
    return OutsideFigures(
        _mean(firsts),
        _mean(any(outcome.shown) for outcome in answered),
        _mean(any(outcome.shown) or outcome.is_closest_right for outcome in answered),
        _mean(bool(outcome.shown) for outcome in outcomes if not outcome.has_answer),
        _mean((score - is_right) ** 2 for score, is_right in candidates),
        _mean(is_right for outcome in outcomes for is_right in outcome.shown),
        _mean(outcome.ndcg[0] for outcome in answered),
        _mean(outcome.ndcg[1] for outcome in answered),
        [(_mean(rights), len(rights)) for rights in binned],
        {
            name: estimate([outcome.beside[name] - is_right for outcome, is_right in zip(answered, firsts)])
            for name in (answered[0].beside if answered else ())
        },
    )


def _ndcg(matches: Sequence[Match], right: Collection[str]) -> float:
    """Return the nDCG of the first matches of a query; 0 where nothing answers it."""
    gains = 1 / np.log2(np.arange(2, 2 + _CUT))
    places = [place for place, match in enumerate(matches) if match.document.id in right]
    return float(gains[places].sum() / gains[: len(right)].sum()) if right else 0.0


def first_beside(collection: LabelledCollection, encoder: Encoder) -> dict[str, dict[str, str | None]]:
    """Return the first document of other rankings for each answered query; None if there is none."""
    documents = [document for document in collection.documents if document.text]
    texts = [document.text or "" for document in documents]
    queries = [collection.queries[id] for id in collection.answered]
    space = next(space.name for space in encoder.spaces if "image" not in space.modalities)
    cosine = (encoder.encode_texts(queries, role="query")[space] @ encoder.encode_texts(texts)[space].T).astype(float)
    rankings = {"cosine": cosine}
    if find_spec("bm25s"):
        words = score_words(texts, queries, collection.language)
        rankings = {
            "bm25s": words,
            **rankings,
            "RRF": fuse_ranks(words, cosine),
            "z-scores": fuse_scores(words, cosine),
        }
    return {
        name: {id: documents[row.argmax()].id if row.any() else None for id, row in zip(collection.answered, scores)}
        for name, scores in rankings.items()
    }


def score_words(texts: Sequence[str], queries: Sequence[str], language: str) -> Scores:
    """Score texts by bm25s, with the stems of a language where it has a stemmer."""
    import bm25s
    import snowballstemmer

    stems = snowballstemmer.stemmer(LANGUAGES[language]).stemWords if language in LANGUAGES else None
    ranker = bm25s.BM25()
    ranker.index(bm25s.tokenize(texts, stemmer=stems, show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(queries, stemmer=stems, show_progress=False, return_ids=False)
    return np.array([ranker.get_scores(row) if row else np.zeros(len(texts)) for row in tokens], float)


def fuse_ranks(*scores: Scores) -> Scores:
    """Add up the reciprocal ranks of documents; one that scores 0 or less has none."""
    ranks = [np.argsort(np.argsort(-part, axis=1, kind="stable"), axis=1) + 1 for part in scores]
    return sum(((part > 0) / (_RRF + rank) for part, rank in zip(scores, ranks)), np.zeros(scores[0].shape))


def fuse_scores(*scores: Scores) -> Scores:
    """Add up the z-scores of documents for each query."""
    centred = [part - part.mean(axis=1, keepdims=True) for part in scores]
    parts = (part / np.maximum(part.std(axis=1, keepdims=True), 1e-9) for part in centred)
    return sum(parts, np.zeros(scores[0].shape))


def measure_word(encoder: str) -> OutsideFigures:
    """Ask for a word that one of five texts has."""
    return _one_query([Document(str(number), text=text) for number, text in enumerate(SMALL)], "heart", "0", encoder)


def measure_number(encoder: str, count: int) -> OutsideFigures:
    """Ask for a number among captions with other numbers; the right one describes another scene."""
    captions = [
        Document(f"runner-{number}", text=f"a runner with the number {100 + number * 7 % 900} on the {place}")
        for number, place in zip(range(count), ("track", "road", "hill", "beach") * count)
    ]
    wanted = Document("wanted", text="a boy in a shirt with 77 on the back kicks a ball")
    return _one_query([*captions, wanted], "number 77", "wanted", encoder)


def _one_query(documents: Sequence[Document], query: str, wanted: str, encoder: str) -> OutsideFigures:
    with index(documents, encoder) as pipeline:
        ids = [match.document.id for match in pipeline.search(query)]
    return OutsideFigures(float(ids[:1] == [wanted]), float(wanted in ids), None, None)


def _mean(values: Iterable[float]) -> float | None:
    given = list(values)
    return statistics.mean(given) if given else None


main.add_command(long_texts.main)

if __name__ == "__main__":
    main()
