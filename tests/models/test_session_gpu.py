"""``onnx:`` on a GPU, without one: the real ONNX Runtime, with only what a GPU would change stood in for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from tests.support.onnx_gpu import CPU, CUDA, FakeCuda, Runtime, Session
from vlmsearch._util import gpu as diagnosis
from vlmsearch._util.gpu import Device, Driver, Wheels, find_driver, gpu_fault, wheel_fault
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import BackendError, ConfigError, ModelUnavailableError
from vlmsearch.models import session as onnx_session

GPU = Driver((13, 0), (Device("NVIDIA H200", (9, 0), 150 * 2**30),))


def wheels(
    installed: dict[str, str], module: str, *, cuda: str = "", providers: tuple[str, ...] = (CUDA, CPU)
) -> Wheels:
    return Wheels(installed, module, "1.31.1", cuda, providers)


BOTH = {"onnxruntime": "1.31.0", "onnxruntime-gpu": "1.31.1"}
ONLY_GPU = wheels({"onnxruntime-gpu": "1.31.1"}, "onnxruntime-gpu", cuda="13.0")


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_session, "ort", Runtime)
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))


@pytest.mark.usefixtures("with_gpu")
def test_vectors_come_back_from_the_bound_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a red circle", "two dogs in the snow and a very long day"]
    with OnnxEncoder("demo", device="cuda:1") as encoder:
        found = encoder.encode_texts(texts)
        assert (encoder.precision, encoder.providers[0]) == ("fp32", CUDA)
    assert Session.given[0][1]["device_id"] == "1"
    assert Session.given[0][1]["use_tf32"] == "0"
    monkeypatch.undo()
    with OnnxEncoder("demo", precision="fp32") as encoder:
        for space, vectors in encoder.encode_texts(texts).items():
            np.testing.assert_array_equal(found[space], vectors)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"device": "gpu"}, "a device is cpu, cuda or cuda:N, not 'gpu'"),
        ({"device": "cuda", "precision": "int8"}, "use precision=fp16, or the encoder tensorrt:"),
    ],
)
def test_what_cannot_be_is_refused(choices: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OnnxEncoder("demo", **choices)  # type: ignore[arg-type]


def test_the_cpu_wheel_is_named_as_the_cause() -> None:
    with pytest.raises(ModelUnavailableError, match="is the build for the CPU: pip uninstall -y onnxruntime"):
        OnnxEncoder("demo", device="cuda:0")


def test_a_session_that_fell_to_the_cpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """This wheel has no CUDA, and like every wheel it only warns of a provider that it cannot bind."""
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(diagnosis, "onnx_wheels", lambda: ONLY_GPU)
    monkeypatch.setattr(diagnosis, "find_driver", lambda: GPU)
    monkeypatch.setattr(diagnosis, "missing_library", lambda: "libcudnn.so.9")
    with (
        pytest.raises(ModelUnavailableError, match=r"libcudnn.so.9 is missing.*pip install 'onnxruntime-gpu\[cuda"),
        pytest.warns(UserWarning, match="not in available"),
    ):
        OnnxEncoder("demo", device="cuda:0")


@pytest.mark.usefixtures("with_gpu")
def test_a_failure_while_running_is_a_backend_error() -> None:
    with (
        OnnxEncoder("demo-clip", device="cuda:1") as encoder,
        pytest.raises(BackendError, match="demo-clip's image tower"),
    ):
        encoder.run_images(encoder.bundles[0], np.zeros((1, 3, 3, 3), np.uint8))


@pytest.mark.parametrize(
    ("found", "gpu", "fault", "mend"),
    [
        (wheels({"onnxruntime": "1.31.1"}, "onnxruntime", providers=(CPU,)), False, "", ""),
        (ONLY_GPU, True, "", ""),
        (
            wheels({"onnxruntime": "1.31.1"}, "onnxruntime", providers=(CPU,)),
            True,
            "onnxruntime 1.31.1 is the build for the CPU",
            "--no-deps onnxruntime-gpu",
        ),
        (
            wheels(BOTH, "onnxruntime", providers=(CPU,)),
            True,
            "onnxruntime overwrote the files of onnxruntime-gpu",
            "--no-deps onnxruntime-gpu==1.31.1",
        ),
        (
            wheels(BOTH, "onnxruntime-gpu", cuda="13.0"),
            False,
            "onnxruntime-gpu overwrote the files of onnxruntime",
            "--no-deps onnxruntime-gpu==1.31.1",
        ),
        (wheels(BOTH, "onnxruntime-gpu", cuda="13.0"), True, "", ""),
        (
            wheels(BOTH, "onnxruntime", providers=(CPU,)),
            False,
            "onnxruntime overwrote the files of onnxruntime-gpu",
            "--no-deps onnxruntime==1.31.0",
        ),
    ],
)
def test_wheels_that_overwrite_each_other(found: Wheels, gpu: bool, fault: str, mend: str) -> None:
    said = wheel_fault(found, gpu=gpu)
    assert said[0].endswith(fault) if fault else said == ("", "")
    assert said[1].endswith(mend)
    assert not mend or "pip uninstall -y onnxruntime onnxruntime-gpu && pip install --force-reinstall" in said[1]


@pytest.mark.parametrize(
    ("driver", "library", "index", "fault", "mend"),
    [
        (Driver(fault="there is no NVIDIA driver"), "", 0, "there is no NVIDIA driver", "install NVIDIA's driver"),
        (Driver((12, 4), GPU.devices), "", 0, "it runs CUDA 12.4, and onnxruntime-gpu 1.31.1", "a driver for CUDA 13"),
        (GPU, "", 3, "there is no GPU 3: there are 1", ""),
        (GPU, "libcublasLt.so.13", 0, "libcublasLt.so.13 is missing", "onnxruntime-gpu[cuda,cudnn]==1.31.1"),
        (GPU, "", 0, "CUDA failure 999", "vlmsearch doctor"),
    ],
)
def test_each_cause_is_named_with_what_mends_it(
    monkeypatch: pytest.MonkeyPatch, driver: Driver, library: str, index: int, fault: str, mend: str
) -> None:
    monkeypatch.setattr(diagnosis, "onnx_wheels", lambda: ONLY_GPU)
    monkeypatch.setattr(diagnosis, "find_driver", lambda: driver)
    monkeypatch.setattr(diagnosis, "missing_library", lambda: library)
    said = gpu_fault(index, "CUDA failure 999")
    assert fault in said[0]
    assert mend in said[1]


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        (FakeCuda(), Driver((13, 0), (Device("NVIDIA L4", (8, 9), 24 * 2**30),))),
        (FakeCuda(newest=12040, count=0), Driver((12, 4))),
    ],
)
def test_the_driver_is_asked_directly(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda, expected: Driver) -> None:
    monkeypatch.setattr(diagnosis, "load_library", lambda _: cuda)
    assert find_driver() == expected


@pytest.mark.parametrize(("status", "fault"), [(100, "CUDA_VISIBLE_DEVICES"), (803, "CUDA error 803")])
def test_a_driver_that_does_not_start(monkeypatch: pytest.MonkeyPatch, status: int, fault: str) -> None:
    monkeypatch.setattr(diagnosis, "load_library", lambda _: FakeCuda(status=status))
    assert fault in find_driver().fault


def test_no_driver_at_all() -> None:
    assert find_driver("libno_such_driver.so.1").fault == "there is no NVIDIA driver"


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., Path]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.fail("this test compiles a library: install a C compiler, such as Debian's gcc")

    def library(name: str, *libraries: str) -> Path:
        target = tmp_path / "onnxruntime" / "capi" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        found = ["-Wl,--no-as-needed", f"-L{target.parent}", *(f"-l:{library}" for library in libraries)]
        made = ["-shared", f"-Wl,-soname,{name}", "-o", str(target), "-x", "c", "/dev/null", "-x", "none", *found]
        subprocess.run([compiler, *made], check=True)
        return target

    return library


def test_the_loader_tells_which_library_is_missing(
    compiled: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package laid out as the GPU wheel is, whose provider needs a library that then is not there."""
    compiled("libonnxruntime_providers_shared.so")
    gone = compiled("libcublasLt.so.13")
    compiled("libonnxruntime_providers_cuda.so", "libcublasLt.so.13")
    (tmp_path / "onnxruntime" / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(gone.parent))
    assert diagnosis.missing_library() == ""
    gone.unlink()
    assert diagnosis.missing_library() == "libcublasLt.so.13"


def test_a_loader_that_does_not_answer_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "_LOAD", "import time; time.sleep(600)")
    monkeypatch.setattr(diagnosis, "_LOAD_SECONDS", 0.1)
    assert diagnosis.missing_library() == ""


def test_importing_the_encoder_needs_no_gpu_package() -> None:
    code = "import sys, vlmsearch.encoders.onnx as e; print([m for m in ('cuda', 'tensorrt') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
