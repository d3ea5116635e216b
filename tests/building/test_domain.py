"""The statistics of a domain, on vectors that are drawn for it and on those of a model."""

import io

import numpy as np

from vlmsearch.building.domain import domain_file, split_vectors
from vlmsearch.building.relevance import LabelledVectors, labelled_vectors
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.models.domain import Domain, open_domain
from vlmsearch.models.recipe import find_recipe
from vlmsearch.types import Vectors

DIM = 24


def drawn(count: int, seed: int, shift: float = 0.0) -> Vectors:
    """Vectors that vary much in half of the directions; ``shift`` moves them in one of the others."""
    rows = np.random.default_rng(seed).standard_normal((count, DIM))
    rows[:, DIM // 2 :] *= 0.05
    rows[:, -1] += shift
    vectors: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return vectors


def labelled(topics: np.ndarray | None) -> LabelledVectors:
    relevant = np.zeros((300, 900), bool)
    return LabelledVectors(drawn(300, 1), drawn(900, 2), relevant, np.arange(300), topics)


def opened(data: bytes) -> Domain:
    statistics = np.load(io.BytesIO(data))
    assert statistics.dtype == np.float16
    assert statistics.shape == (DIM + 1, DIM)
    return Domain("numbers", "drawn", statistics)


def test_one_vector_in_a_hundred_of_the_domain_is_outside_and_those_elsewhere_are() -> None:
    domain = opened(domain_file(labelled(None), "image"))
    assert 0 < domain.are_outside(drawn(5000, 3)).mean() < 0.03
    assert domain.are_outside(drawn(500, 4, shift=1.0)).mean() > 0.9
    assert domain.verdict(drawn(500, 5), "image") is None


def test_whole_topics_are_held_out_and_queries_belong_to_texts_alone() -> None:
    topics = np.repeat(np.arange(90), 10)
    given = labelled(topics)
    fitted, held_out = split_vectors(given, "image")
    assert (len(fitted), len(held_out)) == (600, 300)
    np.testing.assert_array_equal(held_out, given.documents[topics % 3 == 0])
    fitted, held_out = split_vectors(given, "text")
    assert (len(fitted), len(held_out)) == (800, 400)


def test_the_file_of_a_demonstration_model_is_made_again() -> None:
    recipe = find_recipe("demo-minilm")
    assert recipe.domain == "drawn scenes"
    with OnnxEncoder("demo-minilm") as encoder:
        sets = labelled_vectors(encoder, texts_from="scenes", scenes=recipe.calibration.relevance_scenes)
        kept = open_domain(encoder.bundles[0])
        made = np.load(io.BytesIO(domain_file(sets["text"], "text")))
    assert kept is not None
    again = Domain(kept.name, kept.model, made)
    vectors = sets["text"].documents
    # directions have a sign and, where variances are equal, an order that are nobody's: distances have none
    outside = kept.are_outside(vectors), again.are_outside(vectors)
    assert (outside[0] == outside[1]).mean() > 0.995
