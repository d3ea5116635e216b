"""A re-ranker on a real server: the suite for all re-rankers, and the same numbers as in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException
from vlmsearch_mocks.contracts import RerankerContract

from tests.support.triton_server import Running
from vlmsearch.errors import BackendError
from vlmsearch.registry import open_reranker
from vlmsearch.rerankers.base import Reranker
from vlmsearch.triton.repository.options import RepoOptions
from vlmsearch.triton.repository.writer import write_repository
from vlmsearch.types import Document


class TestOnTriton(RerankerContract):
    @pytest.fixture(autouse=True)
    def _server(self, texts_server: Running) -> None:
        self.url = texts_server.url.replace("/vlm", "/reranker")

    def make_reranker(self) -> Reranker:
        return open_reranker(f"{self.url}?batch_size=3")

    @pytest.mark.parametrize("query", ["a red star above a circle", ""])
    def test_its_probabilities_are_those_of_this_process(
        self, reranker: Reranker, captions: list[str], query: str
    ) -> None:
        documents = [Document(str(i), text=caption) for i, caption in enumerate(captions[:40])]
        with open_reranker("onnx:demo-reranker") as local:
            expected = local.score(query, documents)
        assert reranker.score(query, documents) == pytest.approx(expected, abs=0.02)

    def test_a_text_beyond_a_request_is_read_from_its_beginning(self, reranker: Reranker) -> None:
        short, long = reranker.score(
            "a star", [Document("a", text="é star " * 600), Document("b", text="é star " * 9000)]
        )
        assert short == pytest.approx(long, abs=0.02)

    def test_what_is_not_utf8_fails_its_own_request_alone(self, texts_server: Running) -> None:
        with pytest.raises(InferenceServerException, match="not UTF-8"):
            texts_server.ask(["PROBABILITY"], model="reranker", QUERY=[b"a"], TEXT=[b"\xff"])
        assert texts_server.ask(["PROBABILITY"], model="reranker", QUERY=[b"a"], TEXT=[b"b"])["PROBABILITY"].shape == (
            1,
            1,
        )


def test_a_model_that_is_not_a_re_ranker_is_refused(texts_server: Running) -> None:
    with pytest.raises(BackendError, match=r"minilm of Triton at .* is not a re-ranker"):
        open_reranker(texts_server.url.replace("/vlm", "/minilm"))


def test_the_repository_holds_one_precision_of_it(tmp_path: Path) -> None:
    made = write_repository("demo-minilm", tmp_path / "r", RepoOptions(reranker="demo-reranker", precision="fp32"))
    assert "reranker" in made.models
    files = {path.name for path in (tmp_path / "r" / "reranker" / "1" / "bundle").iterdir()}
    assert files == {"bundle.json", "reranker.onnx", "tokenizer.json"}
    assert np.all([(tmp_path / "r" / "reranker" / name).exists() for name in ("config.pbtxt", "1/model.py")])
