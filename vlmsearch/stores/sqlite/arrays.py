"""The arrays of an index in a file beside it, for the next process.

A cache: it holds nothing that the database does not, and may be deleted, cut or overwritten at any moment. A table of
the database has the random number of the file that belongs to it. So a file of another index, or of an older copy of
this one, is never taken for it. Header and arrays have checksums (CRC-32), which are looked at when they are read: what
is not as it was written is not used. Within an epoch, rows are only added: a file stays right, and what was written
since is read from the database.

The file is read and not mapped: where another program cuts a mapped file, as `cp` over it does, the process ends.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.strict_json import parse_json
from vlmsearch.stores.sqlite.codes import on_each
from vlmsearch.stores.sqlite.tables import undamaged

_MAGIC = b"vlmsearch arrays 2\n"
_OF_SQLITE = b"SQLite format 3\0"
Part: TypeAlias = tuple[int, Sequence[Sequence[NDArray[Any]]]]
"""The row that a part goes up to, and the arrays of its groups.

A part is the codes of a field, or the words.
"""


@dataclass(frozen=True)
class ArraysFile:
    """A file whose header is what was written.

    Attributes:
        path: The file.
        parts: By name, where a part begins, the row that it goes up to, and its groups: the lengths and checksums of
            their arrays. All lie one behind the other.
    """

    path: Path
    parts: Mapping[str, tuple[int, int, Sequence[Sequence[tuple[int, int]]]]]

    @classmethod
    def open(cls, path: Path, token: str) -> ArraysFile:
        """Read the header of a file; OSError if it cannot be read.

        BackendError for one that is damaged, or that the database knows by another number.
        """
        with undamaged(), opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            begin = file.read(len(_MAGIC) + 8)
            length = int.from_bytes(begin[len(_MAGIC) :], "little")
            header, crc = file.read(min(length, size)), file.read(4)
            if not begin.startswith(_MAGIC) or zlib.crc32(begin + header) != int.from_bytes(crc, "little"):
                raise ValueError("another header")
            content, parts, end = parse_json(header.decode()), {}, file.tell()
            for name, (row, groups) in content["parts"].items():
                parts[name] = end, row, groups
                end += sum(length for group in groups for length, _ in group)
            if content["token"] != token or end != size:
                raise ValueError("another number or length")
            _give_rights(file.fileno(), path)
            return cls(path, parts)

    def read(self, name: str) -> Part:
        """Read a part into memory; BackendError where it is not what was written."""
        with undamaged():
            start, row, groups = self.parts[name]
            starts = accumulate((sum(length for length, _ in group) for group in groups), initial=start)
            return row, on_each(self._group, list(zip(starts, groups)))

    def _group(self, place: tuple[int, Sequence[tuple[int, int]]]) -> list[NDArray[np.uint8]]:
        with opened(self.path) as file:
            file.seek(place[0])
            return [np.frombuffer(_read(file, *array), np.uint8) for array in place[1]]


def write_arrays(path: Path, token: str, epoch: int, parts: Mapping[str, Part]) -> None:
    """Write a file with the owner and the mode of the database; OSError if that fails.

    One process writes at a time: that which may write to the database. It takes the place of what a killed one left.
    """
    from shutil import disk_usage

    arrays = [array for _, groups in parts.values() for group in groups for array in group]
    if disk_usage(path.parent).free < sum(array.nbytes for array in arrays) or not may_remove(path):
        raise OSError(errno.ENOSPC, "no room", str(path))
    places = {
        name: (row, [[(array.nbytes, zlib.crc32(array.data)) for array in group] for group in groups])
        for name, (row, groups) in parts.items()
    }
    header = json.dumps({"token": token, "epoch": epoch, "parts": places}).encode()
    start = _MAGIC + len(header).to_bytes(8, "little") + header
    making = path.with_name(f"{path.name}-new")
    making.unlink(missing_ok=True)
    try:
        with open(making, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            _give_rights(file.fileno(), path)
            file.write(start + zlib.crc32(start).to_bytes(4, "little"))
            file.writelines(array.data for array in arrays)
        making.replace(path)
    finally:
        with suppress(OSError):
            making.unlink(missing_ok=True)


def may_remove(path: Path) -> bool:
    """Tell whether nothing is lost with a file of such a name: it is no folder, and no database of somebody else."""
    try:
        with opened(path) as file:
            return file.read(len(_OF_SQLITE)) != _OF_SQLITE
    except OSError as exc:
        return isinstance(exc, FileNotFoundError)


@contextmanager
def opened(path: Path) -> Iterator[FileIO]:
    """Open a file to read; OSError for anything else, such as a pipe."""
    with open(path, "rb", 0, opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        yield file


def _read(file: FileIO, length: int, crc: int) -> bytes:
    """Read as bytes: numpy asks for huge pages, which the kernel at times takes seconds to make room for."""
    content = file.read(length)
    if len(content) != length or zlib.crc32(content) != crc:
        raise ValueError("another checksum")
    return content


def _give_rights(descriptor: int, path: Path) -> None:
    """Give a file the owner, group and mode of its database, where this user may.

    A group that the database does not belong to gets no rights.
    """
    wanted = path.with_name(path.name.rpartition("-arrays-")[0]).stat()
    with suppress(AttributeError, OSError):  # Windows has no owners
        os.fchown(descriptor, -1 if os.geteuid() else wanted.st_uid, wanted.st_gid)
    with suppress(AttributeError, OSError):
        shared = 0o666 if os.fstat(descriptor).st_gid == wanted.st_gid else 0o606
        os.fchmod(descriptor, wanted.st_mode & shared)
