"""Every family of text models computes what sentence-transformers computes, with every pooling and prompt."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from tests.support.text_models import TEXT_FAMILIES, TextFamily, make_text_model, text_tokenizer
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.export.bundle import build_bundle
from vlmsearch.export.checkpoint import Checkpoint
from vlmsearch.export.fetch import text_input
from vlmsearch.export.graph import OnnxGraph
from vlmsearch.export.inputs import Feeds, run, text_feeds
from vlmsearch.export.layers import CpuInt8Layers
from vlmsearch.export.load import load_checkpoint
from vlmsearch.export.quantize import export
from vlmsearch.export.torch import TorchEncoder, load_reference
from vlmsearch.export.verify import tokenizer_cases, verify_tokens, verify_vectors
from vlmsearch.models.recipe import Calibration, Gates, Recipe, Shapes
from vlmsearch.types import Vectors

ODD = [
    "a red star", "", "two large striped circles above a small heart on a meadow", "x", "ring", "star " * 60,
    "a <pad> in <pad> <pad> the middle", "<pad>", "[PAD] and [PAD]",
]  # fmt: skip

SHORT = ["a red star", "", "two circles", "x", "ring"]
RECIPE = Recipe(
    "tiny", "MIT", "words", checkpoint="checkpoint", precisions=("fp32", "int8", "qdq"),
    shapes=Shapes(text_length=(2, 8, 32)), calibration=Calibration(texts=96, held_out=64, relevance_scenes=0),
)  # fmt: skip


def feeds_of(checkpoint: Checkpoint, texts: list[str]) -> Feeds:
    tokenizer = Tokenizer.from_file(str(checkpoint.folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return text_feeds(texts, text_input(checkpoint), tokenizer, 4)


def assert_same(ours: Vectors, theirs: Vectors) -> None:
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-5)
    theirs = theirs / np.linalg.norm(theirs, axis=1, keepdims=True)
    assert (ours * theirs).sum(axis=1).min() > 0.99999
    assert np.std(ours @ ours.T) > 0.01, "all inputs give the same vector: the comparison would show nothing"


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
def test_vectors_are_those_of_sentence_transformers(tmp_path: Path, family: TextFamily, pooling: str) -> None:
    folder = make_text_model(tmp_path, family, pooling=pooling)
    checkpoint = load_checkpoint(folder)
    feeds = feeds_of(checkpoint, ODD)
    assert verify_vectors("text", export(checkpoint, "text"), feeds, load_reference(folder), Gates()).passed
    ours, _ = run(export(checkpoint, "text"), feeds)
    peer = SentenceTransformer(str(folder), device="cpu")
    assert_same(ours, peer.encode(ODD, batch_size=1))


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_token_ids_are_those_of_the_own_tokenizer(tmp_path: Path, family: TextFamily) -> None:
    prompts = {"query": "query: ", "document": "passage: "}
    folder = make_text_model(tmp_path, family, prompts=prompts)
    checkpoint = load_checkpoint(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    form = text_input(checkpoint)
    assert verify_tokens(folder, form, tokenizer).value == 0
    heads = [text_tokenizer(family).decode(list(form.prompt(role).ids)) for role in ("query", "document")]
    assert [head.replace(" ", "") for head in heads] == ["query:", "passage:"]


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_fused_layers_and_float16_stay_near(tmp_path: Path, family: TextFamily) -> None:
    checkpoint = load_checkpoint(make_text_model(tmp_path, family))
    feeds = feeds_of(checkpoint, ODD + tokenizer_cases(60))
    plain, _ = run(export(checkpoint, "text"), feeds)
    half, _ = run(export(checkpoint, "text", np.float16), feeds)
    graph = OnnxGraph("text")
    checkpoint.write("text", CpuInt8Layers(graph, {}))
    fused, _ = run(graph.to_bytes(), feeds)
    assert (plain * fused).sum(axis=1).min() > 0.9999
    assert (plain * half).sum(axis=1).min() > 0.9999


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_base_models_are_exported_at_their_real_size(tmp_path: Path, family: TextFamily) -> None:
    """With all that is proven of a bundle: float32 against transformers, INT8 and QDQ within their gates."""
    folder = make_text_model(tmp_path / "checkpoint", family, real=True, limit=256)
    recipe = dataclasses.replace(
        RECIPE, checkpoint=str(folder), shapes=Shapes(text_length=(2, 32, 256)), precisions=("fp32", "int8", "qdq")
    )
    bundle = build_bundle(recipe, out=tmp_path / "bundle")
    assert bundle.precisions == ["fp32", "int8", "qdq"]
    assert bundle.space.dim == 768
    assert not bundle.forced


@pytest.mark.parametrize("family", ["modernbert", "mpnet", "xlm-roberta"])
def test_a_bundle_is_built_from_end_to_end(tmp_path: Path, family: TextFamily) -> None:
    folder = make_text_model(tmp_path / "checkpoint", family, prompts={"query": "query: ", "passage": "passage: "})
    bundle = build_bundle(dataclasses.replace(RECIPE, checkpoint=str(folder)), out=tmp_path / "bundle")
    assert bundle.precisions == ["fp32", "int8", "qdq"]
    assert not bundle.forced
    assert (bundle.text.query.text, bundle.text.document.text) == ("query: ", "passage: ")
    peer = SentenceTransformer(str(folder), device="cpu")
    with OnnxEncoder(f"{bundle.folder}/", precision="fp32") as encoder, TorchEncoder(f"{folder}/") as torch:
        assert torch.fingerprint.partition(":")[2] == encoder.fingerprint.partition(":")[2]
        queries = encoder.encode_texts(SHORT, role="query")["words"]
        documents = encoder.encode_texts(SHORT)["words"]
        np.testing.assert_allclose(queries, torch.encode_texts(SHORT, role="query")["minilm"], atol=1e-5)
    assert_same(queries, peer.encode(SHORT, prompt="query: ", batch_size=1))
    assert_same(documents, peer.encode(SHORT, prompt="passage: ", batch_size=1))
    assert (queries * documents).sum(axis=1).max() < 0.999
