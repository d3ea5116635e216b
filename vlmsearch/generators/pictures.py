"""What generators that see have in common: limits, an estimate of tokens, and refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vlmsearch._util.arguments import check_bounds, check_counts
from vlmsearch.generators.base import Picture, PicturesRefusedError

if TYPE_CHECKING:
    import PIL.Image

MAX_PICTURES, MAX_SIDE = 16, 2048
_TOKEN_SIDE = 32
"""Pixels of a side of a token: four patches of 16 pixels are merged."""
_OF_PICTURES = re.compile(r"(?i)multi-?modal|\b(image|images|image_url|vision|mmproj)\b")
_LIMIT = re.compile(r"(?i)at most (\d+) (?:image|picture)|(?:maximum|limit)\D{0,40}?(\d+) (?:image|picture)")


def check_reading(context: int | None, pictures: int, picture_tokens: int | None) -> None:
    """Raise ConfigError for options about what a model reads that no generator can follow."""
    check_bounds(0, MAX_PICTURES, pictures=pictures)
    check_counts(context=context, picture_tokens=picture_tokens)


def images_in(parts: Sequence[str | Picture], name: str, max_pictures: int) -> list[PIL.Image.Image]:
    """Return the pictures of a prompt; PicturesRefusedError for more than a generator takes."""
    images = [part.image for part in parts if isinstance(part, Picture)]
    if len(images) > max_pictures:
        raise PicturesRefusedError(f"{name} takes {max_pictures} pictures, not {len(images)}", max_pictures)
    return images


def estimate_tokens(width: int, height: int) -> int:
    """Return about how many tokens a picture takes: one for 32 by 32 pixels, as in Qwen3-VL."""
    return max(round(width / _TOKEN_SIDE), 1) * max(round(height / _TOKEN_SIDE), 1)


def is_about_pictures(message: str) -> bool:
    """Check whether a server's message is about pictures."""
    return _OF_PICTURES.search(message) is not None


def refused_pictures(name: str, message: str, *, is_too_long: bool) -> PicturesRefusedError | None:
    """Return the refusal that a server's message is, with its limit; None for another message."""
    if not is_too_long and not is_about_pictures(message):
        return None
    limit = _LIMIT.search(message)
    at_most = int(limit[1] or limit[2]) if limit else None if is_too_long else 0
    return PicturesRefusedError(f"{name} does not take these pictures: {message}", at_most)
