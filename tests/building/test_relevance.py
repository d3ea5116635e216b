"""Fits of relevance, on vectors whose truth is known."""

import math

import numpy as np
import pytest

from vlmsearch.building.relevance import (
    SIGMOID_BATCH,
    LabelledVectors,
    calibration_error,
    fit,
    logistic,
    measure,
    scene_queries,
    sigmoid_fit,
)
from vlmsearch.demo.queries import parse_query
from vlmsearch.demo.scenes import make_scene
from vlmsearch.models.bundle import Logits
from vlmsearch.search.relevance import PRIOR, to_relevance
from vlmsearch.types import Vectors


def planted(topics: int, noise: float, seed: int = 0) -> LabelledVectors:
    """Four documents a topic, each with three queries near to it; more ``noise`` is farther away."""
    rng = np.random.default_rng(seed)

    def unit(rows: np.ndarray) -> Vectors:
        vectors: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        return vectors

    centres = np.repeat(rng.standard_normal((topics, 48)), 4, axis=0)
    documents = unit(centres + rng.standard_normal(centres.shape))
    queries = unit(np.repeat(documents, 3, axis=0) + noise * rng.standard_normal((12 * topics, 48)) / 7)
    relevant = np.repeat(np.eye(4 * topics, dtype=bool), 3, axis=0)
    names = np.repeat(np.arange(topics), 4)
    return LabelledVectors(queries, documents, relevant, np.repeat(names, 3), names)


def test_a_logistic_regression_finds_the_weights_that_drew_its_labels() -> None:
    rng = np.random.default_rng(0)
    inputs = np.column_stack([np.ones(40_000), rng.normal(0.3, 0.1, 40_000), rng.normal(5, 2, 40_000)])
    weights = np.array([-4.0, 12.0, -0.3])
    labels = rng.random(40_000) < 1 / (1 + np.exp(-inputs @ weights))
    assert logistic(inputs, labels) == pytest.approx(weights, rel=0.15)


def test_a_calibration_error_is_how_far_scores_are_from_shares() -> None:
    scores = np.array([0.25] * 100 + [0.95] * 100)
    relevant = np.array([True] * 25 + [False] * 75 + [True] * 85 + [False] * 15)
    assert calibration_error(scores, relevant) == pytest.approx(0.5 * 0.0 + 0.5 * 0.1)


def test_a_fit_tells_relevant_documents_from_others_of_topics_it_has_not_seen() -> None:
    labelled = planted(60, 0.8)
    found = fit(labelled)
    assert found is not None
    assert found.cosine > 0
    figures = measure(labelled, found)
    assert figures["calibration_error"] < 0.05
    assert figures["precision"] > 0.85
    assert min(figures["answered"], figures["nothing_precision"]) > 0.9


def test_vectors_that_tell_nothing_have_no_fit_that_shows_much() -> None:
    labelled = planted(60, 50.0)
    found = fit(labelled)
    assert found is None or measure(labelled, found)["answered"] < 0.1


def test_queries_of_scenes_come_with_their_truth() -> None:
    scenes = [make_scene(41_000_000 + i) for i in range(30)]
    asked, relevant = scene_queries(scenes)
    assert relevant.shape == (30, 30)
    assert relevant[3].tolist() == [parse_query(asked[3]).fits(scene) for scene in scenes]


def test_a_sigmoid_of_training_batches_is_calibrated_where_documents_are_likelier() -> None:
    """Cosines of pairs and of others are normal here, so that the best sigmoid is known: it is linear in the cosine."""
    rng = np.random.default_rng(0)
    centre, spread = 0.12, 0.03
    slope, constant = centre / spread**2, -(centre**2) / (2 * spread**2)  # of the log of the ratio of likelihoods
    found = sigmoid_fit(Logits(slope, constant - math.log(SIGMOID_BATCH - 1)))
    assert found is not None
    relevant = rng.random(200_000) < to_relevance(PRIOR)
    cosines = rng.normal(np.where(relevant, centre, 0.0), spread)
    scores = 1 / (1 + np.exp(-(found.bias + found.cosine * cosines)))
    assert calibration_error(scores, relevant) < 0.002
    assert scores[relevant].mean() > 0.7, "and it tells them apart"
    assert found.bias + found.cosine * 0.1 == pytest.approx(PRIOR + slope * 0.1 + constant, abs=1e-3)


def test_a_softmax_says_nothing_of_one_pair() -> None:
    assert sigmoid_fit(Logits(100.0)) is None
    assert sigmoid_fit(None) is None
