"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path

from vlmsearch.errors import ConfigError


def expand_home(path: str | Path) -> Path:
    """``path`` with ``~`` and ``~NAME`` as folders; ConfigError where there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as exc:
        raise ConfigError(f"{str(path)!r} has no home folder here: write the path in full") from exc


def is_path(location: str) -> bool:
    """Return whether ``location`` is written as a path, as ``./folder``, and not as a name, as ``org/model``."""
    return location in (".", "..") or location.startswith(("/", "./", "../", "~"))


def find_checkpoint(location: str) -> Path | None:
    """Return the folder of a model that is written as a path, None for the name of a model of a hub.

    ConfigError for a path without a folder, and for a name that a folder here has too: loaders of models take that.
    """
    if is_path(location):
        folder = expand_home(location)
        if not folder.is_dir():
            raise ConfigError(f"{location} is no folder with a checkpoint or an engine")
        return folder
    if Path(location).exists():
        raise ConfigError(
            f"{location} is a model of the Hugging Face hub, and there is a folder of that name here: "
            f"write ./{location} for the folder, or run in another folder for the hub's model"
        )
    return None
