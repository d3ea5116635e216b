"""Pillow: its switch for images that are cut off, and pixels as the bytes of a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

from PIL import Image, ImageFile


class _Strictness:
    """Pillow's switch for images that are cut off, which makes it raise while any thread decodes.

    Other libraries turn it off for the whole process, as WeasyPrint does when it is imported.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._former = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the switch within the block, and leave it as it was."""
        with self._lock:
            if not self._users:
                self._former, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    ImageFile.LOAD_TRUNCATED_IMAGES = self._former


STRICT = _Strictness()


def as_bmp(image: Image.Image) -> bytes:
    """Return an image as the bytes of a BMP: the pixels as they are, which takes no time."""
    written = BytesIO()
    image.save(written, "BMP")
    return written.getvalue()
