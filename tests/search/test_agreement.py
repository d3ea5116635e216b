"""The weight of words by how well the vectors of an index know its vocabulary."""

import random

import numpy as np
import pytest

from vlmsearch.search.agreement import word_weight
from vlmsearch.types import Vectors

KINDS = [[f"{kind}{n}" for n in range(9)] for kind in ("pump", "paper", "bread", "ship", "violin", "cloud")]


def texts() -> tuple[list[str], list[int]]:
    rng = random.Random(3)
    kinds = [n % len(KINDS) for n in range(120)]
    return [" ".join(rng.sample(KINDS[kind], 5)) for kind in kinds], kinds


def vectors(kinds: list[int], noise: float) -> Vectors:
    rng = np.random.default_rng(3)
    centres = np.eye(16, dtype=np.float32)[: len(KINDS)]
    made = centres[kinds] + noise * rng.standard_normal((len(kinds), 16))
    rows: Vectors = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
    return rows


def test_words_count_more_where_vectors_do_not_know_them() -> None:
    said, kinds = texts()
    known = word_weight(said, vectors(kinds, 0.02), "auto")
    unknown = word_weight(said, vectors(random.Random(1).sample(kinds, len(kinds)), 0.5), "auto")
    assert known == pytest.approx(1.0)
    assert unknown == pytest.approx(12.0)


def test_few_texts_tell_nothing() -> None:
    said, kinds = texts()
    assert word_weight(said[:40], vectors(kinds, 0.1)[:40], "auto") == 1.0
    assert word_weight([], np.empty((0, 16), np.float32), "auto") == 1.0


def test_texts_without_words_tell_nothing() -> None:
    _, kinds = texts()
    assert word_weight(["..."] * 120, vectors(kinds, 0.1), "auto") == 1.0


def test_copies_do_not_say_that_words_are_unknown() -> None:
    said = [
        f"the notice period of hall {n} in street {n % 7} is six months to the end of a quarter" for n in range(120)
    ]
    assert word_weight(said, vectors([0] * 120, 0.05), "auto") == 1.0
