"""How much text one request may bring, and what becomes of the rest."""

from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.support.cli import run
from tests.support.triton_server import Running
from vlmsearch import Document, Pipeline
from vlmsearch.encoders.base import MeasuresTexts
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import InvalidInputError
from vlmsearch.registry import open_encoder

MOST = 256 * 2**10
SAID = r"the text has {:,} bytes; this server takes 262,144 in a request"


@pytest.mark.parametrize("texts", [[b"red star " * 2**15], [b"ab " * 2**14] * 7], ids=["one", "together"])
def test_texts_that_would_be_split_for_long_are_refused(triton: Running, texts: list[bytes]) -> None:
    with pytest.raises(InferenceServerException, match="too_large: " + SAID.format(sum(map(len, texts)))):
        triton.ask(["MINILM"], TEXT=texts)
    assert len(triton.ask(["MINILM"], TEXT=[b"a" * MOST])["MINILM"]) == 1


def test_a_document_that_is_too_long_is_rejected_and_the_others_are_indexed(triton: Running, tmp_path: Path) -> None:
    long = "red star " * 2**15
    documents = [Document(name, text=text) for name, text in (("a", "star"), ("b", long), ("c", "ring"))]
    with Pipeline.open(encoder=triton.url, store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        report = pipeline.add(documents, passages=False)
        assert (report.added, [(reject.id, reject.code) for reject in report.rejects]) == (2, [("b", "too_large")])
        report = pipeline.add(documents)
        assert (report.added, report.rejects, report.passages > 1000) == (1, (), True), "its passages are short"
        with pytest.raises(InvalidInputError, match=SAID.format(len(long))):
            pipeline.encoder.encode_texts([long], role="query")
        with pytest.raises(InvalidInputError, match="a query has at most 32,768 characters"):
            pipeline.search(long)
        assert pipeline.search("star")


def test_texts_that_are_too_long_together_are_sent_apart(triton: Running) -> None:
    texts = [f"{number} " + "star " * 2**14 for number in range(4)]
    with open_encoder(triton.url) as remote, OnnxEncoder("demo") as local:
        found, expected = remote.encode_texts(texts), local.encode_texts(texts)
    for space, rows in expected.items():
        assert np.allclose(found[space], rows, atol=1e-3)


def test_tokens_are_counted_as_in_process(triton: Running) -> None:
    texts = ["", "a red star", "Two blue rings! " * 40, "ένα σπίτι", "star " * 10_000]
    with open_encoder(triton.url) as remote, OnnxEncoder("demo") as local:
        assert isinstance(remote, MeasuresTexts)
        assert remote.text_window == local.text_window
        *counts, last = remote.text_tokens([*texts, "star " * 100_000])
        assert counts == local.text_tokens(texts)
        assert abs(last - 100_000) < 20, "of a text that is larger than a request may be"


def test_the_limit_is_an_option(tmp_path: Path) -> None:
    done = run("triton", "repo", "--models", "demo", "--out", "R", "--max-text-kib", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 'string_value: "3072"' in (tmp_path / "R" / "text_tokenize" / "config.pbtxt").read_text()
    done = run("triton", "repo", "--models", "demo", "--out", "R", "--max-text-kib", "0", cwd=tmp_path)
    assert "--max-text-kib is at least 1" in done.stderr
