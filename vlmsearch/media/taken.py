"""The day on which a photograph was taken, as its EXIF data say."""

from __future__ import annotations

import re
import struct
from datetime import date

_WITHIN = 2**18
"""Bytes at both ends of a file in which the EXIF data begin: HEIC has them anywhere there, WebP last."""
_WITHIN_JPEG = 2**16
"""Bytes at the beginning of a JPEG, whose first segment they are."""
_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
"""The beginnings of a TIFF, with the orders of bytes that they stand for.

EXIF data are a TIFF.
"""
_BEFORE = re.compile(rb"(?:Exif\0\0|eXIf|EXIF.{4})\Z", re.DOTALL)
"""The bytes before EXIF data in a JPEG and a HEIC, a PNG, and a WebP."""
_DAY = re.compile(rb"(\d{4})[:.-](\d\d)[:.-](\d\d)")
_PHOTOGRAPH, _ORIGINAL = 0x8769, 0x9003
"""The tags of the directory about the photograph, and of the time in it: DateTimeOriginal."""


def day_taken(data: bytes) -> date | None:
    """Return the day on which a photograph was taken.

    None where its file does not say, or says no day.

    Only two directories of the EXIF data are looked through. So damaged and hostile ones cost nothing.

    Args:
        data: The bytes of an image file in any format.
    """
    tiff = _exif(data)
    if not tiff:
        return None
    order = _ORDERS[tiff[:4]]
    try:
        (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
        photograph = _value(tiff, order, directory, _PHOTOGRAPH)
        start = photograph and _value(tiff, order, photograph, _ORIGINAL)
    except struct.error:  # cut off
        return None
    day = _DAY.match(tiff, start) if start else None
    try:
        return day and date(*map(int, day.groups()))
    except ValueError:  # such as 0000:00:00, of a camera whose clock was not set
        return None


def _exif(data: bytes) -> bytes:
    """Return the EXIF data of a file from where they begin; empty for none."""
    if data[:4] in _ORDERS:
        return data
    if data[:2] == b"\xff\xd8":
        return _exif_in(data[:_WITHIN_JPEG])
    return _exif_in(data[:_WITHIN]) or _exif_in(data[_WITHIN:][-_WITHIN:])


def _exif_in(data: bytes) -> bytes:
    for start in _ORDERS:
        at = data.find(start)
        while at >= 0:
            if _BEFORE.search(data, max(0, at - 8), at):
                return data[at:]
            at = data.find(start, at + 1)
    return b""


def _value(tiff: bytes, order: str, directory: int, tag: int) -> int:
    """Return the value of a tag in a directory, or the place of a long one.

    It is 0 if there is no such tag.
    """
    (count,) = struct.unpack_from(f"{order}H", tiff, directory)
    first = directory + 2
    entries = struct.iter_unpack(f"{order}HHII", tiff[first : first + 12 * min(count, (len(tiff) - first) // 12)])
    return next((value for known, _, _, value in entries if known == tag), 0)
