"""Prompts stand before the texts of their role; vectors are cut for models made for it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.cli import assert_one_line, run
from tests.support.prompted import DIMS, DOCUMENT, QUERY, prompted_minilm
from vlmsearch import ConfigError
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.models.bundle import open_bundle
from vlmsearch.models.inputs import BatchLimits, Ids, TextBatches, token_rows
from vlmsearch.registry import open_encoder
from vlmsearch.types import Role, Vectors

Batches = Sequence[tuple[Ids, Ids]]
TEXTS = ["a red star", "", "a large blue ring above a small heart", "x"]
LONG = "a red star and two blue rings on a meadow " * 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prompted_minilm(tmp_path_factory.mktemp("models") / "prompted")


@pytest.mark.parametrize(("role", "prompt"), [("query", QUERY), ("document", DOCUMENT)])
def test_a_prompt_is_tokenised_together_with_its_text(folder: Path, role: Role, prompt: str) -> None:
    with OnnxEncoder(str(folder)) as encoder, OnnxEncoder("demo-minilm") as bare:
        found = encoder.encode_texts(TEXTS, role=role)["minilm"]
        expected = bare.encode_texts([prompt + text for text in TEXTS])["minilm"]
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert (found * bare.encode_texts(TEXTS)["minilm"]).sum(axis=1).max() < 0.999


@pytest.mark.parametrize("role", ["query", "document"])
def test_a_long_text_is_cut_after_its_prompt(folder: Path, role: Role) -> None:
    bundle = open_bundle(folder)
    form, batches, rows = bundle.text, TextBatches(bundle), list[list[int]]()

    def keep(given: Batches) -> Iterator[Vectors]:
        for ids, mask in given:
            rows.extend(row[seen == 1].tolist() for row, seen in zip(ids, mask))
            yield np.ones((len(ids), bundle.space.dim), np.float32)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        batches.encode([LONG, "star"], role, BatchLimits(8), keep)
    start = [*form.prefix, *form.prompt(role).ids]
    assert form.prompt(role).ids
    assert rows[1][: len(start)] == start
    assert [len(rows[0]) < len(rows[1]), len(rows[1])] == [True, form.max_tokens]
    assert rows == token_rows(["star", LONG], form, batches._tokenizer, role)
    said = [f"{batches.count_tokens([LONG], role)[0]} tokens and {bundle.name} reads {form.room(role)}: "]
    told = [str(warning.message).partition("the query has ")[2].partition("the rest")[0] for warning in warned]
    assert told == (said if role == "query" else [])


def test_batches_of_very_long_texts_are_smaller(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.models.inputs._LONG", 16)
    bundle, shapes = open_bundle(folder), list[tuple[int, ...]]()

    def keep(given: Batches) -> Iterator[Vectors]:
        for ids, _ in given:
            shapes.append(ids.shape)
            yield np.ones((len(ids), bundle.space.dim), np.float32)

    TextBatches(bundle).encode([LONG, *["star"] * 20], "document", BatchLimits(8), keep)
    assert {rows for rows, length in shapes if length <= 16} >= {8}
    assert all(rows * length**2 <= 8 * 16**2 or rows == 1 for rows, length in shapes)
    assert max(length for _, length in shapes) > 16


# ---- fewer dimensions


def test_vectors_are_cut_and_scaled(folder: Path) -> None:
    with OnnxEncoder(str(folder)) as whole, open_encoder(f"onnx:{folder}?dim=32") as cut:
        assert whole.spaces[0].dim == 96
        assert cut.spaces[0].dim == 32
        assert cut.fingerprint == f"{whole.fingerprint}/32"
        assert whole.relevance
        assert not cut.relevance, "the fit was made on whole vectors"
        found, expected = cut.encode_texts([*TEXTS, LONG])["minilm"], whole.encode_texts([*TEXTS, LONG])["minilm"]
    expected = expected[:, :32]
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)
    with open_encoder(f"onnx:{folder}?dim=96") as same:
        assert same.fingerprint == whole.fingerprint
        assert same.relevance


@pytest.mark.parametrize("dim", [0, 33, 97, 1000])
def test_other_lengths_are_refused(folder: Path, dim: int) -> None:
    with pytest.raises(
        ConfigError, match=f"dim={dim} is a length that no model was trained for; .*: minilm 96, 32, 48"
    ):
        open_encoder(f"onnx:{folder}?dim={dim}")


def test_an_index_knows_the_length_of_its_vectors(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    prompted_minilm(cache / "bundles" / "prompted")
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"a red star {name}")
    environment = {"VLMSEARCH_CACHE": str(cache)}
    done = run("index", "a.txt", "b.txt", "--encoder", "onnx:prompted?dim=32", cwd=tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    done = run("search", "a red star", "--all", cwd=tmp_path, **environment)
    assert done.stdout.count("a red star") == 2, "opened as it was built"
    done = run("search", "star", "--encoder", "onnx:prompted", cwd=tmp_path, **environment)
    assert_one_line(done, "was built with prompted:da3c33b513c2/32, not with prompted:da3c33b513c2")
    found = json.loads(run("info", "--json", cwd=tmp_path, **environment).stdout)
    assert [space["dim"] for space in found["spaces"]] == [32]
    assert "the fit is of whole vectors" in run("info", cwd=tmp_path, **environment).stdout
    rows = json.loads(run("models", "--json", cwd=tmp_path, **environment).stdout)["built"]
    assert next(row["dims"] for row in rows if row["name"] == "prompted") == [96, *DIMS]
