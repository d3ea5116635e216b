"""Ways to make one ranking of what the fields of a search found, beside each other on labelled collections.

All ways get the same candidates: those of a search, the first of each field and what each field says of the others'.
What `vlmsearch search` does is measured through the very functions that it calls; the other ways are here alone:

* **reciprocal rank**: the sum of 1 / (60 + rank) (Cormack, Clarke and Buettcher, SIGIR 2009), as a share of what a
  document with the same fields could have.
* **min-max** and **z-score**: the sum of the fields' values, brought to one scale by the least and the highest, or by
  the mean and the standard deviation, of what the field found (Fox and Shaw, TREC-2, 1994).
* **with feedback**: what `search` does, asked a second time with vectors that are moved towards the mean of the first
  five documents (Rocchio, 1971).
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.common import print_figures
from benchmarks.labelled import LabelledCollection, drawn_scenes, read_captions, read_cisi, read_sts
from vlmsearch.building.data import unanswered
from vlmsearch.building.relevance import calibration_error
from vlmsearch.cli.common import need_manifest
from vlmsearch.encoders.base import Encoder
from vlmsearch.models.domain import Domain
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.search import evaluation
from vlmsearch.search.fusion import DEPTH, fuse, query_vectors
from vlmsearch.search.query import Sought
from vlmsearch.search.relevance import Backgrounds, IndexBackground, Judge
from vlmsearch.stores.base import Store, WordSearch
from vlmsearch.types import WORDS, Field, Hit, ImageSource, Manifest, Role, Vectors

CUT = 10
"""Documents of an answer that count: as many as a search shows."""
OURS = "evidence"
"""The way of `vlmsearch search`."""
_CONSTANT = 60
_FEEDBACK_FROM, _FEEDBACK = 5, 0.4
_BINS = 10

Ranking = Sequence[tuple[str, float]]
"""Documents with their scores, best first."""


@dataclass(frozen=True)
class Bin:
    """Documents whose relevances are close: the mean of these, the share that is relevant, and how many they are."""

    relevance: float
    share: float
    documents: int


@dataclass(frozen=True)
class FusionFigures:
    """The figures of one way on one collection, from the first ten documents of each query.

    All but nDCG is of documents that were judged: others are passed over (Sakai, "Alternatives to Bpref", SIGIR 2007).

    Attributes:
        way: Its name.
        ndcg: The mean nDCG@10 of the queries that something answers.
        threshold: The score from which documents are shown: the index's where scores are relevances, else that with
            the best F1 of the shown documents of these very queries, which favours such a way.
        precision: The share of the shown documents that answer their query; None where none is shown.
        answered: The share of the queries that something answers for which an answer is shown.
        nothing_precision: The share of the queries for which nothing is shown that nothing answers; None where there
            are none.
        nothing_recall: The share of the queries that nothing answers for which nothing is shown; None where there are
            none.
        calibration_error: How far relevances are from the shares that are relevant; None where scores are not
            relevances.
        bins: The same in detail, for relevances from 0 to 0.1, to 0.2 and so on; a bin without documents is left out.
    """

    way: str
    ndcg: float
    threshold: float
    precision: float | None
    answered: float
    nothing_precision: float | None
    nothing_recall: float | None
    calibration_error: float | None
    bins: tuple[Bin, ...] = ()


@dataclass(frozen=True, eq=False)
class Candidates:
    """The hits of the fields of one index for a query, as `vlmsearch.search.engine` has it."""

    text: str
    """The query for the words; "" for none."""
    vectors: Mapping[Field, Vectors]
    ranked: Mapping[str, Sequence[Hit]]
    behind: Mapping[str, Mapping[str, Hit]]
    owned: Mapping[str, Collection[Field]]
    most: float

    @cached_property
    def values(self) -> dict[str, dict[str, float]]:
        """Return what each field says of the candidates, but for those that have no such field."""
        found: dict[str, dict[str, float]] = {}
        for name, hits in self.ranked.items():
            known = {hit.id: hit.score for hit in (*self.behind.get(name, {}).values(), *hits)}
            measured = {id for id, fields in self.owned.items() if _is_measured(name, fields)} | known.keys()
            found[name] = {id: known.get(id, 0.0) for id in measured}
        return found


def _is_measured(name: str, fields: Collection[Field]) -> bool:
    if name == WORDS:
        return any(field.modality == "text" for field in fields)
    return name in map(str, fields)


@click.command()
@click.option("--cisi", type=click.Path(path_type=Path), metavar="DIR",
              help="A folder with CISI.ALL, CISI.QRY and CISI.REL, or others in their format.")  # fmt: skip
@click.option("--sts", type=click.Path(path_type=Path), metavar="FILE",
              help="Pairs of sentences of an STS benchmark: CSV rows of two sentences and a score.")  # fmt: skip
@click.option("--captions", type=click.Path(path_type=Path), metavar="FILE",
              help='Captions of photographs: JSON lines of {"file", "captions"}.')  # fmt: skip
@click.option("--scenes", default=1000, show_default=True, type=click.IntRange(1),
              help="How many scenes to draw, half of them with captions.")  # fmt: skip
@click.option("--encoder", default="onnx:all-minilm-l6-v2", show_default=True, metavar="URL",
              help="What makes the vectors of all but scenes.")  # fmt: skip
def main(cisi: Path | None, sts: Path | None, captions: Path | None, scenes: int, encoder: str) -> None:
    """Compare ways to make one ranking of images, texts and words: which finds most, and what its scores mean.

    Collections that are not named are left out. CISI and the captions get 120 questions that nothing in them answers;
    scenes are drawn without stars, and half of the queries ask for one.
    """
    if cisi:
        _compare("CISI", read_cisi(cisi).with_unanswered(unanswered()), encoder)
    if sts:
        _compare("STS", read_sts(sts), encoder)
    if captions:
        _compare("captions", read_captions(captions).with_unanswered(unanswered()), encoder)
    _compare("scenes", drawn_scenes(scenes, queries=scenes // 2, absent=("shape", "star")), "onnx:demo")


def _compare(name: str, collection: LabelledCollection, url: str) -> None:
    """Print what all ways get of a collection, and how well the scores of ours are calibrated."""
    with (
        tempfile.TemporaryDirectory(prefix="vlmsearch-") as place,
        open_encoder(url) as encoder,
        open_store(f"sqlite:{place}/index") as store,
    ):
        figures = measure_fusions(collection, encoder, store)
    counts = map(len, (collection.documents, collection.answered, collection.unanswered))
    title = "{}, {}: {} documents, {} queries with an answer, {} without".format(name, url, *counts)
    names = ("way", "nDCG@10", "calibration error", "precision of shown", "answered", "precision of no match",
             "recall of no match")  # fmt: skip
    rows = []
    for one in figures:
        values = (one.ndcg, one.calibration_error, one.precision, one.answered, one.nothing_precision,
                  one.nothing_recall)  # fmt: skip
        rows.append((one.way, *("" if value is None else f"{value:.3f}" for value in values)))
    print_figures(title, names, rows)
    (ours,) = (one for one in figures if one.way == OURS)
    bins = [(f"{one.relevance:.3f}", f"{one.share:.3f}", str(one.documents)) for one in ours.bins]
    print_figures(f"{name}, calibration of {OURS}", ("mean relevance", "share that answers", "documents"), bins)


def measure_fusions(collection: LabelledCollection, encoder: Encoder, store: Store) -> list[FusionFigures]:
    """Index a collection into an empty store, ask all its queries and measure the fields alone, then all ways."""
    Pipeline(encoder, store).add(collection.documents)
    manifest = need_manifest(store)
    candidates = dict(ask_all(collection.queries, encoder, store, manifest))
    judge = Judge(encoder, store, manifest, Backgrounds())
    fields = list(dict.fromkeys(name for each in candidates.values() for name in each.ranked))
    figures = []
    for way, rank, has_relevance in _ways(judge, fields):
        found = {id: rank(each) for id, each in candidates.items()}
        figures.append(measure(way, collection, found, judge.threshold if has_relevance else None))
    return figures


def ask_all(
    queries: Mapping[str, str], encoder: Encoder, store: Store, manifest: Manifest
) -> Iterator[tuple[str, Candidates]]:
    """Ask every field for each of the queries, which are by their ids."""
    encoded = encoder.encode_texts(list(queries.values()), role="query")
    has_words = bool(manifest.language) and isinstance(store, WordSearch)
    for row, (id, text) in enumerate(queries.items()):
        by_space = {space: vectors[row : row + 1] for space, vectors in encoded.items()}
        yield id, ask(store, query_vectors(encoder.spaces, by_space, None), text if has_words else "")


def ask(store: Store, vectors: Mapping[Field, Vectors], text: str) -> Candidates:
    """Ask every field for one query, as a search does; "" asks for no words."""
    ranked: dict[str, Sequence[Hit]] = {}
    for one, each in vectors.items():
        ranked[str(one)] = store.search(one, each, limit=DEPTH)[0]
    most = 0.0
    if text and isinstance(store, WordSearch):
        words = store.search_words(text, limit=DEPTH)
        if words.max_score > 0:
            ranked[WORDS], most = words.hits, words.max_score
    owned = store.fields(list({hit.id for hits in ranked.values() for hit in hits}))
    behind: dict[str, dict[str, Hit]] = {}
    for one, each in vectors.items():
        missing = {id for id, fields in owned.items() if one in fields} - {hit.id for hit in ranked[str(one)]}
        behind[str(one)] = {hit.id: hit for hit in store.compare(one, each, missing)}
    if WORDS in ranked and isinstance(store, WordSearch):
        missing = owned.keys() - {hit.id for hit in ranked[WORDS]}
        behind[WORDS] = {hit.id: hit for hit in store.compare_words(text, missing)}
    return Candidates(text, vectors, ranked, behind, owned, most)


# ---- the ways


def by_evidence(judge: Judge, candidates: Candidates, only: str | None = None) -> Ranking:
    """Rank as `vlmsearch search` does, or by one field alone."""
    evidence = judge.evidence(Sought(candidates.text, candidates.vectors, by_text=True), candidates.most)
    ranked = {name: hits for name, hits in candidates.ranked.items() if only in (None, name)}
    most = candidates.most if WORDS in ranked else 0.0
    return fuse(ranked, candidates.owned, evidence, judge.weights, behind=candidates.behind, max_bm25=most).order


def by_reciprocal_rank(candidates: Candidates) -> Ranking:
    """Rank by the reciprocal ranks, as a share of what a document with the same fields could have."""
    scores = dict.fromkeys(candidates.owned, 0.0)
    for hits in candidates.ranked.values():
        for rank, hit in enumerate(hits, 1):
            scores[hit.id] += (_CONSTANT + 1) / (_CONSTANT + rank)
    return _sorted({id: score / sum(id in each for each in candidates.values.values()) for id, score in scores.items()})


def by_min_max(candidates: Candidates) -> Ranking:
    """Rank by the sum of the fields' values, where the least that a field found is 0 and the highest is 1."""

    def scale(value: float, listed: NDArray[np.float64]) -> float:
        return max(value - float(listed.min()), 0.0) / (float(np.ptp(listed)) or 1.0)

    return _by_sum(candidates, scale)


def by_z_score(candidates: Candidates) -> Ranking:
    """Rank by the sum of the fields' values, as standard deviations above the mean of what a field found."""

    def scale(value: float, listed: NDArray[np.float64]) -> float:
        return (value - float(listed.mean())) / (float(listed.std()) or 1.0)

    return _by_sum(candidates, scale)


def _by_sum(candidates: Candidates, scale: Callable[[float, NDArray[np.float64]], float]) -> Ranking:
    scores = dict.fromkeys(candidates.owned, 0.0)
    for name, values in candidates.values.items():
        listed = np.array([hit.score for hit in candidates.ranked[name]] or [0.0])
        for id, value in values.items():
            scores[id] += scale(value, listed)
    return _sorted(scores)


def _sorted(scores: Mapping[str, float]) -> Ranking:
    return sorted(scores.items(), key=lambda one: (-one[1], one[0]))


def with_feedback(judge: Judge, candidates: Candidates) -> Candidates:
    """Ask again with vectors that are moved towards the mean of the first five documents."""
    first = [id for id, _ in by_evidence(judge, candidates)[:_FEEDBACK_FROM]]
    records = list(judge.store.records(first)) if first else []
    moved = {}
    for one, vectors in candidates.vectors.items():
        near = [record.vectors[one] for record in records if one in record.vectors]
        total = vectors + _FEEDBACK * np.mean(near, axis=0, keepdims=True) if near else vectors
        moved[one] = (total / np.linalg.norm(total, axis=1, keepdims=True)).astype(np.float32)
    return ask(judge.store, moved, candidates.text)


class _NoBackgrounds(Backgrounds):
    """Backgrounds of nothing: fits take what was usual when they were made."""

    def get(self, store: Store, manifest: Manifest, field: Field, domain: Domain | None = None) -> IndexBackground:
        """Return one without a sample."""
        return IndexBackground(np.zeros((0, 1), np.float32))


class _Unfitted(Encoder):
    """An encoder as a user writes one: without a fit."""

    def __init__(self, encoder: Encoder) -> None:
        self.fingerprint, self.spaces, self._encoder = encoder.fingerprint, encoder.spaces, encoder

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        return self._encoder.encode_texts(texts, role=role)

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        return self._encoder.encode_images(images)


def _ways(judge: Judge, fields: Sequence[str]) -> list[tuple[str, Callable[[Candidates], Ranking], bool]]:
    """Return each way with its name, and whether its scores are relevances."""
    constant = replace(judge, backgrounds=_NoBackgrounds())
    unfitted = replace(judge, encoder=_Unfitted(judge.encoder))
    return [
        *((f"{name} alone", partial(by_evidence, judge, only=name), True) for name in fields),
        ("reciprocal rank", by_reciprocal_rank, False),
        ("min-max", by_min_max, False),
        ("z-score", by_z_score, False),
        (OURS, partial(by_evidence, judge), True),
        (f"{OURS}, with feedback", lambda each: by_evidence(judge, with_feedback(judge, each)), True),
        (f"{OURS}, without the index's background", partial(by_evidence, constant), True),
        (f"{OURS}, without a fit", partial(by_evidence, unfitted), True),
    ]


# ---- the measures


def measure(
    way: str, collection: LabelledCollection, found: Mapping[str, Ranking], threshold: float | None
) -> FusionFigures:
    """Measure the rankings that a way gives; without a threshold, scores are not relevances."""
    order = evaluation.order_measure(CUT)
    rankings = {id: [document for document, _ in ranking[:CUT]] for id, ranking in found.items()}
    ndcg = evaluation.ranking_values(rankings, collection.relevance, CUT)[order]
    found = {id: [one for one in each if collection.is_judged(id, one[0])][:CUT] for id, each in found.items()}
    scores = np.array([score for ranking in found.values() for _, score in ranking])
    right = np.array([one in collection.relevance[id] for id, ranking in found.items() for one, _ in ranking], bool)
    least = _best_threshold(scores, right) if threshold is None else threshold
    shown = {id: [one for one, score in ranking if score >= least] for id, ranking in found.items()}
    hit = [any(one in collection.relevance[id] for one in shown[id]) for id in collection.answered]
    silent = [id for id, ids in shown.items() if not ids]
    unanswered = set(collection.unanswered)
    return FusionFigures(
        way,
        statistics.mean(ndcg.values()),
        least,
        _share(right[scores >= least]),
        statistics.mean(hit),
        _share([id in unanswered for id in silent]),
        _share([not shown[id] for id in collection.unanswered]),
        None if threshold is None else calibration_error(scores, right),
        () if threshold is None else _bins(scores, right),
    )


def _best_threshold(scores: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Return the score from which on the documents have the best F1."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order])
    f1 = 2 * hits / (np.arange(1, len(scores) + 1) + right.sum())
    return float(scores[order[int(f1.argmax())]])


def _bins(scores: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[Bin, ...]:
    numbers = np.minimum((scores * _BINS).astype(int), _BINS - 1)
    inside = [numbers == number for number in range(_BINS) if (numbers == number).any()]
    return tuple(Bin(float(scores[each].mean()), float(right[each].mean()), int(each.sum())) for each in inside)


def _share(values: Sequence[bool] | NDArray[np.bool_]) -> float | None:
    return float(np.mean(values)) if len(values) else None


if __name__ == "__main__":
    main()
