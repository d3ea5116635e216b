"""``vlmsearch models --remove``: what the cache holds of a model goes, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkpoints import edit_json
from tests.support.cli import assert_one_line, ok, run
from tests.support.paths import ENGINES
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.tensorrt.engine.plans import Machine, PlanKey, find_plan, store_plan

REPORT = {"model": "own", "tower": "text", "precision": "fp16", "mean_cosine": 1.0, "overlap": 1.0}
KEY = PlanKey("0" * 64, Machine("10.0", "a GPU", "9.0", ""), (), "fp16")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache with two models, a checkpoint that shares its weights, and an engine."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("VLMSEARCH_CACHE", str(cache))
    for name in ("own", "own-2"):
        folder = cache / "bundles" / name
        shutil.copytree(ENGINES / "demo-clip/bundle", folder)
        edit_json(folder / "bundle.json", name=name, fingerprint=f"{name}:ac869800fb4a")
    weights = tmp_path / "weights"
    weights.write_bytes(bytes(3_000_000))
    checkpoint = cache / "checkpoints" / "own-0123456789ab"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").symlink_to(weights)
    store_plan(KEY, bytes(2_000_000), REPORT)
    yield cache
    assert weights.is_file()


def names_in(cache: Path) -> set[str]:
    return {path.name for path in cache.glob("*/*") if not path.name.endswith(".lock")}


def test_a_model_goes_with_its_checkpoint_and_engine(cache: Path) -> None:
    bundle = sum(path.stat().st_size for path in (cache / "bundles/own").rglob("*"))
    (row,) = json.loads(ok("models", "--remove", "own", "--json"))["removed"]
    assert row["name"] == "own"
    assert row["megabytes"] == pytest.approx(bundle / 1e6 + 2, abs=0.11), "without the weights behind a link"
    assert names_in(cache) == {"own-2"}
    assert find_plan(KEY) is None
    done = run("models")
    assert "own-2" in done.stdout, done.stderr


def test_the_sizes_are_shown(cache: Path) -> None:
    lines = [line.split("\t") for line in ok("models", "--remove", "own-2", "--remove", "own").splitlines()]
    assert [line[0] for line in lines] == ["name", "own-2", "own"]
    assert lines[0][1] == "megabytes"
    assert float(lines[2][1]) > float(lines[1][1]) + 1.9
    assert names_in(cache) == set()


def test_a_damaged_model_can_be_removed(cache: Path) -> None:
    (cache / "bundles/own-2/bundle.json").write_text("{")
    ok("models", "--remove", "own-2")
    assert not (cache / "bundles/own-2").exists()


def test_an_unknown_name_removes_nothing(cache: Path) -> None:
    before = names_in(cache)
    done = run("models", "--remove", "own", "--remove", "own-3")
    assert_one_line(done, "no model 'own-3' in the cache; did you mean 'own-2'? there are own, own-2")
    assert names_in(cache) == before
    assert_one_line(run("models", "--remove", "../bundles/own"), "no model '../bundles/own' in the cache")


def test_a_model_of_the_project_is_not_in_the_cache(tmp_path: Path) -> None:
    done = run("models", "--remove", "demo-clip", VLMSEARCH_CACHE=str(tmp_path / "none"))
    assert_one_line(done, "no model 'demo-clip' in the cache; there are none")
    assert (ENGINES / "demo-clip/bundle/bundle.json").is_file()


def test_removing_and_listing_are_two_calls(cache: Path) -> None:
    done = run("models", "--remove", "own", "--available")
    assert done.returncode == 2
    assert "--remove removes models and --available lists them: give one of the two" in done.stderr
    assert (cache / "bundles/own").is_dir()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no file that is open")
def test_a_process_that_has_the_model_open_goes_on(cache: Path) -> None:
    with OnnxEncoder("own") as encoder:
        before = encoder.encode_texts(["a red star"], role="query")
        done = subprocess.run([sys.executable, "-m", "vlmsearch", "models", "--remove", "own"], check=False)
        assert done.returncode == 0
        after = encoder.encode_texts(["a red star"], role="query")
    assert {name: rows.tolist() for name, rows in after.items()} == {n: rows.tolist() for n, rows in before.items()}
