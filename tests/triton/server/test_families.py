"""A server of a SigLIP 2 and an XLM-RoBERTa with prompts gives the vectors of the process.

In float32: the ranges of dynamic INT8 are those of a batch, and batches are put together in another way.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.support.checkpoints import make_recipe
from tests.support.siglip import make_siglip
from tests.support.text_models import make_text_model
from tests.support.triton_scenes import picture
from tests.support.triton_server import Running, started
from vlmsearch.building.bundle import build_bundle
from vlmsearch.building.verify import tokenizer_cases
from vlmsearch.encoders.base import Encoder
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import TextTruncatedWarning
from vlmsearch.models.recipe import Calibration, Prompts, Recipe, Shapes, read_recipe
from vlmsearch.registry import open_encoder
from vlmsearch.triton.repository.options import RepoOptions
from vlmsearch.triton.repository.writer import write_repository
from vlmsearch.triton.server.commands import Binary
from vlmsearch.types import Role, Vectors

POSITIONS = 64
TEXTS = [
    "", "x", "a red star", "A Red STAR on a Meadow", "ÄRGER İN ΣΟΦΟΣ",
    *("star " * count for count in (20, 61, 62, 63, 64, 65, 400)),
]  # fmt: skip
TEXT_MODEL = Recipe(
    "tiny", "MIT", "words", precisions=("fp32",), prompts=Prompts("query: ", "passage: "),
    shapes=Shapes(text_length=(2, 8, 40)), calibration=Calibration(texts=96, held_out=64, relevance_scenes=0),
)  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The location of the two together."""
    folder = tmp_path_factory.mktemp("families")
    siglip = make_recipe(folder, make_siglip(folder / "siglip-checkpoint", positions=POSITIONS), space="siglip")
    build_bundle(read_recipe(siglip), out=folder / "siglip", precisions=["fp32"])
    words = make_text_model(folder / "words-checkpoint", "xlm-roberta")
    build_bundle(dataclasses.replace(TEXT_MODEL, checkpoint=str(words)), out=folder / "words")
    return f"{folder / 'siglip'}+{folder / 'words'}"


@pytest.fixture(scope="module")
def server(binary: Binary, models: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    repository = tmp_path_factory.mktemp("served") / "repository"
    write_repository(models, repository, RepoOptions(precision="fp32"))
    with started(binary, repository) as running:
        yield running


@pytest.fixture(scope="module")
def local(models: str) -> Iterator[OnnxEncoder]:
    with OnnxEncoder(models, precision="fp32") as encoder:
        yield encoder


@pytest.fixture(scope="module")
def served(server: Running) -> Iterator[Encoder]:
    with open_encoder(server.url) as encoder:
        yield encoder


@pytest.mark.parametrize("options", ["", "?preprocess=client"])
@pytest.mark.parametrize("count", [1, 20])
def test_images_are_encoded_as_in_process(server: Running, local: OnnxEncoder, options: str, count: int) -> None:
    pictures = [picture(number, size) for number, size in zip(range(count), (96, 31, 200) * count)]
    with open_encoder(server.url) as encoder:
        assert (encoder.fingerprint, encoder.spaces) == (local.fingerprint, local.spaces)
        assert encoder.relevance == local.relevance
        found = encoder.encode_images(pictures)
    expected = local.encode_images(pictures)
    assert list(found) == ["siglip"]
    np.testing.assert_allclose(found["siglip"], expected["siglip"], atol=1e-5)
    assert count == 1 or np.std(found["siglip"] @ found["siglip"].T) > 0.001


@pytest.mark.parametrize("role", ["query", "document"])
def test_texts_of_every_length_are_encoded_as_in_process(served: Encoder, local: OnnxEncoder, role: Role) -> None:
    texts = TEXTS + [text for text in tokenizer_cases(150) if len(text) < 2000]
    found, warned = encoded(served, texts, role)
    expected, expected_warnings = encoded(local, texts, role)
    assert list(found) == list(expected) == ["siglip", "words"]
    for space, vectors in expected.items():
        np.testing.assert_allclose(found[space], vectors, atol=1e-5)
        assert np.std(vectors @ vectors.T) > 0.01
    assert bool(warned) == (role == "query"), "only queries are cut"
    names = {"tiny-siglip": "siglip", "tiny": "words"}  # a server is asked by the names of spaces
    assert warned == sorted(re.sub("tiny-siglip|tiny", lambda name: names[name[0]], said) for said in expected_warnings)


def test_an_empty_text_alone_is_encoded_as_in_process(server: Running, local: OnnxEncoder) -> None:
    expected, blank = local.encode_texts([""]), local.encode_texts([" "])
    assert (expected["siglip"] * blank["siglip"]).sum() < 0.999, "a space is a token of SigLIP 2"
    with open_encoder(server.url) as encoder:
        for space, vectors in encoder.encode_texts([""]).items():
            np.testing.assert_allclose(vectors, expected[space], atol=1e-5)


def encoded(encoder: Encoder, texts: list[str], role: Role) -> tuple[dict[str, Vectors], list[str]]:
    """Vectors, and what was said of texts that were cut."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", TextTruncatedWarning)
        vectors = encoder.encode_texts(texts, role=role)
    return vectors, sorted(str(each.message) for each in warned)


def test_prompts_are_of_the_model_that_has_them(served: Encoder) -> None:
    queries, documents = (served.encode_texts(["a red star"], role=role) for role in ("query", "document"))
    np.testing.assert_allclose(queries["siglip"], documents["siglip"], atol=1e-6)
    assert (queries["words"] * documents["words"]).sum() < 0.999


def test_letters_are_lower_cased_for_the_model_that_asks_for_it(served: Encoder) -> None:
    found = served.encode_texts(["A RED Star", "a red star"])
    np.testing.assert_allclose(found["siglip"][0], found["siglip"][1], atol=1e-6)
    assert (found["words"][0] * found["words"][1]).sum() < 0.999


def test_a_tower_takes_texts_of_its_one_length(server: Running) -> None:
    with server.client() as client:
        config = client.get_model_config("siglip_text", as_json=True)["config"]
    assert [tensor["dims"] for tensor in config["input"]] == [[str(POSITIONS)]] * 2
    ids = np.ones((2, POSITIONS), np.int32)
    assert server.ask(model="siglip_text", input_ids=ids, attention_mask=ids)["embedding"].shape == (2, 48)
    with pytest.raises(InferenceServerException, match="unexpected shape"):
        server.ask(model="siglip_text", input_ids=ids[:, 1:], attention_mask=ids[:, 1:])


def test_a_client_without_the_library_gets_the_same(server: Running, local: OnnxEncoder) -> None:
    texts, pictures = ["A red STAR", "two circles"], [picture(0), picture(1)]
    answers = server.ask(TEXT=[text.encode() for text in texts], ROLE=[b"query"] * 2, IMAGE=pictures)
    found = {name: answers[name].astype(np.float32) for name in ("SIGLIP_IMAGE", "SIGLIP_TEXT", "WORDS")}
    np.testing.assert_allclose(found["SIGLIP_IMAGE"], local.encode_images(pictures)["siglip"], atol=1e-5)
    expected = local.encode_texts(texts, role="query")
    np.testing.assert_allclose(found["SIGLIP_TEXT"], expected["siglip"], atol=1e-5)
    np.testing.assert_allclose(found["WORDS"], expected["words"], atol=1e-5)
