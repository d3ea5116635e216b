"""Regular files, opened without waiting for a pipe or a device."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from vlmsearch.errors import InvalidInputError
from vlmsearch.media.limits import MAX_FILE_BYTES, check_count
from vlmsearch.media.remote import read_remote, remote_url

_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


@contextmanager
def open_regular(path: Path | str, what: str) -> Iterator[FileIO]:
    """Open a file to read; ``what`` says which kind of file is wanted, such as ``an image``.

    Raises InvalidInputError: ``unreadable``, also where reading fails in the block, or ``empty``.
    """
    name = repr(str(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_WAITING)  # what is checked is what is read
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                odd = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
                raise InvalidInputError("unreadable", f"{name} is {odd}, not {what} file")
            if not status.st_size:
                raise InvalidInputError("empty", f"{name} is empty: 0 bytes")
            with FileIO(descriptor, closefd=False) as file:
                yield file
        finally:
            os.close(descriptor)
    except InvalidInputError:
        raise
    except (OSError, ValueError) as exc:  # ValueError: a name that no file can have
        reason = getattr(exc, "strerror", None) or exc
        raise InvalidInputError("unreadable", f"{name} cannot be read: {reason}") from exc


def read_regular(path: Path | str, what: str) -> bytes:
    """Return the bytes of a file; InvalidInputError ``unreadable``, ``empty`` or ``too_large``.

    A path may be a URL of object storage: see `vlmsearch.media.remote`.
    """
    if url := remote_url(path):
        data = read_remote(url, MAX_FILE_BYTES)
        check_count(len(data), "bytes", MAX_FILE_BYTES, repr(url))
        return data
    with open_regular(path, what) as file:
        check_count(os.fstat(file.fileno()).st_size, "bytes", MAX_FILE_BYTES, repr(str(path)))
        return file.readall()
