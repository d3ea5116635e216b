"""What `bench gpu` measures with, over the stand-in for TensorRT and a small model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from tests.tensorrt_standin import standing_in
from vlmsearch.build.inputs import run
from vlmsearch.bundles import data_folder, open_bundle
from vlmsearch.errors import ConfigError

MINILM = data_folder("engines") / "demo-minilm" / "bundle"


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: Any) -> Iterator[Any]:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path / "cache"))
    with standing_in("8.6") as state:
        yield state


def test_engines_and_the_defaults_are_measured_and_the_fastest_is_named(gpu: Any) -> None:
    from vlmsearch.bench.gpu_engines import DEFAULTS, Job, fastest, measure_all

    jobs = [Job(MINILM, "text", kind) for kind in ("fp32", DEFAULTS)]
    rows = list(measure_all(jobs, lambda text: None))
    assert gpu.built == 2
    assert fastest(rows) == {"bundle text": "fp32"}
    entry = rows[0].to_json()
    assert entry["mean_cosine"] == pytest.approx(1, abs=1e-4)
    assert [timing["batch"] for timing in rows[1].to_json()["timings"]] == [1, 8, 32, 128, 256]  # type: ignore[attr-defined]
    assert rows[0].plain.graph is False
    assert rows[0].two.lanes == 2


def test_load_from_several_threads_counts_errors_and_compares_vectors(gpu: Any) -> None:
    from vlmsearch.bench.gpu_engines import Job, build
    from vlmsearch.bench.gpu_load import run_load
    from vlmsearch.build.tensorrt_measure import example
    from vlmsearch.gpu.engine import Engine
    from vlmsearch.gpu.plans import read_plan
    from vlmsearch.gpu.tensorrt import this_machine

    feed = example(open_bundle(MINILM), "text", 32, 16)
    with Engine(read_plan(build(Job(MINILM, "text", "fp32")), here=this_machine(0)), contexts=2) as engine:
        load = run_load([(engine, feed)], seconds=1, threads=3)
        assert load.errors == ()
        assert load.items > load.batches > 0
        assert load.difference == 0
        engine.close()
        with pytest.raises(Exception, match="closed"):
            run_load([(engine, feed)], seconds=0.2)


def test_a_section_without_its_packages_is_left_out_and_named(gpu: Any, tmp_path: Path) -> None:
    from vlmsearch.bench import gpu as bench

    said: list[str] = []
    task = bench.Task(["demo-clip"], tmp_path)
    out = tmp_path / "report.json"
    out.write_text(json.dumps({"torch": {"rows": []}}))
    bench.SECTIONS["odd"] = (("no_such_package.part",), lambda task, say: {})
    try:
        report = bench.run_sections(task, ["odd"], out, said.append)
    finally:
        del bench.SECTIONS["odd"]
    assert report == {"torch": {"rows": []}}
    assert said[0].startswith("odd: left out, no_such_package.part is not installed here")
    with pytest.raises(ConfigError, match="no section fast; there are engines"):
        bench.run_sections(task, ["fast"], out, said.append)


def test_spearman_is_that_of_scipy(gpu: Any, tmp_path: Path) -> None:
    from vlmsearch.bench.gpu_quality import sts_spearman

    bundle = open_bundle(MINILM)
    words = ["a red star", "a blue circle", "two green squares", "a yellow triangle", "a red circle"]
    rows = [(a, b, float(i % 4)) for i, (a, b) in enumerate((a, b) for a in words for b in words)]
    path = tmp_path / "pairs.csv"
    path.write_text("".join(f"{a},{b},{score}\n" for a, b, score in rows))
    kept: list[Any] = []

    def encode(feeds: Any) -> Any:
        kept.append(run(bundle.model("text", "fp32"), feeds)[0])
        return kept[0]

    found = sts_spearman(bundle, path, encode)
    cosines = (kept[0][: len(rows)] * kept[0][len(rows) :]).sum(axis=1)
    assert found == pytest.approx(scipy.stats.spearmanr(cosines, [row[2] for row in rows]).statistic, abs=1e-9)


def test_random_clip_has_the_sizes_of_the_real_one(monkeypatch: Any, tmp_path: Path, gpu: Any) -> None:
    from vlmsearch.bench import gpu_models

    small = gpu_models.Sizes((64, 2, 2), 32, (64, 2, 2), 32)
    monkeypatch.setitem(gpu_models.SIZES, "clip-vit-base-patch32", small)
    bundle = gpu_models.make_random_clip("clip-vit-base-patch32", tmp_path / "clip", lambda step, done, total: None)
    assert bundle.precisions == ["fp32", "fp16", "qdq"]
    assert (bundle.space.dim, bundle.text.max_tokens) == (32, 77)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), np.uint8)
    from vlmsearch.build.inputs import pixel_feeds

    vectors, _ = run(bundle.model("image", "fp32"), pixel_feeds(pixels))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert gpu_models.make_random_clip("clip-vit-base-patch32", tmp_path / "clip", lambda *_: None).name == bundle.name
