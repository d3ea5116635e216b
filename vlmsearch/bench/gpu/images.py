"""From JPEG bytes in memory to vectors on the host in one process, and which stage limits it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO

import numpy as np
import PIL.Image

from vlmsearch.media.images import Preprocess
from vlmsearch.models.inputs import available_cores, to_pixels
from vlmsearch.tensorrt.engine.cuda import DeviceArray
from vlmsearch.tensorrt.engine.engine import Engine
from vlmsearch.tensorrt.engine.images import GpuImages
from vlmsearch.types import Vectors


@dataclass(frozen=True)
class ImageRates:
    """Images a second: each stage by itself, and all of them together.

    ``gpu_decode`` is decoding and resizing on the GPU, ``cpu_decode`` the same on ``threads`` threads of the CPU,
    ``engine`` the engine on pixels that are on the GPU already. ``limit`` is the stage that the whole waits for.
    ``cosine`` (mean and least) is between the vectors of the two ways to decode.
    """

    images: int
    width: int
    height: int
    mean_bytes: int
    batch: int
    threads: int
    cpu_decode: float
    gpu_decode: float
    engine: float
    end_to_end: float
    end_to_end_cpu_decode: float
    limit: str
    on_gpu: int
    cosine: float
    least_cosine: float

    def to_json(self) -> dict[str, object]:
        """As JSON has it."""
        return asdict(self)


def measure_images(
    engine: Engine,
    preprocess: Preprocess,
    jpegs: Sequence[bytes],
    *,
    device: int = 0,
    batch: int = 256,
    threads: int | None = None,
    rounds: int = 5,
) -> ImageRates:
    """All rates for ``jpegs``, which are of one size; medians of ``rounds``."""
    workers = threads or available_cores()
    with (
        ThreadPoolExecutor(workers) as pool,
        GpuImages(preprocess, pool=pool, device=device, batch=batch) as images,
    ):
        decode = partial(to_pixels, preprocess=preprocess)
        rate = partial(_rate, len(jpegs), rounds)
        pixels = np.stack(list(pool.map(decode, jpegs)))
        expected, found = engine.run({"pixels": pixels}), _vectors(engine, images.batches(jpegs))
        cosines = (expected * found).sum(axis=1)
        on_gpu = images.counts["gpu"]
        stages = {
            "decoding": rate(lambda: _drain(images.batches(jpegs))),
            "the engine": rate(partial(_again, engine, next(images.batches(jpegs[:batch])), len(jpegs))),
        }
        whole = rate(lambda: _vectors(engine, images.batches(jpegs)))
        slow = rate(lambda: list(pool.map(decode, jpegs)))
        slow_whole = rate(lambda: engine.run({"pixels": np.stack(list(pool.map(decode, jpegs)))}))
    width, height = PIL.Image.open(BytesIO(jpegs[0])).size
    return ImageRates(
        images=len(jpegs), width=width, height=height, mean_bytes=sum(map(len, jpegs)) // len(jpegs), batch=batch,
        threads=workers, cpu_decode=slow, gpu_decode=stages["decoding"], engine=stages["the engine"],
        end_to_end=whole, end_to_end_cpu_decode=slow_whole, limit=min(stages, key=lambda name: stages[name]),
        on_gpu=on_gpu, cosine=float(cosines.mean()), least_cosine=float(cosines.min()),
    )  # fmt: skip


def _vectors(engine: Engine, batches: Iterable[DeviceArray]) -> Vectors:
    return np.concatenate([engine.run_device({"pixels": pixels}) for pixels in batches])


def _drain(batches: Iterable[DeviceArray]) -> None:
    for _ in batches:
        pass


def _again(engine: Engine, pixels: DeviceArray, count: int) -> None:
    """The engine alone, on the same batch over and over, for ``count`` images."""
    for _ in range(0, count, pixels.shape[0]):
        engine.run_device({"pixels": pixels})


def _rate(count: int, rounds: int, run: Callable[[], object]) -> float:
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return count / statistics.median(taken)
