"""NVIDIA's configuration templates: what they ask for, and how values are put in without breaking them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from vlmsearch._util.tables import suggest
from vlmsearch.errors import ConfigError
from vlmsearch.tensorrt_llm.versions import Target

CONFIG = "config.pbtxt"
MODELS = ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls")
_TOKEN = re.compile(r"""#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\$\{(\w+)\}""")
_PLACE = re.compile(r"\$\{(\w+)\}")
_BARE = re.compile(r"[A-Za-z0-9_.+-]+")


def find_templates(folder: Path | None, target: Target) -> Path:
    """Return the folder with the ensemble's templates: ``folder`` itself, or in a checkout or a container's root."""
    chain = target.toolchain
    root = folder or (Path(target.root) if target.root else None)
    fetch = f"git clone --depth 1 --branch v{target.tensorrt_llm} {target.clone} TEMPLATES"
    if root is None:
        raise ConfigError(
            f"the container of release {target.release} has no templates: `{fetch}`, and give TEMPLATES as `templates`"
        )
    for place in (root, root / chain.templates, root / "all_models" / "inflight_batcher_llm"):
        if (place / "ensemble" / CONFIG).is_file():
            return place
    raise ConfigError(
        f"{root} has no {chain.templates}/ensemble/{CONFIG}: `{fetch}`, and give TEMPLATES as `templates`"
    )


def read_templates(folder: Path, target: Target, models: tuple[str, ...]) -> dict[str, str]:
    """Return the text of each model's template.

    ConfigError if they are not those of the target's version.
    """
    texts = {}
    version = target.tensorrt_llm
    for model in models:
        path = folder / model / CONFIG
        try:
            texts[model] = path.read_text(encoding="utf-8")
        except OSError as exc:
            raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
        places = placeholders(texts[model])
        lacking = [name for name in target.toolchain.mandatory.get(model, ()) if name not in places]
        strange = [name for name in target.absent if name in places]
        if lacking or strange:
            what = f"it has no ${{{lacking[0]}}}" if lacking else f"it has ${{{strange[0]}}}"
            raise ConfigError(f"{path} is not of TensorRT-LLM {version}: {what}; give the templates of v{version}")
    return texts


def placeholders(text: str) -> dict[str, bool]:
    """Return the names in a template, and whether each needs a value.

    A template cannot be read without those.

    What stands in quotes may stay: NVIDIA's backend takes its own default for it. Comments do not count.
    """
    places: dict[str, bool] = {}
    for token in _TOKEN.finditer(text):
        if token[1]:
            places[token[1]] = True
        elif not token[0].startswith("#"):
            for name in _PLACE.findall(token[0]):
                places.setdefault(name, False)
    return places


def fill(text: str, values: Mapping[str, str], where: str) -> str:
    """Return a template with its values: escaped inside quotes, checked outside.

    ConfigError for a value that cannot stand there.
    """

    def replace(token: re.Match[str]) -> str:
        if token[0].startswith("#"):
            return token[0]
        if token[1] is None:
            return _PLACE.sub(lambda place: _escaped(values[place[1]]) if place[1] in values else place[0], token[0])
        value = values.get(token[1])
        if value is None:
            return token[0]
        if not _BARE.fullmatch(value):
            raise ConfigError(f"{where}: {token[1]} is a number or a name here, not {value!r}")
        return value

    return _TOKEN.sub(replace, text)


def assign(given: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return what a user gave, by model.

    A key is ``key`` or ``model.key``. ConfigError for one that no template has.
    """
    known = {model: placeholders(text) for model, text in texts.items()}
    names = sorted({name for places_by_name in known.values() for name in places_by_name})
    values: dict[str, dict[str, str]] = {model: {} for model in texts}
    for key, value in given.items():
        model, dot, name = key.rpartition(".")
        if dot and model not in known:
            raise ConfigError(f"no model {model!r}; {suggest(model, known)}there are {', '.join(known)}")
        places = [place for place in ([model] if dot else known) if name in known[place]]
        if not places:
            options = sorted(known[model]) if dot else names
            raise ConfigError(f"no template asks for {key!r}; {suggest(name, options)}there are {', '.join(options)}")
        for place in places:
            values[place][name] = value
    return values


def parse(text: str, model: str) -> pb.ModelConfig:
    """Return a filled template as Triton reads it; ConfigError says where it is wrong."""
    try:
        config = text_format.Parse(text, pb.ModelConfig())
    except text_format.ParseError as exc:
        raise ConfigError(f"{model}: the filled template is not a model configuration: {exc}") from exc
    if config.name != model:
        raise ConfigError(f"{model}: the template is of a model {config.name!r}")
    return config


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'").replace("\n", "\\n")
