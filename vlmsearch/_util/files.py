"""Files that appear whole or not at all, blocks that one thread of one process is in, and home folders."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vlmsearch._util.locks import FileLock, LockedError
from vlmsearch.errors import ConfigError, ModelUnavailableError

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


def _locked(path: Path) -> FileLock:
    while True:
        try:
            return FileLock(path)
        except LockedError:
            time.sleep(_POLL_SECONDS)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A full or read-only disk is one clear error, and so is a folder that others may write to."""
    try:
        make_private(folder)
        yield
    except OSError as exc:
        if exc.errno not in _UNWRITABLE:
            raise
        raise ModelUnavailableError(
            f"{folder} cannot be written: {exc.strerror}; name another cache in $VLMSEARCH_CACHE"
        ) from exc


def make_private(folder: Path) -> None:
    """Make a folder for what is run, such as engines, and check that nobody else may write to it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    check_private(folder)


def check_private(*paths: Path) -> None:
    """Raise ModelUnavailableError where another user may write to a file or folder: engines are programs.

    The administrator is no other user, and a group that the user is alone in by its name is no group. A path that is
    not there is passed over.
    """
    if sys.platform == "win32":  # a user's folders are private there
        return
    for path in paths:
        with suppress(FileNotFoundError):
            found = path.stat()
            if found.st_uid not in (0, os.geteuid()):
                why, cure = f"belongs to another user ({found.st_uid})", "name another cache in $VLMSEARCH_CACHE"
            elif found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)):
                why, cure = "can be written to by other users", f"empty it, then chmod go-w {shlex.quote(str(path))}"
            else:
                continue
            raise ModelUnavailableError(f"{path} {why}, and engines are programs: {cure}")


def _is_own_group(number: int) -> bool:
    import grp
    import pwd

    try:
        return grp.getgrgid(number).gr_name == pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False


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
            raise ConfigError(f"{location} is not a folder with a checkpoint or an engine")
        return folder
    if Path(location).exists():
        raise ConfigError(
            f"{location} is a model of the Hugging Face hub, and there is a folder of that name here: "
            f"write ./{location} for the folder, or run in another folder for the hub's model"
        )
    return None
