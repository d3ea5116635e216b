"""Checkpoints by the family that their configuration names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.families import bert, clip, distilbert, modernbert, mpnet, nomic_bert, openclip, roberta, siglip
from vlmsearch.building.weights import Json, read_json
from vlmsearch.errors import ConfigError, VlmsearchError
from vlmsearch.models.recipe import Prompts

Reader = Callable[[Path, Json], Checkpoint]
FAMILIES: Mapping[str, Reader] = {
    "clip": clip.read,
    "open_clip": openclip.read,
    "siglip": siglip.read,
    "siglip2": siglip.read_flexible,
    "bert": bert.read,
    "distilbert": distilbert.read,
    "modernbert": modernbert.read,
    "mpnet": mpnet.read,
    "nomic_bert": nomic_bert.read,
    "roberta": roberta.read,
    "xlm-roberta": roberta.read,
}
"""Readers of the encoders of a family; see `read_config`."""
CROSS_ENCODERS: Mapping[str, Reader] = {
    "bert": bert.read_cross_encoder,
    "roberta": roberta.read_cross_encoder,
    "xlm-roberta": roberta.read_cross_encoder,
}
"""Readers of the re-rankers of a ``model_type``."""


def load_checkpoint(folder: Path, prompts: Prompts | None = None, max_tokens: int = 0) -> Checkpoint:
    """Read an encoder's checkpoint; ConfigError says what is missing or which families can be exported.

    ``prompts`` replaces those that its own files name. ``max_tokens`` limits the tokens that it reads.
    """
    checkpoint = _load(folder, FAMILIES, "encoders")
    return dataclasses.replace(
        checkpoint,
        prompts=checkpoint.prompts if prompts is None else prompts,
        max_tokens=min(max_tokens or checkpoint.max_tokens, checkpoint.max_tokens),
    )


def load_cross_encoder(folder: Path) -> Checkpoint:
    """Read the checkpoint of a model that gives one number for two texts; ConfigError as `load_checkpoint`."""
    return _load(folder, CROSS_ENCODERS, "cross-encoders")


def check_family(folder: Path, name: str) -> tuple[str, Json]:
    """Return the family of a checkpoint and its settings.

    ConfigError where none of that family can be exported.
    """
    kind, config = read_config(folder)
    readers, what = (CROSS_ENCODERS, "cross-encoders") if is_cross_encoder(config) else (FAMILIES, "encoders")
    _reader(kind, config, name, readers, what)
    return str(kind), config


def is_cross_encoder(config: object) -> bool:
    """Return whether a configuration is of a model that gives numbers for texts, and no vectors."""
    return any("ForSequenceClassification" in head for head in _heads(config))


def _heads(config: object) -> list[str]:
    heads = config.get("architectures") if isinstance(config, dict) else None
    return [str(head) for head in heads] if isinstance(heads, list) else []


def _reader(kind: str | None, config: object, name: str, readers: Mapping[str, Reader], what: str) -> Reader:
    programs = config.get("auto_map") if isinstance(config, dict) else None
    read = readers.get(str(kind))
    if read is not None:
        return read
    own = f" with a program of its own ({_program(programs)}), which is never run" if programs else ""
    raise ConfigError(f"{name} is of the family {kind!r}{own}; {what} of {', '.join(readers)} can be exported")


def _program(programs: object) -> str:
    """Return the file that a repository's ``auto_map`` names."""
    named = [str(value).rpartition("--")[2] for value in programs.values()] if isinstance(programs, dict) else []
    return ", ".join(dict.fromkeys(f"{value.partition('.')[0]}.py" for value in named))


def read_config(folder: Path) -> tuple[str | None, Json]:
    """Return the family of a checkpoint and its settings: the ``model_type`` of its configuration, or ``open_clip``.

    A checkpoint in OpenCLIP's layout is read as such where transformers' is not there too.
    """
    if (folder / openclip.CONFIG).is_file():
        own = [folder / "config.json", *folder.glob("model*.safetensors")]
        if not own[0].is_file() or ((folder / openclip.WEIGHTS).is_file() and len(own) < 2):
            return "open_clip", read_json(folder / openclip.CONFIG)
    config = read_json(folder / "config.json")
    return (config.get("model_type") if isinstance(config, dict) else None), config


def _load(folder: Path, readers: Mapping[str, Reader], what: str) -> Checkpoint:
    kind, config = read_config(folder)
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError(f"{folder} has no tokenizer.json: save the checkpoint with its fast tokenizer")
    read = _reader(kind, config, str(folder), readers, what)
    try:
        return read(folder, config)
    except VlmsearchError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        raise ConfigError(f"{folder}: its settings are incomplete or damaged ({repr(exc)[:120]})") from exc
