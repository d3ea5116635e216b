"""Every family of text models computes what sentence-transformers computes, with every pooling and prompt."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.checkpoints import edit_json
from tests.support.graphs import (
    assert_same,
    calibrate,
    export,
    export_fused,
    feeds_of,
    scratch,
    tokenizer_of,
    write,
)
from tests.support.text_models import TEXT_FAMILIES, TextFamily, make_text_model, text_tokenizer
from vlmsearch.building.bundle import build_bundle
from vlmsearch.building.compare import verify_tokens, verify_vectors
from vlmsearch.building.fetch import text_input
from vlmsearch.building.inputs import Feeds, run
from vlmsearch.building.load import load_checkpoint
from vlmsearch.building.quantize import QuantisationPlan, Subject, drift
from vlmsearch.building.verify import tokenizer_cases
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ConfigError, QualityError
from vlmsearch.models.inputs import token_arrays
from vlmsearch.models.recipe import Calibration, Gates, Prompts, Recipe, Shapes, TowerGate
from vlmsearch.tensorrt.builder.graph import engine_graph, read_int8

ODD = [
    "a red star", "", "two large striped circles above a small heart on a meadow", "x", "ring", "star " * 60,
    "a <pad> in <pad> <pad> the middle", "<pad>", "[PAD] and [PAD]",
]  # fmt: skip

SHORT = ["a red star", "", "two circles", "x", "ring"]
RECIPE = Recipe(
    "tiny", "MIT", "words", checkpoint="checkpoint", precisions=("fp32", "int8", "qdq"),
    shapes=Shapes(text_length=(2, 8, 32)), calibration=Calibration(texts=96, held_out=64, relevance_scenes=0),
)  # fmt: skip


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_sentence_transformers(tmp_path: Path, family: TextFamily, pooling: str) -> None:
    from sentence_transformers import SentenceTransformer

    from vlmsearch.building.torch import load_reference

    folder = make_text_model(tmp_path, family, pooling=pooling)
    checkpoint = load_checkpoint(folder)
    peer, model = SentenceTransformer(str(folder), device="cpu"), export(checkpoint, "text")
    rows = peer.tokenizer(ODD, truncation=True, max_length=checkpoint.max_tokens)["input_ids"]  # with padding within
    ids, mask = token_arrays(rows, text_input(checkpoint))
    feeds = Feeds(({"input_ids": ids, "attention_mask": mask},), np.arange(len(ODD)))
    assert verify_vectors("text", model, feeds, load_reference(folder), Gates()).passed
    ours, _ = run(model, feeds)
    assert_same(ours, peer.encode(ODD, batch_size=1))


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_token_ids_are_those_of_the_own_tokenizer(tmp_path: Path, family: TextFamily) -> None:
    prompts = {"query": "query: ", "document": "passage: "}
    folder = make_text_model(tmp_path, family, prompts=prompts)
    checkpoint = load_checkpoint(folder)
    form = text_input(checkpoint)
    assert verify_tokens(folder, form, tokenizer_of(folder)).value == 0
    heads = [text_tokenizer(family).decode(list(form.prompt(role).ids)) for role in ("query", "document")]
    assert [head.replace(" ", "") for head in heads] == ["query:", "passage:"]


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_fused_layers_and_float16_stay_near(tmp_path: Path, family: TextFamily) -> None:
    checkpoint = load_checkpoint(make_text_model(tmp_path, family))
    feeds = feeds_of(checkpoint, ODD + tokenizer_cases(60))
    plain, _ = run(export(checkpoint, "text"), feeds)
    half, _ = run(export(checkpoint, "text", np.float16), feeds)
    fused, _ = run(export_fused(checkpoint, "text"), feeds)
    assert (plain * fused).sum(axis=1).min() > 0.9999
    assert (plain * half).sum(axis=1).min() > 0.9999


@pytest.mark.parametrize("family", ["modernbert", "mpnet", "xlm-roberta"])
def test_graphs_for_engines_compute_the_same(tmp_path: Path, family: TextFamily) -> None:
    """Spelled out for TensorRT 8.6, and with all Linears in INT8."""
    checkpoint = load_checkpoint(make_text_model(tmp_path, family))
    feeds = feeds_of(checkpoint, [*ODD, *tokenizer_cases(60)])
    model = export(checkpoint, "text")
    expected, _ = run(model, feeds)
    spelled, _ = run(engine_graph(model, {}, [], spelled_out=True), feeds)
    assert (spelled * expected).sum(axis=1).min() > 0.99999
    seen = calibrate(checkpoint, "text", feeds)
    subject = Subject(checkpoint, "text", feeds, expected, TowerGate(), drift, scratch())
    int8 = read_int8(write(subject, "qdq", QuantisationPlan("static"), seen).read_bytes())
    assert len(int8) == 4 * checkpoint.text.transformer.layers
    quantised, _ = run(engine_graph(model, int8, list(int8), spelled_out=False), feeds)
    older, _ = run(engine_graph(model, int8, list(int8), spelled_out=True), feeds)
    for vectors in (quantised, older):
        assert 0.97 < (vectors * expected).sum(axis=1).mean() < 0.999999


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_base_models_compute_the_same_at_their_real_size(tmp_path: Path, family: TextFamily) -> None:
    from vlmsearch.building.torch import load_reference

    folder = make_text_model(tmp_path, family, real=True, limit=320)
    texts = [*ODD, " ".join(tokenizer_cases(60)[30:])]
    for pooling in ("mean", "cls"):
        edit_json(folder / "1_Pooling" / "config.json", pooling_mode=pooling)
        checkpoint = load_checkpoint(folder)
        feeds = feeds_of(checkpoint, texts)
        assert max(batch["input_ids"].shape[1] for batch in feeds.batches) == 320
        model = export(checkpoint, "text")
        check = verify_vectors("text", model, feeds, load_reference(folder), Gates())
        assert check.passed, (pooling, check)
        vectors, _ = run(model, feeds)
        assert np.std(vectors @ vectors.T) > 0.01, (pooling, "all texts have the same vector")


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", ["modernbert", "mpnet", "xlm-roberta"])
def test_base_models_are_built_at_their_real_size(tmp_path: Path, family: TextFamily) -> None:
    """With all that is proven of a bundle: float32 against transformers, INT8 and QDQ within their gates."""
    folder = make_text_model(tmp_path / "checkpoint", family, real=True, limit=64)
    bundle = build_bundle(dataclasses.replace(RECIPE, checkpoint=str(folder)), out=tmp_path / "bundle")
    assert bundle.precisions == ["fp32", "int8", "qdq"]
    assert bundle.space.dim == 768
    assert not bundle.forced


@pytest.mark.parametrize("family", ["modernbert", "mpnet", "xlm-roberta"])
def test_a_bundle_is_built_from_end_to_end(tmp_path: Path, family: TextFamily) -> None:
    from sentence_transformers import SentenceTransformer

    from vlmsearch.building.torch import TorchEncoder

    ask = "ask:\nq:\u3000"  # on two lines, as models with instructions have it
    prompts = {"query": ask, "document": "passage: ", "passage": "other: "}
    folder = make_text_model(tmp_path / "checkpoint", family, prompts=prompts)
    bundle = build_bundle(dataclasses.replace(RECIPE, checkpoint=str(folder)), out=tmp_path / "bundle")
    assert bundle.precisions == ["fp32", "int8", "qdq"]
    assert not bundle.forced
    assert (bundle.text.query.text, bundle.text.document.text) == (ask, "passage: ")
    assert bundle.measured["prompts"] == {"query": "queries", "document": "documents", "passage": "no text"}
    assert bundle.measured["checks"]["prompts.cosine"]["value"] > 0.99999  # type: ignore[index]
    peer = SentenceTransformer(str(folder), device="cpu")
    with OnnxEncoder(f"{bundle.folder}/", precision="fp32") as encoder, TorchEncoder(f"{folder}/") as torch:
        assert torch.fingerprint.partition(":")[2] == encoder.fingerprint.partition(":")[2]
        queries = encoder.encode_texts(SHORT, role="query")["words"]
        documents = encoder.encode_texts(SHORT)["words"]
        np.testing.assert_allclose(queries, torch.encode_texts(SHORT, role="query")["minilm"], atol=1e-5)
    assert_same(queries, peer.encode(SHORT, prompt=ask, batch_size=1))
    assert_same(documents, peer.encode(SHORT, prompt="passage: ", batch_size=1))
    assert (queries * documents).sum(axis=1).max() < 0.999


@pytest.mark.parametrize(
    ("prompts", "default", "query", "document"),
    [
        ({}, None, "", ""),
        ({"query": "ask: ", "document": "tell: "}, None, "ask: ", "tell: "),
        ({"query": "ask: "}, None, "ask: ", ""),
        ({"query": "ask: ", "document": "tell: ", "sts": "same: "}, "sts", "ask: ", "tell: "),
        ({"query": "ask: ", "document": ""}, "query", "ask: ", ""),
        ({"query": "", "document": "tell"}, "document", "", "tell"),
        ({"query": "ask: ", "passage": "tell: "}, None, "ask: ", ""),
        ({"query": "  ask \n ", "corpus": "tell: "}, "query", "  ask \n ", ""),
        ({"Query": "ask: ", "document": None}, None, "", ""),
        ({"all": "text: "}, "all", "", ""),
        ({}, "query", "", ""),
    ],
)
def test_prompts_are_those_of_sentence_transformers(
    tmp_path: Path, prompts: dict[str, str | None], default: str | None, query: str, document: str
) -> None:
    from sentence_transformers import SentenceTransformer

    from vlmsearch.building.torch import TorchEncoder

    folder = make_text_model(tmp_path, "bert")
    settings = {"prompts": prompts, "default_prompt_name": default}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    checkpoint = load_checkpoint(folder)
    assert checkpoint.prompts == Prompts(query, document)
    peer = SentenceTransformer(str(folder), device="cpu")
    with TorchEncoder(f"{folder}/") as encoder:
        assert_same(encoder.encode_texts(SHORT, role="query")["minilm"], peer.encode_query(SHORT))
        assert_same(encoder.encode_texts(SHORT)["minilm"], peer.encode_document(SHORT))


def test_a_prompt_that_is_read_otherwise_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers import SentenceTransformer

    folder = make_text_model(tmp_path / "checkpoint", "bert", prompts={"query": "query: ", "passage": "passage: "})
    assert load_checkpoint(folder, Prompts()).digest() != load_checkpoint(folder).digest(), "they decide the vectors"
    recipe = dataclasses.replace(RECIPE, checkpoint=str(folder), precisions=("fp32",))
    own = build_bundle(dataclasses.replace(recipe, prompts=Prompts("query: ", "passage: ")), out=tmp_path / "own")
    assert own.text.document.text == "passage: "
    assert own.measured["prompts"] == {"query": "queries", "document": "documents"}
    real = SentenceTransformer.encode_document
    monkeypatch.setattr(
        SentenceTransformer,
        "encode_document",
        lambda self, texts, **options: real(self, ["other", *texts[1:]], **options),
    )
    with pytest.raises(QualityError, match=r"^tiny was not built: prompts.cosine is 0\.\d+, gate 0\.99999 "):
        build_bundle(recipe, out=tmp_path / "bundle")


def test_a_recipe_may_read_less_than_the_model_could(tmp_path: Path) -> None:
    folder = make_text_model(tmp_path, "modernbert")
    assert load_checkpoint(folder).max_tokens == 40
    assert load_checkpoint(folder, max_tokens=16).max_tokens == 16
    assert load_checkpoint(folder, max_tokens=99).max_tokens == 40


def test_whether_a_model_normalises_makes_no_difference(tmp_path: Path) -> None:
    with_it, without = (
        load_checkpoint(make_text_model(tmp_path / str(normalize), "mpnet", normalize=normalize))
        for normalize in (True, False)
    )
    assert with_it.digest() == without.digest()


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("modernbert", {"attention_bias": True}, "ModernBERT without biases"),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "linear"}}}, "scaled"),
        ("roberta", {"position_embedding_type": "relative_key"}, "absolute positions"),
        ("distilbert", {"activation": "relu"}, "'relu' cannot be exported"),
        ("nomic_bert", {"prenorm": True}, "Nomic's BERT can be exported without biases"),
    ],
)
def test_a_variant_that_cannot_be_exported_is_one_clear_line(
    tmp_path: Path, family: TextFamily, settings: dict[str, object], message: str
) -> None:
    folder = make_text_model(tmp_path, family)
    edit_json(folder / "config.json", **settings)
    with pytest.raises(ConfigError, match=message) as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)


def test_capitals_that_a_tokenizer_keeps_cannot_be_lowered(tmp_path: Path) -> None:
    for family, fits in (("bert", True), ("roberta", False)):
        folder = make_text_model(tmp_path / family, family)  # type: ignore[arg-type]
        edit_json(folder / "sentence_bert_config.json", do_lower_case=True)
        if fits:
            assert load_checkpoint(folder).max_tokens == 40
        else:
            with pytest.raises(ConfigError, match="the tokenizer itself keeps capitals"):
                load_checkpoint(folder)
