"""Decoded images in any mode and colour space -> upright 8-bit RGB in sRGB, on white."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from io import BytesIO

import numpy as np
from PIL import ExifTags, Image, ImageChops, ImageCms

_PROFILE_BYTES = range(128, 4 * 2**20 + 1)
_SAME_COLOUR = 2
_TURNS = dict(enumerate(map(Image.Transpose, (0, 3, 1, 5, 4, 6, 2)), start=2))  # by EXIF's orientation


def as_rgb(image: Image.Image) -> Image.Image:
    """An image that may be changed, as RGB with no orientation, profile or transparency left to apply."""
    image.load()
    profile, turn = image.info.get("icc_profile"), None
    with suppress(Exception):  # which damaged EXIF data raise
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    colour, alpha = _split(image.transpose(turn) if turn is not None else image)
    colour = _in_srgb(colour, profile)
    if alpha is not None:
        white = Image.new("RGB", colour.size, "white")
        white.paste(colour, mask=alpha)
        colour = white
    colour.info = {}
    return colour


def _split(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """The image without palette and alpha, 8 bits deep, and its alpha channel unless that is opaque."""
    mode, key = image.mode, image.info.get("transparency")
    if mode in ("I", "F") or mode.startswith("I;"):
        return _in_8_bits(image)
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


def _in_8_bits(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """A deep grey image as mode L, and its alpha where one value is transparent.

    Of 16 bits the high byte is kept. Otherwise the smallest of 1 (float only), 255 and 65,535 that no pixel exceeds
    is white; if there is none, or there are negative values, black and white are the extremes that occur.
    """
    values, key = np.asarray(image), image.info.get("transparency")
    alpha = None if key is None else Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8))
    if image.mode.startswith("I;16"):
        return Image.fromarray((values >> 8).astype(np.uint8)), alpha
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    whites = (255, 65535) if image.mode == "I" else (1, 255, 65535)
    white = next((white for white in whites if low >= 0 and high <= white), None)
    low, span = (0.0, float(white)) if white else (low, high - low or 1.0)
    scaled = np.nan_to_num((values.astype(np.float32) - low) * np.float32(255 / span))
    return Image.fromarray((np.clip(scaled, 0, 255) + 0.5).astype(np.uint8)), alpha


def _in_srgb(image: Image.Image, profile: object) -> Image.Image:
    """The image as RGB, through its ICC profile where that is sound and made for such pixels."""
    if isinstance(profile, bytes) and len(profile) in _PROFILE_BYTES:
        mode = {b"RGB ": "RGB", b"GRAY": "L", b"CMYK": "CMYK"}.get(profile[16:20], "")
        if mode == image.mode or (mode == "RGB" and image.mode in ("1", "L", "YCbCr", "HSV")):
            transform = to_srgb(profile, mode)
            if transform is not None:
                return transform.apply(image if image.mode == mode else image.convert(mode))
    return image if image.mode == "RGB" else image.convert("RGB")


@lru_cache(maxsize=16)
def to_srgb(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """The transform from a profile to sRGB; None if it is broken, or no colour would visibly change."""
    with suppress(Exception):  # which damaged profiles raise
        source = ImageCms.ImageCmsProfile(BytesIO(profile))
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
        levels = np.arange(0, 256, 15, dtype=np.uint8)
        probe = Image.fromarray(np.stack(np.meshgrid(levels, levels, levels), -1).reshape(len(levels), -1, 3))
        if mode != "RGB" or np.asarray(ImageChops.difference(probe, transform.apply(probe))).max() > _SAME_COLOUR:
            return transform
    return None
