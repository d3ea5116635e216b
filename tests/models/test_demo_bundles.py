"""The bundles that the project ships: small, sound, and as good as they say."""

from __future__ import annotations

import pytest

from tests.support.paths import ENGINES
from vlmsearch.building.fetch import fingerprint
from vlmsearch.building.load import load_checkpoint
from vlmsearch.building.retrieval import scene_recall
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.models.bundle import open_bundle
from vlmsearch.models.reranker import PRECISIONS

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
    assert figures["command"] == f"vlmsearch build {name}"
    for precision in ("fp32", "int8"):
        first, tenth = (next(v for k, v in figures[precision].items() if k.endswith(f"@{d}")) for d in (1, 10))
        assert first >= 0.60
        assert tenth >= 0.95
    tenth = {p: next(v for k, v in figures[p].items() if k.endswith("@10")) for p in ("fp32", "int8")}
    assert abs(tenth["fp32"] - tenth["int8"]) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_they_find_as_much_as_they_report(name: str) -> None:
    reported = open_bundle(ENGINES / name / "bundle").measured["retrieval"]
    assert isinstance(reported, dict)
    for precision in PRECISIONS:
        with OnnxEncoder(name, precision=precision) as encoder:
            figures = scene_recall(encoder, 200)
        assert figures.keys() == reported[precision].keys()
        for figure, share in figures.items():
            assert share >= reported[precision][figure] - 0.03, "among fewer scenes, finding one is easier"


def test_a_related_pair_is_likely_and_an_unrelated_one_is_not() -> None:
    with OnnxEncoder("demo") as encoder:
        texts = encoder.encode_texts(["three yellow stars on a night sky", "a big red square on a beach"], role="query")
        documents = encoder.encode_texts(["a night sky with three golden stars"])
        for space in ("clip", "minilm"):
            related, unrelated = texts[space] @ documents[space][0]
            fit = encoder.relevance[space, "text"]
            rivals = fit.usual_mean + 2 * fit.usual_deviation
            others = fit.bias + fit.mean * fit.usual_mean + fit.rivals * rivals
            assert fit.cosine * unrelated + others < 0 < fit.cosine * related + others
