"""A checkpoint of a language model, looked at before hours are spent on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from vlmsearch._util.extras import install_command
from vlmsearch._util.strict_json import parse_json
from vlmsearch._util.text import drawing_allowed
from vlmsearch.errors import ConfigError, MissingDependencyError, ModelUnavailableError, one_line
from vlmsearch.tensorrt_llm.check import VOCABULARIES
from vlmsearch.tensorrt_llm.plan import RUN, LlmPlan
from vlmsearch.tensorrt_llm.recipe import LlmRecipe
from vlmsearch.tensorrt_llm.versions import same_version, stated_version

_TOKENIZER = (
    *VOCABULARIES,
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer_config.json",
)
_WANTED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py")
"""Python too: the conversion script reads Phi with the code that its config.json names in ``auto_map``."""
_MAX_UP = 2
"""Folders up that the links of the hub's cache lead: out of a snapshot, and out of all snapshots."""
_POINTER = b"version https://git-lfs"
_GPT2 = {"layers": "n_layer", "heads": "n_head", "hidden": "n_embd", "vocab": "vocab_size", "context": "n_positions"}
_LLAMA = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "hidden": "hidden_size",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
}


def model_folder(recipe: LlmRecipe) -> Path:
    """Return the folder with a recipe's checkpoint, which is downloaded where it is missing.

    Progress is shown by the hub's own library. ModelUnavailableError where the hub cannot be reached, has no such
    revision, or wants the licence accepted first.
    """
    if recipe.checkpoint:
        return recipe.folder / recipe.checkpoint
    try:
        import huggingface_hub
    except ImportError as exc:
        raise MissingDependencyError(
            f"downloading needs huggingface-hub: {install_command('build')}; with a copy give its folder as `model`"
        ) from exc
    try:
        with drawing_allowed():
            return Path(
                huggingface_hub.snapshot_download(recipe.source, revision=recipe.revision, allow_patterns=list(_WANTED))
            )
    except Exception as exc:
        gated = " Its licence has to be accepted on the hub first, and HF_TOKEN set." if recipe.gated else ""
        raise ModelUnavailableError(
            f"{recipe.source} at {recipe.revision[:12]} cannot be downloaded ({one_line(exc, 120)}).{gated} "
            "With a copy of the checkpoint give its folder as `model`"
        ) from exc


def check_model(folder: Path, plan: LlmPlan) -> None:
    """Raise unless a folder holds the recipe's model: ModelUnavailableError if it is not whole, else ConfigError."""
    recipe = plan.recipe
    try:
        config = parse_json((folder / "config.json").read_text(encoding="utf-8"))
    except OSError as exc:
        where = f"; get {recipe.source} at {recipe.revision}" if recipe.source else ""
        raise ModelUnavailableError(f"{folder} is not a checkpoint: config.json: {exc.strerror}{where}") from exc
    except ValueError as exc:
        raise ModelUnavailableError(f"{folder / 'config.json'} is damaged: {exc}") from exc
    if not isinstance(config, dict):
        raise ModelUnavailableError(f"{folder / 'config.json'} is damaged: it is not a JSON object")
    faults = [*_differences(config, plan)]
    if faults:
        raise ConfigError(f"{folder} is not the model of the recipe {recipe.name}: {'; '.join(faults)}")
    missing = [*_missing(folder)]
    if missing:
        raise ModelUnavailableError(f"{folder} is not whole: {'; '.join(missing)}")


def _differences(config: Mapping[str, object], plan: LlmPlan) -> Iterator[str]:
    shape = plan.recipe.architecture
    for name, key in (_GPT2 if shape.family == "gpt" else _LLAMA).items():
        wanted = getattr(shape, name)
        value = config.get(key, wanted if name == "kv_heads" else None)
        if value != wanted:
            yield f"{key} is {value}, not {wanted}"


def _missing(folder: Path) -> Iterator[str]:
    weights = [path for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern)]
    if not weights:
        yield "there are no weights (*.safetensors or *.bin)"
    for path in weights:
        with path.open("rb") as file:
            head = file.read(len(_POINTER))
        if not head or head == _POINTER:
            yield f"{path.name} is {'a pointer of git-lfs' if head else 'empty'}"
    for index in folder.glob("*.index.json"):
        try:
            parts = set(parse_json(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
        except (OSError, ValueError, AttributeError, TypeError):
            yield f"{index.name} is damaged"
            continue
        lacking = sorted(name for name in parts if not (folder / name).is_file())
        if lacking and not any(path.name not in parts for path in weights):
            yield f"{', '.join(lacking)} of {index.name} is missing"
    if not any((folder / name).is_file() for name in VOCABULARIES):
        yield f"there is no tokenizer ({', '.join(VOCABULARIES)})"


def check_scripts(folder: Path, plan: LlmPlan) -> None:
    """Raise ConfigError unless a folder has the scripts of the plan's version."""
    version = plan.target.tensorrt_llm
    for script in filter(None, (plan.script, plan.requirements, RUN)):
        if not (folder / script).is_file():
            fetch = plan.clone or f"the container has it in {plan.target.root}"
            raise ConfigError(f"{folder} has no {script} of TensorRT-LLM {version}: {fetch}")
    stated = stated_version(folder)
    if stated and not same_version(stated, version):
        raise ConfigError(f"{folder} is TensorRT-LLM {stated}, and release {plan.target.release} has {version}")


def mounted(folder: Path) -> tuple[Path, str]:
    """Return the folder to mount in a container, and the place of ``folder`` in it.

    The hub's cache has links to files elsewhere in it. ConfigError if they lead too far away.
    """
    real = folder.resolve()
    files = [path.resolve().parent for path in real.rglob("*") if path.is_file()]
    top = Path(os.path.commonpath([real, *files]))
    if len(real.relative_to(top).parts) > _MAX_UP:
        raise ConfigError(f"{folder} has links to files in other places, which a container cannot see: copy it whole")
    rest = str(real.relative_to(top))
    return top, "" if rest == "." else rest


def copy_tokenizer(model: Path, folder: Path) -> None:
    """Copy what turns text into tokens and back."""
    for name in _TOKENIZER:
        if (model / name).is_file():
            shutil.copyfile(model / name, folder / name)


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Return a folder's files with sizes and times: what tells whether it changed."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
