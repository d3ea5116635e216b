"""The form in which a model reads images. Models are opened without Pillow, which the first image loads."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vlmsearch.errors import ConfigError

if TYPE_CHECKING:
    import PIL.Image

Interpolation = Literal["bicubic", "bilinear", "lanczos"]
DCT_MARGIN = 3
"""The smallest size at which a JPEG is decoded before it is resized.

It is given in input sizes of the model.

With 3 embeddings keep a cosine of at least 0.9999 with those of a full decode, on line drawings too; with 2 it falls to
0.999, and where an image is only a little larger than that, to 0.991.
"""


@dataclass(frozen=True)
class Preprocess:
    """The form of an embedding model's images: ``size`` pixels square, cropped from the middle or squashed.

    With ``crop`` this is what transformers' CLIPImageProcessor (PIL) does before it rescales: the shorter edge is
    resized to ``size``, and the middle of the longer edge is kept. Pixels are equal bit for bit. Where one
    edge is over 16 times the other, they differ by a few of 255, since only the middle is computed. An image of that
    size is not changed.
    """

    size: int
    crop: bool = True
    interpolation: Interpolation = "bicubic"

    def __post_init__(self) -> None:
        if self.size < 1 or self.interpolation not in get_args(Interpolation):
            known = ", ".join(get_args(Interpolation))
            raise ConfigError(f"{self}: size must be at least 1, and interpolation one of {known}")

    @property
    def at_least(self) -> int:
        """Return the argument of `open_image` for this size.

        A JPEG is then decoded no larger than the result can show.
        """
        return self.size * DCT_MARGIN

    def apply(self, image: PIL.Image.Image) -> NDArray[np.uint8]:
        """Return the pixels of what `open_image` gave, uint8 of shape (size, size, 3)."""
        from PIL import Image

        from vlmsearch.media.images import open_image

        image = image if image.mode == "RGB" else open_image(image)
        side, (width, height) = self.size, image.size
        resampling = Image.Resampling[self.interpolation.upper()]
        if not self.crop:
            return np.array(image.resize((side, side), resampling))
        long = int(side * max(width, height) / min(width, height))
        if long > 16 * side:
            image, box = self._middle(image, long)
            return np.array(image.resize((side, side), resampling, box))
        image = image.resize((side, long) if width < height else (long, side), resampling)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        return np.array(image.crop((left, top, left + side, top + side)))

    def _middle(self, image: PIL.Image.Image, long: int) -> tuple[PIL.Image.Image, tuple[float, float, float, float]]:
        """Return the part of a long image that matters, and the result's box in it."""
        scale = max(image.size) / long
        start = (long - self.size) // 2 * scale
        stop = start + self.size * scale
        reach = 3 * max(scale, 1.0) + 1  # of the widest filter
        first, last = int(start - reach), ceil(stop + reach)  # inside: the image is far longer than that
        if image.width < image.height:
            return image.crop((0, first, image.width, last)), (0, start - first, image.width, stop - first)
        return image.crop((first, 0, last, image.height)), (start - first, 0, stop - first, image.height)
