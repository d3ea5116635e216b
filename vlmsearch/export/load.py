"""Checkpoints by the family that their configuration names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from vlmsearch.errors import ConfigError
from vlmsearch.export.checkpoint import Checkpoint
from vlmsearch.export.families import bert, clip, openclip, siglip
from vlmsearch.export.weights import Json, read_json
from vlmsearch.models.recipe import Prompts

Reader = Callable[[Path, Json], Checkpoint]
FAMILIES: Mapping[str, Reader] = {
    "clip": clip.read,
    "open_clip": openclip.read,
    "siglip": siglip.read,
    "siglip2": siglip.read_flexible,
    "bert": bert.read,
}
"""What reads an encoder of a family; see `read_config`."""
CROSS_ENCODERS: Mapping[str, Reader] = {"bert": bert.read_cross_encoder}
"""What reads a re-ranker of a ``model_type``."""


def load_checkpoint(folder: Path, prompts: Prompts | None = None) -> Checkpoint:
    """Read an encoder's checkpoint; ConfigError says what is missing or which families can be exported.

    ``prompts`` replaces those that its own files name.
    """
    found = _load(folder, FAMILIES, "encoders")
    return found if prompts is None else dataclasses.replace(found, prompts=prompts)


def load_cross_encoder(folder: Path) -> Checkpoint:
    """Read the checkpoint of a model that gives one number for two texts; ConfigError as `load_checkpoint`."""
    return _load(folder, CROSS_ENCODERS, "cross-encoders")


def read_config(folder: Path) -> tuple[str | None, Json]:
    """Return the family of a checkpoint and its settings: the ``model_type`` of its configuration, or ``open_clip``.

    A checkpoint in OpenCLIP's layout is read as such where transformers' is not there too.
    """
    if (folder / openclip.CONFIG).is_file():
        ours = [folder / "config.json", *folder.glob("model*.safetensors")]
        if not ours[0].is_file() or ((folder / openclip.WEIGHTS).is_file() and len(ours) < 2):
            return "open_clip", read_json(folder / openclip.CONFIG)
    config = read_json(folder / "config.json")
    return (config.get("model_type") if isinstance(config, dict) else None), config


def _load(folder: Path, readers: Mapping[str, Reader], what: str) -> Checkpoint:
    kind, config = read_config(folder)
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError(f"{folder} has no tokenizer.json: save the checkpoint with its fast tokenizer")
    read = readers.get(str(kind))
    if read is None:
        raise ConfigError(f"{folder} is of type {kind!r}; {what} of {', '.join(readers)} can be exported")
    try:
        return read(folder, config)
    except (KeyError, TypeError, AttributeError, IndexError) as exc:
        raise ConfigError(f"{folder}: its settings are incomplete or damaged ({exc!r})") from exc
