"""Model repositories for engines, from NVIDIA's own templates.

Those for the LLM API need no engines.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import ConfigError
from vlmsearch.tensorrt_llm.checkpoint import mounted
from vlmsearch.tensorrt_llm.llmapi import PICTURES
from vlmsearch.tensorrt_llm.templates import (
    CONFIG,
    MODELS,
    assign,
    fill,
    find_templates,
    parse,
    placeholders,
    read_templates,
)
from vlmsearch.tensorrt_llm.versions import Target, same_version

Models = Literal["bls", "ensemble", "tensorrt_llm"]
_MODELS: Mapping[Models, tuple[str, ...]] = {
    "bls": MODELS,
    "ensemble": MODELS[:-1],
    "tensorrt_llm": ("tensorrt_llm",),
}
_YES = ("true", "True")
_MODEL_KEY = re.compile(r"""^\s*"?model"?:\s*["']?([^"'\s,#]+)""", re.MULTILINE)
_PATHS = re.compile(r"""[:\s"'\[](/[^"'\s,#\]]+)""")
"""Absolute paths in YAML, as it is written here and by hand."""
_ONLY = {"engine_dir": ("tensorrt_llm",), "tokenizer_dir": ("preprocessing", "postprocessing")}
"""Placeholders that other models have too, for uses that nobody asked for: several modalities, guided decoding."""


@dataclass(frozen=True)
class LlmRepoOptions:
    """Choices about the repository of a built engine.

    ``engine`` is a folder that ``llm build`` made, or one with engines. ``models`` are the ensemble's, those with
    ``tensorrt_llm_bls``, or ``tensorrt_llm`` alone, which reads token ids. ``values`` fill placeholders, ``key`` or
    ``model.key``: ``engine_dir`` and ``tokenizer_dir`` are where the server finds them, if not here.
    """

    target: Target
    engine: Path
    templates: Path | None = None
    decoupled: bool = True
    models: Models = "bls"
    values: Mapping[str, str] = field(default_factory=dict)


def write_llm_repository(out: Path, options: LlmRepoOptions) -> list[str]:
    """Write the repository of an engine to ``out``, whole or not at all.

    The models' names are returned.

    ConfigError for a value that is missing, unknown or wrong, and for an engine that this release cannot run.
    """
    source = find_templates(options.templates, options.target)
    configs = make_llm_configs(source, options)
    _check_target(out)
    with folder_in_the_making(out) as folder:
        for model, config in configs.items():
            shutil.copytree(source / model, folder / model, ignore=shutil.ignore_patterns("__pycache__"))
            (folder / model / "1").mkdir(exist_ok=True)
            (folder / model / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
        publish(folder, out)
    return list(configs)


def make_llm_configs(source: Path, options: LlmRepoOptions) -> dict[str, pb.ModelConfig]:
    """Return the checked configuration of every model, by name."""
    engine = _engine_config(options)
    texts = read_templates(source, options.target, _MODELS[options.models])
    given = assign(options.values, texts)
    defaults = _defaults(options, engine)
    configs = {}
    for model, text in texts.items():
        places = placeholders(text)
        known = [name for name in places if name in defaults and model in _ONLY.get(name, MODELS)]
        values = {**{name: defaults[name] for name in known}, **given[model]}
        needed = {name for name, bare in places.items() if bare}
        needed |= set(options.target.toolchain.mandatory.get(model, ()))
        missing = sorted(needed - values.keys())
        if missing:
            raise ConfigError(f"{model}: {', '.join(missing)} must be given in `values`, as {model}.{missing[0]}=VALUE")
        configs[model] = parse(fill(text, values, model), model)
    core = configs["tensorrt_llm"]
    faults = [*_faults(core, engine)]
    if faults:
        raise ConfigError(f"this engine and these values do not fit: {'; '.join(faults)}")
    return configs


@dataclass(frozen=True)
class ServedEngine:
    """A repository on disk: the ranks of its engine and the folders that it reads.

    ``source`` is the id of the hub's model that the server downloads, or "". ``needs_tensorrt_llm`` says whether the
    server must have TensorRT-LLM, which the Python baseline does without. ``has_engine`` says whether its release is
    that of an engine, ``has_pictures`` whether its model reads them.
    """

    ranks: int
    folders: tuple[Path, ...]
    source: str = ""
    needs_tensorrt_llm: bool = True
    has_engine: bool = True
    has_pictures: bool = False


def read_repository(folder: Path) -> ServedEngine:
    """Return a repository as it was written.

    ConfigError if it has no language model that can be read from here.
    """
    paths = {name: folder / name / CONFIG for name in ("tensorrt_llm", "preprocessing", "ensemble")}
    configs = {name: parse(path.read_text(encoding="utf-8"), name) for name, path in paths.items() if path.is_file()}
    if not configs.keys() & {"tensorrt_llm", "ensemble"}:
        raise ConfigError(f"{folder} serves no language model: it has no {paths['tensorrt_llm']}; `vlmsearch llm repo`")
    given = [value.string_value for config in configs.values() for value in config.parameters.values()]
    folders = tuple(dict.fromkeys(Path(text) for text in given if text.startswith("/") and Path(text).is_dir()))
    engine = configs["tensorrt_llm"].parameters if "tensorrt_llm" in configs else {}
    place = engine["gpt_model_path"].string_value if "gpt_model_path" in engine else ""
    if not place:
        needs = "tensorrt_llm" in configs
        yaml = folder / "tensorrt_llm" / "1" / "model.yaml"
        if not yaml.is_file():
            return ServedEngine(1, folders, "", needs, has_engine=False)
        source, read = _read_yaml(yaml)
        sighted = any(tensor.name == PICTURES for tensor in configs["tensorrt_llm"].input)
        return ServedEngine(1, (*folders, *read), source, needs, has_engine=False, has_pictures=sighted)
    mapping = read_engine(Path(place))["pretrained_config"]["mapping"]
    return ServedEngine(mapping["tp_size"] * mapping["pp_size"] if isinstance(mapping, dict) else 1, folders)


def _read_yaml(path: Path) -> tuple[str, tuple[Path, ...]]:
    """Return the hub's id in a ``model.yaml``, and the folders in it.

    The id may be "". The folders come with all that their links lead to.
    """
    text = path.read_text(encoding="utf-8")
    model = _MODEL_KEY.search(text)
    if model is None:
        raise ConfigError(f"{path} names no model")
    folders = [Path(value) for value in _PATHS.findall(text)]
    if model[1].startswith("/") and not Path(model[1]).is_dir():
        raise ConfigError(f"{path} names the model {model[1]}, which is no folder here")
    source = "" if model[1].startswith("/") else model[1]
    return source, tuple(mounted(folder)[0] for folder in folders if folder.is_dir())


def engine_folder(folder: Path) -> Path:
    """Return where the engines are: in ``engine/`` of what ``llm build`` made, or in the folder itself."""
    return folder / "engine" if (folder / "engine" / "config.json").is_file() else folder


def read_engine(folder: Path) -> dict[str, dict[str, object]]:
    """Return an engine's config.json; ConfigError if the folder has none, or not all its ranks."""
    path = engine_folder(folder) / "config.json"
    try:
        config = parse_json(path.read_text(encoding="utf-8"))
        mapping = config["pretrained_config"]["mapping"]
        ranks = mapping["tp_size"] * mapping["pp_size"]
    except OSError as exc:
        raise ConfigError(f"{folder} has no engines: {path}: {exc.strerror}; `vlmsearch llm build` makes them") from exc
    except (ValueError, KeyError, TypeError) as exc:
        raise ConfigError(f"{path} is not an engine's configuration: {exc!r}") from exc
    missing = [f"rank{rank}.engine" for rank in range(ranks) if not (path.parent / f"rank{rank}.engine").is_file()]
    if missing:
        raise ConfigError(f"{path.parent} has not all engines: {', '.join(missing)} missing")
    engine: dict[str, dict[str, object]] = config
    return engine


def _engine_config(options: LlmRepoOptions) -> dict[str, dict[str, object]]:
    config = read_engine(options.engine)
    built, wanted = str(config.get("version")), options.target.tensorrt_llm
    if not same_version(built, wanted):
        raise ConfigError(
            f"the engine was built by TensorRT-LLM {built}, and release {options.target.release} has {wanted}, which "
            "cannot run it: build it for this release, or name the release that it was built for"
        )
    return config


def _defaults(options: LlmRepoOptions, engine: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """Return what is known without asking, for placeholders that a template has."""
    build, pretrained = engine["build_config"], engine["pretrained_config"]
    kind = "TYPE_BF16" if pretrained.get("dtype") == "bfloat16" else "TYPE_FP16"
    folder = engine_folder(options.engine).absolute()
    values = {
        "triton_backend": "tensorrtllm",
        "triton_max_batch_size": str(build["max_batch_size"]),
        "decoupled_mode": str(options.decoupled).lower(),
        "engine_dir": str(folder),
        "batching_strategy": "inflight_fused_batching",
        "batch_scheduler_policy": "guaranteed_no_evict",
        "max_queue_delay_microseconds": "0",
        "max_queue_size": "0",
        "max_beam_width": str(build["max_beam_width"]),
        "exclude_input_in_output": "true",
        "accumulate_tokens": "true",  # else each piece of a stream is decoded by itself
        "preprocessing_instance_count": "1",
        "postprocessing_instance_count": "1",
        "bls_instance_count": "1",
        "logits_datatype": "TYPE_FP32",
        "encoder_input_features_data_type": kind,
        "prompt_embedding_table_data_type": kind,
    }
    tokenizer = folder.parent / "tokenizer"
    if tokenizer.is_dir():
        values["tokenizer_dir"] = str(tokenizer)
    return values


def _faults(core: pb.ModelConfig, engine: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Yield the faults that the server would find only later.

    That is when it loads the engine, or a request comes.
    """
    build = engine["build_config"]
    given = {key: value.string_value for key, value in core.parameters.items() if "${" not in value.string_value}
    max_batch = int(str(build["max_batch_size"]))
    if core.max_batch_size > max_batch:
        yield f"triton_max_batch_size is {core.max_batch_size}, and the engine takes {max_batch}"
    beams = given.get("max_beam_width", "1")
    if not beams.isdecimal() or int(beams) > int(str(build["max_beam_width"])):
        yield f"max_beam_width is {beams}, and the engine takes {build['max_beam_width']}"
    plugins = build.get("plugin_config")
    paged = isinstance(plugins, dict) and plugins.get("use_paged_context_fmha") is True
    for name in ("enable_kv_cache_reuse", "enable_chunked_context"):
        if given.get(name) in _YES and not paged:
            yield f"{name} needs an engine that was built with use_paged_context_fmha"


def _check_target(out: Path) -> None:
    is_repository = (out / "tensorrt_llm" / CONFIG).exists()
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not is_repository)):
        raise ConfigError(f"{out} is there and is not a repository of a language model: choose another `out`")
