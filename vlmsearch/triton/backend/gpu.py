"""Decoding on the GPU for Triton's Python backend."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from vlmsearch._util.closable import Closable
from vlmsearch._util.machine import available_cores
from vlmsearch.errors import InvalidInputError
from vlmsearch.media.limits import SERVER_LIMITS, ImageLimits
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.inputs import Pixels
from vlmsearch.tensorrt.engine.images import GpuImages
from vlmsearch.triton.backend.engine import open_engine
from vlmsearch.triton.client.protocol import status_of
from vlmsearch.types import Vectors

_BATCH = 256
_PIECE = 64
"""Images that are decoded at once for an engine: while one piece is computed, the next is decoded."""


class GpuImageStage(Closable):
    """Pixels as `ImageStage` makes them, with JPEGs decoded, resized and cropped on a GPU."""

    def __init__(
        self,
        preprocess: Preprocess,
        *,
        device: int,
        limits: ImageLimits = SERVER_LIMITS,
        threads: int | None = None,
        batch: int = _BATCH,
    ) -> None:
        self._pool = ThreadPoolExecutor(threads or available_cores(), thread_name_prefix="decode")
        self._images = GpuImages(preprocess, pool=self._pool, device=device, batch=batch, limits=limits)

    def run(self, images: Sequence[bytes]) -> tuple[Pixels | Vectors, list[str]]:
        """Pixels, uint8 (n, size, size, 3), and for each item "" or why its pixels are black."""
        pixels, refused = self._images.read(images)
        return pixels, _statuses(refused, len(images))

    def close(self) -> None:
        """Free the GPU's memory, and stop the threads."""
        self._images.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


class EncodedTower(GpuImageStage):
    """An image tower with its decoding: JPEG bytes to vectors with all between them on one GPU."""

    def __init__(
        self,
        path: Path,
        preprocess: Preprocess,
        *,
        device: int,
        limits: ImageLimits = SERVER_LIMITS,
        threads: int | None = None,
    ) -> None:
        self._engine = open_engine(path, device)
        super().__init__(preprocess, device=device, limits=limits, threads=threads, batch=_PIECE)

    def run(self, images: Sequence[bytes]) -> tuple[Pixels | Vectors, list[str]]:
        """Return unit vectors, float32 (n, dim).

        For each image comes "" or why its vector is of no use.
        """
        refused: dict[int, InvalidInputError] = {}
        vectors = np.zeros((len(images), self._engine.dim), np.float32)
        start = 0
        for pixels in self._images.batches(images, refused):
            stop = start + pixels.shape[0]
            vectors[start:stop] = self._engine.run_device({"pixels": pixels})
            start = stop
        return vectors, _statuses(refused, len(images))

    def close(self) -> None:
        """Free the GPU's memory, and stop the threads."""
        super().close()
        self._engine.close()


def _statuses(refused: dict[int, InvalidInputError], count: int) -> list[str]:
    return [status_of(refused[number]) if number in refused else "" for number in range(count)]
