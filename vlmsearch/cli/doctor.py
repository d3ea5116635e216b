"""``vlmsearch doctor``."""

from __future__ import annotations

import importlib
import itertools
import platform
import re
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from rich.text import Text

from vlmsearch._util import gpu as diagnosis
from vlmsearch._util.console import make_console
from vlmsearch._util.extras import install_command, installed_versions
from vlmsearch._util.gpu import Driver
from vlmsearch.cli.common import command, json_option, print_json, url_option
from vlmsearch.errors import ModelUnavailableError, VlmsearchError
from vlmsearch.models.bundle import PROFILES, built_bundles, cache_folder
from vlmsearch.models.recipe import find_recipe
from vlmsearch.registry import back_ends, extras_of
from vlmsearch.stores.base import Exposable
from vlmsearch.tensorrt.engine.cublas import cublas
from vlmsearch.tensorrt.engine.plans import Machine, mismatches, open_plan, plans_folder


@dataclass(frozen=True)
class CheckResult:
    """The result of a check. Checks that are not ``required`` concern optional parts."""

    check: str
    ok: bool
    detail: str
    advice: str = ""
    required: bool = False


_TENSORRT_WHEELS = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu11")
_CODEC_WHEELS = ("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12")
_FORMATS = {
    "jpeg": "jpg", "png": "zlib", "gif": "", "webp": "webp", "tiff": "", "bmp": "", "ppm": "", "jpeg 2000": "jpg_2000",
    "avif": "avif",
}  # fmt: skip
"""Image formats, each with the codec that Pillow may lack."""


@command()
@url_option("store", "--store", help="Store to check as well: whether it answers, and who else may create there.")
@json_option
def doctor(store: str | None, as_json: bool) -> None:
    """Check this installation. The exit status is 1 if a required part is broken."""
    results = [*_packages(), *_models(), *_images(), *gpu_results(), *(_store(store) if store else [])]
    if as_json:
        print_json([asdict(result) for result in results])
    else:
        console = make_console()
        for result in results:
            mark = Text("ok", "green") if result.ok else Text("no", "red" if result.required else "yellow")
            console.print(mark, f" {result.check:<16} {result.detail}", soft_wrap=True)
            if result.advice:
                console.print(f"    {result.advice}", soft_wrap=True)
    if any(result.required and not result.ok for result in results):
        sys.exit(1)


def _package(name: str, advice: str, *, check: str = "", required: bool = False) -> CheckResult:
    """Check whether a distribution is installed."""
    number = installed_versions((name,)).get(name)
    if number is None:
        return CheckResult(check or name, False, "not installed", advice, required)
    return CheckResult(check or name, True, f"{name} {number}" if check else number, required=required)


def _try(check: str, run: Callable[[], str], advice: str = "", *, required: bool = False) -> CheckResult:
    """Run a check that may fail in any way."""
    try:
        return CheckResult(check, True, run(), required=required)
    except Exception as exc:  # noqa: BLE001 - every failure is a result
        return CheckResult(check, False, f"{type(exc).__name__}: {exc}", advice, required)


def _packages() -> list[CheckResult]:
    python = f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}"
    needed = ("vlmsearch", "numpy", "onnx", "tokenizers", "simsimd", "pillow")
    full = f"to compare built models with transformers: {install_command('build')}"
    return [
        CheckResult("python", sys.version_info >= (3, 10), python, required=True),
        *(_package(name, f"pip install {name}", required=True) for name in needed),
        *_store_packages(),
        _package("torch", full),
        _package("transformers", full),
        CheckResult("sqlite", True, f"SQLite {sqlite3.sqlite_version}", required=True),
    ]


def _store_packages() -> list[CheckResult]:
    """Check for the packages of stores: those of the extras that their entry points name."""
    checks: dict[str, CheckResult] = {}
    for point in back_ends("store").values():
        if point.dist is None:
            continue
        for extra, requirement in itertools.product(extras_of(point), point.dist.requires or ()):
            name = re.match(rf"([\w.-]+).*;.*extra == ['\"]{re.escape(extra)}['\"]", requirement)
            if name:
                install = install_command(extra, package=point.dist.name)
                checks[name[1]] = _package(name[1], f"for stores of {extra}: {install}")
    return list(checks.values())


def _store(url: str) -> list[CheckResult]:
    from vlmsearch.registry import open_store

    with open_store(url) as store:
        try:
            manifest = store.manifest()
            exposures = store.exposures() if isinstance(store, Exposable) else ()
        except VlmsearchError as exc:
            return [CheckResult("store", False, str(exc), required=True)]
    built = f"built with {manifest.fingerprint}" if manifest else "no index yet"
    advice = "see Whose tables these are in the manual: docs/howto/stores.md"
    return [
        CheckResult("store", True, f"{store.name}: {built}", required=True),
        *(CheckResult("exposed", False, exposure, advice) for exposure in exposures),
    ]


def _models() -> list[CheckResult]:
    results = [CheckResult("model cache", True, str(cache_folder()), required=True)]
    built = {bundle.name: bundle.fingerprint for bundle in built_bundles()}
    for profile, names in PROFILES.items():
        missing = [name for name in names if name not in built]
        detail = " and ".join(built.get(name, f"{name} is not built") for name in names)
        advice = _build_advice(profile, missing) if missing else ""
        results.append(CheckResult(f"onnx:{profile}", not missing, detail, advice, required=profile == "demo"))
    return [*results, _try("encoding", _encode, "reinstall vlmsearch", required=True)]


def _build_advice(profile: str, missing: list[str]) -> str:
    """Return how large the models of a profile are, and the command that builds them."""
    parameters = sum(find_recipe(name).parameters for name in missing)
    smaller = ", and onnx:clip is smaller" if profile == "default" else ""
    return f"{4 * parameters / 1e9:.1f} GB of weights{smaller}: vlmsearch build {' '.join(missing)}"


def _encode() -> str:
    import numpy as np

    from vlmsearch.encoders.onnx import OnnxEncoder

    with OnnxEncoder("demo") as encoder:
        lengths = [float(np.linalg.norm(rows)) for rows in encoder.encode_texts(["a red circle"]).values()]
        if not np.allclose(lengths, 1, atol=1e-3):
            raise ValueError(f"vectors of length {lengths}, not 1")
        return f"onnx:demo runs on {', '.join(encoder.providers)}"


def _images() -> list[CheckResult]:
    from PIL import features

    formats = [name for name, codec in _FORMATS.items() if not codec or features.check(codec)]
    return [
        CheckResult("images", {"jpeg", "png"} <= set(formats), ", ".join(formats), required=True),
        _package("pillow-heif", install_command("heic"), check="heic"),
    ]


def gpu_results() -> list[CheckResult]:
    """Check GPUs and their libraries; without a driver, only the ONNX Runtime wheels and the driver."""
    driver = diagnosis.find_driver()
    results = [_wheels(), _driver(driver)]
    if driver.fault:
        return results
    cuda = _package("cuda-bindings", f"for the encoder tensorrt: {install_command('tensorrt')}", check="cuda")
    return [*results, _onnx_on_gpu(), cuda, _cudnn(), *_tensorrt(driver), _codec(), *vision_models(driver)]


def _wheels() -> CheckResult:
    try:
        wheels = diagnosis.onnx_wheels()
    except ImportError as exc:
        names = (diagnosis.CPU_WHEEL, diagnosis.GPU_WHEEL)
        have = _installed(names) or "none is installed"
        mend = f"pip uninstall -y {' '.join(names)} && pip install --force-reinstall {diagnosis.CPU_WHEEL}"
        return CheckResult("onnxruntime", False, f"{have}; it cannot be loaded: {exc}", mend, required=True)
    fault, mend = diagnosis.wheel_fault(wheels, gpu=False)
    built = f", built for CUDA {wheels.cuda}" if wheels.cuda else ""
    described = f"{wheels.module} {wheels.version}{built}, with {', '.join(wheels.providers)}"
    return CheckResult("onnxruntime", not fault, fault or described, mend)


def _installed(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {number}" for name, number in installed_versions(names).items())


def _driver(driver: Driver) -> CheckResult:
    if driver.fault:
        return CheckResult("gpu", False, driver.fault, "" if driver.cuda == (0, 0) else "run nvidia-smi")
    names = ", ".join(f"{gpu.name} ({_architecture(gpu)}, {gpu.memory / 2**30:.0f} GiB)" for gpu in driver.devices)
    return CheckResult("gpu", True, f"{names}; the driver runs CUDA {driver.cuda[0]}.{driver.cuda[1]}")


def _architecture(device: diagnosis.Device) -> str:
    return f"sm_{device.capability[0]}{device.capability[1]}"


def _onnx_on_gpu() -> CheckResult:
    """Check ``onnx:...?device=cuda:0`` with the demo model."""
    try:
        from vlmsearch.encoders.onnx import OnnxEncoder

        with OnnxEncoder("demo", device="cuda:0") as encoder:
            encoder.encode_texts(["a red circle"])
            return CheckResult("onnx on gpu", True, f"onnx:demo runs on {encoder.providers[0]}")
    except ModelUnavailableError:
        return CheckResult("onnx on gpu", False, *diagnosis.gpu_fault(0))
    except Exception as exc:  # noqa: BLE001 - every failure is a result
        return CheckResult("onnx on gpu", False, f"{type(exc).__name__}: {exc}")


def _cudnn() -> CheckResult:
    number = diagnosis.library_version("libcudnn.so.9", "cudnnGetVersion")
    if not number:
        advice = "ONNX Runtime may need it on a GPU: pip install 'onnxruntime-gpu[cuda,cudnn]'"
        return CheckResult("cudnn", False, "libcudnn.so.9 is not found", advice)
    return CheckResult("cudnn", True, f"{number // 10000}.{number // 100 % 100}.{number % 100}")


def _tensorrt(driver: Driver) -> list[CheckResult]:
    """Check TensorRT, and which plans in the cache fit it and the GPUs."""
    try:
        tensorrt = str(importlib.import_module("tensorrt").__version__)
    except Exception as exc:  # noqa: BLE001 - its libraries fail in many ways
        have = _installed(_TENSORRT_WHEELS)
        fault = f"{have}; it cannot be loaded: {exc}" if have else "not installed"
        return [CheckResult("tensorrt", False, fault, install_command("tensorrt"))]
    number = cublas()
    results = [CheckResult("tensorrt", True, f"{tensorrt}, with cuBLAS {number}" if number else tensorrt)]
    machines = [Machine(tensorrt, device.name, _architecture(device), number) for device in driver.devices]
    for path in sorted(plans_folder().glob("*.plan")):
        try:
            plan = open_plan(path)
        except ModelUnavailableError as exc:
            results.append(CheckResult("plan", False, str(exc)))
            continue
        faults = min((mismatches(plan.key, machine) for machine in machines), key=len)
        detail = f"{plan.report.get('model', path.stem)} {plan.key.precision}, {plan.size / 2**20:.0f} MiB"
        advice = "it is built again when it is needed" if faults else ""
        results.append(CheckResult("plan", not faults, f"{detail}: {'; '.join(faults) or 'fits'}", advice))
    return results


def vision_models(driver: Driver) -> list[CheckResult]:
    """Check which recipes of vision models fit the smallest GPU, with pictures."""
    from vlmsearch.models.bundle import LANGUAGE, recipe_names
    from vlmsearch.tensorrt_llm.rules import make_plan

    memory = min(device.memory for device in driver.devices)
    results = []
    for name in recipe_names(LANGUAGE):
        plan = make_plan(name)
        if plan.memory:
            needed = plan.memory.total
            detail = f"{needed / 2**30:.1f} GiB, with {plan.pictures.count} pictures of {plan.pictures.side} pixels"
            results.append(CheckResult(name, needed <= memory, detail, f"vlmsearch llm plan {name}"))
    return results


def _codec() -> CheckResult:
    detail = _installed(_CODEC_WHEELS)
    if not detail:
        advice = install_command("nvimgcodec")
        return CheckResult("nvimgcodec", False, "not installed: JPEGs are decoded on the CPU", advice)
    major = detail.split()[0][-2:]
    jpeg = "nvidia-nvjpeg" if major == "13" else "nvidia-nvjpeg-cu12"
    if not installed_versions((jpeg,)) and not diagnosis.has_library(f"libnvjpeg.so.{major}"):
        return CheckResult("nvimgcodec", False, f"{detail} without nvJPEG", f"pip install {jpeg}")
    return CheckResult("nvimgcodec", True, detail)
