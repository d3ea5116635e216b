"""A server of a model with prompts gives each text that of its role, and the vectors of the process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.support.triton_server import Running
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ConfigError, TextTruncatedWarning
from vlmsearch.registry import open_encoder

TEXTS = ["a red star", "", "a large blue ring above a small heart", "a red star and two blue rings on a meadow " * 30]


def test_each_role_has_its_prompt_on_both_sides(texts_server: Running, prompted: Path) -> None:
    with open_encoder(texts_server.url) as encoder, OnnxEncoder(str(prompted)) as local:
        assert encoder.fingerprint == local.fingerprint
        documents, expected = encoder.encode_texts(TEXTS)["minilm"], local.encode_texts(TEXTS)["minilm"]
        np.testing.assert_allclose(documents, expected, atol=1e-5)
        with pytest.warns(TextTruncatedWarning, match="the query has .* tokens and minilm reads") as warned:
            queries = encoder.encode_texts(TEXTS, role="query")["minilm"]
        with pytest.warns(TextTruncatedWarning) as expected_warning:
            theirs = local.encode_texts(TEXTS, role="query")["minilm"]
        np.testing.assert_allclose(queries, theirs, atol=1e-5)
        said = str(expected_warning[0].message)
        assert str(warned[0].message) == said.replace("prompted", "minilm")
    assert (queries * documents).sum(axis=1).max() < 0.999


def test_vectors_are_cut_by_the_client(texts_server: Running, prompted: Path) -> None:
    with open_encoder(f"{texts_server.url}?dim=48") as encoder, open_encoder(f"onnx:{prompted}?dim=48") as local:
        assert (encoder.fingerprint, encoder.spaces) == (local.fingerprint, local.spaces)
        assert encoder.relevance == local.relevance == {}
        found = encoder.encode_texts(TEXTS)["minilm"]
        assert found.shape == (len(TEXTS), 48)
        np.testing.assert_allclose(found, local.encode_texts(TEXTS)["minilm"], atol=1e-5)
    with pytest.raises(ConfigError, match="dim=40 is a length that no model was trained for; there are: minilm 96, 32"):
        open_encoder(f"{texts_server.url}?dim=40")


def test_a_client_without_the_library_says_the_role_of_each_text(texts_server: Running, prompted: Path) -> None:
    texts = [b"a red star", b"a red star", b"a red star"]
    found = texts_server.ask(["MINILM"], TEXT=texts, ROLE=[b"document", b"query", b"document"])["MINILM"]
    with OnnxEncoder(str(prompted)) as local:
        for role, row in (("document", 0), ("query", 1), ("document", 2)):
            expected = local.encode_texts(["a red star"], role=role)["minilm"][0]  # type: ignore[arg-type]
            np.testing.assert_allclose(found[row], expected, atol=1e-5)
    np.testing.assert_allclose(texts_server.ask(["MINILM"], TEXT=texts[:1])["MINILM"][0], found[0], atol=1e-6)
    with pytest.raises(InferenceServerException, match="ROLE is query or document, not b'passage'"):
        texts_server.ask(["MINILM"], TEXT=texts[:1], ROLE=[b"passage"])
