"""Messages between a process and its children: a JSON value and byte strings, each with its length before it."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import IO, Any, TypeAlias

from vlmsearch._util.machine import proc_bytes
from vlmsearch.errors import InvalidInputError

Bytes: TypeAlias = "bytes | bytearray | memoryview"
_HEAD = struct.Struct("<Q")
_MAX_JSON = 2**26
_MAX_DATA = 2**30


def write_message(file: IO[bytes], value: object, data: Sequence[Bytes] = ()) -> None:
    """Write a message.

    Raises:
        InvalidInputError: ``too_large``: more than 64 MiB of JSON, or 1 GiB of bytes.
        OSError: The other end is gone.
    """
    sizes = [len(part) for part in data]
    head = json.dumps([value, sizes]).encode()
    if len(head) > _MAX_JSON or sum(sizes) > _MAX_DATA:
        raise InvalidInputError("too_large", f"it gives {len(head) + sum(sizes):,} bytes at once")
    file.write(_HEAD.pack(len(head)) + head)
    for part in data:
        file.write(part)
    file.flush()


def read_message(file: IO[bytes]) -> tuple[Any, list[bytes]] | None:
    """Return the next message, or None at the end; ValueError where it is no message."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    (length,) = _HEAD.unpack(head)
    if length > _MAX_JSON:
        raise ValueError(f"a message of {length:,} bytes")
    value, sizes = json.loads(file.read(length))
    if sum(sizes) > _MAX_DATA or min(sizes, default=0) < 0:
        raise ValueError(f"a message with {sum(sizes):,} bytes")
    data = [file.read(size) for size in sizes]
    return None if [len(part) for part in data] != sizes else (value, data)


def data_bytes(pid: int) -> int:
    """Return the private memory of a process, as ``RLIMIT_DATA`` counts it. 0 where the system does not say."""
    return proc_bytes(f"{pid}/status", "VmData") or 0
