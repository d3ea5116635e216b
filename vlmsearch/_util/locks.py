"""Lock files: one process or one thread at a time, and whether all that the one before wrote can be relied on."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlmsearch._util.files import sync, writing

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # some network drives: then nothing guards the file
_POLL_SECONDS = 0.1
_CLEAN, _IDLE, _WRITING = "C", ".", "W"
_SIZE = 64
"""Bytes of content, always as many, so that each change is one write in place."""

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # far behind the content, which others may read meanwhile
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a POSIX lock ends when any descriptor is closed


@functools.cache
def boot_id() -> str:
    """Return the id of this run of the machine; "" where the system does not tell."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if sys.platform == "darwin":
            command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


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
                raise LockedError(self._read()[0][1:]) from exc
        self._found = self._read()
        """The lines of the content as the holder before left it."""
        self._write(_IDLE)

    def _read(self) -> list[str]:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        lines = os.read(self._descriptor, _SIZE).decode("ascii", errors="replace").split("\n")
        return [line.strip() for line in lines]

    def _write(self, state: str, boot: str = "") -> None:
        if self._descriptor < 0:
            return
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, f"{state}{os.getpid()}\n{boot}".ljust(_SIZE - 1).encode() + b"\n")

    def close(self) -> None:
        """Give the lock back. Calling it twice is allowed."""
        _held.discard(self)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class FolderLock(FileLock):
    """A lock that also tells whether the files beside it can be relied on.

    The file says "clean", durably, only once the holder has put all that it wrote on the disk. What a killed process
    wrote is in the system's cache, whole unless it was killed within `writing`, until the machine is started again.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        state, boot = self._found[0][:1], self._found[1] if len(self._found) > 1 else ""
        self.is_intact = state == _CLEAN or (state == _IDLE and boot == boot_id() != "")
        """Whether everything that earlier holders wrote is there."""
        self._guard = threading.Lock()
        self._writers = 0
        self._is_noted = self._is_broken = False
        self._put(state if self.is_intact else _WRITING)

    def _put(self, state: str) -> None:
        self._write(state, boot_id())
        self._state = state

    def mended(self) -> None:
        """Note that the files that could not be relied on are gone."""
        self._put(_IDLE)
        self.is_intact, self._is_broken = True, False

    @contextmanager
    def writing(self, broken_by: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
        """Note a write for as long as the block lasts; after one of these errors it counts as cut off for good."""
        with self._guard:
            self._put(_WRITING)
            if not self._is_noted:  # before anything else changes, it is on the disk that it may
                os.fsync(self._descriptor)
                sync(self._path.parent)
                self._is_noted = True
            self._writers += 1
        try:
            yield
        except broken_by:
            self._is_broken = True
            raise
        finally:
            with self._guard:
                self._writers -= 1
                if not self._writers and not self._is_broken:
                    self._put(_IDLE)

    @property
    def is_clean(self) -> bool:
        """Return whether all that was written is on the disk."""
        return self._state == _CLEAN

    def settled(self) -> None:
        """Note that everything written is on the disk, unless a write was cut off."""
        if self._state == _IDLE:
            self._put(_CLEAN)
            os.fsync(self._descriptor)
            self._is_noted = False


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
