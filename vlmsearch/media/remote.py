"""Files in object storage, ``s3://bucket/name`` and ``gs://bucket/name``, by fsspec.

An endpoint of one's own and credentials come from where the storage's own tools have them, such as ``AWS_ENDPOINT_URL``
and ``AWS_ACCESS_KEY_ID``. A path keeps only one of the two slashes after the scheme; both forms name the same file.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from vlmsearch._util.extras import install_command
from vlmsearch.errors import BackendError, InvalidInputError, MissingDependencyError, VlmsearchError

_EXTRAS = {"s3": "s3", "gs": "gcs"}
_URL = re.compile(rf"({'|'.join(_EXTRAS)}):/{{1,2}}([^/].*)", re.DOTALL)


def remote_url(path: str | Path) -> str | None:
    """Return the URL that a path or string is, with both slashes.

    None for a file of this machine.
    """
    parts = _URL.fullmatch(str(path))
    return f"{parts[1]}://{parts[2]}" if parts else None


def read_remote(url: str, limit: int) -> bytes:
    """Return the bytes of a file, at most ``limit`` and one more.

    InvalidInputError ``unreadable`` where there is no file.
    """
    try:
        with open_remote(url) as file:
            data: bytes = file.read(limit + 1)
            return data
    except OSError as exc:
        raise InvalidInputError("unreadable", f"{url!r} cannot be read: {exc.strerror or exc}") from exc


@contextmanager
def open_remote(url: str) -> Iterator[IO[bytes]]:
    """Open a file to read; OSError where it fails, as for a file of this machine."""
    system, path = _file_system(url)
    with _as_os_error(url), system.open(path, "rb", block_size=2**22) as file:
        yield file


def is_remote_folder(url: str) -> bool:
    """Return whether there are files below a URL; OSError where the storage does not say."""
    system, path = _file_system(url)
    with _as_os_error(url):
        return bool(system.isdir(path))


def list_remote(folder: str) -> list[str]:
    """Return the URLs of all files below a folder, sorted.

    OSError where the storage does not say.
    """
    system, path = _file_system(folder)
    with _as_os_error(folder):
        return _urls(folder, system.find(path))


def match_remote(pattern: str) -> list[str]:
    """Return the URLs that a glob names, sorted, or that of a file.

    OSError where the storage does not say.
    """
    system, path = _file_system(pattern)
    with _as_os_error(pattern):
        return [pattern] if system.isfile(path) else _urls(pattern, system.glob(path))


def _urls(like: str, paths: list[str]) -> list[str]:
    scheme = like.partition(":")[0]
    return sorted(f"{scheme}://{path}" for path in paths if not path.endswith("/"))


def _file_system(url: str) -> tuple[Any, str]:
    scheme = url.partition(":")[0]
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as exc:
        fix = install_command(_EXTRAS[scheme])
        raise MissingDependencyError(f"{url} is read by a package that is not installed: {fix}") from exc
    except Exception as exc:
        raise BackendError(f"{url} cannot be opened: {exc}") from exc
    return system, path


@contextmanager
def _as_os_error(url: str) -> Iterator[None]:
    """Give what the storage's clients raise, as OSError."""
    try:
        yield
    except (OSError, VlmsearchError):
        raise
    except Exception as exc:
        raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: {exc}", url) from exc
