"""JPEG bytes to vectors with all between them on one GPU, for Triton's Python backend."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from vlmsearch._util.closable import Closable
from vlmsearch._util.machine import available_cores
from vlmsearch.errors import InvalidInputError
from vlmsearch.media.images import Preprocess
from vlmsearch.media.limits import SERVER_LIMITS, ImageLimits
from vlmsearch.tensorrt.engine.engine import Engine
from vlmsearch.tensorrt.engine.images import GpuImages
from vlmsearch.tensorrt.engine.plans import open_plan, read_plan
from vlmsearch.tensorrt.engine.runtime import this_machine
from vlmsearch.triton.client.protocol import status_of
from vlmsearch.types import Vectors

_PIECE = 64
"""Images that are decoded at once: while one piece is computed, the next is decoded."""


class EncodedTower(Closable):
    """An image tower with its decoding; ModelUnavailableError where the plan was built for another machine."""

    def __init__(
        self,
        path: Path,
        preprocess: Preprocess,
        *,
        device: int,
        limits: ImageLimits = SERVER_LIMITS,
        threads: int | None = None,
    ) -> None:
        plan = read_plan(open_plan(path), here=this_machine(device))
        self._pool = ThreadPoolExecutor(threads or available_cores(), thread_name_prefix="decode")
        self._engine = Engine(plan, device=device)
        self._images = GpuImages(preprocess, pool=self._pool, device=device, batch=_PIECE, limits=limits)

    def run(self, images: Sequence[bytes]) -> tuple[Vectors, list[str]]:
        """Unit vectors, float32 (n, dim), and for each image "" or why its vector is of no use."""
        refused: dict[int, InvalidInputError] = {}
        vectors = np.zeros((len(images), self._engine.dim), np.float32)
        start = 0
        for pixels in self._images.batches(images, refused):
            stop = start + pixels.shape[0]
            vectors[start:stop] = self._engine.run_device({"pixels": pixels})
            start = stop
        return vectors, [status_of(refused[number]) if number in refused else "" for number in range(len(images))]

    def close(self) -> None:
        """Free the GPU's memory, and stop the threads."""
        self._images.close()
        self._engine.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
