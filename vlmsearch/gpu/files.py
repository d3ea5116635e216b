"""Files that appear whole or not at all, and blocks that one thread of one process is in."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vlmsearch.errors import ModelUnavailableError
from vlmsearch.stores.folder_lock import FolderLock, LockedError

_STALE_SECONDS = 24 * 3600
_POLL_SECONDS = 0.1
_UNWRITABLE = {errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS}
_busy: dict[str, threading.Lock] = {}
_busy_guard = threading.Lock()


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Only one thread of one process is in this block for one lock file; others wait their turn."""
    with _busy_guard:
        mine = _busy.setdefault(str(path), threading.Lock())
    with mine:
        with writing(path.parent):
            lock = _locked(path)
        try:
            yield
        finally:
            lock.close()


def _locked(path: Path) -> FolderLock:
    while True:
        try:
            return FolderLock(path)
        except LockedError:
            time.sleep(_POLL_SECONDS)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A full or read-only disk is one clear error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as exc:
        if exc.errno not in _UNWRITABLE:
            raise
        raise ModelUnavailableError(
            f"{folder} cannot be written: {exc.strerror}; name another cache in $VLMSEARCH_CACHE"
        ) from exc


def replace_file(path: Path, data: bytes) -> None:
    """Write a file beside its place and put it there at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob(".*.writing"):
        with suppress(OSError):  # another process's may be in its place by now, or may not be ours to remove
            if time.time() - old.stat().st_mtime > _STALE_SECONDS:
                old.unlink()
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=".writing", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
