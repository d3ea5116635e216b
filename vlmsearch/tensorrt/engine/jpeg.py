"""The header of a JPEG, as far as it decides how the GPU decodes it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

import PIL.Image
from PIL import ExifTags

from vlmsearch.errors import InvalidInputError
from vlmsearch.media.colour import to_srgb
from vlmsearch.media.limits import check_structure

_SCAN = 0xDA
_FRAMES = {0xC0, 0xC1, 0xC2}
"""Baseline, extended and progressive frames, Huffman coded."""
_OTHER_FRAMES = {0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}
_APP1, _APP2, _APP14 = 0xE1, 0xE2, 0xEE
_ICC = b"ICC_PROFILE\0"
_XMP = re.compile(rb'tiff:Orientation(?:="|>)(\d)')
_CHANNELS = 3
_MAX_SCANS = 20
_FILL = re.compile(rb"\xff+")


@dataclass(frozen=True)
class Jpeg:
    """Width and height as stored, and EXIF's orientation from 1 to 8."""

    width: int
    height: int
    orientation: int


def read_header(data: bytes) -> Jpeg | None:
    """Return the header of a JPEG that the GPU decodes as the CPU does.

    The colours are the same. None for all else.

    That is 8-bit YCbCr in sRGB with its end in place. Other colours, and whatever is damaged or unusually costly, are
    left to the CPU, which also says what is wrong.
    """
    if data[:2] != b"\xff\xd8" or not data[-64:].rstrip(b"\0").endswith(b"\xff\xd9"):
        return None
    try:
        if check_structure("JPEG", data, "the image").scans > _MAX_SCANS:
            return None
    except InvalidInputError:
        return None
    at, size, orientation = 2, None, 1
    while fill := _FILL.match(data, at):
        at = fill.end() - 1
        if at + 4 > len(data):
            return None
        marker = data[at + 1]
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == _SCAN:
            return Jpeg(*size, orientation) if size else None
        body = data[at + 4 : at + 2 + length]
        if marker in _FRAMES:
            size = _size(body)
        if marker in _OTHER_FRAMES or (marker == _APP2 and not _usual_colours(body)):
            return None
        if marker == _APP14 and body[:5] == b"Adobe" and body[11:12] != b"\1":
            return None
        if marker == _APP1:
            turned = _orientation(body)
            if turned is None:
                return None
            orientation = turned if turned > 1 else orientation
        at += 2 + length
    return None


def _size(frame: bytes) -> tuple[int, int] | None:
    """Return the width and height of a frame of three channels of 8 bits.

    None for another frame. Channels named R, G and B are taken for such by libjpeg.
    """
    if len(frame) < 6 or frame[0] != 8 or frame[5] != _CHANNELS or frame[6::3] == b"RGB":
        return None
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    return (width, height) if width and height else None


def _usual_colours(body: bytes) -> bool:
    """Return whether a segment changes no colour.

    It is no ICC profile, or a whole one for usual colours.
    """
    if not body.startswith(_ICC):
        return True
    profile = body[len(_ICC) + 2 :]
    whole = body[len(_ICC) : len(_ICC) + 2] == b"\1\1"
    return whole and (profile[16:20] != b"RGB " or to_srgb(profile, "RGB") is None)


def _orientation(body: bytes) -> int | None:
    """EXIF's orientation, 1 where there is none; None where only the CPU path finds out."""
    if not body.startswith(b"Exif\0\0"):
        turned = _XMP.search(body)
        return 1 if turned is None or turned[1] == b"1" else None
    exif = PIL.Image.Exif()
    with suppress(Exception):  # which damaged EXIF data raise; the CPU path then takes it as upright, too
        exif.load(body)
        turn = exif.get(ExifTags.Base.Orientation, 1)
        return turn if isinstance(turn, int) and 1 <= turn <= 8 else 1
    return 1
