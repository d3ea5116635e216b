"""All that is measured on a GPU, section by section, into one report.

Sections whose packages are missing are left out and named; another interpreter that has them adds them to the same
report.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vlmsearch._util.files import replace_file
from vlmsearch.bench.gpu.jobs import DEFAULTS, Say
from vlmsearch.errors import BackendError, ConfigError, ModelUnavailableError, VlmsearchError
from vlmsearch.models.bundle import Bundle, bundle_names, find_bundles, open_bundle

if TYPE_CHECKING:
    from vlmsearch.bench.gpu.engines import Row
    from vlmsearch.export.inputs import Feeds
    from vlmsearch.types import Vectors

Json = dict[str, object]
Section = Callable[["BenchTask", Say], Iterator[Json]]
MODELS = (
    "clip-vit-base-patch32",
    "clip-vit-base-patch16",
    "clip-vit-large-patch14",
    "all-minilm-l6-v2",
    "demo-clip",
)
KINDS = ("fp16", "int8", DEFAULTS, "fp32")


@dataclass(frozen=True)
class BenchTask:
    """What is asked for: models, by name, made or found in ``folder``; the GPUs, how to build and how long to load.

    ``engines`` are the kinds of engines, of `KINDS`.
    """

    models: Sequence[str]
    folder: Path
    gpus: Sequence[int] = (0,)
    jobs: int = 1
    build_seconds: float = math.inf
    load_seconds: float = 180.0
    sts: Path | None = None
    engines: Sequence[str] = KINDS


def run_sections(task: BenchTask, names: Sequence[str], out: Path, say: Say) -> Json:
    """Measure the sections and write the report as it grows; what is in the file already is kept and added to."""
    report = _report(out)
    for what, given, known in (("section", names, SECTIONS), ("engine", task.engines, KINDS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ConfigError(f"no {what} {', '.join(unknown)}; there are {', '.join(known)}")
    for name in names:
        packages, section = SECTIONS[name]
        try:
            _require(packages)
            for found in section(task, say):
                report[name] = found
                _write(report, name, out)
        except ModuleNotFoundError as exc:
            if (exc.name or "").startswith("vlmsearch"):
                raise
            say(f"{name}: left out, {exc.name} is not installed here (Python {platform.python_version()})")
            continue
        except VlmsearchError as exc:
            say(f"{name}: {exc}")
            report.setdefault(name, {"error": str(exc)})
            _write(report, name, out)
    return report


def _write(report: Json, section: str, out: Path) -> None:
    report["machine"] = {**_old(report, "machine"), **_machine(section)}
    replace_file(out, (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())


def _report(path: Path) -> Json:
    """What is in the file already; ConfigError where that is no report, before anything is measured."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file for the report")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as exc:
        raise ConfigError(f"{path} is no report, which would be added to ({exc}): name another file") from exc
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is no report, which would be added to: name another file")
    return found


def _require(packages: Sequence[str]) -> None:
    """ModuleNotFoundError with the names of those that are not installed."""
    missing = [package for package in packages if not _is_installed(package)]
    if missing:
        raise ModuleNotFoundError(name=", ".join(missing))


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it is a part of
        return False


def _old(report: Json, name: str) -> Json:
    found = report.get(name)
    return found if isinstance(found, dict) else {}


def _machine(section: str) -> Json:
    found: Json = {"cpu_cores": os.cpu_count(), f"python_of_{section}": platform.python_version()}
    if section != "torch" and _is_installed("cuda.bindings"):  # which ONNX Runtime needs not
        from vlmsearch.tensorrt.engine.cuda import find_gpu

        gpu = find_gpu(0)
        found |= {"gpu": gpu.name, "driver": gpu.driver, "cuda": gpu.cuda, "memory_bytes": gpu.memory}
    if section in ("engines", "load"):
        import tensorrt

        from vlmsearch.tensorrt.engine.cublas import cublas

        found |= {"tensorrt": tensorrt.__version__, "cublas": cublas()}
    return found


def _bundles(task: BenchTask, say: Say) -> Iterator[Bundle]:
    """The models: from the folder, else from the cache, else CLIP with random weights; one that is nowhere is named."""
    from vlmsearch.bench.gpu.models import SIZES, make_random_clip

    for name in task.models:
        folder = task.folder / name
        try:
            if name in SIZES and not (folder / "bundle.json").is_file():
                yield make_random_clip(name, folder, lambda step, done, _: None if done else say(step))
            elif (folder / "bundle.json").is_file():
                yield open_bundle(folder)
            else:
                yield from (bundle for part in bundle_names(name) for bundle in find_bundles(part))
        except ModelUnavailableError as exc:
            say(f"{name}: left out, {exc}")


def _engines(task: BenchTask, say: Say) -> Json:
    """All precisions and TensorRT's defaults, of every tower."""
    from vlmsearch.bench.gpu.engines import Job, build_all, fastest, measure_all
    from vlmsearch.tensorrt.engine.cuda import find_gpu

    find_gpu(0)
    bundles = list(_bundles(task, say))
    jobs = [Job(b.folder, tower, kind) for kind in task.engines for b in bundles for tower in b.towers]
    failed = build_all(jobs, gpus=task.gpus, on_each=task.jobs, seconds=task.build_seconds, report=say)
    rows, silent = measure_all([job for job in jobs if job not in failed], gpus=task.gpus, report=say)
    found: Json = {
        "rows": [row.to_json() for row in rows],
        "published": fastest(rows),
        "not_built": {str(job): reason for job, reason in failed.items()},
        "not_measured": {str(job): reason for job, reason in silent.items()},
    }
    if task.sts:
        found["spearman"] = _spearman([b for b in bundles if b.preprocess is None], rows, task.sts, say)
    return found


def _spearman(bundles: Sequence[Bundle], rows: Sequence[Row], path: Path, say: Say) -> Json:
    """What every engine of a sentence model makes of sentences that people have scored; None for one that fails."""
    from vlmsearch.bench.gpu.quality import sts_spearman
    from vlmsearch.tensorrt.builder.accuracy import encode
    from vlmsearch.tensorrt.engine.engine import Engine
    from vlmsearch.tensorrt.engine.plans import read_plan
    from vlmsearch.tensorrt.engine.runtime import this_machine

    found: Json = {}
    for bundle in bundles:
        model = bundle.model("text", "fp32")
        found[f"{bundle.name} float32, ONNX Runtime"] = sts_spearman(bundle, path, partial(_run_on_cpu, model))
        for row in (row for row in rows if row.job.folder == bundle.folder):
            name = f"{bundle.name} {row.job.kind}"
            try:
                with Engine(read_plan(row.plan, here=this_machine(0))) as engine:
                    found[name] = sts_spearman(bundle, path, partial(encode, engine))
            except BackendError as exc:
                say(f"{name}: no correlation: {exc}")
                found[name] = None
    return found


def _run_on_cpu(model: bytes, feeds: Feeds) -> Vectors:
    from vlmsearch.export.inputs import run

    return run(model, feeds)[0]


def _torch(task: BenchTask, say: Say) -> Iterator[Json]:
    from vlmsearch.bench.gpu.torch import compare_torch

    return compare_torch(task.models, task.gpus, say)


def _load(task: BenchTask, say: Say) -> Json:
    """Three minutes of mixed load on the published precision of two towers."""
    from contextlib import ExitStack

    from vlmsearch.bench.gpu.engines import recipe_for
    from vlmsearch.bench.gpu.load import run_load
    from vlmsearch.tensorrt.builder.accuracy import example
    from vlmsearch.tensorrt.builder.engines import ensure_engine
    from vlmsearch.tensorrt.engine.engine import Engine
    from vlmsearch.tensorrt.engine.plans import read_plan
    from vlmsearch.tensorrt.engine.runtime import this_machine

    work = []
    with ExitStack() as held:
        for bundle in list(_bundles(task, say))[:2]:
            for tower in bundle.towers:
                try:
                    plan = ensure_engine(bundle, tower, precision="fp16", recipe=recipe_for(bundle))
                except VlmsearchError as exc:
                    say(f"load: {bundle.name} {tower} is left out: {exc}")
                    continue
                engine = held.enter_context(Engine(read_plan(plan, here=this_machine(0)), contexts=4))
                work.append((engine, example(bundle, tower, 256, recipe_for(bundle).shapes.text_length[1])))
        return run_load(work, seconds=task.load_seconds).to_json()


def _picture(task: BenchTask, say: Say) -> Bundle:
    """The first model that takes images."""
    for bundle in _bundles(task, say):
        if bundle.preprocess is not None:
            return bundle
    raise ConfigError("none of the models takes images")


def _images(task: BenchTask, say: Say) -> Json:
    from vlmsearch.bench.gpu.engines import recipe_for
    from vlmsearch.bench.gpu.paths import image_paths

    bundle = _picture(task, say)
    return image_paths(bundle, recipe_for(bundle), say)


def _encoder(task: BenchTask, say: Say) -> Json:
    from vlmsearch.bench.gpu.paths import encoder_path

    return encoder_path(_picture(task, say), say)


def _onnx(task: BenchTask, say: Say) -> Json:
    from vlmsearch.bench.gpu.paths import onnx_path

    return onnx_path(_picture(task, say), say)


def _serving(task: BenchTask, say: Say) -> Json:
    from vlmsearch.bench.gpu.paths import serving_paths

    return serving_paths(_picture(task, say), say)


def _whole(section: Callable[[BenchTask, Say], Json]) -> Section:
    """A section that is reported once it is complete."""
    return lambda task, say: iter([section(task, say)])


SECTIONS: dict[str, tuple[tuple[str, ...], Section]] = {
    "engines": (("tensorrt", "cuda"), _whole(_engines)),
    "torch": (("torch", "transformers"), _torch),
    "load": (("tensorrt", "cuda"), _whole(_load)),
    "images": (("tensorrt", "cuda", "nvidia.nvimgcodec"), _whole(_images)),
    "serving": (("tensorrt", "cuda", "tritonclient", "nvidia.nvimgcodec"), _whole(_serving)),
    "encoder": (("tensorrt", "cuda", "onnxruntime"), _whole(_encoder)),
    "onnx": (("onnxruntime",), _whole(_onnx)),
}
"""Every section: the packages it needs, and what measures it, giving its report each time that it has grown."""
