"""How much text one request may bring, and what becomes of the rest."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.support.cli import run
from tests.support.triton_server import Running
from vlmsearch import Document, Pipeline
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import InvalidInputError
from vlmsearch.models.bundle import find_bundles
from vlmsearch.registry import open_encoder
from vlmsearch.triton.backend.stages import TextStage
from vlmsearch.types import Role

MOST = 256 * 2**10
SAID = r"the text has {:,} bytes; this server takes 262,144 in a request"


@pytest.mark.parametrize("texts", [[b"red star " * 2**15], [b"ab " * 2**14] * 7], ids=["one", "together"])
def test_texts_that_would_be_split_for_long_are_refused(triton: Running, texts: list[bytes]) -> None:
    with pytest.raises(InferenceServerException, match="too_large: " + SAID.format(sum(map(len, texts)))):
        triton.ask(["MINILM"], TEXT=texts)
    assert len(triton.ask(["MINILM"], TEXT=[b"a" * MOST])["MINILM"]) == 1


def test_a_document_that_is_too_long_is_rejected_and_the_others_are_indexed(triton: Running, tmp_path: Path) -> None:
    long = "red star " * 2**15
    with Pipeline.open(encoder=triton.url, store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        report = pipeline.add([Document(name, text=text) for name, text in (("a", "star"), ("b", long), ("c", "ring"))])
        assert (report.added, [(reject.id, reject.code) for reject in report.rejects]) == (2, [("b", "too_large")])
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


def test_a_long_text_is_split_once_for_all_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, split = TextStage(find_bundles("demo-minilm")[0]), list[int]()
    before = stage._token_ids

    def count(texts: Sequence[str], role: Role) -> list[list[int]]:
        split.append(len(texts))
        return before(texts, role)

    monkeypatch.setattr(stage, "_token_ids", count)
    text = " ".join(f"star{number}" for number in range(9000))
    roles: list[Role] = ["document"] * 2
    whole = [stage.run([text] * 2, roles, [number, number + 1]).ids.tolist() for number in range(0, 20, 2)]
    assert split == [1]
    assert stage.run([text, "a ring"], roles, [3, 0]).ids[0].tolist() == whole[1][1]


def test_the_limit_is_an_option(tmp_path: Path) -> None:
    done = run("triton", "repo", "--models", "demo", "--out", "R", "--max-text-kib", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 'string_value: "3072"' in (tmp_path / "R" / "text_tokenize" / "config.pbtxt").read_text()
    done = run("triton", "repo", "--models", "demo", "--out", "R", "--max-text-kib", "0", cwd=tmp_path)
    assert "--max-text-kib is at least 1" in done.stderr
