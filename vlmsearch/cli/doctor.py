"""``vlmsearch doctor``: what works on this machine, and what to install for the rest."""

from __future__ import annotations

import importlib
import platform
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from rich.text import Text

from vlmsearch._util import gpu as diagnosis
from vlmsearch._util.console import make_console
from vlmsearch._util.gpu import Driver, Wheels
from vlmsearch.cli.common import command, json_option, print_json
from vlmsearch.errors import ModelUnavailableError
from vlmsearch.models.bundle import PROFILES, built_bundles, cache_folder
from vlmsearch.tensorrt.engine.cublas import cublas
from vlmsearch.tensorrt.engine.plans import Machine, Plan, mismatches, open_plan, plans_folder


@dataclass(frozen=True)
class CheckResult:
    """One check: its name, whether it passed, what was found, and what to do where something is missing."""

    check: str
    ok: bool
    found: str
    advice: str = ""
    required: bool = True


_TENSORRT_WHEELS = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu11")
_CODEC_WHEELS = ("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12")
_CODEC = "pip install 'vlmsearch[nvimgcodec]'"


def gpu_results() -> list[CheckResult]:
    """Return every check that has to do with GPUs; where there is no driver, only what concerns the CPU as well."""
    driver = diagnosis.find_driver()
    results = [_wheels(), _driver(driver)]
    if driver.fault:
        return results
    results += [_onnx_on_gpu(), _cuda(), _cudnn(), _tensorrt(), _codec()]
    return [*results, *_plans(driver)]


def _wheels() -> CheckResult:
    try:
        wheels = diagnosis.onnx_wheels()
    except ImportError as exc:
        names = f"{diagnosis.CPU_WHEEL} {diagnosis.GPU_WHEEL}"
        have = ", ".join(f"{name} {number}" for name, number in _installed().items()) or "none is installed"
        mend = f"pip uninstall -y {names} && pip install --force-reinstall {diagnosis.CPU_WHEEL}"
        return CheckResult("onnxruntime", False, f"{have}; it cannot be loaded: {exc}", mend)
    fault, mend = diagnosis.wheel_fault(wheels, gpu=False)
    return CheckResult("onnxruntime", not fault, fault or _described(wheels), mend, required=False)


def _installed() -> dict[str, str]:
    return diagnosis.installed((diagnosis.CPU_WHEEL, diagnosis.GPU_WHEEL))


def _described(wheels: Wheels) -> str:
    built = f", built for CUDA {wheels.cuda}" if wheels.cuda else ""
    return f"{wheels.module} {wheels.version}{built}, with {', '.join(wheels.providers)}"


def _driver(driver: Driver) -> CheckResult:
    if driver.fault:
        advice = "" if driver.cuda == (0, 0) else "nvidia-smi shows what the driver sees"
        return CheckResult("gpu", False, driver.fault, advice, required=False)
    names = ", ".join(
        f"{device.name} (sm_{device.capability[0]}{device.capability[1]}, {device.memory / 2**30:.0f} GiB)"
        for device in driver.devices
    )
    return CheckResult("gpu", True, f"{names}; the driver runs CUDA {_dotted(driver.cuda)}", required=False)


def _onnx_on_gpu() -> CheckResult:
    """Return whether ``onnx:...?device=cuda:0`` works: tried with the demo model."""
    try:
        from vlmsearch.encoders.onnx import OnnxEncoder

        with OnnxEncoder("demo", device="cuda:0") as encoder:
            encoder.encode_texts(["a red circle"])
            return CheckResult("onnx on gpu", True, f"onnx:demo runs on {encoder.providers[0]}", required=False)
    except ModelUnavailableError:
        fault, mend = diagnosis.gpu_fault(0)
        return CheckResult("onnx on gpu", False, fault, mend, required=False)
    except Exception as exc:  # noqa: BLE001 - a doctor reports whatever there is
        return CheckResult("onnx on gpu", False, f"{type(exc).__name__}: {exc}", required=False)


def _cuda() -> CheckResult:
    try:
        return CheckResult("cuda", True, f"cuda-bindings {version('cuda-bindings')}", required=False)
    except PackageNotFoundError:
        advice = "pip install 'vlmsearch[tensorrt]', for the encoder tensorrt:"
        return CheckResult("cuda", False, "cuda-bindings is not installed", advice, required=False)


def _cudnn() -> CheckResult:
    number = diagnosis.library_version("libcudnn.so.9", "cudnnGetVersion")
    if not number:
        advice = "ONNX Runtime may need it on a GPU: pip install 'onnxruntime-gpu[cuda,cudnn]'"
        return CheckResult("cudnn", False, "libcudnn.so.9 is not found", advice, required=False)
    return CheckResult("cudnn", True, f"{number // 10000}.{number // 100 % 100}.{number % 100}", required=False)


def _tensorrt() -> CheckResult:
    wheels = diagnosis.installed(_TENSORRT_WHEELS)
    have = ", ".join(f"{name} {number}" for name, number in wheels.items())
    try:
        found = _tensorrt_version()
    except Exception as exc:  # noqa: BLE001 - its libraries fail in many ways
        advice = "pip install 'vlmsearch[tensorrt]'"
        fault = f"{have}; it cannot be loaded: {exc}" if have else "not installed"
        return CheckResult("tensorrt", False, fault, advice, required=False)
    with_cublas = f", with cuBLAS {number}" if (number := cublas()) else ""
    return CheckResult("tensorrt", True, f"{found}{with_cublas}", required=False)


def _tensorrt_version() -> str:
    return str(importlib.import_module("tensorrt").__version__)


def _codec() -> CheckResult:
    wheels = diagnosis.installed(_CODEC_WHEELS)
    if not wheels:
        return CheckResult("nvimgcodec", False, "not installed: JPEGs are decoded on the CPU", _CODEC, required=False)
    found = ", ".join(f"{name} {number}" for name, number in wheels.items())
    major = next(iter(wheels))[-2:]
    jpeg = "nvidia-nvjpeg" if major == "13" else "nvidia-nvjpeg-cu12"
    if not diagnosis.installed((jpeg,)) and not diagnosis.has_library(f"libnvjpeg.so.{major}"):
        return CheckResult("nvimgcodec", False, f"{found} without nvJPEG", f"pip install {jpeg}", required=False)
    return CheckResult("nvimgcodec", True, found, required=False)


def _plans(driver: Driver) -> list[CheckResult]:
    """Return the plans in the cache, those that fit this machine and those that do not."""
    plans, damaged = _cached_plans()
    try:
        tensorrt = _tensorrt_version()
    except Exception:  # noqa: BLE001 - without TensorRT no plan can be loaded, which has its own result
        return []
    results = []
    machines = [Machine(tensorrt, device.name, _architecture(device), cublas()) for device in driver.devices]
    for plan in plans:
        faults = min((mismatches(plan.key, machine) for machine in machines), key=len)
        found = f"{plan.report.get('model', plan.path.stem)} {plan.key.precision}, {plan.size / 2**20:.0f} MiB"
        advice = "it is built again when it is needed" if faults else ""
        results.append(
            CheckResult("plan", not faults, f"{found}: {'; '.join(faults) or 'fits'}", advice, required=False)
        )
    return results + [CheckResult("plan", False, reason, required=False) for reason in damaged]


def _architecture(device: diagnosis.Device) -> str:
    return f"sm_{device.capability[0]}{device.capability[1]}"


def _cached_plans() -> tuple[list[Plan], list[str]]:
    plans, damaged = [], []
    for path in sorted(plans_folder().glob("*.plan")):
        try:
            plans.append(open_plan(path))
        except ModelUnavailableError as exc:
            damaged.append(str(exc))
    return plans, damaged


def _dotted(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]}"


_CODECS = {
    "jpeg": "jpg", "png": "zlib", "gif": "", "webp": "webp", "tiff": "", "bmp": "", "ppm": "", "jpeg 2000": "jpg_2000",
    "avif": "avif",
}  # fmt: skip
"""Image formats, and what Pillow may have been built without."""


@command()
@json_option
def doctor(as_json: bool) -> None:
    """Check this installation; exits 1 where something that every use needs is broken."""
    results = [result for check in (_python, _packages, _models, _images, _gpu) for result in check()]
    broken = [result for result in results if result.required and not result.ok]
    if as_json:
        print_json([asdict(result) for result in results])
    else:
        console = make_console()
        for result in results:
            mark = Text("ok", "green") if result.ok else Text("no", "red" if result.required else "yellow")
            console.print(mark, f" {result.check:<16} {result.found}", soft_wrap=True)
            if result.advice:
                console.print(f"    {result.advice}", soft_wrap=True)
    if broken:
        sys.exit(1)


def _python() -> list[CheckResult]:
    found = f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}"
    return [CheckResult("python", sys.version_info >= (3, 10), found)]


def _packages() -> list[CheckResult]:
    results = []
    for name in ("vlmsearch", "numpy", "tokenizers", "simsimd", "pillow"):
        try:
            results.append(CheckResult(name, True, version(name)))
        except PackageNotFoundError:
            results.append(CheckResult(name, False, "not installed", f"pip install {name}"))
    for name, extra in (("chromadb", "chroma"), ("pymongo", "mongodb")):
        try:
            results.append(CheckResult(name, True, version(name), required=False))
        except PackageNotFoundError:
            advice = f"pip install 'vlmsearch[{extra}]', for stores of {extra}:"
            results.append(CheckResult(name, False, "not installed", advice, required=False))
    return [*results, _try("sqlite", _full_text, "take a Python whose SQLite has FTS5")]


def _full_text() -> str:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
    return f"SQLite {sqlite3.sqlite_version} with FTS5"


def _models() -> list[CheckResult]:
    results = [CheckResult("model cache", True, str(cache_folder()))]
    built = {bundle.name: bundle.fingerprint for bundle in built_bundles()}
    for profile, names in PROFILES.items():
        missing = [name for name in names if name not in built]
        found = " and ".join(built.get(name, f"{name} is not built") for name in names)
        advice = f"vlmsearch build {' '.join(missing)}" if missing else ""
        results.append(CheckResult(f"onnx:{profile}", not missing, found, advice, required=profile == "demo"))
    results.append(_try("encoding", _encode, "reinstall vlmsearch"))
    return results


def _encode() -> str:
    import numpy as np

    from vlmsearch.encoders.onnx import OnnxEncoder

    with OnnxEncoder("demo") as encoder:
        vectors = encoder.encode_texts(["a red circle"])
        lengths = [float(np.linalg.norm(rows)) for rows in vectors.values()]
        if not np.allclose(lengths, 1, atol=1e-3):
            raise ValueError(f"vectors of length {lengths}, not 1")
        return f"onnx:demo runs on {', '.join(encoder.providers)}"


def _images() -> list[CheckResult]:
    from PIL import features

    formats = [name for name, codec in _CODECS.items() if not codec or features.check(codec)]
    results = [CheckResult("images", {"jpeg", "png"} <= set(formats), ", ".join(formats))]
    try:
        results.append(CheckResult("heic", True, f"pillow-heif {version('pillow-heif')}", required=False))
    except PackageNotFoundError:
        results.append(CheckResult("heic", False, "not installed", "pip install 'vlmsearch[heic]'", required=False))
    return results


def _gpu() -> list[CheckResult]:

    return gpu_results()


def _try(check: str, run: Callable[[], str], advice: str) -> CheckResult:
    """Return a result of something that may fail in any way."""
    try:
        return CheckResult(check, True, run())
    except Exception as exc:  # noqa: BLE001 - a doctor reports whatever there is
        return CheckResult(check, False, f"{type(exc).__name__}: {exc}", advice)
