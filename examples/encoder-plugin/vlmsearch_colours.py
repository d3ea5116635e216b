"""Search images by their colours; as a URL, ``colours:?shades=6``."""

from collections.abc import Sequence

import numpy as np
from PIL.Image import Image

from vlmsearch import Encoder, ImageSource, Role, Space, Vectors
from vlmsearch.errors import apply_to_each
from vlmsearch.media.images import open_image


class ColourEncoder(Encoder):
    """Encode images by the histogram of their colours; ``shades`` is the number of shades per channel."""

    def __init__(self, *, shades: int = 4) -> None:
        self._shades = shades
        self.fingerprint = f"colours:{shades}"
        self.spaces = (Space("colours", shades**3, frozenset({"image"})),)

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        return {}  # no space takes texts

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        opened = apply_to_each(open_image, images)  # upright and RGB; names all images that cannot be used
        rows = np.array([self._histogram(image) for image in opened], np.float32)
        return {"colours": rows.reshape(len(images), self._shades**3)}

    def _histogram(self, image: Image) -> np.ndarray:
        pixels = np.asarray(image.resize((64, 64)), np.int64) * self._shades // 256
        codes = pixels @ [self._shades**2, self._shades, 1]
        counts = np.bincount(codes.ravel(), minlength=self._shades**3)
        return np.sqrt(counts / codes.size)  # of length 1
