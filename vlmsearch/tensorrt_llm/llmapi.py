"""The repository of TensorRT-LLM's LLM API: a checkpoint as it is, without engines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch.errors import ConfigError
from vlmsearch.tensorrt_llm.templates import CONFIG
from vlmsearch.tensorrt_llm.versions import Target, targets

_MODEL = "tensorrt_llm"


def write_llmapi_repository(
    out: Path,
    target: Target,
    model: str,
    *,
    templates: Path | None = None,
    decoupled: bool = True,
    values: Mapping[str, str] | None = None,
) -> list[str]:
    """Write the model ``tensorrt_llm`` that runs ``model``, a hub id or a folder, with the LLM API on PyTorch.

    ``values`` are arguments of TensorRT-LLM's ``LLM``. ConfigError where the release has no such model.
    """
    if not target.toolchain.llmapi:
        first = next(release for release in targets() if release.toolchain.llmapi)
        raise ConfigError(f"Triton {target.release} has no llmapi model on PyTorch: the nearest is {first.release}")
    source = _find(templates, target)
    config = text_format.Parse((source / CONFIG).read_text(encoding="utf-8"), pb.ModelConfig())
    if config.name != _MODEL or config.backend != "python":
        raise ConfigError(f"{source / CONFIG} is not the llmapi model: it is {config.name!r} of {config.backend!r}")
    # also in model.yaml, which is not asked where a server does not let models complete their configuration
    config.max_batch_size, config.model_transaction_policy.decoupled = 0, decoupled
    if out.exists() and any(out.iterdir()) and not (out / _MODEL / "1" / "model.yaml").is_file():
        raise ConfigError(f"{out} is there and is not an llmapi repository: choose another `out`")
    text = model_yaml(model, decoupled=decoupled, values=values or {})
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
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        entries = data.setdefault(table, {}) if table else data
        if not isinstance(entries, dict):
            raise ConfigError(f"{key}: {table} is no table of arguments")
        entries[name] = _scalar(value)
    return json.dumps(data, indent=2) + "\n"


def _scalar(value: str) -> object:
    try:
        return json.loads(value.lower())
    except ValueError:
        return value


def _find(templates: Path | None, target: Target) -> Path:
    root = templates or Path(target.toolchain.root)
    for place in (root, root / "all_models", root / "triton_backend" / "all_models"):
        for folder in (place / "llmapi" / _MODEL, place / _MODEL):
            if (folder / CONFIG).is_file() and (folder / "1" / "model.py").is_file():
                return folder
    raise ConfigError(
        f"{root} has no llmapi/{_MODEL}: give `templates`, a checkout of {target.toolchain.clone} at "
        f"v{target.versions.tensorrt_llm}, or run this in {target.image}"
    )
