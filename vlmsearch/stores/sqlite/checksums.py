"""The checksum that a row of a table has of its own values, so that a bit that a disk turns does not go unnoticed.

It is CRC-32 (ISO/IEC 3309), which differs after every change within 32 bits. It is no signature: whoever means to
change a file can compute it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

_ABSENT = b"\xff"
"""What no string begins with in UTF-8."""


def checksum(*values: str | bytes | memoryview | int | None) -> int:
    """Return the checksum of the values of a row, from 0 to 2^32 - 1; a string has that of its UTF-8.

    Args:
        values: All columns but the checksum, in their order.

    Returns:
        It.

    Example:
        >>> checksum(1, "a dog") == checksum(1, b"a dog"), checksum(1, "a dog") == checksum(1, "a fog")
        (True, False)
    """
    parts: list[bytes | memoryview] = []
    for value in values:
        if isinstance(value, str):
            parts.append(value.encode())
        elif isinstance(value, int):
            parts.append(b"%d" % value)
        else:
            parts.append(_ABSENT if value is None else value)
    return zlib.crc32(b"\0".join(parts))


def is_whole(row: Sequence[Any]) -> bool:
    """Check whether the last value of a row is the checksum of those before it.

    Args:
        row: All columns.

    Returns:
        Whether it is; False where a value has a type that nobody writes.

    Example:
        >>> is_whole([1, "a dog", checksum(1, "a dog")]), is_whole([1, 0.5, 7])
        (True, False)
    """
    try:
        return bool(checksum(*row[:-1]) == row[-1])
    except TypeError:
        return False


def vector_checksum(row: int, vector: bytes | memoryview) -> int:
    """Return the checksum of a vector and its row, without copying it.

    Args:
        row: The row, from 0.
        vector: The numbers.

    Returns:
        It, from 0 to 2^32 - 1.

    Example:
        >>> vector_checksum(1, b"1234") == vector_checksum(2, b"1234")
        False
    """
    return zlib.crc32(vector, row & 0xFFFFFFFF)
