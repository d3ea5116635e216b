"""Decoding on the GPU for Triton's Python backend."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from vlmsearch._util.closable import Closable
from vlmsearch._util.machine import available_cores
from vlmsearch.media.images import Preprocess
from vlmsearch.media.limits import SERVER_LIMITS, ImageLimits
from vlmsearch.models.inputs import Pixels
from vlmsearch.tensorrt.engine.images import GpuImages
from vlmsearch.triton.client.protocol import status_of


class GpuImageStage(Closable):
    """What `ImageStage` does, with JPEGs decoded, resized and cropped on a GPU."""

    def __init__(
        self,
        preprocess: Preprocess,
        *,
        device: int,
        limits: ImageLimits = SERVER_LIMITS,
        threads: int | None = None,
    ) -> None:
        self._pool = ThreadPoolExecutor(threads or available_cores(), thread_name_prefix="decode")
        self._images = GpuImages(preprocess, pool=self._pool, device=device, limits=limits)

    def run(self, images: Sequence[bytes]) -> tuple[Pixels, list[str]]:
        """Pixels, uint8 (n, size, size, 3), and for each item "" or why its pixels are black."""
        pixels, refused = self._images.read(images)
        return pixels, [status_of(refused[number]) if number in refused else "" for number in range(len(images))]

    def close(self) -> None:
        """Free the GPU's memory, and stop the threads."""
        self._images.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
