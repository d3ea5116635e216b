"""Building engines over the stand-in for TensorRT, in the shapes of 8.6, 10 and 11."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.support.checkpoints import make_clip, make_recipe
from tests.support.tensorrt_standin import standing_in
from tests.support.tensorrt_standin.quick import quicken
from vlmsearch.building.bundle import build_bundle
from vlmsearch.building.inputs import open_session
from vlmsearch.errors import BackendError, ConfigError, ModelUnavailableError, QualityError
from vlmsearch.models.bundle import Bundle, model_file, open_bundle
from vlmsearch.models.recipe import TowerGate, read_recipe

pytestmark = pytest.mark.slow

VERSIONS = ("8.6", "10", "11")
MOST = ("8.6", pytest.param("10", marks=pytest.mark.exhaustive), "11")
"""What builds differ by is whether types are weak, as in 8.6, or strong, as in the two others."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small CLIP in all precisions: its bundle and its recipe."""
    folder = tmp_path_factory.mktemp("engine")
    recipe = make_recipe(folder, make_clip(folder / "checkpoint"))
    build_bundle(read_recipe(recipe), out=folder / "bundle", precisions=("fp32", "fp16", "qdq"))
    return folder / "bundle", recipe


@pytest.fixture(params=MOST)
def at(request: pytest.FixtureRequest, built: tuple[Path, Path], tmp_path: Path, monkeypatch: Any) -> Iterator[Any]:
    """One version of TensorRT, with what is needed to build."""
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path / "cache"))
    with standing_in(request.param) as gpu:
        from vlmsearch.tensorrt.builder import builder, engines

        quicken((1, 8))
        bundle, recipe = open_bundle(built[0]), read_recipe(built[1])

        def ensure(**options: Any) -> Any:
            subject = options.pop("bundle", bundle)
            return engines.ensure_engine(subject, options.pop("tower", "image"), **{"recipe": recipe, **options})

        yield SimpleNamespace(
            gpu=gpu, bundle=bundle, recipe=recipe, module=builder, ensure=ensure, version=request.param
        )


@pytest.mark.parametrize("precision", ["int8", "fp16", "fp32"])
@pytest.mark.parametrize("tower", ["image", "text"])
def test_every_precision_passes_its_gate_and_is_built_once(at: Any, tower: str, precision: str) -> None:
    plan = at.ensure(tower=tower, precision=precision)
    assert plan.report["passed"]
    assert plan.report["mean_cosine"] >= 0.985
    assert [entry["batch"] for entry in plan.report["timings"]][:3] == [1, 8, 32]
    assert at.gpu.built == 1
    assert at.ensure(tower=tower, precision=precision) == plan
    assert at.gpu.built == 1


def test_recipe_batches_have_profiles_of_their_own_unless_one_is_given(at: Any) -> None:
    several = at.ensure(precision="fp16")
    assert [tuple(r.opt[0] for r in profile) for profile in several.key.profiles] == [(1,), (32,), (128,), (32,)]
    one = at.ensure(precision="fp16", profile=(1, 4, 16))
    assert [(r.min[0], r.opt[0], r.max[0]) for r in one.key.profiles[0]] == [(1, 4, 16)]
    assert len(one.key.profiles) == 1
    text = at.ensure(tower="text", precision="fp16")
    assert [profile[0].opt[0] for profile in text.key.profiles] == [1, 32, 256]
    assert [profile[0].max for profile in text.key.profiles] == [(8, 32), (64, 32), (256, 32)]


@pytest.mark.parametrize(
    ("lengths", "most"),
    [((2, 32, 256), [(8, 256), (64, 256), (256, 80)]), ((2, 32, 77), [(8, 80), (64, 80), (256, 80)])],
)
def test_many_texts_have_memory_for_short_ones(at: Any, lengths: Any, most: list[tuple[int, int]]) -> None:
    from vlmsearch.models.recipe import Shapes
    from vlmsearch.tensorrt.builder.shapes import profiles

    recipe = replace(at.recipe, shapes=Shapes(text_length=lengths))
    made = profiles(at.bundle, recipe, "text", None, "several")
    assert [profile[0].max for profile in made] == most
    assert [profile[0].min for profile in made] == [(1, 8), (9, 8), (65, 8)]
    assert [profile[0].opt for profile in made] == [(1, 32), (32, 32), (256, 32)]
    whole = profiles(at.bundle, recipe, "text", (1, 8, 256), "several")
    assert [profile[0].max for profile in whole] == [(256, most[0][1])]


def _coarse(bundle: Bundle, folder: Path, names: Callable[[list[str]], list[str]]) -> Bundle:
    """A copy whose image tower has some Linears quantised in steps that are far too wide."""
    from vlmsearch.tensorrt.builder.graph import read_int8

    shutil.copytree(bundle.folder, folder)
    path = folder / model_file("image", "qdq")
    model = onnx.load(path)
    chosen = {f"{name}.input_scale" for name in names(list(read_int8(path.read_bytes())))}
    for value in model.graph.initializer:
        if value.name in chosen:
            value.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(value) * np.float32(300), value.name))
    path.write_bytes(model.SerializeToString())
    description = json.loads((folder / "bundle.json").read_text())
    entry = description["files"][path.name]
    entry.update(sha256=hashlib.sha256(path.read_bytes()).hexdigest(), size=path.stat().st_size)
    (folder / "bundle.json").write_text(json.dumps(description))
    return open_bundle(folder)


def test_inaccurate_int8_is_refused_with_its_figures_and_leaves_no_plan(at: Any, tmp_path: Path) -> None:
    bundle = _coarse(at.bundle, tmp_path / "coarse", lambda names: names)
    with pytest.raises(QualityError, match=r"int8: cosine .*; int8 with \d+ Linears in fp16: cosine .*`calibrate`"):
        at.ensure(precision="int8", bundle=bundle)
    assert at.gpu.built == 1 + len(at.module.SHARES)
    assert not list((tmp_path / "cache" / "plans").glob("*.plan"))


def test_the_most_harmful_linears_go_back_to_fp16(at: Any, tmp_path: Path) -> None:
    harmful: list[str] = []

    def one_of(names: list[str]) -> list[str]:
        harmful.append(names[-1])
        return harmful

    plan = at.ensure(precision="int8", bundle=_coarse(at.bundle, tmp_path / "coarse", one_of))
    assert at.gpu.built == 2
    first, second = plan.attempts
    assert first["mean_cosine"] == pytest.approx(first["mean_cosine_on_onnx_runtime"], abs=0.01)
    assert first["mean_cosine"] < at.recipe.gates.image.mean_cosine <= second["mean_cosine"]
    kept = plan.report["fp16_layers"]
    assert set(harmful) <= set(kept) == set(plan.key.fp16_layers)
    assert len(kept) == -(-len(at.module.read_int8(at.bundle.model("image", "qdq"))) // 8)


@pytest.mark.parametrize("asked", [{"mean_cosine": 1.0}, {"overlap": 1.0}])
def test_a_plan_in_the_cache_is_judged_by_the_gate_of_now(at: Any, tmp_path: Path, asked: dict[str, float]) -> None:
    bundle = _coarse(at.bundle, tmp_path / "coarse", lambda names: names[-1:])
    lax = replace(at.recipe, gates=replace(at.recipe.gates, image=TowerGate(mean_cosine=0.0, overlap=0.0)))
    usual = replace(at.recipe, gates=replace(at.recipe.gates, image=TowerGate(mean_cosine=0.985, overlap=0.0)))
    strict = replace(at.recipe, gates=replace(at.recipe.gates, image=TowerGate(**{"mean_cosine": 0.0, **asked})))
    coarse = at.ensure(bundle=bundle, recipe=lax)
    assert coarse.report["mean_cosine"] < 0.985
    fine = at.ensure(bundle=bundle, recipe=usual)
    assert at.gpu.built == 2, "what is below the gate is not built again, and the next attempt follows"
    assert fine.report["fp16_layers"]
    assert [row["passed"] for row in fine.attempts] == [False, True]
    assert fine.attempts[0]["mean_cosine_on_onnx_runtime"] == pytest.approx(coarse.report["mean_cosine"], abs=0.01)
    with pytest.raises(QualityError, match=f"int8: cosine {coarse.report['mean_cosine']:.5f}"):
        at.ensure(bundle=bundle, recipe=strict)
    assert at.ensure(bundle=bundle, recipe=lax) == coarse


def test_int8_that_tensorrt_miscomputes_is_refused_as_such(at: Any, tmp_path: Path) -> None:
    at.gpu.noise["int8"] = 0.5
    with pytest.raises(
        QualityError, match=r"int8: cosine 0\.\d+, .*ONNX Runtime computes the same graph at 0\.99"
    ) as told:
        at.ensure(precision="int8")
    assert "Linears in fp16" not in str(told.value)
    assert "--calibrate" not in str(told.value)
    assert at.gpu.built == (5 if at.version == "8.6" else 2)
    assert not list((tmp_path / "cache" / "plans").glob("*.plan"))


def _refuse(at: Any, monkeypatch: Any, *, over: int) -> list[int]:
    """Have TensorRT refuse plans of more profiles than that; how many each plan that is tried has, as they come."""
    build, seen = at.module.build_plan, []

    def refuse_several(model: bytes, settings: Any, **options: Any) -> bytes:
        seen.append(len(settings.profiles))
        if len(settings.profiles) > over:
            raise BackendError("Myelin")
        plan: bytes = build(model, settings, **options)
        return plan

    monkeypatch.setattr(at.module, "build_plan", refuse_several)
    return seen


def test_a_form_that_failed_is_not_tried_with_other_linears(at: Any, tmp_path: Path, monkeypatch: Any) -> None:
    bundle = _coarse(at.bundle, tmp_path / "coarse", lambda names: names[-1:])
    seen = _refuse(at, monkeypatch, over=3)
    plan = at.ensure(precision="int8", bundle=bundle)
    assert plan.report["fp16_layers"]
    assert seen == ([4, 1, 3, 1, 3] if at.version == "8.6" else [4, 1, 1])


def test_auto_publishes_the_fastest_that_passes(at: Any, monkeypatch: Any) -> None:
    at.gpu.noise["fp16"] = 0.5
    slow = {"int8": 2.0, "fp32": 1.0}
    monkeypatch.setattr(
        at.module.EngineBuilder, "time_plan", lambda builder, plan: (builder.machine, plan.key.precision)
    )
    monkeypatch.setattr(at.module, "slowness", lambda timings, sizes: slow[timings[1]])
    assert at.ensure(precision="auto").key.precision == "fp32"


def test_auto_says_what_it_had_no_file_for_and_chooses_again_once_it_is_there(at: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(at.module.EngineBuilder, "time_plan", lambda builder, plan: plan.key.precision)
    monkeypatch.setattr(at.module, "slowness", lambda precision, sizes: ("fp16", "int8", "fp32").index(precision))
    bare = replace(at.bundle, files={n: f for n, f in at.bundle.files.items() if "fp16" not in n and "qdq" not in n})
    steps: list[str] = []
    plan = at.ensure(bundle=bare, precision="auto", progress=lambda step, done, total: steps.append(step))
    assert plan.key.precision == "fp32"
    told = [(row["precision"], "vlmsearch build tiny-clip" in str(row.get("failed"))) for row in plan.attempts]
    assert told == [("fp16", True), ("int8", True), ("fp32", False)]
    assert any(step.startswith("image: fp16 is left out: tiny-clip has no image.fp16.onnx") for step in steps)
    more = replace(bare, files={name: file for name, file in at.bundle.files.items() if "qdq" not in name})
    assert at.ensure(bundle=more, precision="auto").key.precision == "fp16"


@pytest.mark.parametrize("precision", ["fp32", "auto"])
def test_a_damaged_plan_is_built_again(at: Any, precision: str) -> None:
    plan = at.ensure(precision="fp32")
    whole = plan.path.read_bytes()
    plan.path.write_bytes(whole[:-1] + b"?")
    at.ensure(precision=precision)
    assert plan.path.read_bytes() == whole


def test_a_bundle_without_the_files_names_the_command(at: Any, tmp_path: Path) -> None:
    from vlmsearch.models.bundle import data_folder

    demo = open_bundle(data_folder("engines") / "demo-clip" / "bundle")
    with pytest.raises(
        ConfigError, match=r"image\.(fp16|qdq)\.onnx.*vlmsearch build demo-clip --precision fp32,fp16,int8,qdq"
    ):
        at.ensure(bundle=demo, precision="int8")


def test_what_tensorrt_says_is_in_the_error(at: Any) -> None:
    at.gpu.refuse_build = True
    with pytest.raises(BackendError, match="Could not find any implementation for node"):
        at.ensure(precision="fp32")
    at.gpu.no_context = True
    with pytest.raises(BackendError, match="TensorRT does not start: 6: CUDA initialization failure with error: 2"):
        at.ensure(precision="fp32")


def test_a_form_that_tensorrt_refuses_is_followed_by_the_next(at: Any, monkeypatch: Any) -> None:
    seen = _refuse(at, monkeypatch, over=1)
    steps: list[str] = []
    plan = at.ensure(precision="fp16", progress=lambda step, done, total: steps.append(step))
    forms = 4 if at.version == "8.6" else 1
    assert steps.count("image: fp16 failed in this form: Myelin") == forms
    assert seen == ([4, 1, 3, 3, 2, 1] if at.version == "8.6" else [4, 1])
    assert plan.report["form"]["split"] == "one"
    assert [attempt.get("failed") for attempt in plan.attempts] == ["Myelin"] * forms + [None]


@pytest.mark.parametrize(
    ("precision", "cosines"),
    [
        ("fp16", [0.9993, 0.99995]),
        ("fp16", [0.9991, 0.9993, 0.9992, 0.9990]),
        ("fp32", [0.9989, 1.0]),
        ("int8", [0.9991]),
    ],
)
def test_a_form_that_is_miscomputed_is_followed_by_the_next(
    at: Any, monkeypatch: Any, precision: str, cosines: list[float]
) -> None:
    if at.version != "8.6" and precision != "int8":
        cosines = cosines[: 2 if precision == "fp16" else 1]
    judged = iter(cosines)
    monkeypatch.setattr(
        at.module.AccuracyCheck, "judge", lambda check, vectors: at.module.Drift(next(judged), 0.99, 1.0, 0.0)
    )
    steps: list[str] = []
    plan = at.ensure(tower="text", precision=precision, progress=lambda step, done, total: steps.append(step))
    assert at.gpu.built == len(cosines)
    assert plan.report["mean_cosine"] == max(cosines)
    told = f"text: {precision} is miscomputed, at a cosine of {max(cosines):.5f} to float32 in its nearest form"
    assert (told in steps) is (precision != "int8" and max(cosines) < at.module.NEAR)
    assert next(judged, None) is None
    assert at.ensure(tower="text", precision=precision) == plan
    assert at.gpu.built == len(cosines)


def test_timings_are_kept_for_this_gpu_and_those_of_another_are_replaced(at: Any, tmp_path: Path) -> None:
    at.ensure(precision="fp32")
    (kept,) = (tmp_path / "cache" / "timings").iterdir()
    assert at.gpu.name.replace(" ", "-") in kept.name
    assert kept.read_bytes().startswith(b"timings of ")
    told = kept.read_bytes()
    kept.write_bytes(b"timings of another\n")
    at.ensure(precision="fp16")
    assert kept.read_bytes() == told


def test_an_engine_is_kept_where_its_timings_cannot_be(at: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(exist_ok=True)
    (tmp_path / "cache" / "timings").write_text("in the way of a folder")
    plan = at.ensure(precision="fp32")
    assert at.ensure(precision="fp32") == plan


@pytest.mark.parametrize("at", VERSIONS, indirect=True)
def test_precision_is_asked_for_by_flags_only_where_types_are_weak(at: Any, built: tuple[Path, Path]) -> None:
    from vlmsearch.tensorrt.builder import network

    plan = at.ensure(precision="fp16")
    assert network.strongly_typed() is (at.version != "8.6")
    assert plan.report["form"]["spelled_out"] is (at.version == "8.6")
    assert plan.report["form"]["base"] == "fp16"


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("tower", ["image", "text"])
def test_what_is_spelled_out_computes_the_same(built: tuple[Path, Path], tower: Any, precision: Any) -> None:
    from vlmsearch.tensorrt.builder.graph import engine_graph, read_int8

    bundle = open_bundle(built[0])
    plain, qdq = bundle.model(tower, precision), bundle.model(tower, "qdq")
    feed = _feed(bundle, tower)
    expected = _run(plain, feed)
    assert (_run(engine_graph(plain, {}, (), spelled_out=True), feed) * expected).sum(axis=1).min() > 0.9999
    if precision == "fp32":
        int8 = read_int8(qdq)
        for spelled_out in (False, True):
            made = engine_graph(plain, int8, list(int8), spelled_out=spelled_out)
            assert (_run(made, feed) * _run(qdq, feed)).sum(axis=1).min() > 0.9999
        name = next(iter(int8))
        assert b"QuantizeLinear" not in engine_graph(plain, int8, (), spelled_out=False)
        assert engine_graph(plain, int8, (name,), spelled_out=False).count(b"/quantise") > 0


def _feed(bundle: Bundle, tower: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    if bundle.preprocess and tower == "image":
        return {"pixels": rng.integers(0, 256, (4, bundle.preprocess.size, bundle.preprocess.size, 3), np.uint8)}
    ids = rng.integers(5, 200, (4, 9)).astype(np.int32)
    ids[:, -1] = bundle.text.suffix[-1]
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def _run(model: bytes, feed: dict[str, Any]) -> Any:
    return open_session(model).run(["embedding"], feed)[0]


def test_the_command_builds_reports_and_lists_engines(at: Any, built: tuple[Path, Path], tmp_path: Path) -> None:
    from click.testing import CliRunner

    from vlmsearch.cli.build import build
    from vlmsearch.cli.models import models

    folder = tmp_path / "bundles" / "tiny-clip"
    shutil.copytree(built[0], folder)
    options = ["--engine", "tensorrt", "--precision", "fp16", "--out", str(folder.parent), "--report", str(tmp_path)]
    done = CliRunner().invoke(build, [str(built[1]), *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (path,) = tmp_path.glob("report-*.json")
    report = json.loads(path.read_text())
    assert {(row["tower"], row["precision"]) for row in report["engines"]} == {("image", "fp16"), ("text", "fp16")}
    assert report["machine"]["gpu"] == at.gpu.name
    assert "\tfp16\t" in done.output
    path.write_text("<<<<<<< HEAD")
    with pytest.raises(ConfigError, match=r"pretend\.json is not a report to add them to: move it away"):
        CliRunner().invoke(build, [str(built[1]), *options], catch_exceptions=False)
    listed = json.loads(CliRunner().invoke(models, ["--json"], catch_exceptions=False).stdout)["engines"]
    assert sorted(engine["tower"] for engine in listed) == ["image", "text"]
    for batches in ("8,4,16", ""):
        wrong = CliRunner().invoke(build, [str(built[1]), *options, "--profile", batches])
        assert wrong.exit_code == 2
        assert "least, usual and greatest batch" in wrong.output


def test_auto_reports_every_engine_that_was_tried(at: Any, built: tuple[Path, Path], tmp_path: Path) -> None:
    from click.testing import CliRunner

    from vlmsearch.cli.build import build

    folder = tmp_path / "bundles" / "tiny-clip"
    _coarse(at.bundle, folder, lambda names: names)
    options = ["--engine", "tensorrt", "--precision", "auto", "--out", str(folder.parent), "--report", str(tmp_path)]
    for _ in range(2):  # built, and from the cache
        done = CliRunner().invoke(build, [str(built[1]), *options, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        rows = json.loads(done.stdout)["engines"]
        image = [row for row in rows if row["tower"] == "image"]
        assert [row["precision"] for row in image] == ["fp16", *["int8"] * (1 + len(at.module.SHARES)), "fp32"]
        assert [row["passed"] for row in image] == [row["precision"] != "int8" for row in image]
        assert sum(row["published"] for row in image) == 1
        assert next(row for row in image if row["published"])["passed"]
        assert len({len(row["fp16_layers"]) for row in image}) == 1 + len(at.module.SHARES)
    table = CliRunner().invoke(build, [str(built[1]), *options], catch_exceptions=False).output
    for result in ("published", "passed", "below the gate"):
        assert f"\t{result}\t" in table
    (path,) = tmp_path.glob("report-*.json")
    assert [row["precision"] for row in json.loads(path.read_text())["engines"]] == [row["precision"] for row in rows]


def test_engines_are_judged_on_texts_in_the_lengths_that_they_get(at: Any) -> None:
    from vlmsearch.building.inputs import run
    from vlmsearch.models.inputs import engine_length
    from vlmsearch.tensorrt.builder.accuracy import prepare_check

    check = prepare_check(at.bundle, "text", at.recipe, lambda step, done, total: None)
    lengths = [batch["input_ids"].shape[1] for batch in check.feeds.batches]
    longest = at.bundle.text.longest
    assert lengths == [engine_length(length, longest) for length in lengths]
    vectors, _ = run(at.bundle.model("text", "fp32"), check.feeds)
    np.testing.assert_allclose(vectors, check.reference, atol=1e-5)


def test_what_cannot_be_loaded_as_one_plan_becomes_two(at: Any, tmp_path: Path, monkeypatch: Any) -> None:
    whole = at.ensure(precision="fp16")
    vectors = _vectors(whole, at)
    for path in (tmp_path / "cache" / "plans").iterdir():
        path.unlink()
    seen = _refuse(at, monkeypatch, over=3)
    plan = at.ensure(precision="fp16")
    if at.version != "8.6":
        assert seen == [4, 1]
        return
    assert seen == [4, 1, 3]
    assert _plans(plan) == [(1, ""), (3, "")]
    assert plan.key != whole.key
    assert plan.key.profiles == whole.key.profiles
    assert np.array_equal(_vectors(plan, at), vectors)
    assert at.ensure(precision="fp16") == plan


def _vectors(plan: Any, at: Any) -> Any:
    """Of batches that run with every profile, and of one that is split."""
    from vlmsearch.tensorrt.engine.engine import Engine
    from vlmsearch.tensorrt.engine.plans import read_plan

    pixels = np.random.default_rng(0).integers(0, 256, (300, 32, 32, 3), np.uint8)
    with Engine(read_plan(plan, here=plan.key.machine)) as engine:
        assert engine.max_batch == at.recipe.shapes.image_batch[2]
        return np.concatenate([engine.run({"pixels": pixels[:rows]}) for rows in (1, 5, 32, 40, 128, 300)])


@pytest.fixture
def cublas(at: Any, monkeypatch: Any) -> None:
    """TensorRT is linked with cuBLAS 12.9.1."""
    from vlmsearch.tensorrt.engine import cublas as libraries

    at.gpu.cublas = "12.9.1"
    monkeypatch.setattr(libraries, "_version", lambda library, function: at.gpu.cublas if "12" in library else "")


def _plans(plan: Any) -> list[tuple[int, str]]:
    """Of each plan of an engine how many profiles it has, and the cuBLAS that it uses."""
    from tests.support.tensorrt_standin.runtime import PlanParts
    from vlmsearch.tensorrt.engine.plans import split_plans

    headers = [PlanParts.unpack(bytes(part)).header for part in split_plans(plan.path.read_bytes())]
    return [(len(header["profiles"]), header["cublas"]) for header in headers]


@pytest.mark.usefixtures("cublas")
@pytest.mark.parametrize("precision", ["int8", "fp16", "fp32"])
def test_single_images_use_cublas_where_it_is_a_gain(at: Any, tmp_path: Path, precision: str) -> None:
    for tower, profiles in (("image", 4), ("text", 3)):
        plan = at.ensure(tower=tower, precision=precision)
        gains = at.version == "8.6" and tower == "image" and precision == "fp16"
        whole = [(profiles if precision != "fp32" else 1, "")]
        assert _plans(plan) == ([(1, "12.9.1"), (3, "")] if gains else whole)
        assert plan.report["cublas"] == plan.key.machine.cublas == ("12.9.1" if gains else "")
        assert at.ensure(tower=tower, precision=precision) == plan
    _vectors(at.ensure(precision=precision), at)
    kept = {path.name.rpartition("sm_90")[2] for path in (tmp_path / "cache" / "timings").iterdir()}
    with_cublas = at.version == "8.6" and precision == "fp16"
    assert kept == ({".cache", "-cublas-12.9.1.cache"} if with_cublas else {".cache"})


@pytest.mark.usefixtures("cublas")
def test_an_engine_for_given_batches_is_one_plan_without_cublas(at: Any) -> None:
    plan = at.ensure(precision="fp16", profile=(1, 4, 16))
    assert _plans(plan) == [(1, "")]
    assert at.gpu.built == 1
    assert plan.report["form"]["cublas"] is plan.report["form"]["apart"] is False


@pytest.mark.usefixtures("cublas")
def test_another_cublas_has_an_engine_of_its_own(at: Any) -> None:
    from vlmsearch.tensorrt.engine.plans import read_plan
    from vlmsearch.tensorrt.engine.runtime import this_machine

    had = at.ensure(precision="fp16")
    at.gpu.cublas = "12.8.4"
    has = at.ensure(precision="fp16")
    if at.version != "8.6":
        assert has == had
        return
    assert [cublas for _, cublas in _plans(has)] == ["12.8.4", ""]
    with pytest.raises(
        ModelUnavailableError, match=r"was built for cuBLAS 12\.9\.1, and this is 12\.8\.4; build it ag"
    ):
        read_plan(had, here=this_machine())
    at.gpu.cublas = ""
    assert _plans(at.ensure(precision="fp16")) == [(4, "")]
    with pytest.raises(ModelUnavailableError, match=r"was built for cuBLAS 12\.9\.1, and this is none"):
        read_plan(had, here=this_machine())
    at.gpu.cublas = "12.9.1"
    assert at.ensure(precision="fp16") == had


@pytest.mark.usefixtures("cublas")
def test_without_cublas_where_tensorrt_fails_with_it(at: Any, monkeypatch: Any) -> None:
    build = at.module.build_plan

    def refuse(model: bytes, settings: Any, **options: Any) -> bytes:
        if settings.cublas:
            raise BackendError("CUBLAS_STATUS_EXECUTION_FAILED")
        plan: bytes = build(model, settings, **options)
        return plan

    monkeypatch.setattr(at.module, "build_plan", refuse)
    plan = at.ensure(precision="fp16")
    assert _plans(plan) == [(4, "")]
    failed = ["CUBLAS_STATUS_EXECUTION_FAILED"] if at.version == "8.6" else []
    assert [attempt.get("failed") for attempt in plan.attempts] == [*failed, None]


def test_what_a_recipe_of_the_users_built_is_found_without_it(at: Any, tmp_path: Path) -> None:
    from vlmsearch.models.recipe import Shapes
    from vlmsearch.tensorrt.builder.engines import find_engine

    def find(**options: Any) -> Any:
        return find_engine(at.bundle, "image", **{"precision": "fp16", **options})

    assert find() is None
    small = replace(at.recipe, shapes=Shapes(image_batch=(1, 2, 4)))
    lax = replace(small, gates=replace(small.gates, image=TowerGate(mean_cosine=0.5, overlap=0.1)))
    first = at.ensure(precision="fp16", recipe=small)
    assert find() == first
    assert find(precision="int8") is find(level=5) is find(profile=(1, 2, 4)) is None
    given = at.ensure(precision="fp16", recipe=small, profile=(1, 3, 5))
    assert find(profile=(1, 3, 5)) == given
    assert find(profile=(1, 2, 5)) is None
    assert find() == first
    for path in (tmp_path / "cache" / "plans").glob("*.choice.json"):
        os.utime(path, (1, 1))
    last = at.ensure(precision="fp16", recipe=replace(lax, shapes=Shapes(image_batch=(1, 2, 8))))
    assert find() == last != first
