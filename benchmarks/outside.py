"""Relevance on what no fit has seen: pictures as queries, questions as people put them, single words and numbers.

Every figure is of `Pipeline.search`, as a user calls it. *Right first* and *right shown* are shares of the queries that
a document answers; *unanswered shown* is the share of the others for which anything is shown. *Surest* is the mean
score of what scores 0.8 or more, beside the share of it that is right.

With `--peers`, the hybrid search of LanceDB and of txtai gets the same texts and vectors. They show all of a ranking,
so *right first* alone compares. Needs `pip install lancedb txtai faiss-cpu`.
"""

from __future__ import annotations

import io
import re
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from PIL import Image, ImageEnhance

from benchmarks.common import print_figures
from benchmarks.labelled import LabelledCollection, own_questions, read_cisi, read_questions
from vlmsearch.building.data import passages, unanswered
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.base import Encoder
from vlmsearch.media.images import open_image
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import open_encoder
from vlmsearch.types import Document, ImageSource, Role, Vectors, local_image

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
        offered: The share of the answered queries for which a right document is shown, as a match or as closest.
        unanswered_shown: The share of the other queries for which a match is shown.
        brier: The mean squared difference of scores from 1 for a right match and 0 for another, of all candidates.
        surest: The mean score of what scores 0.8 or more.
        surest_right: The share of it that is right.
    """

    first: float | None
    shown: float | None
    offered: float | None
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
@click.option("--peers", is_flag=True, help="Ask LanceDB and txtai the same.")
def main(photos: Path | None, questions: Path | None, cisi: Path | None, encoder: str, peers: bool) -> None:
    """Measure relevance on collections that no fit has seen; those that are not named are left out."""
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
    if questions:
        collections["questions, half of them without an answer"] = [read_questions(questions)]
    if cisi:
        collections["CISI, and 120 foreign questions"] = [read_cisi(cisi).with_unanswered(unanswered())]
    rows |= {name: measure_together(some, encoder) for name, some in collections.items()}
    rows["one word of five texts"] = measure_word("onnx:demo")
    rows["a number in 5,000 captions"] = measure_number(encoder, 5000)
    names = (
        "collection",
        "right first",
        "right shown",
        "or closest",
        "unanswered shown",
        "Brier",
        "surest",
        "of it right",
    )
    table = [
        (name, *("" if value is None else f"{value:.3f}" for value in vars(figures).values()))
        for name, figures in rows.items()
    ]
    print_figures("Relevance outside", names, table)
    if peers:
        beside = [
            (name, f"{rows[name].first:.3f}", *(f"{first:.3f}" for first in peers_first(some, encoder)))
            for name, some in collections.items()
        ]
        print_figures("Right first, beside peers", ("collection", "vlmsearch", "LanceDB", "txtai"), beside)


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
    """Ask for the first pictures of a collection by the pictures themselves, or by what each change makes of them."""
    asked = [(document.id, local_image(document.image)) for document in documents if document.image is not None]
    seen = []
    with index(documents, "onnx:demo") as pipeline:
        for id, picture in asked[:count]:
            changed: list[ImageSource] = [change(open_image(picture)) for change in changes]
            for image in changed or [picture]:
                found = pipeline.search(image=image)
                ids, closest = ([match.document.id for match in some] for some in (found, found.closest))
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
"""What pictures go through: the middle alone, strong compression, a quarter of the size, and more light."""


def measure_together(collections: Iterable[LabelledCollection], encoder: str) -> OutsideFigures:
    """Ask all queries of collections, each in an index of its own; one without unanswered queries gets foreign ones."""
    seen: list[_Seen] = []
    threshold = 0.0
    for collection in collections:
        asked = (
            collection if collection.unanswered else collection.with_unanswered(unanswered()[: len(collection.queries)])
        )
        with index(asked.documents, encoder) as pipeline:
            for id, query in asked.queries.items():
                matches, shown = pipeline.search(query, limit=_CUT, min_score=0), pipeline.search(query, limit=_CUT)
                threshold, right = shown.threshold, asked.relevance[id]
                closest = {match.document.id for match in shown.closest}
                seen.append(
                    _Seen(
                        bool(right), [(m.score, m.document.id in right) for m in matches], not closest.isdisjoint(right)
                    )
                )
    return _summary(seen, threshold)


@dataclass(frozen=True)
class _Seen:
    """The best documents of a query: the score of each, and whether it is right."""

    has_answer: bool
    scores: list[tuple[float, bool]]
    is_closest_right: bool

    def is_shown(self, threshold: float) -> bool:
        return any(is_right and score >= threshold for score, is_right in self.scores)


def _summary(seen: Sequence[_Seen], threshold: float) -> OutsideFigures:
    answered = [one for one in seen if one.has_answer]
    others = [one.scores for one in seen if not one.has_answer]
    every = [pair for one in seen for pair in one.scores]
    sure = [(score, is_right) for score, is_right in every if score >= _SURE]
    return OutsideFigures(
        _mean(bool(one.scores) and one.scores[0][1] for one in answered),
        _mean(one.is_shown(threshold) for one in answered),
        _mean(one.is_shown(threshold) or one.is_closest_right for one in answered),
        _mean(any(score >= threshold for score, _ in scores) for scores in others),
        _mean((score - is_right) ** 2 for score, is_right in every),
        _mean(score for score, _ in sure),
        _mean(is_right for _, is_right in sure),
    )


def peers_first(collections: Iterable[LabelledCollection], encoder: str) -> tuple[float, float]:
    """Return the shares of the answered queries whose first hit is right, of LanceDB's hybrid search and of txtai's."""
    lance: list[bool] = []
    txtai: list[bool] = []
    with tempfile.TemporaryDirectory() as folder, open_encoder(encoder) as model:
        for number, collection in enumerate(collections):
            asked = {id: query for id, query in collection.queries.items() if collection.relevance[id]}
            vectors = _vectors(model, list(asked.values()), "query")
            searches = (
                _lance_search(f"{folder}/{number}", collection, model),
                _txtai_search(collection, model),
            )
            for (id, query), vector in zip(asked.items(), vectors):
                for firsts, search in zip((lance, txtai), searches):
                    firsts.append(search(query, vector) in collection.relevance[id])
    return statistics.mean(lance), statistics.mean(txtai)


def _vectors(model: Encoder, texts: Sequence[str], role: Role) -> Vectors:
    (vectors,) = model.encode_texts(texts, role=role).values()
    return vectors


def _lance_search(folder: str, collection: LabelledCollection, model: Encoder) -> Callable[[str, Vectors], str | None]:
    import lancedb

    texts = [document.text or "" for document in collection.documents]
    rows = [
        {"id": document.id, "text": document.text, "vector": vector}
        for document, vector in zip(collection.documents, _vectors(model, texts, "document"))
    ]
    table = lancedb.connect(folder).create_table("documents", rows)
    table.create_fts_index("text")

    def search(query: str, vector: Vectors) -> str | None:
        words = re.sub(r"\W+", " ", query)  # its query language has operators
        hits = table.search(query_type="hybrid").vector(vector).text(words).limit(1).to_list()
        return hits[0]["id"] if hits else None

    return search


def _txtai_search(collection: LabelledCollection, model: Encoder) -> Callable[[str, Vectors], str | None]:
    import txtai

    index = txtai.Embeddings(method="external", transform=lambda texts: _vectors(model, texts, "document"), hybrid=True)
    index.index([(document.id, document.text or "") for document in collection.documents])

    def search(query: str, _: Vectors) -> str | None:
        hits = index.search(query, 1)
        return hits[0][0] if hits else None

    return search


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
    return OutsideFigures(float(ids[:1] == [wanted]), float(wanted in ids), None, None)


def _mean(values: Iterable[float]) -> float | None:
    given = list(values)
    return statistics.mean(given) if given else None


if __name__ == "__main__":
    main()
