"""Folders that are not as they should be."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest


def shut(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let a folder be one that may not be listed, also for root."""
    scandir = os.scandir

    def refuse(path: str) -> object:
        if Path(path) == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
