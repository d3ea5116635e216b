"""The bundles that the project ships: small, sound, and as good as they say."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.support.paths import ENGINES
from vlmsearch.building.fetch import fingerprint
from vlmsearch.building.load import load_checkpoint
from vlmsearch.building.retrieval import scene_recall
from vlmsearch.cli import cli
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.models.bundle import open_bundle

NAMES = ["demo-clip", "demo-minilm"]


def test_together_they_are_small() -> None:
    folders = [ENGINES / name / part for name in NAMES for part in ("checkpoint", "bundle")]
    assert sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()) < 8e6


@pytest.mark.parametrize("name", NAMES)
def test_they_were_built_from_the_checkpoints_beside_them(name: str) -> None:
    bundle = open_bundle(ENGINES / name / "bundle")
    assert bundle.fingerprint == fingerprint(load_checkpoint(ENGINES / name / "checkpoint"), name)
    assert bundle.precisions == ["fp32", "int8"]
    assert bundle.forced == ()
    checks = bundle.measured["checks"]
    assert isinstance(checks, dict)
    assert all(check["passed"] for check in checks.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_retrieval_they_report_is_good_enough(name: str) -> None:
    figures = open_bundle(ENGINES / name / "bundle").measured["retrieval"]
    assert isinstance(figures, dict)
    assert figures["scenes"] == 1000
    assert figures["command"] == f"vlmsearch bench scenes {name}"
    for precision in ("fp32", "int8"):
        first, tenth = (next(v for k, v in figures[precision].items() if k.endswith(f"@{d}")) for d in (1, 10))
        assert first >= 0.60
        assert tenth >= 0.95
    tenth = {p: next(v for k, v in figures[p].items() if k.endswith("@10")) for p in ("fp32", "int8")}
    assert abs(tenth["fp32"] - tenth["int8"]) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_command_reproduces_the_figures(name: str) -> None:
    result = CliRunner().invoke(cli, ["bench", "scenes", name, "--count", "200", "--json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    reported = open_bundle(ENGINES / name / "bundle").measured["retrieval"]
    assert isinstance(reported, dict)
    for precision in ("fp32", "int8"):
        for figure, share in data[precision].items():
            assert share >= reported[precision][figure] - 0.03, "among fewer scenes, finding one is easier"


def test_recall_counts_ranks() -> None:
    with OnnxEncoder("demo-minilm", precision="fp32") as encoder:
        figures = scene_recall(encoder, 50)
    assert set(figures) == {"paraphrase to text recall@1", "paraphrase to text recall@10"}


def test_a_related_pair_is_likely_and_an_unrelated_one_is_not() -> None:
    with OnnxEncoder("demo") as encoder:
        texts = encoder.encode_texts(["three yellow stars on a night sky", "a big red square on a beach"], role="query")
        documents = encoder.encode_texts(["a night sky with three golden stars"])
        for space in ("clip", "minilm"):
            related, unrelated = texts[space] @ documents[space][0]
            fit = encoder.relevance[space, "text"]
            others = fit.bias + fit.mean * fit.usual_mean + fit.deviation * fit.usual_deviation
            assert fit.cosine * unrelated + others < 0 < fit.cosine * related + others
