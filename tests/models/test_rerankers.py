"""The bundles of re-rankers: what is refused, and that the one that the project ships is small, sound and good."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.cli import ok, run
from tests.support.paths import ENGINES
from vlmsearch.building.fetch import fingerprint
from vlmsearch.building.load import load_cross_encoder
from vlmsearch.building.retrieval import reranked_recall
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.bundle import DamagedBundleWarning, built_bundles, find_bundles, recipe_names
from vlmsearch.models.recipe import RerankerRecipe, find_any_recipe, find_recipe
from vlmsearch.models.reranker import PRECISIONS, built_rerankers, find_reranker, open_reranker_bundle
from vlmsearch.rerankers.onnx import OnnxReranker

DEMO = ENGINES / "demo-reranker"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO / "bundle", tmp_path / "demo-reranker"))


def edit(folder: Path, **changes: object) -> None:
    path = folder / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "encoder"}, "holds an encoder, not a re-ranker; there are demo-reranker, ms-marco-minilm-l6-v2"),
        ({"calibration": {"scale": -1, "shift": 0}}, "scale is from 0 to 1000"),
        ({"calibration": {"scale": 1}}, "shift is missing"),
        ({"text": {"max_tokens": 0, "pad": 0}}, "max_tokens"),
        ({"fingerprint": "other:12"}, "fingerprint"),
        ({"format": 1}, "not of format 3"),
    ],
)
def test_a_description_that_no_build_wrote_is_refused(folder: Path, changes: dict[str, object], said: str) -> None:
    edit(folder, **changes)
    with pytest.raises(ConfigError, match=said):
        open_reranker_bundle(folder)


def test_a_damaged_file_is_found(folder: Path) -> None:
    bundle = find_reranker(f"{folder}/")
    (folder / "reranker.int8.onnx").write_bytes(b"x")
    with pytest.raises(ModelUnavailableError, match="is damaged"):
        bundle.model("int8")
    assert bundle.model("fp32")


def test_names_and_precisions_that_there_are_not_are_told_with_those_there_are(folder: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"no re-ranker 'demo-rernaker'; did you mean 'demo-reranker'\? there are demo-reranker, ms-marco-mini",
    ):
        find_reranker("demo-rernaker")
    with pytest.raises(ConfigError, match="holds an encoder, not a re-ranker"):
        find_reranker("demo-minilm")
    found = json.loads((folder / "bundle.json").read_text())
    edit(folder, files={name: entry for name, entry in found["files"].items() if name != "reranker.int8.onnx"})
    with pytest.raises(ConfigError, match="has no precision 'int8'; it has fp32"):
        find_reranker(f"{folder}/").model("int8")


def test_an_encoder_and_a_re_ranker_are_not_taken_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="holds a reranker, not an encoder"):
        find_bundles(f"{DEMO}/bundle")
    with pytest.raises(ConfigError, match="recipe of a re-ranker"):
        find_recipe(f"{DEMO}/")
    assert "demo-reranker" not in recipe_names()
    assert "demo-reranker" not in {bundle.name for bundle in built_bundles()}
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    copy = Path(shutil.copytree(DEMO / "bundle", tmp_path / "bundles" / "mine"))
    edit(copy, name="mine", fingerprint="mine:12")
    assert [bundle.name for bundle in built_rerankers()] == ["demo-reranker", "mine"]
    edit(copy, name="other", fingerprint="other:12")
    with pytest.warns(DamagedBundleWarning, match="holds a bundle called other"):
        assert [bundle.name for bundle in built_rerankers()] == ["demo-reranker"]


@pytest.mark.parametrize("name", recipe_names("reranker"))
def test_shipped_recipes_are_complete(name: str) -> None:
    recipe = find_any_recipe(name)
    assert isinstance(recipe, RerankerRecipe)
    assert (recipe.name, recipe.licence) == (name, "Apache-2.0")
    if recipe.source:
        assert re.fullmatch(r"[0-9a-f]{40}", recipe.revision), "a branch may move: pin a commit"
    assert (recipe.gates.float32, recipe.gates.calibration_error) == (1e-4, 0.05)


def test_the_demonstration_is_small_and_built_from_the_checkpoint_beside_it() -> None:
    assert sum(path.stat().st_size for path in DEMO.rglob("*") if path.is_file() and path.suffix != ".pyc") < 1.1e6
    bundle = open_reranker_bundle(DEMO / "bundle")
    assert bundle.fingerprint == fingerprint(load_cross_encoder(DEMO / "checkpoint"), "demo-reranker")
    assert bundle.precisions == ["fp32", "int8"]
    assert bundle.forced == ()


def test_the_demonstration_is_calibrated_and_finds_more_than_is_found_without_it() -> None:
    measured = json.loads((DEMO / "bundle" / "bundle.json").read_text())["measured"]
    assert all(check["passed"] for check in measured["checks"].values())
    figures = measured["retrieval"]
    assert (figures["scenes"], figures["command"]) == (1000, "vlmsearch build demo-reranker")
    for precision in ("fp32", "int8"):
        assert measured["checks"][f"{precision}.calibration_error"]["value"] <= 0.05
        found = figures[precision]
        for figure in ("recall@1", "precision@1"):
            assert found[f"partial {figure} re-ranked"] > found[f"partial {figure} without"]


@pytest.mark.slow
def test_the_command_line_lists_it_and_it_finds_as_much_as_it_reports() -> None:
    listed = json.loads(ok("models", "--json"))
    rows = {row["precision"]: row for row in listed["rerankers"] if row["name"] == "demo-reranker"}
    assert rows.keys() == {"fp32", "int8"}
    assert all(row["calibration_error"] <= 0.05 and not row["forced"] for row in rows.values())
    assert "ms-marco-minilm-l6-v2" in listed["not_built"]
    for precision in PRECISIONS:
        with OnnxReranker("demo-reranker", precision=precision) as reranker:
            found = reranked_recall(reranker, 100)
        assert found["partial recall@1 re-ranked"] >= found["partial recall@1 without"]
        assert found["partial precision@1 re-ranked"] >= 0.85


def test_what_is_for_encoders_is_refused_for_a_re_ranker(tmp_path: Path) -> None:
    done = run("build", "demo-reranker", "--out", str(tmp_path), "--precision", "fp16")
    assert done.returncode == 1
    assert "it can have fp32 and int8, not fp16" in done.stderr
    done = run("build", "demo-reranker", "--out", str(tmp_path), "--calibrate", str(DEMO))
    assert "is a re-ranker, which is not calibrated on texts and images" in done.stderr
