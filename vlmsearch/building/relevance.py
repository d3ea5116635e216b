"""Fit how likely a document is what a text asks for, on labelled pairs.

How well a fit holds is measured on other pairs.

A `RelevanceFit` is a logistic regression. Its inputs are the cosine of a query with a document, and the median and the
rivals of the query's cosines with the index. The indexes are simulated, large and small, of few and of many topics.
Each holds some of the documents; for nearly half of the queries none of them is an answer. A fit learns from the
nearest documents of each query, which a search has to tell apart. Some indexes hold one field alone: the topics nearest
to the query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vlmsearch.building.data import passages
from vlmsearch.demo.queries import parse_query
from vlmsearch.demo.scenes import Scene, make_scene
from vlmsearch.encoders.base import Encoder
from vlmsearch.models.bundle import Logits
from vlmsearch.search.relevance import (
    PRIOR,
    SAMPLE,
    THRESHOLD,
    IndexBackground,
    fitted_evidence,
    to_log_odds,
    to_relevance,
)
from vlmsearch.types import Modality, RelevanceFit, Vectors

RELEVANCE_SEED = 40_000_000
"""The first seed of the drawn scenes used here; training, calibration and evaluation have others."""
SIGMOID_BATCH = 32_768
"""Pairs in a training batch of SigLIP and SigLIP 2.

See Zhai et al., 2023, and Tschannen et al., 2025.
"""
_NEAREST = 30
_ONE_FIELD, _FIELD_TOPICS = 0.3, 12
"""The share of simulated indexes with one field, and the highest number of its topics."""
_UNANSWERED, _FOREIGN = 0.25, 0.2
"""The shares of simulated searches without an answer: in an index of the topic, and of other topics."""
_NEAR = 0.3
"""The relevance by its cosine alone from which on a document is no background."""
_ROUNDS = 2
_RIDGE = 1e-4


@dataclass(frozen=True, eq=False)
class LabelledVectors:
    """Vectors of queries and documents, which of them belong together, and the topic of each.

    ``relevant`` has shape (queries, documents). Where there are topics, an index holds some of them; else some
    documents. One topic's queries are either fitted on or measured on.
    """

    queries: Vectors
    documents: Vectors
    relevant: NDArray[np.bool_]
    query_topics: NDArray[np.int64]
    document_topics: NDArray[np.int64] | None


def fit_encoder(
    encoder: Encoder, *, texts_from: str, scenes: int, logits: Logits | None = None
) -> dict[Modality, tuple[RelevanceFit, dict[str, float]]]:
    """Return the fits of an encoder of one space, as `fit_each` does.

    Labelled pairs are encoded for it.

    Args:
        encoder: The encoder.
        texts_from: "sentences" for the project's labelled passages, "scenes" for captions of drawn scenes.
        scenes: How many drawn scenes.
        logits: What the model itself makes of a cosine.
    """
    return fit_each(labelled_vectors(encoder, texts_from=texts_from, scenes=scenes), logits)


def fit_each(
    sets: Mapping[Modality, LabelledVectors], logits: Logits | None = None
) -> dict[Modality, tuple[RelevanceFit, dict[str, float]]]:
    """Return the fit of each modality of documents, with figures on held-out queries.

    A modality is left out if the encoder cannot tell its relevant documents from others. Images of a model that was
    trained with a sigmoid are judged by that instead; see `sigmoid_fit`.

    Args:
        sets: Vectors of queries with those of documents.
        logits: What the model itself makes of a cosine.
    """
    fits = {modality: fit(labelled) for modality, labelled in sets.items()}
    if "image" in fits and fits["image"] is None:
        fits["image"] = sigmoid_fit(logits, usual=_usual(sets["image"]))
    return {
        modality: (fitted, measure(sets[modality], fitted)) for modality, fitted in fits.items() if fitted is not None
    }


def labelled_vectors(encoder: Encoder, *, texts_from: str, scenes: int) -> dict[Modality, LabelledVectors]:
    """Return the vectors of labelled pairs by an encoder, for each modality of documents.

    The encoder has one space.

    Args:
        encoder: The encoder.
        texts_from: "sentences" for the project's labelled passages, "scenes" for captions of drawn scenes.
        scenes: How many drawn scenes.
    """
    space = encoder.spaces[0]
    drawn = [make_scene(RELEVANCE_SEED + i) for i in range(scenes)]
    sets: dict[Modality, LabelledVectors] = {}
    if texts_from == "scenes" or "image" in space.modalities:
        asked, relevant = scene_queries(drawn)
        queries = encoder.encode_texts(asked, role="query")[space.name]
        topics = np.arange(len(asked))
    if "image" in space.modalities:
        pictures = encoder.encode_images([scene.draw() for scene in drawn])[space.name]
        sets["image"] = LabelledVectors(queries, pictures, relevant, topics, None)
    if texts_from == "scenes":
        captions = [scene.captions(1, 3, style="full")[0] for scene in drawn]
        sets["text"] = LabelledVectors(queries, encoder.encode_texts(captions)[space.name], relevant, topics, None)
    else:
        sets["text"] = passage_vectors(encoder, space.name)
    return sets


def relevance_origin(modality: Modality, texts_from: str) -> str:
    """Return what the relevance of a modality was fitted on."""
    return "drawn scenes" if modality == "image" or texts_from == "scenes" else "the project's labelled passages"


def sigmoid_fit(logits: Logits | None, *, usual: tuple[float, float] = (0.0, 0.25)) -> RelevanceFit | None:
    """Return the fit that a model trained with a sigmoid brings along; None for another.

    In a training batch of n pairs, one image in n belongs to a text. The model's logit is the log-odds of that. The
    evidence of a cosine is therefore the logit less the log-odds of one in n: ``logit + log(n - 1)``. It is added to
    the log-odds that a document has before a search.

    A fit on labelled pairs goes before it. On drawn scenes, a sigmoid trained on batches of 512 has a calibration error
    of 0.18, and the fit has 0.016. Scenes of a batch resemble each other, and the
    sigmoid does not know what else is in an index.

    Args:
        logits: What the model makes of a cosine.
        usual: The median and the deviation of a text's cosines with images.
    """
    if logits is None or logits.bias is None:
        return None
    bias = logits.bias + math.log(SIGMOID_BATCH - 1) + PRIOR
    return RelevanceFit(round(bias, 4), logits.scale, 0.0, 0.0, 1.0, *usual)


def scene_queries(scenes: Sequence[Scene]) -> tuple[list[str], NDArray[np.bool_]]:
    """Return queries for drawn scenes and which of the scenes each fits: as many as there are scenes, of others."""
    asked = []
    for number in range(len(scenes)):
        scene = make_scene(RELEVANCE_SEED + 1_000_000 + number)
        asked.append(scene.captions(1, style=("short", "short", "partial")[number % 3])[0])
    parsed = [parse_query(text) for text in asked]
    return asked, np.array([[query.fits(scene) for scene in scenes] for query in parsed])


def passage_vectors(encoder: Encoder, space: str) -> LabelledVectors:
    """Return the vectors of the project's labelled passages and of their queries."""
    entries = passages()
    numbers = {entry.id: number for number, entry in enumerate(entries)}
    names = {name: number for number, name in enumerate(dict.fromkeys(entry.topic for entry in entries))}
    topics = np.array([names[entry.topic] for entry in entries])
    asked = [text for entry in entries for text in (entry.question, entry.keywords, entry.paraphrase)]
    relevant = np.zeros((len(asked), len(entries)), bool)
    for number, entry in enumerate(entries):
        relevant[3 * number : 3 * number + 3, [number, *(numbers[other] for other in entry.also)]] = True
    documents = encoder.encode_texts([entry.text for entry in entries])[space]
    queries = encoder.encode_texts(asked, role="query")[space]
    return LabelledVectors(queries, documents, relevant, np.repeat(topics, 3), topics)


def fit(labelled: LabelledVectors) -> RelevanceFit | None:
    """Return the fit on two thirds of the topics.

    None where cosines do not tell relevant documents from others. It is fitted by cosines alone first, which say from
    where on a document is near.
    """
    searches = list(_indexes(labelled, np.flatnonzero(labelled.query_topics % 3 > 0)))
    relevant = np.concatenate([answers for _, answers, _, _ in searches])
    cosines = np.concatenate([cosines for cosines, _, _, _ in searches])
    bias, slope = logistic(np.stack([np.ones(len(cosines)), cosines], 1), relevant)
    near = round(float((to_log_odds(_NEAR) - bias) / slope), 4) if slope > 0 else 1.0
    usual = RelevanceFit(0.0, 1.0, 0.0, 0.0, near, *_usual(labelled))
    inputs = []
    for known, _, background, query in searches:
        # a fit whose evidence is the median, or the rivals, gives these as the search will compute them
        of_query = [fitted_evidence(replace(usual, **{name: 1.0}), background, query) for name in ("mean", "rivals")]
        inputs.append(np.tile([evidence.base + PRIOR for evidence in of_query], (len(known), 1)))
    weights = logistic(np.column_stack([np.ones(len(cosines)), cosines, np.concatenate(inputs)]), relevant)
    if weights[1] <= 0:
        return None
    names = ("bias", "cosine", "mean", "rivals")
    return replace(usual, **{name: round(float(weight), 4) for name, weight in zip(names, weights)})


def measure(labelled: LabelledVectors, fitted: RelevanceFit) -> dict[str, float]:
    """Return how well a fit holds on the topics that it was not made from."""
    chosen = np.flatnonzero(labelled.query_topics % 3 == 0)
    scores, labels, best, answerable = [], [], [], []
    for cosines, answers, background, query in _indexes(labelled, chosen):
        evidence = fitted_evidence(fitted, background, query)
        relevance = np.array([to_relevance(PRIOR + evidence(float(cosine))) for cosine in cosines])
        scores.append(relevance)
        labels.append(answers)
        best.append(relevance.max())
        answerable.append(answers.any())
    score, label = np.concatenate(scores), np.concatenate(labels)
    shown, silent, has = score >= THRESHOLD, np.array(best) < THRESHOLD, np.array(answerable)
    return {
        "calibration_error": round(calibration_error(score, label), 4),
        "precision": _share(label[shown]),
        "answered": _share(~silent[has]),
        "nothing_precision": _share(~has[silent]),
    }


def calibration_error(scores: NDArray[np.float64], relevant: NDArray[np.bool_], *, bins: int = 10) -> float:
    """Return the expected calibration error (Naeini, Cooper and Hauskrecht, AAAI 2015).

    Args:
        scores: Relevances from 0 to 1.
        relevant: Whether each was.
        bins: Into how many ranges of one width the scores are divided.

    Returns:
        The mean difference of a bin's mean score from its share of relevant ones, weighted by its size.
    """
    places = np.minimum((scores * bins).astype(int), bins - 1)
    return float(
        sum(
            abs(scores[places == number].mean() - relevant[places == number].mean()) * (places == number).mean()
            for number in np.unique(places)
        )
    )


def logistic(inputs: NDArray[np.float64], labels: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the weights of a logistic regression, by Newton's method.

    The first input is the constant 1.

    Args:
        inputs: Shape (n, k).
        labels: Shape (n,).

    Returns:
        Shape (k,).
    """
    centre, scale = inputs.mean(0), inputs.std(0)
    centre[0], scale[scale < 1e-9] = 0.0, 1.0
    rows = (inputs - centre) / scale
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        gradient = rows.T @ (chance - labels) / len(rows) + _RIDGE * weights
        curvature = (rows * (chance * (1 - chance))[:, None]).T @ rows / len(rows) + _RIDGE * np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    given: NDArray[np.float64] = weights / scale
    given[0] -= (given[1:] * centre[1:]).sum()
    return given


def _usual(labelled: LabelledVectors) -> tuple[float, float]:
    cosines = labelled.queries @ labelled.documents.T
    return round(float(np.median(cosines)), 4), round(float(cosines.std(axis=1).mean()), 4)


def _indexes(
    labelled: LabelledVectors, queries: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_], IndexBackground, NDArray[np.float32]]]:
    """Yield simulated searches, one for each query.

    Each has the nearest cosines, which of them answer the query, the background of the index, and the query.
    """
    rng = np.random.default_rng(0)
    everything = np.arange(len(labelled.documents))
    everywhere = labelled.queries @ labelled.documents.T
    for _ in range(_ROUNDS):
        for number in queries:
            topics = labelled.document_topics
            if topics is None:
                share = rng.uniform(0.1, 1.0)
                kept = everything[rng.random(len(everything)) < share]
            else:
                own = labelled.query_topics[number]
                kept = everything[np.isin(topics, _some_topics(topics, own, everywhere[number], rng))]
            chance = rng.random()
            if chance < _UNANSWERED + _FOREIGN:
                kept = kept[~labelled.relevant[number, kept]]
            if chance < _FOREIGN and topics is not None:
                kept = kept[topics[kept] != own]
            if not len(kept):
                continue
            query = labelled.queries[number]
            background = IndexBackground(labelled.documents[rng.permutation(kept)[:SAMPLE]])
            cosines = labelled.documents[kept] @ query
            nearest = np.argsort(-cosines)[:_NEAREST]
            yield cosines[nearest], labelled.relevant[number, kept[nearest]], background, query


def _some_topics(
    topics: NDArray[np.int64], own: np.int64, cosines: NDArray[np.float32], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return some of the topics of documents, ``own`` among them.

    Any, or those whose cosines with a query are the highest.
    """
    names = np.unique(topics)
    if rng.random() >= _ONE_FIELD:
        share = rng.uniform(0.1, 1.0)
        some: NDArray[np.int64] = names[(rng.random(len(names)) < share) | (names == own)]
        return some
    order = np.argsort([-cosines[topics == name].mean() for name in names])
    return np.append(names[order[: rng.integers(2, _FIELD_TOPICS)]], own)


def _share(values: NDArray[np.bool_]) -> float:
    return round(float(values.mean()), 4) if len(values) else 0.0
