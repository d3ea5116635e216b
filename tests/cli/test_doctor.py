"""What `vlmsearch doctor` says of GPUs, on machines that this one is not."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from typing_extensions import Self

from vlmsearch._util import gpu as diagnosis
from vlmsearch._util.gpu import Device, Driver
from vlmsearch.cli import cli, doctor as doctor_gpu
from vlmsearch.cli.doctor import CheckResult
from vlmsearch.errors import ModelUnavailableError
from vlmsearch.tensorrt.engine.plans import Machine, PlanKey, ShapeRange, store_plan

H200 = Driver((13, 0), (Device("NVIDIA H200", (9, 0), 141 * 2**30),))
HERE = Machine("10.14.1", "NVIDIA H200", "sm_90")


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts the metadata of a distribution on the path, before all that is really installed."""
    monkeypatch.syspath_prepend(str(tmp_path / "planted"))

    def put(name: str, version: str) -> None:
        folder = tmp_path / "planted" / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        importlib.invalidate_caches()

    return put


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An H200 with TensorRT and an empty cache."""
    monkeypatch.setattr(diagnosis, "find_driver", lambda: H200)
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path / "cache"))
    tensorrt = types.ModuleType("tensorrt")
    vars(tensorrt)["__version__"] = HERE.tensorrt
    monkeypatch.setitem(sys.modules, "tensorrt", tensorrt)


def findings() -> dict[str, CheckResult]:
    return {result.check: result for result in doctor_gpu.gpu_results()}


def test_without_a_driver_only_wheels_and_driver_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "find_driver", lambda: Driver(fault="there is no NVIDIA driver"))
    found = findings()
    assert list(found) == ["onnxruntime", "gpu"]
    assert found["onnxruntime"].ok
    assert (found["gpu"].ok, found["gpu"].required) == (False, False)


def test_two_wheels_of_onnx_runtime_are_found_in_their_metadata(plant: Callable[[str, str], None]) -> None:
    """The module here is that of the CPU wheel: it was installed last."""
    plant("onnxruntime-gpu", "1.31.1")
    result = findings()["onnxruntime"]
    assert not result.ok
    assert "are both installed, and onnxruntime overwrote the files of onnxruntime-gpu" in result.detail
    assert result.advice.startswith("pip uninstall -y onnxruntime onnxruntime-gpu && pip install --force-reinstall")


@pytest.mark.usefixtures("machine")
def test_the_gpu_wheel_in_the_wrong_place_is_mended_by_a_command(plant: Callable[[str, str], None]) -> None:
    plant("onnxruntime-gpu", "1.31.1")
    result = findings()["onnx on gpu"]
    assert not result.ok
    assert result.advice.endswith("--no-deps onnxruntime-gpu==1.31.1")


def test_a_module_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after uninstalling one of two wheels."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = findings()["onnxruntime"]
    assert not result.ok
    assert result.required
    assert "it cannot be loaded" in result.detail


@pytest.mark.parametrize("gpu", [False, True])
def test_wheels_that_do_not_name_themselves_are_told_apart(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of ONNX Runtime 1.20, which is the oldest version that is allowed."""
    providers = ["CPUExecutionProvider", *[diagnosis.CUDA_PROVIDER] * gpu]
    monkeypatch.setattr("onnxruntime.package_name", "")
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: providers)
    monkeypatch.setitem(sys.modules, "onnxruntime.capi.build_and_package_info", None)
    result = findings()["onnxruntime"]
    assert result.ok
    assert result.detail.split()[0] == ("onnxruntime-gpu" if gpu else "onnxruntime")


@pytest.mark.usefixtures("machine")
def test_what_is_there_and_what_is_missing(plant: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant("cuda-bindings", "12.9.4")
    plant("nvidia-nvimgcodec-cu12", "0.9.0.20")
    monkeypatch.setattr(diagnosis, "library_version", lambda name, function: 91002)
    found = findings()
    assert found["gpu"].detail == "NVIDIA H200 (sm_90, 141 GiB); the driver runs CUDA 13.0"
    assert found["cuda"].detail == "cuda-bindings 12.9.4"
    assert found["cudnn"].detail == "9.10.2"
    assert found["tensorrt"].detail == HERE.tensorrt
    assert found["nvimgcodec"].advice == "pip install nvidia-nvjpeg-cu12"
    plant("nvidia-nvjpeg-cu12", "12.4.0.76")
    assert findings()["nvimgcodec"].ok


@pytest.mark.usefixtures("machine")
def test_plans_that_fit_and_plans_that_do_not() -> None:
    profile = (ShapeRange("pixels", (1, 64, 64, 3), (32, 64, 64, 3), (128, 64, 64, 3)),)
    for number, where in enumerate((HERE, Machine("8.6.0", "NVIDIA H200", "sm_90"))):
        onnx = hashlib.sha256(bytes([number])).hexdigest()
        store_plan(PlanKey(onnx, where, (profile,), "fp16"), b"a plan", {"model": f"clip-{number}"})
    damaged = store_plan(PlanKey("0" * 64, HERE, (profile,), "int8"), b"a plan", {})
    damaged.path.write_bytes(b"half")
    found = sorted((result.ok, result.detail) for result in doctor_gpu.gpu_results() if result.check == "plan")
    assert len(found) == 3
    assert "is damaged" in found[0][1]
    assert found[1][1] == "clip-1 fp16, 0 MiB: it was built for TensorRT 8.6.0, and this is 10.14.1"
    assert found[2] == (True, "clip-0 fp16, 0 MiB: fits")


@pytest.mark.usefixtures("machine")
def test_cublas_is_told_where_tensorrt_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_gpu, "cublas", lambda: "12.9.1")
    profile = (ShapeRange("input_ids", (1, 8), (1, 32), (8, 80)),)
    for digit, version in zip("01", ("12.9.1", "12.8.4")):
        store_plan(PlanKey(digit * 64, replace(HERE, cublas=version), (profile,), "fp16"), b"plan", {"model": version})
    assert findings()["tensorrt"].detail == f"{HERE.tensorrt}, with cuBLAS 12.9.1"
    told = sorted((result.ok, result.detail) for result in doctor_gpu.gpu_results() if result.check == "plan")
    assert told == [
        (False, "12.8.4 fp16, 0 MiB: it was built for cuBLAS 12.8.4, and this is 12.9.1"),
        (True, "12.9.1 fp16, 0 MiB: fits"),
    ]


@pytest.mark.usefixtures("machine")
def test_a_gpu_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    class Encoder:
        providers = ("CUDAExecutionProvider",)

        def __init__(self, location: str, *, device: str) -> None:
            assert (location, device) == ("demo", "cuda:0")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def encode_texts(self, texts: list[str]) -> None:
            assert texts

    monkeypatch.setattr("vlmsearch.encoders.onnx.OnnxEncoder", Encoder)
    assert findings()["onnx on gpu"].detail == "onnx:demo runs on CUDAExecutionProvider"

    def fail(self: Encoder, texts: list[str]) -> None:
        raise ModelUnavailableError("it is not bound")

    monkeypatch.setattr(Encoder, "encode_texts", fail)
    assert "is the build for the CPU" in findings()["onnx on gpu"].detail


def test_without_onnx_runtime_a_machine_with_a_gpu_is_still_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "find_driver", lambda: H200)
    for name in [name for name in sys.modules if name.startswith(("onnxruntime", "vlmsearch.encoders.onnx"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = CliRunner().invoke(cli, ["doctor", "--json"])
    findings = {result["check"]: result for result in json.loads(done.stdout)}
    assert done.exit_code == 1
    assert "it cannot be loaded" in findings["onnxruntime"]["detail"]
    assert findings["onnx on gpu"]["detail"].startswith("ModuleNotFoundError")
    assert {"cuda", "tensorrt", "nvimgcodec"} <= findings.keys()
