"""Lock files: one process or one thread at a time."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from vlmsearch._util.files import writing

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)  # some network drives: then nothing guards the file


def take_lock(path: Path, *, wait: bool) -> AbstractContextManager[object]:
    """Lock a file and return the block that gives it back.

    The system frees it when the process ends in any way. A process that is forked meanwhile does not hold it. Without
    ``wait``, one that is held already is a TimeoutError. OSError where the file cannot be written to or is not a
    regular file.
    """
    from filelock import FileLock

    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(errno.EPERM, f"{path.name} is not a regular file", str(path))
    try:
        return FileLock(path).acquire(blocking=wait)
    except OSError as exc:
        if exc.errno not in _NO_LOCKS:
            raise
        return nullcontext()


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Let one thread of one process into this block for a lock file.

    Others wait their turn.
    """
    with writing(path.parent):
        lock = take_lock(path, wait=True)
    with lock:
        yield
