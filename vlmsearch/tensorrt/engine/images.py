"""Encoded images to a model's pixels on the GPU: decoded by nvImageCodec, resized and cropped by our own kernels.

JPEGs go through the hardware decoder where the GPU has one. The CPU decodes other formats, other colour spaces and
damaged files, image by image.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.nvimgcodec as nvimgcodec  # `from nvidia` raises no ModuleNotFoundError where CUDA's other wheels are

from vlmsearch._util.batching import groups
from vlmsearch._util.closable import Closable
from vlmsearch._util.threads import Workers
from vlmsearch.errors import BackendError, InvalidInputError
from vlmsearch.media.images import read_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.inputs import Pixels, to_pixels
from vlmsearch.tensorrt.engine.cuda import (
    DeviceArray,
    DeviceBuffer,
    PinnedBuffer,
    Stream,
    copy_to_device,
    copy_to_host,
    current,
)
from vlmsearch.tensorrt.engine.jpeg import Jpeg, read_header
from vlmsearch.tensorrt.engine.resizing import Geometry, Raster, Resizer, plan
from vlmsearch.types import ImageSource

_AHEAD = 2
"""Batches that are decoded while another is used."""
_MAX_DECODED = 2**28
"""Pixels that are decoded at once; with them, the memory for them is bounded."""
_CHANNELS = 3


@dataclass(frozen=True)
class _Job:
    """One image that the GPU decodes: its place in the batch, its bytes and what is to be done."""

    place: int
    data: bytes
    jpeg: Jpeg
    geometry: Geometry


class GpuImages(Closable):
    """Images to pixels on one GPU, in batches, ahead of their use. From several threads one at a time is served.

    ``pool`` decodes what the GPU cannot; ``counts`` says how many images went which way. Raises BackendError where
    nvImageCodec does not start.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        *,
        pool: Executor,
        device: int = 0,
        batch: int = 256,
        limits: ImageLimits = DEFAULT_LIMITS,
    ) -> None:
        self._preprocess, self._pool, self._device, self._batch = preprocess, pool, device, batch
        self._limits = limits
        self._lock = threading.Lock()
        self._threads = Workers(_AHEAD, name="vlmsearch-gpu-decode", owner="the image decoder")
        self._making = threading.Lock()
        self._slots: dict[int, _Slot] = {}
        self.counts = {"gpu": 0, "cpu": 0}
        with current(device):
            self._slot(0)

    def batches(self, images: Sequence[ImageSource], refused: dict[int, InvalidInputError]) -> Iterator[DeviceArray]:
        """Yield pixels in order, uint8 (n, size, size, 3) on the GPU.

        Each array is valid until the next is asked for.

        An image that cannot be used is put into ``refused`` by its number, and black. BackendError once it is closed.
        """
        waiting: deque[Future[DeviceArray]] = deque()
        with self._lock:
            try:
                for number, start in enumerate(range(0, len(images), self._batch)):
                    part = images[start : start + self._batch]
                    waiting.append(self._threads.submit(self._fill, number % (_AHEAD + 1), part, start, refused))
                    if len(waiting) > _AHEAD:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
                for future in waiting:
                    if not future.cancelled():
                        future.exception()  # waits: its slot must be free for whoever comes next

    def read(self, images: Sequence[bytes]) -> tuple[Pixels, dict[int, InvalidInputError]]:
        """Return pixels on the host, uint8 (n, size, size, 3).

        With them comes why some of the images, by number, are black.
        """
        size = self._preprocess.size
        pixels = np.empty((len(images), size, size, _CHANNELS), np.uint8)
        refused: dict[int, InvalidInputError] = {}
        with self._lock, current(self._device):
            slot = self._slot(0)
            for start in range(0, len(images), self._batch):
                part = images[start : start + self._batch]
                slot.fill(part, start, self._pool, refused)
                slot.fetch(pixels[start : start + len(part)])
        return pixels, refused

    def close(self) -> None:
        """Wait for batches under way, and free all memory."""
        self._threads.close()
        with self._lock, current(self._device):
            slots, self._slots = self._slots, {}
            for slot in slots.values():
                slot.close()

    def _fill(
        self, index: int, images: Sequence[ImageSource], start: int, refused: dict[int, InvalidInputError]
    ) -> DeviceArray:
        with current(self._device):
            slot = self._slot(index)
            gpu = slot.fill(images, start, self._pool, refused)
        with self._making:
            self.counts["gpu"] += gpu
            self.counts["cpu"] += len(images) - gpu
        return DeviceArray(slot.pointer, (len(images), self._preprocess.size, self._preprocess.size, _CHANNELS))

    def _slot(self, index: int) -> _Slot:
        with self._making:
            if index not in self._slots:
                self._slots[index] = _Slot(self._preprocess, self._batch, self._device, self._limits)
            return self._slots[index]


class _Slot(Closable):
    """Decodes one batch at a time on the current GPU, into memory of its own."""

    def __init__(self, preprocess: Preprocess, batch: int, device: int, limits: ImageLimits) -> None:
        self._preprocess, self._limits = preprocess, limits
        self._row = preprocess.size**2 * _CHANNELS
        try:
            kinds = nvimgcodec.BackendKind
            on_gpu = [nvimgcodec.Backend(kind) for kind in (kinds.HW_GPU_ONLY, kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU)]
            self._decoder: Any = nvimgcodec.Decoder(device_id=device, backends=on_gpu)
        except RuntimeError as exc:
            raise BackendError(f"nvImageCodec does not start: {exc}") from exc
        self._parameters = nvimgcodec.DecodeParams(apply_exif_orientation=False)
        with ExitStack() as held:
            self._stream = held.enter_context(Stream())
            self._target = held.enter_context(DeviceBuffer(batch * self._row))
            self._staging = held.enter_context(PinnedBuffer(batch * self._row))
            self._resizer = held.enter_context(Resizer(preprocess, batch))
            self._held = held.pop_all()
        self.pointer = self._target.pointer

    def fill(
        self, images: Sequence[ImageSource], start: int, pool: Executor, refused: dict[int, InvalidInputError]
    ) -> int:
        """Decode a batch, and return how many of its images the GPU decoded.

        Its first image is number ``start`` of all.

        An image that cannot be used is put into ``refused``, and black.
        """
        data = list(pool.map(_encoded, images)) if any(isinstance(image, Path) for image in images) else images
        jobs = [job for place, image in enumerate(data) if (job := self._job(place, image)) is not None]
        places = {job.place for job in jobs}
        others = {
            place: pool.submit(to_pixels, image, self._preprocess, self._limits)
            for place, image in enumerate(images)
            if place not in places
        }
        try:
            for part in _parts(jobs):
                for job in self._decode(part):
                    others[job.place] = pool.submit(to_pixels, images[job.place], self._preprocess, self._limits)
            self._upload(others, start, refused)
        finally:
            self._stream.synchronize()
            for future in others.values():
                future.cancel()
        return len(images) - len(others)

    def _job(self, place: int, image: ImageSource) -> _Job | None:
        if not isinstance(image, bytes) or len(image) > self._limits.encoded_bytes:
            return None
        jpeg = read_header(image)
        if jpeg is None or jpeg.width * jpeg.height > self._limits.pixels:
            return None
        geometry = plan(jpeg.width, jpeg.height, jpeg.orientation, self._preprocess)
        return _Job(place, image, jpeg, geometry) if geometry else None

    def _decode(self, jobs: Sequence[_Job]) -> list[_Job]:
        """Queue everything for some images; those that nvImageCodec could not decode are given back."""
        streams = [nvimgcodec.CodeStream(job.data) for job in jobs]
        decoded = self._decoder.decode(streams, params=self._parameters, cuda_stream=self._stream.handle)
        rasters, failed = [], []
        for job, image in zip(jobs, decoded):
            raster = _raster(job, image)
            if raster:
                rasters.append((raster, job.geometry))
            else:
                failed.append(job)
        if rasters:
            self._resizer.run(rasters, self.pointer, self._stream)
        self._stream.synchronize()  # the decoded images, and what the resizer was given, are free after it
        return failed

    def fetch(self, pixels: Pixels) -> None:
        """Copy the first of the images to the host."""
        copy_to_host(self._staging.pointer, self.pointer, pixels.nbytes, self._stream)
        self._stream.synchronize()
        np.copyto(pixels, self._staging.array(pixels.shape, np.uint8))

    def _upload(self, pixels: dict[int, Future[Pixels]], start: int, refused: dict[int, InvalidInputError]) -> None:
        """Queue the copy of what the CPU decoded."""
        staging = self._staging.array((self._staging.size,), np.uint8)
        for place in sorted(pixels):
            row = staging[place * self._row : (place + 1) * self._row]
            try:
                row[:] = pixels[place].result().reshape(-1)
            except InvalidInputError as exc:
                refused[start + place] = exc
                row[:] = 0
            offset = place * self._row
            copy_to_device(self.pointer + offset, self._staging.pointer + offset, self._row, self._stream)

    def close(self) -> None:
        """Free its memory."""
        self._decoder = None
        self._held.close()


def _encoded(image: ImageSource) -> ImageSource:
    """Return the bytes of a file.

    If it cannot be read, it is the file itself, for the CPU path to say why.
    """
    if not isinstance(image, Path):
        return image
    try:
        return read_image(image)
    except InvalidInputError:
        return image


def _parts(jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
    """Return all jobs in groups whose decoded images fit the memory."""
    return groups(jobs, (job.jpeg.width * job.jpeg.height for job in jobs), total=_MAX_DECODED)


def _raster(job: _Job, image: Any) -> Raster | None:
    """Return where a decoded image lies; None if it is not what its header said."""
    if image is None:
        return None
    array = image.__cuda_array_interface__
    if tuple(array["shape"]) != (job.jpeg.height, job.jpeg.width, _CHANNELS) or array["typestr"] != "|u1":
        return None
    pitch = array["strides"][0] if array.get("strides") else job.jpeg.width * _CHANNELS
    return Raster(array["data"][0], job.jpeg.width, job.jpeg.height, pitch, job.jpeg.orientation, job.place)
