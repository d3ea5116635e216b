"""A lock on a folder between processes, which also remembers a write that was cut off."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # some network drives: then nothing guards the folder
_IDLE, _WRITING = b".", b"W"
_LOCKED_BYTE = 1 << 20  # far behind the content, which others may read while the lock is held

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LOCKED_BYTE)


class LockedError(Exception):
    """Another process holds the lock; ``process`` is its id, or "" where that is not known."""

    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process


class FolderLock:
    """Held from construction until `close`; the operating system frees it when the process ends in any way.

    Raises LockedError if another process holds it, and OSError where the folder cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
        try:
            self._claim()
        except BaseException:
            os.close(self._descriptor)
            raise
        self._guard = threading.Lock()
        self._writers = 0
        self._broken = False

    def _claim(self) -> None:
        content = os.read(self._descriptor, 64)
        try:
            _lock(self._descriptor)
        except OSError as exc:
            if exc.errno not in _NO_LOCKS:
                raise LockedError(content[1:].decode(errors="replace").strip()) from exc
        self.torn = content.startswith(_WRITING)
        """Whether a process died while it was writing."""
        os.ftruncate(self._descriptor, 1)
        self._put(content[:1] or _IDLE)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def _put(self, state: bytes) -> None:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, state)

    def mended(self) -> None:
        """What the cut-off write left behind is gone."""
        self._put(_IDLE)
        self.torn = self._broken = False

    @contextmanager
    def writing(self, broken_by: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
        """A write is under way meanwhile; after one of these errors it counts as cut off for good."""
        with self._guard:
            self._writers += 1
            self._put(_WRITING)
        try:
            yield
        except broken_by:
            self._broken = True
            raise
        finally:
            with self._guard:
                self._writers -= 1
                if not self._writers and not self._broken:
                    self._put(_IDLE)

    def close(self) -> None:
        """Give the lock back. Calling it twice is allowed."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
