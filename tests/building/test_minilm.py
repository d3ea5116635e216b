"""The real all-MiniLM-L6-v2: built on first use, then as good as the original without its libraries."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from benchmarks.labelled import read_cisi
from tests.support.checkpoints import minilm
from tests.support.paths import SHARED
from vlmsearch import Pipeline, Query, TextTruncatedWarning
from vlmsearch.building.data import unanswered
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.models.bundle import Bundle, open_bundle
from vlmsearch.models.domain import open_domain
from vlmsearch.models.recipe import find_recipe
from vlmsearch.registry import open_store
from vlmsearch.types import Vectors

NAME = "all-minilm-l6-v2"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not here")
FIRST_USE = f"""
from vlmsearch.encoders.onnx import OnnxEncoder
with OnnxEncoder("{NAME}") as encoder:
    print(encoder.encode_texts(["a dog in the snow"])["minilm"].shape)
"""
WITHOUT = """
import sys
for name in ("torch", "transformers", "onnx", "safetensors", "huggingface_hub", "sentence_transformers"):
    sys.modules[name] = None
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's cache after the first use of the model, and the hub's cache that it came from."""
    recipe = find_recipe(NAME)
    root = tmp_path_factory.mktemp("cache")
    snapshot = root / "hub" / f"models--{recipe.source.replace('/', '--')}" / "snapshots" / recipe.revision
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(minilm())
    first = run(root, FIRST_USE)
    assert first.returncode == 0, first.stderr
    assert first.stdout == "(1, 384)\n"
    assert f"{NAME}: text: exporting" in first.stderr, "progress is shown"
    return root


def run(cache: Path, code: str) -> subprocess.CompletedProcess[str]:
    settings = {"VLMSEARCH_CACHE": str(cache / "ours"), "HF_HUB_CACHE": str(cache / "hub"), "HF_HUB_OFFLINE": "1"}
    environment = {**os.environ, **settings}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=280, check=False
    )


@pytest.fixture(scope="module")
def bundle(cache: Path) -> Bundle:
    return open_bundle(cache / "ours" / "bundles" / NAME)


def test_it_is_made_for_english_texts(bundle: Bundle) -> None:
    domain = open_domain(bundle)
    assert domain is not None
    assert domain.name == "English texts"
    with OnnxEncoder(f"{bundle.folder}/") as encoder:
        ordinary, names = (
            encoder.encode_texts(texts)["minilm"]
            for texts in (unanswered(), [f"IMG_{number:04d}.jpg" for number in range(100)])
        )
    assert domain.verdict(ordinary, "text") is None
    assert domain.verdict(names, "text") is not None


def test_first_use_builds_once_and_then_needs_no_training_library(cache: Path, bundle: Bundle) -> None:
    built = (bundle.folder / "bundle.json").stat().st_mtime_ns
    again = run(cache, WITHOUT + FIRST_USE)
    assert (again.returncode, again.stdout, again.stderr) == (0, "(1, 384)\n", "")
    assert (bundle.folder / "bundle.json").stat().st_mtime_ns == built
    assert bundle.precisions == ["fp32", "int8"]
    assert bundle.revision == find_recipe(NAME).revision


def test_it_passed_its_gates(bundle: Bundle) -> None:
    checks = json.loads((bundle.folder / "bundle.json").read_text())["measured"]["checks"]
    assert all(check["passed"] for check in checks.values())
    assert checks["text.fp32.cosine"]["value"] >= 0.99999
    assert checks["tokens.different"]["value"] == 0
    assert checks["text.int8.mean_cosine"]["value"] >= 0.99
    fit = bundle.relevance["text"]
    assert 10 < fit.cosine < 40
    figures = json.loads((bundle.folder / "bundle.json").read_text())["measured"]["relevance"]["text"]
    assert figures["calibration_error"] < 0.05
    assert figures["precision"] > 0.7


@needs_shared
def test_spearman_on_sts_is_that_of_sentence_transformers(bundle: Bundle) -> None:
    from scipy.stats import spearmanr
    from sentence_transformers import SentenceTransformer

    with (SHARED / "stsb-en-dev.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[::3]
    texts, scores = [row[0] for row in rows] + [row[1] for row in rows], [float(row[2]) for row in rows]

    def spearman(vectors: Vectors) -> float:
        return float(spearmanr((vectors[: len(rows)] * vectors[len(rows) :]).sum(axis=1), scores)[0])

    original = SentenceTransformer(str(minilm()), device="cpu")
    theirs = original.encode(texts[::4], normalize_embeddings=True, show_progress_bar=False)
    vectors: dict[str, Vectors] = {}
    for precision in ("fp32", "int8"):
        with OnnxEncoder(f"{bundle.folder}/", precision=precision) as encoder:
            vectors[precision] = encoder.encode_texts(texts)["minilm"]
    assert (vectors["fp32"][::4] * theirs).sum(axis=1).min() > 0.99999
    assert (vectors["int8"] * vectors["fp32"]).sum(axis=1).mean() > 0.99
    assert spearman(vectors["fp32"]) > 0.8
    assert spearman(vectors["int8"]) == pytest.approx(spearman(vectors["fp32"]), abs=0.006)


@needs_shared
def test_questions_about_something_else_find_nothing_in_abstracts_of_library_science(bundle: Bundle) -> None:
    collection = read_cisi(SHARED / "cisi").with_unanswered(unanswered()[:60])
    with Pipeline(OnnxEncoder(f"{bundle.folder}/"), open_store("mock:")) as pipeline, warnings.catch_warnings():
        warnings.simplefilter("ignore", TextTruncatedWarning)
        pipeline.add(collection.documents)
        found = pipeline.search_many([Query(text) for text in collection.queries.values()], limit=5)
    silent = {id: not matches for id, matches in zip(collection.queries, found)}
    nothing = [id for id, is_silent in silent.items() if is_silent]
    assert sum(id in collection.unanswered for id in nothing) >= 0.65 * len(nothing)
    assert sum(not silent[id] for id in collection.answered) >= 0.6 * len(collection.answered)
    assert sum(silent[id] for id in collection.unanswered) >= 0.9 * len(collection.unanswered)
