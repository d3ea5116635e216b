"""Decoding on the GPU for Triton's Python backend."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from vlmsearch.closing import Closable
from vlmsearch.encoders.towers import Pixels, available_cores
from vlmsearch.gpu.images import GpuImages
from vlmsearch.media import Preprocess
from vlmsearch.serving.protocol import status_of, too_large


class GpuImageStage(Closable):
    """What `ImageStage` does, with JPEGs decoded, resized and cropped on a GPU."""

    def __init__(self, preprocess: Preprocess, *, max_bytes: int, device: int, threads: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._size = preprocess.size
        self._pool = ThreadPoolExecutor(threads or available_cores(), thread_name_prefix="decode")
        self._images = GpuImages(preprocess, pool=self._pool, device=device)

    def run(self, images: Sequence[bytes]) -> tuple[Pixels, list[str]]:
        """Pixels, uint8 (n, size, size, 3), and for each item "" or why its pixels are black."""
        statuses = [too_large(len(image), self._max_bytes) for image in images]
        small = [number for number, status in enumerate(statuses) if not status]
        found, refused = self._images.read([images[number] for number in small])
        for number, error in refused.items():
            statuses[small[number]] = status_of(error)
        if len(small) == len(images):
            return found, statuses
        pixels = np.zeros((len(images), self._size, self._size, 3), np.uint8)
        pixels[small] = found
        return pixels, statuses

    def close(self) -> None:
        """Free the GPU's memory, and stop the threads."""
        self._images.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
