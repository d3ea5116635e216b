"""The repository of TensorRT-LLM's LLM API: a checkpoint as it is, without engines."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch.errors import ConfigError, one_line
from vlmsearch.tensorrt_llm.arguments import add_arguments
from vlmsearch.tensorrt_llm.templates import CONFIG
from vlmsearch.tensorrt_llm.versions import Target, first_with, newest, same_version, stated_version

_MODEL = "tensorrt_llm"
_GPUS = "gpu_device_ids"
"""The parameter with the GPUs of each instance: pull request 11153 of NVIDIA/TensorRT-LLM."""
PICTURES = "image_url"
"""The input for pictures: pull request 18381 of NVIDIA/TensorRT-LLM."""
_SET_ELSEWHERE = {
    "triton_config.decoupled": "`decoupled` sets it, for the server as well",
    "triton_config.max_batch_size": "it is 0: the LLM API batches in flight, and the model takes no batches itself",
}
_GROUPS = re.compile(r"\d+(,\d+)*(;\d+(,\d+)*)*")


def write_llmapi_repository(
    out: Path,
    target: Target,
    model: str,
    *,
    templates: Path | None = None,
    decoupled: bool = True,
    values: Mapping[str, str] | None = None,
    pictures: bool = False,
) -> list[str]:
    """Write the model ``tensorrt_llm``, which runs a model with the LLM API on PyTorch.

    ``model`` is a hub id or a folder.

    ``values`` are arguments of TensorRT-LLM's ``LLM``, those in ``triton_config`` excepted, which are of NVIDIA's
    model. ``gpu_device_ids`` are the GPUs of several instances: ``0,1;2,3`` is two of them on two GPUs each.
    ``pictures`` says that the model shall read pictures. No known release has templates for that, so they may be of any
    version with the input for them. ConfigError where the release has no such model, or the templates do not fit.
    """
    if not target.llmapi:
        near = first_with(lambda release: bool(release.llmapi))
        raise ConfigError(f"release {target.release} has no llmapi model on PyTorch: the nearest is {near}")
    source = _find(templates, target, pictures)
    config = _read_config(source, target, pictures)
    arguments = {**({"triton_config.multimodal": "true"} if pictures else {}), **(values or {})}
    if fixed := next(iter(_SET_ELSEWHERE.keys() & arguments.keys()), ""):
        raise ConfigError(f"{fixed} cannot be set: {_SET_ELSEWHERE[fixed]}")
    # also in model.yaml, which is not asked where a server does not let models complete their configuration
    config.max_batch_size, config.model_transaction_policy.decoupled = 0, decoupled
    if gpus := arguments.pop(_GPUS, ""):
        _place(config, source, gpus)
    if out.exists() and any(out.iterdir()) and not (out / _MODEL / "1" / "model.yaml").is_file():
        raise ConfigError(f"{out} is there and is not an llmapi repository: choose another `out`")
    place = Path(model).expanduser()
    text = model_yaml(str(place.resolve()) if place.is_dir() else model, decoupled=decoupled, values=arguments)
    with folder_in_the_making(out) as folder:
        shutil.copytree(source, folder / _MODEL, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / _MODEL / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
        (folder / _MODEL / "1" / "model.yaml").write_text(text, encoding="utf-8")
        publish(folder, out)
    return [_MODEL]


def model_yaml(model: str, *, decoupled: bool, values: Mapping[str, str]) -> str:
    """Return the ``model.yaml``, written as JSON, which is YAML too."""
    # the model takes no batches of requests itself: the LLM API batches in flight
    data: dict[str, object] = {
        "model": model,
        "backend": "pytorch",
        "triton_config": {"max_batch_size": 0, "decoupled": decoupled},
    }
    return json.dumps(add_arguments(data, values), indent=2) + "\n"


def _read_config(source: Path, target: Target, pictures: bool) -> pb.ModelConfig:
    """Return the template of the configuration.

    ConfigError if it is not the target's, or cannot read pictures.
    """
    path, version = source / CONFIG, target.tensorrt_llm
    try:
        config = text_format.Parse(path.read_text(encoding="utf-8"), pb.ModelConfig())
    except text_format.ParseError as exc:  # that of engines has placeholders
        raise ConfigError(f"{path} is not the llmapi model: {one_line(exc)}") from exc
    if config.name != _MODEL or config.backend != "python":
        raise ConfigError(f"{path} is not the llmapi model: it is {config.name!r} of {config.backend!r}")
    if pictures:
        if all(tensor.name != PICTURES for tensor in config.input):
            raise ConfigError(f"{path} reads no pictures, it has no input {PICTURES}: {_sighted()}")
        return config
    stated = next(filter(None, map(stated_version, source.parents)), "")
    if stated and not same_version(stated, version):
        raise ConfigError(f"{path} is of TensorRT-LLM {stated}, and release {target.release} has {version}")
    strange = [tensor.name for tensor in config.input if tensor.name in target.absent]
    if strange:
        raise ConfigError(
            f"{path} is not of TensorRT-LLM {version}: it has the input {strange[0]}; give the templates of v{version}"
        )
    return config


def _place(config: pb.ModelConfig, source: Path, gpus: str) -> None:
    """Make an instance for each group of GPUs."""
    if not _GROUPS.fullmatch(gpus):
        raise ConfigError(f"{_GPUS} is GPUs, with a semicolon between instances, such as 0,1;2,3, not {gpus!r}")
    if _GPUS not in (source / "1" / "model.py").read_text(encoding="utf-8"):
        raise ConfigError(f"the llmapi model in {source} does not read {_GPUS}: it is of a version with one instance")
    config.instance_group[0].count = len(gpus.split(";"))
    config.parameters[_GPUS].string_value = gpus


def _find(templates: Path | None, target: Target, pictures: bool) -> Path:
    root = templates or (Path(target.root) if target.root else None)
    for place in (root, root / "all_models", root / "triton_backend" / "all_models") if root else ():
        for folder in (place / "llmapi" / _MODEL, place / _MODEL):
            if (folder / CONFIG).is_file() and (folder / "1" / "model.py").is_file():
                return folder
    if pictures:
        raise ConfigError(f"{root or target.image} has no llmapi/{_MODEL} that reads pictures: {_sighted()}")
    raise ConfigError(
        f"{root or target.image} has no llmapi/{_MODEL}: give `templates`, a checkout of {target.clone} at "
        f"v{target.tensorrt_llm}, or run this in {target.image}"
    )


def _sighted() -> str:
    """Return where templates that read pictures come from, and what does without them."""
    return (
        f"no container of Triton up to {newest()} does. Give `templates`, a checkout of a later TensorRT-LLM, and "
        "serve it where that version is installed; or take trtllm-serve: `vlmsearch llm serve NAME --docker`"
    )
