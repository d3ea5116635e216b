"""From bundles to a folder that Triton serves."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import PIL.Image
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

import vlmsearch
from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import Bundle, Tower, data_folder, find_bundles
from vlmsearch.models.recipe import Shapes, built_by
from vlmsearch.models.reranker import RerankerBundle, find_reranker, reranker_file
from vlmsearch.triton.client import protocol
from vlmsearch.triton.repository.config import (
    ensemble_config,
    preprocess_config,
    reranker_config,
    reranker_precision,
    tokenize_config,
    tower_config,
)
from vlmsearch.triton.repository.options import RepoOptions, check_options
from vlmsearch.triton.repository.plans import CODEC, TowerPlan, build_command, find_tower_plan, requirements_of
from vlmsearch.triton.server.install import requirements
from vlmsearch.triton.server.library import PACKAGE, write_wheel

CONFIG = "config.pbtxt"
_VERSION = "1"


@dataclass(frozen=True)
class Repository:
    """A repository that was written: the folder, its models, and the TensorRT plans that are still to be put there.

    ``commands`` build those plans on a machine with the GPU, after which the repository is to be written again.
    """

    folder: Path
    models: tuple[str, ...]
    missing: tuple[Path, ...]
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Part:
    """One tower of one bundle, and the plan that it gets."""

    bundle: Bundle
    tower: Tower
    given: Shapes
    plan: TowerPlan | None = None

    @property
    def name(self) -> str:
        if self.tower == "image":
            return protocol.image_model(self.bundle.space.name)
        return protocol.text_model(self.bundle.space)

    @property
    def shapes(self) -> Shapes:
        return self.plan.shapes(self.given) if self.plan else self.given


def write_repository(models: str, out: Path, options: RepoOptions, *, plans: Path | None = None) -> Repository:
    """Write the repository of models to ``out``, whole or not at all.

    They are a profile, a name or bundles with a comma between them.

    TensorRT plans are those that were built here, or lie in the folder ``plans`` as ``<model>.plan``. One that this
    library built has its description, ``<model>.json``, beside it. The result names the plans that are not there.
    An older repository at ``out`` is replaced; ConfigError if anything else is there.
    """
    check_options(options)
    bundles = [bundle for name in models.split(",") for bundle in find_bundles(name.strip())]
    reranker = find_reranker(options.reranker) if options.reranker else None
    _check_bundles(bundles)
    _check_target(out)
    parts = _parts(bundles, options, plans)
    configs = _configs(bundles, parts, options)
    if reranker:
        configs[protocol.RERANKER] = reranker_config(reranker, options)
    with folder_in_the_making(out) as folder:
        for config in configs.values():
            (folder / config.name / _VERSION).mkdir(parents=True)
            (folder / config.name / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
        for part in parts:
            _write_tower(folder / part.name, part, options)
        _write_stages(folder, bundles, options)
        if reranker:
            _write_reranker(folder / protocol.RERANKER / _VERSION, reranker, options)
        write_requirements(folder, _requirements(parts, options))
        publish(folder, out)
    lacking = [part for part in parts if options.engines and part.plan is None]
    missing = [out / part.name / _VERSION / "model.plan" for part in lacking]
    commands = dict.fromkeys(build_command(part.bundle, options) for part in lacking)
    return Repository(out, tuple(configs), tuple(missing), tuple(commands))


def make_configs(bundles: Sequence[Bundle], options: RepoOptions) -> Mapping[str, pb.ModelConfig]:
    """Return the configuration of every model, by name, the ensemble last."""
    return _configs(
        bundles, [_Part(bundle, tower, _shapes(bundle)) for bundle in bundles for tower in bundle.towers], options
    )


def _configs(bundles: Sequence[Bundle], parts: Sequence[_Part], options: RepoOptions) -> dict[str, pb.ModelConfig]:
    made = [
        tower_config(part.bundle, part.tower, part.shapes, options, profiles=part.plan.count if part.plan else 1)
        for part in parts
    ]
    if not options.decodes_in_tower:
        made += [preprocess_config(bundle, options) for bundle in bundles if bundle.preprocess]
    made.append(tokenize_config(bundles, options))
    largest = min(config.max_batch_size for config in made)
    made.append(ensemble_config(bundles, options, largest))
    return {config.name: config for config in made}


def _parts(bundles: Sequence[Bundle], options: RepoOptions, plans: Path | None) -> list[_Part]:
    parts = []
    for bundle in bundles:
        for tower in bundle.towers:
            part = _Part(bundle, tower, _shapes(bundle))
            plan = find_tower_plan(bundle, tower, part.name, options, plans) if options.engines else None
            parts.append(replace(part, plan=plan))
    return parts


def _requirements(parts: Sequence[_Part], options: RepoOptions) -> list[str]:
    """Return what the Python models need."""
    engines = {line for part in parts if part.plan for line in requirements_of(part.plan)} if options.engines else set()
    codec = set(CODEC) if options.decode == "gpu" else set()
    return sorted({*requirements(onnx=options.runtime == "onnxruntime" or bool(options.reranker)), *engines, *codec})


def _check_bundles(bundles: Sequence[Bundle]) -> None:
    names, spaces = {bundle.name for bundle in bundles}, {bundle.space.name for bundle in bundles}
    if min(len(names), len(spaces)) < len(bundles) or sum(bundle.preprocess is not None for bundle in bundles) > 1:
        raise ConfigError(f"these models cannot work together: {', '.join(bundle.name for bundle in bundles)}")


def _check_target(out: Path) -> None:
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / protocol.ENSEMBLE / CONFIG).exists())):
        raise ConfigError(f"{out} is there and is not a repository of vlmsearch: choose another `out`")


def _shapes(bundle: Bundle) -> Shapes:
    recipe = built_by(bundle)
    return (recipe.shapes if recipe else Shapes()).of(bundle.text)


def _write_tower(folder: Path, part: _Part, options: RepoOptions) -> None:
    version = folder / _VERSION
    if options.engines and part.plan:
        shutil.copyfile(part.plan.path, version / "model.plan")
        if part.plan.plan:
            shutil.copyfile(part.plan.path.with_suffix(".json"), version / "model.json")
    if not options.engines:
        (version / "model.onnx").write_bytes(part.bundle.model(part.tower, options.found_precision))
    if options.decodes_in_tower and part.tower == "image":
        write_model(version, protocol.PREPROCESS)
    elif options.platform == "python":
        write_model(version, "tower")


def _write_stages(folder: Path, bundles: Sequence[Bundle], options: RepoOptions) -> None:
    """``image_preprocess``, ``text_tokenize``, and what the models that take encoded data warm up with."""
    for bundle in bundles:
        place = folder / protocol.TOKENIZE / _VERSION / "bundles" / bundle.name
        place.mkdir(parents=True)
        for name in ("bundle.json", "tokenizer.json"):
            shutil.copyfile(bundle.folder / name, place / name)
    picture = BytesIO()
    PIL.Image.new("RGB", (320, 240), "grey").save(picture, "JPEG")
    samples = {protocol.TOKENIZE: (protocol.TEXT, b"a dog in the snow")}
    stages = [protocol.TOKENIZE]
    for bundle in (bundle for bundle in bundles if bundle.preprocess):
        decoder = protocol.PREPROCESS
        if options.decodes_in_tower:
            decoder = protocol.image_model(bundle.space.name)
        else:
            stages.append(decoder)
        samples[decoder] = (protocol.ENCODED, picture.getvalue())
    for model in stages:
        write_model(folder / model / _VERSION, model)
    for model, (tensor, sample) in samples.items():
        if options.warmup:
            (folder / model / "warmup").mkdir()
            (folder / model / "warmup" / tensor).write_bytes(struct.pack("<I", len(sample)) + sample)


def _write_reranker(version: Path, bundle: RerankerBundle, options: RepoOptions) -> None:
    write_model(version, protocol.RERANKER)
    (version / "bundle").mkdir()
    for name in ("bundle.json", "tokenizer.json", reranker_file(reranker_precision(options))):
        shutil.copyfile(bundle.folder / name, version / "bundle" / name)


def write_model(folder: Path, source: str) -> None:
    """Write the model.py of a model of ``model_repository`` into the folder of a version."""
    shutil.copyfile(data_folder("model_repository") / source / "1" / "model.py", folder / "model.py")


def write_requirements(folder: Path, packages: Sequence[str]) -> None:
    """Write the repository's requirements.txt with this library, whose wheel lies beside it, and ``packages``.

    ``pip install -r requirements.txt`` finds the wheel wherever it is run: pip takes the path of ``--find-links`` as
    relative to the file. Where the library is installed already, with all that it has elsewhere, it stays.
    """
    write_wheel(folder)
    lines = ("--find-links .", f"{PACKAGE}=={vlmsearch.__version__}", *packages)
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
