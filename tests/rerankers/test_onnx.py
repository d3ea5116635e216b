"""The cross-encoder on ONNX Runtime."""

from __future__ import annotations

import pytest
from vlmsearch_mocks.contracts import RerankerContract

from tests.support.paths import ENGINES
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import ConfigError
from vlmsearch.registry import open_reranker
from vlmsearch.rerankers.base import Reranker
from vlmsearch.rerankers.onnx import OnnxReranker
from vlmsearch.types import Document

DOCUMENTS = [Document(str(i), text=make_scene(30_000_000 + i).caption()) for i in range(70)]


class TestOnnxReranker(RerankerContract):
    def make_reranker(self) -> Reranker:
        return open_reranker("onnx:demo-reranker")


def test_batches_and_threads_change_no_probability() -> None:
    query = "a red star above a circle"
    with OnnxReranker("demo-reranker", precision="fp32") as whole:
        expected = whole.score(query, DOCUMENTS)
    for options in ({"batch_size": 1}, {"batch_size": 7, "threads": 1}, {"threads": 2}):
        with OnnxReranker(f"{ENGINES}/demo-reranker/bundle", precision="fp32", **options) as reranker:
            assert reranker.score(query, DOCUMENTS) == pytest.approx(expected, abs=1e-5)


def test_int8_is_what_is_used_unless_told() -> None:
    urls = ("onnx:demo-reranker", "onnx:demo-reranker?precision=int8", "onnx:demo-reranker?precision=fp32")
    scores = []
    for url in urls:
        with open_reranker(url) as reranker:
            scores.append(reranker.score("a star", DOCUMENTS))
    assert scores[0] == scores[1]
    assert scores[0] != scores[2]
    assert scores[0] == pytest.approx(scores[2], abs=0.3)


@pytest.mark.parametrize("options", ["batch_size=0", "threads=0", "precision=fp16"])
def test_options_that_nobody_means_are_refused(options: str) -> None:
    with pytest.raises(ConfigError):
        open_reranker(f"onnx:demo-reranker?{options}")
