"""What `bench gpu` measures with, over the stand-in for TensorRT and a small model."""

from __future__ import annotations

import dataclasses
import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from tests.support.tensorrt_standin import standing_in
from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.export.inputs import run
from vlmsearch.models.bundle import data_folder, open_bundle

MINILM = data_folder("engines") / "demo-minilm" / "bundle"


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: Any) -> Iterator[Any]:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path / "cache"))
    with standing_in("8.6") as state:
        yield state


def test_engines_and_the_defaults_are_measured_and_the_fastest_is_named(gpu: Any) -> None:
    from vlmsearch.bench.gpu.engines import Job, Row, call, fastest, measure
    from vlmsearch.bench.gpu.jobs import DEFAULTS

    jobs = [Job(MINILM, "text", kind) for kind in ("fp32", DEFAULTS)]
    measured = [measure(job) for job in jobs]
    assert gpu.built == 2
    calls = call(jobs[0])
    assert [(each.threads, each.graphs) for each in calls] == [(1, True), (8, True), (1, False), (8, False)]
    assert all(0 < each.median_ms <= each.p99_ms for each in calls)
    told = json.loads(json.dumps([dataclasses.asdict(each) for each in calls]))
    rows = [Row.from_json(row.job, json.loads(json.dumps(row.to_json())), told) for row in measured]
    assert gpu.built == 2
    assert rows[0].timings[0].batch == 1
    assert list(rows[0].calls) == calls
    assert fastest(rows) == {"demo-minilm text": "fp32"}
    entry = rows[0].to_json()
    assert entry["mean_cosine"] == pytest.approx(1, abs=1e-4)
    assert [timing["batch"] for timing in rows[1].to_json()["timings"]] == [1, 8, 32, 128, 256]  # type: ignore[attr-defined]
    assert rows[0].plain.graph is False
    assert rows[0].two.lanes == 2


UNDER_THE_STANDIN = """
import runpy, sys
from tests.support.tensorrt_standin import standing_in
sys.argv = ["gpu_engines", *sys.argv[1:]]
with standing_in("8.6"):
    runpy.run_module("vlmsearch.bench.gpu.engines", run_name="__main__")
"""


def test_engines_are_built_and_measured_in_processes_of_their_own(gpu: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from vlmsearch.bench.gpu import engines as gpu_engines
    from vlmsearch.bench.gpu import sections as bench

    def command(what: str, job: Any) -> list[str]:
        return [sys.executable, "-c", UNDER_THE_STANDIN, what, str(job.folder), job.tower, job.kind]

    monkeypatch.setattr(gpu_engines, "command", command)
    said: list[str] = []
    sts = tmp_path / "pairs.csv"
    sts.write_text("a red star,a red ring,1\na blue circle,two blue circles,3\na cat,a green heart on a meadow,0\n")
    task = bench.BenchTask(["demo-minilm"], tmp_path, gpus=(0, 1), engines=("fp32", "fp16"), sts=sts)
    found: Any = bench.run_sections(task, ["engines"], tmp_path / "report.json", said.append)["engines"]
    assert [(row["precision"], row["tower"]) for row in found["rows"]] == [("fp32", "text")]
    assert found["published"] == {"demo-minilm text": "fp32"}
    assert list(found["not_built"]) == ["demo-minilm text fp16"]
    assert "has no text.fp16.onnx" in found["not_built"]["demo-minilm text fp16"]
    assert found["not_measured"] == {}
    assert len(found["rows"][0]["batch_1_calls"]) == 4
    assert [line for line in said if line.startswith("demo-minilm text fp32: done in ")]
    assert found["spearman"]["demo-minilm fp32"] == found["spearman"]["demo-minilm float32, ONNX Runtime"]


def test_rows_outlive_an_engine_that_takes_no_sentences(gpu: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from vlmsearch.bench.gpu import engines as gpu_engines
    from vlmsearch.bench.gpu import sections as bench
    from vlmsearch.bench.gpu.engines import Job, measure
    from vlmsearch.tensorrt.builder import accuracy as tensorrt_measure

    row = measure(Job(MINILM, "text", "fp32"))
    monkeypatch.setattr(gpu_engines, "build_all", lambda jobs, **options: {})
    monkeypatch.setattr(gpu_engines, "measure_all", lambda jobs, **options: ([row], {}))

    def refuse(engine: Any, feeds: Any) -> None:
        raise BackendError("the plan takes other shapes")

    monkeypatch.setattr(tensorrt_measure, "encode", refuse)
    sts = tmp_path / "pairs.csv"
    sts.write_text("a red star,a red ring,1\na blue circle,two blue circles,3\n")
    said: list[str] = []
    task = bench.BenchTask(["demo-minilm"], tmp_path, engines=("fp32",), sts=sts)
    found: Any = bench.run_sections(task, ["engines"], tmp_path / "report.json", said.append)["engines"]
    assert len(found["rows"]) == 1
    assert found["spearman"]["demo-minilm fp32"] is None
    assert said == ["demo-minilm fp32: no correlation: the plan takes other shapes"]


def test_a_row_tells_what_was_tried_before(gpu: Any, monkeypatch: Any) -> None:
    from vlmsearch.bench.gpu.engines import Job, measure
    from vlmsearch.tensorrt.builder import builder as tensorrt_workshop
    from vlmsearch.tensorrt.builder.network import build_plan as build

    plans: list[Any] = []

    def refuse_once(*given: Any, **options: Any) -> bytes:
        plans.append(given)
        if len(plans) == 1:
            raise BackendError("an offset is missing")
        return build(*given, **options)

    monkeypatch.setattr(tensorrt_workshop, "build_plan", refuse_once)
    row: Any = measure(Job(MINILM, "text", "fp32")).to_json()
    (before,) = row["tried_before"]
    assert before["failed"] == "an offset is missing"
    assert before["form"] != row["form"]
    assert "tried_before" in measure(Job(MINILM, "text", "fp32")).to_json()  # known to another process too


def test_a_call_that_fails_ends_the_others(gpu: Any) -> None:
    from vlmsearch.bench.gpu.calls import time_calls

    class Broken:
        calls = 0

        def run(self, feed: Any) -> None:
            self.calls += 1
            if self.calls == 30:
                raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        time_calls(Broken(), {}, 4, graphs=True)  # type: ignore[arg-type]


def test_load_from_several_threads_counts_errors_and_compares_vectors(gpu: Any) -> None:
    from vlmsearch.bench.gpu.engines import Job, build
    from vlmsearch.bench.gpu.load import run_load
    from vlmsearch.tensorrt.builder.accuracy import example
    from vlmsearch.tensorrt.engine.engine import Engine
    from vlmsearch.tensorrt.engine.plans import read_plan
    from vlmsearch.tensorrt.engine.runtime import this_machine

    feed = example(open_bundle(MINILM), "text", 32, 16)
    with Engine(read_plan(build(Job(MINILM, "text", "fp32")), here=this_machine(0)), contexts=2) as engine:
        load = run_load([(engine, feed)], seconds=1, threads=3)
        assert load.errors == ()
        assert load.items > load.batches > 0
        assert load.difference == 0
        engine.close()
        with pytest.raises(Exception, match="closed"):
            run_load([(engine, feed)], seconds=0.2)


def test_a_section_without_its_packages_is_left_out_and_named(gpu: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from vlmsearch.bench.gpu import sections as bench

    said: list[str] = []
    task = bench.BenchTask(["demo-clip"], tmp_path)
    out = tmp_path / "report.json"
    out.write_text(json.dumps({"torch": {"rows": []}}))
    odd: dict[str, Any] = {
        "odd": (("no_such_package.part",), lambda task, say: {}),
        "late": (("json",), lambda task, say: importlib.import_module("no_such_module")),
    }
    monkeypatch.setattr(bench, "SECTIONS", bench.SECTIONS | odd)
    report = bench.run_sections(task, ["odd", "late"], out, said.append)
    assert report == {"torch": {"rows": []}}
    assert said[0].startswith("odd: left out, no_such_package.part is not installed here")
    assert said[1].startswith("late: left out, no_such_module is not installed here")
    with pytest.raises(ConfigError, match="no section fast; there are engines"):
        bench.run_sections(task, ["fast"], out, said.append)
    with pytest.raises(ConfigError, match="no engine int4; there are fp16, int8, defaults, fp32"):
        bench.run_sections(dataclasses.replace(task, engines=("fp16", "int4")), ["engines"], out, said.append)


def test_a_section_that_needs_no_cuda_bindings_is_kept_without_them(gpu: Any, tmp_path: Path, monkeypatch: Any) -> None:
    from vlmsearch.bench.gpu import sections as bench

    monkeypatch.setattr(bench, "SECTIONS", {"onnx": (("onnxruntime",), lambda task, say: iter([{"rows": [1]}]))})
    monkeypatch.setattr(bench, "_is_installed", lambda package: not package.startswith("cuda"))
    monkeypatch.setitem(sys.modules, "vlmsearch.tensorrt.engine.cuda", None)
    bench.run_sections(bench.BenchTask([], tmp_path), ["onnx"], tmp_path / "report.json", print)
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["onnx"] == {"rows": [1]}
    assert "python_of_onnx" in found["machine"]


STOPPED = """
import sys
import torch, vlmsearch.cli
from vlmsearch.bench.gpu import torch as gpu_torch

job = "import json, sys; print(json.dumps(dict(zip(('model', 'tower', 'batch'), sys.argv[1:3] + [int(sys.argv[3])]))))"
real, done = gpu_torch.run_jobs, []

def run_jobs(commands, **how):
    fast = {name: [sys.executable, "-c", job, *command[3:]] for name, command in commands.items()}
    for each in real(fast, **how):
        yield each
        done.append(each)
        if len(done) == 2:
            print("two", file=sys.stderr, flush=True)
            while True:
                signal.pause()

import signal
gpu_torch.run_jobs, torch.cuda.is_available = run_jobs, lambda: True
vlmsearch.cli.main()
"""


def test_what_a_stopped_run_has_measured_is_in_its_report(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STOPPED, "bench", "gpu", "--only", "torch", "--models", "demo-clip"]
    with subprocess.Popen([*command, "--out", "report.json"], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as bench:
        assert bench.stderr is not None
        said = list(takewhile(lambda line: line != "two\n", bench.stderr))
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(60) == 130, said
    found = json.loads((tmp_path / "report.json").read_text())["torch"]
    assert [(row["tower"], row["batch"]) for row in found["rows"]] == [("image", 256), ("text", 256)]
    assert found["failed"] == {
        f"torch demo-clip {tower} {batch}": "it was stopped before" for batch in (32, 1) for tower in ("image", "text")
    }


@pytest.mark.parametrize("content", [None, "[]", "<<<<<<< HEAD", "\xff"])
def test_what_is_no_report_is_named_before_anything_is_measured(gpu: Any, tmp_path: Path, content: str | None) -> None:
    from vlmsearch.bench.gpu import sections as bench

    out = tmp_path / "report.json"
    if content is None:
        out.mkdir()
    else:
        out.write_text(content, encoding="latin-1")
    said: list[str] = []
    with pytest.raises(ConfigError, match=r"report\.json is (a folder|no report)"):
        bench.run_sections(bench.BenchTask(["demo-minilm"], tmp_path), ["onnx"], out, said.append)
    assert said == []


def test_spearman_is_that_of_scipy(gpu: Any, tmp_path: Path) -> None:
    from vlmsearch.bench.gpu.quality import sts_spearman

    bundle = open_bundle(MINILM)
    words = ["a red star", "a blue circle", "two green squares", "a yellow triangle", "a red circle"]
    rows = [(a, b, float(i % 4)) for i, (a, b) in enumerate((a, b) for a in words for b in words)]
    path = tmp_path / "pairs.csv"
    path.write_text("".join(f"{a},{b},{score}\n" for a, b, score in rows))
    kept: list[Any] = []

    def encode(feeds: Any) -> Any:
        assert {batch["input_ids"].shape[1] % 8 for batch in feeds.batches} == {0}, "engines take no other lengths"
        kept.append(run(bundle.model("text", "fp32"), feeds)[0])
        return kept[0]

    found = sts_spearman(bundle, path, encode)
    cosines = (kept[0][: len(rows)] * kept[0][len(rows) :]).sum(axis=1)
    assert found == pytest.approx(scipy.stats.spearmanr(cosines, [row[2] for row in rows]).statistic, abs=1e-9)


def test_random_clip_has_the_sizes_of_the_real_one(monkeypatch: Any, tmp_path: Path, gpu: Any) -> None:
    from vlmsearch.bench.gpu import models as gpu_models

    small = gpu_models.ClipSizes((64, 2, 2), 32, (64, 2, 2), 32)
    monkeypatch.setitem(gpu_models.SIZES, "clip-vit-base-patch32", small)
    bundle = gpu_models.make_random_clip("clip-vit-base-patch32", tmp_path / "clip", lambda step, done, total: None)
    assert bundle.precisions == ["fp32", "fp16", "qdq"]
    assert (bundle.space.dim, bundle.text.max_tokens) == (32, 77)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), np.uint8)
    from vlmsearch.export.inputs import pixel_feeds

    vectors, _ = run(bundle.model("image", "fp32"), pixel_feeds(pixels))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert gpu_models.make_random_clip("clip-vit-base-patch32", tmp_path / "clip", lambda *_: None).name == bundle.name
