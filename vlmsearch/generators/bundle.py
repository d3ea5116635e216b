"""A language model on disk for ONNX Runtime: a checkpoint's folder with a graph beside it.

``generator.json`` has the sizes of the model and the SHA-256 of each file, ``model.onnx`` the graph, which reads the
checkpoint's ``model.safetensors``, and ``tokenizer.json`` the tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.bundles import cache_folder, data_folder
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.folders import expand_home

FORMAT = 1
DESCRIPTION = "generator.json"
GRAPH = "model.onnx"
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class GeneratorBundle:
    """An opened bundle, its files checked.

    ``size`` is that of one attention head, ``ends`` are the tokens that end texts.
    """

    folder: Path
    name: str
    layers: int
    heads: int
    size: int
    context: int
    ends: frozenset[int]


def generator_names() -> list[str]:
    """The language models that come with the project."""
    return sorted(path.parents[1].name for path in data_folder("engines").glob(f"*/bundle/{DESCRIPTION}"))


def generator_folder(location: str) -> Path | None:
    """The folder of a language model that is on this machine, by name or path; None if there is none."""
    if "/" in location:
        folder = expand_home(location)
        return folder if folder.is_dir() else None
    places = [cache_folder() / "generators" / location, data_folder("engines") / location / "bundle"]
    return next((place for place in places if (place / "config.json").is_file()), None)


def open_generator_bundle(location: str) -> GeneratorBundle:
    """The bundle of a name or a folder.

    ConfigError for a name that there is not, ModelUnavailableError for a folder that is none or is damaged.
    """
    folder = generator_folder(location)
    if folder is None:
        known = ", ".join(generator_names())
        raise ConfigError(f"no language model {location!r} for ONNX Runtime; there is {known}, and folders (with a /)")
    try:
        data = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ConfigError(f"{folder / DESCRIPTION} is of format {data['format']}; this version reads {FORMAT}")
        _check_files(folder, data["files"])
        sizes = {name: int(data[name]) for name in ("layers", "heads", "size", "context")}
        return GeneratorBundle(
            folder, folder.name if "/" in location else location, ends=frozenset(data["ends"]), **sizes
        )
    except FileNotFoundError as exc:
        raise ModelUnavailableError(
            f"{folder} is no bundle: {exc.filename} is missing; for a GPT-2 checkpoint, vlmsearch.build.gpt2.add_graph "
            "writes it"
        ) from exc
    except (OSError, ValueError, KeyError, TypeError) as exc:
        if isinstance(exc, ConfigError):
            raise
        raise ModelUnavailableError(f"{folder / DESCRIPTION} is damaged ({exc!r}); build it again") from exc


def _check_files(folder: Path, files: dict[str, str]) -> None:
    for name, digest in files.items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if found != digest:
            raise ModelUnavailableError(f"{folder / name} is damaged (its SHA-256 differs); build it again")
