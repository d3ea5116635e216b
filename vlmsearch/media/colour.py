"""Decoded images in any mode and colour space -> upright 8-bit RGB in sRGB, on white."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO

import numpy as np
from PIL import ExifTags, Image, ImageChops, ImageCms
from PIL.Image import Transpose

from vlmsearch.errors import InvalidInputError
from vlmsearch.media.hdr import Cicp, cicp_of, tone_mapped
from vlmsearch.media.limits import check_directory

_PROFILE_BYTES = range(128, 4 * 2**20 + 1)
_BITS_PER_SAMPLE, _PHOTOMETRIC, _MAX_SAMPLE_VALUE = 258, 262, 281
_PARTIAL = frozenset({1023, 4095, 16383})
"""The largest values of depths that are kept in 16 bits."""
_RAW_EXIF = "Raw profile type exif"
_MAX_RAW_EXIF = 2**17
_SAME_COLOUR = 2
_STRIP = 2**22
"""Pixels that are converted at once: what lies between the decoded and the upright image is never whole in memory."""
_TURNS = dict(enumerate(map(Image.Transpose, (0, 3, 1, 5, 4, 6, 2)), start=2))  # by EXIF's orientation
_SWAPPED = {Transpose.TRANSPOSE, Transpose.TRANSVERSE, Transpose.ROTATE_90, Transpose.ROTATE_270}
_REVERSED = {Transpose.TRANSVERSE, Transpose.ROTATE_180, Transpose.ROTATE_270, Transpose.FLIP_TOP_BOTTOM}


def as_rgb(image: Image.Image) -> Image.Image:
    """Return an image as RGB that may be changed.

    No orientation, profile or transparency is left to apply.
    """
    image.load()
    turn = _turn(image)
    levels = _levels(image) if image.mode == "F" or image.mode.startswith("I") else None
    rows = max(1, _STRIP // image.width)
    is_plain = (
        image.mode == "RGB"
        and "transparency" not in image.info
        and cicp_of(image.info) is None
        and not _transform_for("RGB", image.info.get("icc_profile"))
    )
    if is_plain or image.height <= rows:
        upright = _converted(image, levels)
        upright = upright if turn is None else upright.transpose(turn)
    else:
        upright = Image.new("RGB", image.size[::-1] if turn in _SWAPPED else image.size)
        for top in range(0, image.height, rows):
            bottom = min(top + rows, image.height)
            strip = _converted(image.crop((0, top, image.width, bottom)), levels)
            place = image.height - bottom if turn in _REVERSED else top
            strip = strip if turn is None else strip.transpose(turn)
            upright.paste(strip, (place, 0) if turn in _SWAPPED else (0, place))
    upright.info = {}
    return upright


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return what EXIF's orientation asks for."""
    if len(image.info.get(_RAW_EXIF, "")) > _MAX_RAW_EXIF:
        del image.info[_RAW_EXIF]
    try:
        check_directory(image.info.get("exif", b"").removeprefix(b"Exif\0\0"), "the image")
        return _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except (InvalidInputError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - which damaged EXIF data raise
        return None


def _converted(image: Image.Image, levels: tuple[float, float] | None) -> Image.Image:
    """Return an image, or some of its rows, as RGB on white."""
    colour, alpha = _split(image, levels)
    colour = _in_srgb(colour, image.info.get("icc_profile"), cicp_of(image.info))
    if alpha is not None:
        white = Image.new("RGB", colour.size, "white")
        white.paste(colour, mask=alpha)
        colour = white
    return colour


def _split(image: Image.Image, levels: tuple[float, float] | None) -> tuple[Image.Image, Image.Image | None]:
    """Return the image in 8 bits without palette and alpha, and its alpha channel.

    The latter is None where the image is opaque.
    """
    mode, key = image.mode, image.info.get("transparency")
    if levels:
        return _in_8_bits(image, levels)
    if mode in ("RGBa", "La"):
        image = image.convert(mode.upper())
    elif mode in ("P", "PA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    elif key is not None and mode in ("1", "L", "RGB"):
        image = image.convert("RGBA" if mode == "RGB" else "LA")
    if image.mode not in ("RGBA", "LA"):
        return image, None
    alpha = image.getchannel("A")
    return image.convert(image.mode[:-1]), None if alpha.getextrema() == (255, 255) else alpha


def _levels(image: Image.Image) -> tuple[float, float]:
    """Return the value of black in a deep grey image, and how far white is above.

    Where white is 0 (a TIFF says so), the latter is negative. The value of the other end is the largest that a TIFF's
    depth allows, if it is 12 bits in 16. Otherwise it is the smallest of 1 (float only) and the largest values of 8,
    10, 12 and 16 bits that no pixel exceeds: a picture of 16 bits that were so dark would show nothing. If there is
    none, or there are negative values, the ends are the extremes that occur.
    """
    rows = max(1, _STRIP // image.width)
    extremes = []
    for top in range(0, image.height, rows):
        values = np.asarray(image.crop((0, top, image.width, min(top + rows, image.height))))
        finite = values[np.isfinite(values)] if image.mode == "F" else values
        extremes += [float(finite.min()), float(finite.max())] if finite.size else []
    low, high = (min(extremes), max(extremes)) if extremes else (0.0, 0.0)
    tags = getattr(image, "tag_v2", {})
    declared = 4095 if tags.get(_BITS_PER_SAMPLE) == (12,) else np.max(tags.get(_MAX_SAMPLE_VALUE, 0))
    whites = (*_PARTIAL.intersection([declared]), *([1] if image.mode == "F" else []), 255, 1023, 4095, 65535)
    white = next((white for white in whites if low >= 0 and high <= white), None)
    low, span = (0.0, float(white)) if white else (low, high - low or 1.0)
    return (low + span, -span) if tags.get(_PHOTOMETRIC) == 0 else (low, span)


def _in_8_bits(image: Image.Image, levels: tuple[float, float]) -> tuple[Image.Image, Image.Image | None]:
    """Return a deep grey image as mode L, and its alpha where one value is transparent.

    Of 16 bits the high byte is kept.
    """
    values, key = np.asarray(image), image.info.get("transparency")
    alpha = None if key is None else Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8))
    black, span = levels
    if image.mode.startswith("I;") and abs(span) == 65535:
        return Image.fromarray(((values if span > 0 else 65535 - values) >> 8).astype(np.uint8)), alpha
    scaled = np.nan_to_num((values.astype(np.float32) - black) * np.float32(255 / span))
    return Image.fromarray((np.clip(scaled, 0, 255) + 0.5).astype(np.uint8)), alpha


def _in_srgb(image: Image.Image, profile: object, cicp: Cicp | None) -> Image.Image:
    """Return the image as RGB.

    Its ICC profile is applied if it is sound and made for such pixels, and no code points say its colours.
    """
    if cicp:
        rgb = image.convert("RGB")
        return rgb if cicp.is_srgb else Image.fromarray(tone_mapped(np.asarray(rgb), cicp))
    chosen = _transform_for(image.mode, profile)
    if chosen:
        mode, transform = chosen
        return transform.apply(image if image.mode == mode else image.convert(mode))
    return image if image.mode == "RGB" else image.convert("RGB")


def _transform_for(mode: str, profile: object) -> tuple[str, ImageCms.ImageCmsTransform] | None:
    """Return the transform for pixels of a mode, and the mode that it takes."""
    if not isinstance(profile, bytes) or len(profile) not in _PROFILE_BYTES:
        return None
    takes = {b"RGB ": "RGB", b"GRAY": "L", b"CMYK": "CMYK"}.get(profile[16:20], "")
    is_for = takes == mode or (takes == "RGB" and mode in ("1", "L", "YCbCr", "HSV"))
    transform = to_srgb(profile, takes) if is_for else None
    return (takes, transform) if transform else None


@lru_cache(maxsize=16)
def to_srgb(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform from a profile to sRGB.

    None if it is broken, or no colour would visibly change.
    """
    try:
        source = ImageCms.ImageCmsProfile(BytesIO(profile))
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
        levels = np.arange(0, 256, 15, dtype=np.uint8)
        probe = Image.fromarray(np.stack(np.meshgrid(levels, levels, levels), -1).reshape(len(levels), -1, 3))
        if mode != "RGB" or np.asarray(ImageChops.difference(probe, transform.apply(probe))).max() > _SAME_COLOUR:
            return transform
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - which damaged profiles raise
        return None
    return None
