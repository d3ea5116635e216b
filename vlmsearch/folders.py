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
