"""Cross-encoders: what is exported computes what transformers computes, and its probabilities mean something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.checkpoints import edit_json, make_bert, make_cross_encoder
from tests.support.graphs import export
from tests.support.paths import ENGINES
from tests.support.text_models import TextFamily, make_text_cross_encoder
from vlmsearch.building.compare import verify_pairs
from vlmsearch.building.inputs import open_session, pair_feeds
from vlmsearch.building.load import load_cross_encoder
from vlmsearch.building.pairs import labelled_pairs
from vlmsearch.building.quantize import score_drift
from vlmsearch.building.relevance import calibration_error
from vlmsearch.building.reranker import BINS, build_reranker, fit_platt, split_pairs
from vlmsearch.errors import ConfigError, QualityError
from vlmsearch.models.bundle import open_bundle
from vlmsearch.models.recipe import PairCalibration, RerankerGates, RerankerRecipe, ScoreGate, find_any_recipe
from vlmsearch.models.reranker import open_reranker_bundle, pair_arrays, pair_tokenizer
from vlmsearch.rerankers.onnx import OnnxReranker
from vlmsearch.types import Document, Vectors

RNG = np.random.default_rng(0)
PAIRS = [
    ("a red star", "two large striped circles above a small heart on a meadow"),
    ("", ""),
    ("how many moons", "x"),
    ("star " * 300, "ring " * 20),
    ("ring", "star " * 700),
    ("star " * 400, "ring " * 401),
    ("Größe 你好", "😀 don't"),
]
RECIPE = RerankerRecipe(
    "tiny", "Apache-2.0", "reranker", checkpoint="x",
    calibration=PairCalibration("scenes", queries=40, held_out=40, candidates=10),
)  # fmt: skip


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_a_graph_computes_what_transformers_computes(tmp_path: Path, family: TextFamily) -> None:
    import torch
    from sentence_transformers import CrossEncoder

    from vlmsearch.building.torch import CrossEncoderReference

    folder = make_cross_encoder(tmp_path) if family == "bert" else make_text_cross_encoder(tmp_path, family)
    checkpoint = load_cross_encoder(folder)
    tokenizer = pair_tokenizer((folder / "tokenizer.json").read_bytes(), "tiny", checkpoint.max_tokens)
    assert verify_pairs(folder, tokenizer, checkpoint.max_tokens).value == 0
    session, reference = open_session(export(checkpoint, "text")), CrossEncoderReference(folder)
    texts = [*PAIRS, ("a <pad> star", "<pad>")]
    tokenizer.raw.encode_special_tokens = False  # padding within a text is padding, as it is there
    batch = pair_arrays(tokenizer.raw.encode_batch(texts), checkpoint.pad)
    ours, theirs = session.run(["logit"], dict(batch))[0], reference.logits(batch)
    assert ours.shape == (len(texts), 1)
    assert np.std(theirs) > 0.05, "all pairs give the same number: the comparison would show nothing"
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    library = CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(ours[:, 0], library.predict(texts), atol=1e-3)


def test_other_token_ids_are_noticed(tmp_path: Path) -> None:
    data = (make_cross_encoder(tmp_path) / "tokenizer.json").read_bytes()
    assert verify_pairs(tmp_path, pair_tokenizer(data, "tiny", 95), 96).value > 0


def test_a_second_text_is_told_from_the_first(tmp_path: Path) -> None:
    checkpoint = load_cross_encoder(make_cross_encoder(tmp_path))
    tokenizer = pair_tokenizer((tmp_path / "tokenizer.json").read_bytes(), "tiny", 96)
    session = open_session(export(checkpoint, "text"))
    (batch,) = pair_feeds([("a red star", "a blue ring")], tokenizer, checkpoint.pad).batches
    blind = {**batch, "token_type_ids": np.zeros_like(batch["token_type_ids"])}
    assert abs(session.run(["logit"], dict(batch))[0] - session.run(["logit"], blind)[0]) > 1e-3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architectures": ["BertModel"]}, "BertForSequenceClassification with one label"),
        ({"id2label": {"0": "a", "1": "b"}}, "with 2 labels"),
        ({"model_type": "distilbert"}, "cross-encoders of bert, roberta, xlm-roberta can be exported"),
        ({"position_embedding_type": "relative_key"}, "absolute positions"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    folder = make_cross_encoder(tmp_path)
    edit_json(folder / "config.json", **change)
    with pytest.raises(ConfigError, match=said):
        load_cross_encoder(folder)


def test_a_default_prompt_is_not_left_out(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    prompts = {"query": "a meadow with "}
    CrossEncoder(str(make_cross_encoder(tmp_path / "plain")), prompts=prompts).save(str(tmp_path / "named"))
    CrossEncoder(str(tmp_path / "plain"), prompts=prompts, default_prompt_name="query").save(str(tmp_path / "default"))
    assert load_cross_encoder(tmp_path / "named").max_tokens == 96
    with pytest.raises(ConfigError, match="a re-ranker with a default prompt"):
        load_cross_encoder(tmp_path / "default")


def test_a_sentence_encoder_is_not_a_re_ranker(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="BertForSequenceClassification"):
        load_cross_encoder(make_bert(tmp_path))


def test_the_fitted_probability_is_the_one_that_the_labels_were_drawn_with() -> None:
    logits = RNG.normal(0, 3, 20_000)
    true = 1 / (1 + np.exp(-(0.7 * logits - 1.5)))
    labels = RNG.random(len(logits)) < true
    platt = fit_platt(logits, labels)
    assert platt.scale == pytest.approx(0.7, abs=0.03)
    assert platt.shift == pytest.approx(-1.5, abs=0.05)
    probabilities = platt.probabilities(logits)
    assert calibration_error(probabilities, labels, bins=BINS) < 0.015
    assert calibration_error(np.sqrt(probabilities), labels, bins=BINS) > 0.05


def test_labels_that_are_told_apart_ask_for_no_infinite_certainty() -> None:
    labels = np.repeat([False, True], 50)
    platt = fit_platt(np.where(labels, 4.0, -4.0), labels)
    assert 0.9 < platt.probabilities(np.array([4.0]))[0] < 1
    with pytest.raises(ConfigError, match="not a re-ranker"):
        fit_platt(np.where(labels, -4.0, 4.0), labels)


def test_drift_of_scores_counts_differences_and_order() -> None:
    reference = np.array([[0.1], [0.4], [0.9]], np.float32)
    assert score_drift(reference, reference, 5.0) == score_drift(reference, reference.copy(), 5.0)
    same, turned = score_drift(reference, reference), score_drift(reference, reference[::-1].copy())
    assert (same.mean_difference, same.order, same.nearness) == (0, 1, 1)
    assert turned.order == 0
    assert turned.max_difference == pytest.approx(0.8)
    assert same.passes(ScoreGate())
    assert not turned.passes(ScoreGate(difference=1))
    assert not score_drift(reference, reference + 0.1).passes(ScoreGate())
    assert not score_drift(reference, np.full_like(reference, np.nan)).passes(ScoreGate(difference=1))


def test_labelled_pairs_of_scenes_hold_what_fits_and_what_nearly_does() -> None:
    fitted, held_out = split_pairs(RECIPE)
    assert not set(fitted.queries) & set(held_out.queries)
    assert len(held_out.labels) == 40 * 10
    assert 0.05 < held_out.labels.mean() < 0.6
    again = labelled_pairs("scenes", 80, 10)
    assert again.queries == fitted.queries + held_out.queries


def test_labelled_pairs_of_passages_count_what_else_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"id": "a", "text": "Salt melts ice on roads.", "question": "What melts ice?", "also": ["b"]},
        {"id": "b", "text": "Sand and salt are put on ice.", "question": "What is put on ice?", "also": []},
        {"id": "c", "text": "Violins have four strings.", "question": "How many strings has a violin?", "also": []},
    ]
    lines = (
        json.dumps(row | {name: f"{name} {row['id']}" for name in ("keywords", "paraphrase", "topic")}) for row in rows
    )
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr("vlmsearch.building.data.data_folder", lambda name: tmp_path)
    pairs = labelled_pairs("passages", 9, 2)
    found = {(query, document): bool(label) for (query, document), label in zip(pairs.texts, pairs.labels)}
    texts = [str(row["text"]) for row in rows]
    assert found["What melts ice?", texts[0]]
    assert found["What melts ice?", texts[1]]
    assert not found["What is put on ice?", texts[0]]
    assert len(found) == 9 * 2
    with pytest.raises(ConfigError, match="9 queries on the project's passages, not 10"):
        labelled_pairs("passages", 10, 2)


def test_a_build_proves_itself_and_is_opened_by_its_folder(tmp_path: Path) -> None:
    checkpoint = ENGINES / "demo-reranker" / "checkpoint"
    strict = replace(RECIPE, gates=RerankerGates(calibration_error=0.0))
    with pytest.raises(QualityError, match=r"calibration_error is .*, gate 0"):
        build_reranker(strict, checkpoint=checkpoint, out=tmp_path / "none", precisions=["fp32"])
    assert not (tmp_path / "none").exists()
    bundle = build_reranker(RECIPE, checkpoint=checkpoint, out=tmp_path / "bundle")
    assert bundle == open_reranker_bundle(tmp_path / "bundle")
    assert bundle.precisions == ["fp32", "int8"]
    checks = json.loads((tmp_path / "bundle/bundle.json").read_text())["measured"]["checks"]
    assert checks["tokens.different"]["value"] == 0
    assert checks["fp32.difference"]["value"] <= 1e-4
    assert {"int8.mean_difference", "int8.order", "fp32.calibration_error", "int8.calibration_error"} <= set(checks)
    with OnnxReranker(f"{tmp_path}/bundle", precision="fp32") as reranker:
        probability = reranker.score(*_pair(PAIRS[0]))[0]
    expected = bundle.calibration.probabilities(_logit(checkpoint, PAIRS[0]))
    assert probability == pytest.approx(float(expected[0, 0]), abs=1e-5)
    with pytest.raises(ConfigError, match="holds a reranker, not an encoder"):
        open_bundle(tmp_path / "bundle")


def _pair(pair: tuple[str, str]) -> tuple[str, list[Document]]:
    return pair[0], [Document("x", text=pair[1])]


def _logit(folder: Path, pair: tuple[str, str]) -> Vectors:
    from vlmsearch.building.torch import CrossEncoderReference

    checkpoint = load_cross_encoder(folder)
    tokenizer = pair_tokenizer((folder / "tokenizer.json").read_bytes(), "tiny", checkpoint.max_tokens)
    (batch,) = pair_feeds([pair], tokenizer, checkpoint.pad).batches
    return CrossEncoderReference(folder).logits(batch)


def test_the_recipes_are_found_by_their_names() -> None:
    recipe = find_any_recipe("ms-marco-minilm-l6-v2")
    assert isinstance(recipe, RerankerRecipe)
    assert recipe.source == "cross-encoder/ms-marco-MiniLM-L6-v2"
    assert isinstance(find_any_recipe("demo-reranker"), RerankerRecipe)
    assert not isinstance(find_any_recipe("demo-minilm"), RerankerRecipe)
