"""Repositories with TensorRT engines: which plan is taken, what is refused, and a tower that runs one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from tests.support.tensorrt_standin import standing_in
from tests.support.tensorrt_standin.quick import quicken
from vlmsearch._util import gpu as diagnosis
from vlmsearch._util.gpu import Device, Driver
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import Bundle, Tower, find_bundles, model_file
from vlmsearch.tensorrt.engine.plans import (
    APART,
    Choice,
    EnginePrecision,
    Machine,
    Plan,
    PlanKey,
    Profile,
    ShapeRange,
    choose_plan,
    store_plan,
)
from vlmsearch.triton.client.protocol import Deployment
from vlmsearch.triton.repository.options import RepoOptions, check_options
from vlmsearch.triton.repository.plans import find_tower_plan
from vlmsearch.triton.repository.writer import write_repository

H200 = "NVIDIA H200"
IN_TRITON = RepoOptions(platform="tensorrt", release="24.10")
IN_PYTHON = RepoOptions(runtime="tensorrt")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path / "cache"))


def ranges(bundle: Bundle, tower: Tower, batch: tuple[int, int, int]) -> Profile:
    if tower == "image" and bundle.preprocess:
        side = bundle.preprocess.size
        least, usual, most = ((size, side, side, 3) for size in batch)
        return (ShapeRange("pixels", least, usual, most),)
    few, some, many = zip(batch, (2, 16, 64 if batch[0] == 1 else 32))
    return tuple(ShapeRange(name, few, some, many) for name in ("input_ids", "attention_mask"))


def build(
    bundle: Bundle,
    tower: Tower,
    *,
    tensorrt: str = "10.5.0",
    gpu: str = H200,
    cublas: str = "",
    precision: EnginePrecision = "int8",
    batches: tuple[tuple[int, int, int], ...] = ((1, 32, 128),),
    flags: tuple[tuple[str, str], ...] = (),
) -> Plan:
    """A plan in the cache, and the choice of it, as building leaves them."""
    machine = Machine(tensorrt, gpu, "sm_90", cublas)
    profiles = tuple(ranges(bundle, tower, batch) for batch in batches)
    onnx = hashlib.sha256(repr((bundle.name, tower, precision)).encode()).hexdigest()
    content = f"{bundle.name} {tower} {tensorrt} {gpu} {precision}".encode()
    plan = store_plan(PlanKey(onnx, machine, profiles, precision, flags=flags), content, {})
    choose_plan(Choice(bundle.files[model_file(tower, "fp32")].sha256, precision, machine), plan)
    return plan


def build_all(**how: str) -> None:
    for bundle in find_bundles("demo"):
        for tower in bundle.towers:
            build(bundle, tower, **how)  # type: ignore[arg-type]


def config_of(folder: Path, model: str) -> pb.ModelConfig:
    return text_format.Parse((folder / model / "config.pbtxt").read_text(), pb.ModelConfig())


def test_plans_are_taken_from_the_cache(tmp_path: Path) -> None:
    build_all()
    made = write_repository("demo", tmp_path / "R", IN_TRITON)
    assert (made.missing, made.commands) == ((), ())
    image = tmp_path / "R" / "clip_image"
    assert (image / "1" / "model.plan").read_bytes() == b"demo-clip image 10.5.0 NVIDIA H200 int8"
    assert not (image / "1" / "model.onnx").exists()
    assert not (image / "1" / "model.py").exists()
    config = config_of(tmp_path / "R", "clip_image")
    assert config.backend == "tensorrt"
    assert config.max_batch_size == 64
    assert config.optimization.cuda.graphs
    assert list(config.instance_group[0].profile) == ["0"]


def test_a_plan_for_another_tensorrt_is_refused_with_the_command(tmp_path: Path) -> None:
    build_all(tensorrt="8.6.0")
    with pytest.raises(ConfigError) as caught:
        write_repository("demo", tmp_path / "R", IN_TRITON)
    said = str(caught.value)
    assert "were built by TensorRT 8.6.0, and Triton 24.10 has 10.5.0" in said
    assert said.endswith("pip install 'tensorrt==10.5.0.*' && vlmsearch build demo-clip --engine tensorrt")
    assert not (tmp_path / "R").exists()
    build_all(tensorrt="10.5.0.18")
    assert write_repository("demo", tmp_path / "R", IN_TRITON).missing == ()


def test_an_engine_of_several_plans_is_for_our_own_code(tmp_path: Path) -> None:
    for bundle in find_bundles("demo"):
        for tower in bundle.towers:
            build(bundle, tower, flags=((APART, "True"),))
    with pytest.raises(ConfigError, match=r"made of several plans, .* --profile 1,32,128`, or take `platform=python`"):
        write_repository("demo", tmp_path / "R", IN_TRITON)
    assert write_repository("demo", tmp_path / "P", IN_PYTHON).missing == ()


def test_the_python_backend_brings_its_own_tensorrt(tmp_path: Path) -> None:
    build_all(tensorrt="8.6.0")
    made = write_repository("demo", tmp_path / "R", IN_PYTHON)
    version = tmp_path / "R" / "clip_image" / "1"
    assert made.missing == ()
    assert {path.name for path in version.iterdir()} == {"model.plan", "model.json", "model.py"}
    assert "import TowerModel" in (version / "model.py").read_text()
    config = config_of(tmp_path / "R", "clip_image")
    assert config.backend == "python"
    assert config.instance_group[0].kind == pb.ModelInstanceGroup.KIND_GPU
    assert not config.optimization.cuda.graphs
    needed = (tmp_path / "R" / "requirements.txt").read_text().splitlines()
    assert "tensorrt==8.6.0" in needed
    assert not [line for line in needed if line.startswith(("onnxruntime", "nvidia-cublas"))]


def test_the_python_backend_gets_the_cublas_that_a_plan_was_built_with(tmp_path: Path) -> None:
    build_all(tensorrt="8.6.0", cublas="12.9.1")
    write_repository("demo", tmp_path / "R", IN_PYTHON)
    needed = (tmp_path / "R" / "requirements.txt").read_text().splitlines()
    assert {"tensorrt==8.6.0", "nvidia-cublas-cu12==12.9.1.*"} <= set(needed)


def test_images_are_decoded_where_it_is_said(tmp_path: Path) -> None:
    build_all()
    options = RepoOptions(platform="tensorrt", release="24.10", decode="gpu", gpus=(1,))
    write_repository("demo", tmp_path / "R", options)
    config = config_of(tmp_path / "R", "image_preprocess")
    assert config.instance_group[0].kind == pb.ModelInstanceGroup.KIND_GPU
    assert list(config.instance_group[0].gpus) == [1]
    assert "import ImageModel" in (tmp_path / "R" / "image_preprocess" / "1" / "model.py").read_text()
    needed = (tmp_path / "R" / "requirements.txt").read_text().splitlines()
    assert "nvidia-nvimgcodec-cu12[nvjpeg]" in needed
    write_repository("demo", tmp_path / "S", RepoOptions())
    config = config_of(tmp_path / "S", "image_preprocess")
    assert config.instance_group[0].kind == pb.ModelInstanceGroup.KIND_CPU
    assert "nvimgcodec" not in (tmp_path / "S" / "requirements.txt").read_text()


def test_a_python_tower_with_an_engine_decodes_by_itself(tmp_path: Path) -> None:
    build_all()
    made = write_repository("demo", tmp_path / "R", RepoOptions(runtime="tensorrt", decode="gpu"))
    assert "image_preprocess" not in made.models
    assert not (tmp_path / "R" / "image_preprocess").exists()
    config = config_of(tmp_path / "R", "clip_image")
    assert [(tensor.name, tensor.data_type) for tensor in config.input] == [("encoded", pb.TYPE_STRING)]
    assert {tensor.name for tensor in config.output} == {"embedding", "IMAGE_STATUS"}
    assert json.loads(config.parameters["preprocess"].string_value)["size"] == 64
    assert [sample.inputs["encoded"].input_data_file for sample in config.model_warmup] == ["encoded"]
    assert (tmp_path / "R" / "clip_image" / "warmup" / "encoded").read_bytes()[4:6] == b"\xff\xd8"
    version = tmp_path / "R" / "clip_image" / "1"
    assert {path.name for path in version.iterdir()} == {"model.plan", "model.json", "model.py"}
    assert "import ImageModel" in (version / "model.py").read_text()
    ensemble = config_of(tmp_path / "R", "vlm")
    step = next(step for step in ensemble.ensemble_scheduling.step if step.model_name == "clip_image")
    assert dict(step.input_map) == {"encoded": "encoded"}
    assert dict(step.output_map) == {"embedding": "CLIP_IMAGE", "IMAGE_STATUS": "IMAGE_STATUS"}
    towers = Deployment.from_json(ensemble.parameters["vlmsearch"].string_value).towers
    assert sorted(towers) == ["clip_image", "clip_text", "minilm", "text_tokenize"]
    assert "import TowerModel" in (tmp_path / "R" / "clip_text" / "1" / "model.py").read_text()


def test_what_is_not_built_is_named_with_the_command(tmp_path: Path) -> None:
    build(find_bundles("demo-minilm")[0], "text")
    made = write_repository("demo", tmp_path / "R", IN_TRITON)
    assert made.missing == tuple(tmp_path / "R" / name / "1" / "model.plan" for name in ("clip_image", "clip_text"))
    assert made.commands == ("pip install 'tensorrt==10.5.0.*' && vlmsearch build demo-clip --engine tensorrt",)
    made = write_repository("demo", tmp_path / "S", IN_PYTHON)
    assert made.commands == ("vlmsearch build demo-clip --engine tensorrt",)


def test_the_batch_is_what_the_profiles_take(tmp_path: Path) -> None:
    clip = find_bundles("demo-clip")[0]
    build(clip, "image", batches=((1, 1, 8), (1, 16, 32)))
    build(clip, "text", batches=((1, 8, 16),))
    write_repository("demo-clip", tmp_path / "R", IN_TRITON)
    config = config_of(tmp_path / "R", "clip_image")
    assert config.max_batch_size == 32
    assert list(config.instance_group[0].profile) == ["0", "1"]
    assert config_of(tmp_path / "R", "clip_text").max_batch_size == 16
    assert config_of(tmp_path / "R", "vlm").max_batch_size == 16


def test_where_triton_chooses_the_profile_batches_are_those_of_every_length(tmp_path: Path) -> None:
    minilm = find_bundles("demo-minilm")[0]
    build(minilm, "text", batches=((1, 16, 16), (17, 64, 64)))
    for options, most in ((IN_TRITON, 16), (IN_PYTHON, 64)):
        write_repository("demo-minilm", tmp_path / "R", options)
        config = config_of(tmp_path / "R", "minilm")
        assert config.max_batch_size == most
        assert len(config.instance_group[0].profile) == (2 if options is IN_TRITON else 0)


def test_a_plan_that_takes_no_single_item_is_refused(tmp_path: Path) -> None:
    clip = find_bundles("demo-clip")[0]
    build(clip, "image", batches=((8, 16, 32),))
    build(clip, "text")
    with pytest.raises(ConfigError, match="clip_image: Triton sends batches of 1 to 32, and the plan takes 8 to 32"):
        write_repository("demo-clip", tmp_path / "R", IN_TRITON)


def test_of_plans_for_several_gpus_that_of_this_machine_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = find_bundles("demo-clip")[0]
    build(clip, "image")
    other = build(clip, "image", gpu="NVIDIA L4")
    with pytest.raises(ConfigError, match=r"has plans for NVIDIA H200, NVIDIA L4: .* name it with `plans`"):
        find_tower_plan(clip, "image", "clip_image", IN_TRITON)
    here = Driver((13, 0), (Device("NVIDIA L4", (8, 9), 2**34),))
    monkeypatch.setattr("vlmsearch.triton.repository.plans.find_driver", lambda: here)
    found = find_tower_plan(clip, "image", "clip_image", IN_TRITON)
    assert found is not None
    assert found.path == other.path
    assert diagnosis.find_driver("libno.so").fault


def test_of_several_precisions_the_one_asked_for_is_taken() -> None:
    clip = find_bundles("demo-clip")[0]
    half, int8 = build(clip, "image", precision="fp16"), build(clip, "image")
    found = []
    for precision in (None, "fp16", "fp32"):
        options = RepoOptions(runtime="tensorrt", precision=precision)
        plan = find_tower_plan(clip, "image", "clip_image", options)
        found.append(plan and plan.path)
    assert found == [int8.path, half.path, None]


def test_described_plans_in_a_folder_are_checked_as_well(tmp_path: Path) -> None:
    clip = find_bundles("demo-clip")[0]
    plan = build(clip, "image", tensorrt="8.6.0")
    folder = tmp_path / "plans"
    folder.mkdir()
    for suffix in (".plan", ".json"):
        (folder / f"clip_image{suffix}").write_bytes(plan.path.with_suffix(suffix).read_bytes())
    with pytest.raises(ConfigError, match=r"TensorRT 8.6.0, and Triton 24.10 has 10.5"):
        find_tower_plan(clip, "image", "clip_image", IN_TRITON, folder)
    (folder / "clip_image.json").unlink()  # built by another program: Triton will tell
    found = find_tower_plan(clip, "image", "clip_image", IN_TRITON, folder)
    assert found is not None
    assert found.plan is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (RepoOptions(runtime="tensorrt", device="cpu"), "runs on a GPU"),
        (RepoOptions(runtime="tensorrt", platform="onnxruntime"), "`runtime=tensorrt` is for `platform=python`"),
    ],
)
def test_choices_that_cannot_be(options: RepoOptions, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_options(options)


@pytest.mark.parametrize(
    ("release", "given", "version"),
    [
        ("24.10", "", "10.5.0"),
        ("25.06", "", "10.11.0.33"),
        ("25.08", "10.13.2.6", "10.13.2.6"),
        ("26.11", "11.4.0.106+cuda13.4", "11.4.0.106"),
    ],
)
def test_a_plan_is_for_one_version_of_tensorrt(release: str, given: str, version: str) -> None:
    options, clip = RepoOptions(platform="tensorrt", release=release, tensorrt=given), find_bundles("demo-clip")[0]
    other = f"{version.rpartition('.')[0]}.99"
    build(clip, "image", tensorrt=other)
    with pytest.raises(ConfigError, match=f"built by TensorRT {other}, and Triton {release} has {version}: pip"):
        find_tower_plan(clip, "image", "clip_image", options)
    build(clip, "image", tensorrt=version)
    assert find_tower_plan(clip, "image", "clip_image", options)


def test_a_tower_runs_an_engine_as_the_onnx_model_does(tmp_path: Path) -> None:
    clip = find_bundles("demo-clip")[0]
    pixels = np.random.default_rng(0).integers(0, 256, (9, 64, 64, 3)).astype(np.uint8)
    with OnnxEncoder("demo-clip", precision="fp32") as encoder:
        expected = encoder.run_images(encoder.bundles[0], pixels)
    with standing_in("8.6"):
        from vlmsearch.errors import ModelUnavailableError
        from vlmsearch.tensorrt.builder.engines import ensure_engine
        from vlmsearch.tensorrt.engine.runtime import this_machine
        from vlmsearch.triton.backend.engine import open_engine

        quicken()
        plan = ensure_engine(clip, "image", precision="fp32")
        assert find_tower_plan(clip, "image", "clip_image", IN_PYTHON) is not None
        (tmp_path / "model.plan").write_bytes(plan.path.read_bytes())
        (tmp_path / "model.json").write_bytes(plan.path.with_suffix(".json").read_bytes())
        tower = open_engine(tmp_path / "model.plan")
        np.testing.assert_allclose(tower.run({"pixels": pixels}), expected, atol=1e-5)
        tower.close()
        old = (tmp_path / "model.json").read_text()
        (tmp_path / "model.json").write_text(old.replace(this_machine().gpu, "NVIDIA T4"))
        with pytest.raises(ModelUnavailableError, match="NVIDIA T4"):
            open_engine(tmp_path / "model.plan")
