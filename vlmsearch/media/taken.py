"""The day on which a photograph was taken, as its EXIF data say."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from datetime import date
from itertools import islice

_EXIF_BYTES, _XMP_BYTES = 2**20, 2**17
_MAX_PLACES = 10_000
"""Places in a file that may be the beginning of EXIF data: by chance there is one in four gigabytes."""
_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
"""The beginnings of a TIFF, with the orders of bytes that they stand for.

EXIF data are a TIFF.
"""
_BEFORE = re.compile(rb"(?:Exif\0\0|eXIf|EXIF.{4})\Z", re.DOTALL)
"""The bytes before EXIF data in a JPEG and a HEIC, a PNG, and a WebP."""
_BEFORE_IN_BOXES = re.compile(rb"(?:Exif\0\0|\0{4})\Z")
"""Those in a HEIC or an AVIF: the second is a header without a name."""
_DAY = re.compile(rb"(\d{4})[:.-](\d\d)[:.-](\d\d)")
_PHOTOGRAPH, _ORIGINAL, _DIGITIZED = 0x8769, 0x9003, 0x9004
"""The tags of the directory about the photograph, and of the times in it: DateTimeOriginal, DateTimeDigitized."""
_XMP = re.compile(rb"(exif:DateTimeOriginal|photoshop:DateCreated|xmp:CreateDate)(?:\s*=\s*[\"']|>)")


def day_taken(data: bytes) -> date | None:
    """Return the day on which a photograph was taken.

    None where its file does not say, or says no day.

    DateTimeOriginal comes before DateTimeDigitized, and then XMP. DateTime says when a program wrote the file last, as
    the time of the file does, and is none of them.

    Only two directories of the EXIF data are looked through. So damaged and hostile ones cost nothing.

    Args:
        data: The bytes of an image file in any format.
    """
    tiff = _exif(data)
    return _day_in(tiff, _ORIGINAL) or _day_in(tiff, _DIGITIZED) or _day_of_xmp(data)


def _exif(data: bytes) -> bytes:
    """Return the EXIF data of a file from where they begin; empty for none."""
    if data[:4] in _ORDERS:
        return data
    before = _BEFORE_IN_BOXES if data[4:8] == b"ftyp" else _BEFORE
    places = (at for order in _ORDERS for at in islice(_places(data, order), _MAX_PLACES))
    start = min((at for at in places if before.search(data, max(0, at - 8), at)), default=len(data))
    return data[start : start + _EXIF_BYTES]


def _places(data: bytes, start: bytes) -> Iterator[int]:
    at = data.find(start)
    while at >= 0:
        yield at
        at = data.find(start, at + 1)


def _day_of_xmp(data: bytes) -> date | None:
    """Return the day that XMP say, which are a text in a file."""
    start = data.find(b"<rdf:RDF")
    # the surer ones come first by their names, too
    places = {match[1]: match.end() for match in _XMP.finditer(data[start : start + _XMP_BYTES] if start >= 0 else b"")}
    return next(filter(None, (_day(data, start + at) for _, at in sorted(places.items()))), None)


def _day_in(tiff: bytes, tag: int) -> date | None:
    """Return the day in a tag of a photograph; None for none."""
    order = _ORDERS.get(tiff[:4], "<")
    try:
        (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
        photograph = _value(tiff, order, directory, _PHOTOGRAPH)
        place = photograph and _value(tiff, order, photograph, tag)
    except struct.error:
        return None
    return _day(tiff, place) if place else None


def _day(data: bytes, at: int) -> date | None:
    day = _DAY.match(data, at)
    try:
        return day and date(*map(int, day.groups()))
    except ValueError:  # such as 0000:00:00, of a camera whose clock was not set
        return None


def _value(tiff: bytes, order: str, directory: int, tag: int) -> int:
    """Return the value of a tag in a directory, or the place of a long one.

    It is 0 if there is no such tag.
    """
    (count,) = struct.unpack_from(f"{order}H", tiff, directory)
    first = directory + 2
    entries = struct.iter_unpack(f"{order}HHII", tiff[first : first + 12 * min(count, (len(tiff) - first) // 12)])
    return next((value for known, _, _, value in entries if known == tag), 0)
