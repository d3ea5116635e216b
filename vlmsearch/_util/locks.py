"""Lock files: one process or one thread at a time."""

from __future__ import annotations

import errno
import functools
import os
import stat
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlmsearch._util.files import writing

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # some network drives: then nothing guards the file
_POLL_SECONDS = 0.1
_SIZE = 64
"""Bytes of content, always as many, so that it is written in one place."""

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # far behind the content, which others may read meanwhile
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a POSIX lock ends when any descriptor is closed


class LockedError(Exception):
    """Another process holds the lock; ``process`` is its id, "" for an unknown one."""

    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process


class FileLock:
    """A lock that is held from construction until `close`; the system frees it when the process ends in any way.

    Raises LockedError if the lock is held already, and OSError where the file cannot be written to or is not a regular
    file. A process that is forked meanwhile does not hold it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = _open(path)
        try:
            self._claim()
        except BaseException:
            os.close(self._descriptor)
            raise
        _release_in_children()
        _held.add(self)

    def _claim(self) -> None:
        try:
            _lock(self._descriptor)
        except OSError as exc:
            if exc.errno not in _NO_LOCKS:
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                raise LockedError(os.read(self._descriptor, _SIZE).decode("ascii", errors="replace").strip()) from exc
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, str(os.getpid()).ljust(_SIZE - 1).encode() + b"\n")

    def close(self) -> None:
        """Give the lock back. Calling it twice is allowed."""
        _held.discard(self)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _open(path: Path) -> int:
    """Open a lock file, which has to be a regular file: never what a link in its place points to."""
    flags = os.O_RDWR | os.O_CREAT
    for name in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as exc:
        if exc.errno != errno.ELOOP:
            raise
        raise _not_regular(path) from exc
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise _not_regular(path)


def _not_regular(path: Path) -> OSError:
    return OSError(errno.EPERM, f"{path.name} is not a regular file", str(path))


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


@functools.cache
def _release_in_children() -> None:
    """Close the descriptors of locks in forked processes: a child that outlives its parent would hold them on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_release)


def _release() -> None:
    for lock in list(_held):
        lock.close()


_busy: dict[str, threading.Lock] = {}
_busy_guard = threading.Lock()


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Let one thread of one process into this block for a lock file; others wait their turn."""
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
