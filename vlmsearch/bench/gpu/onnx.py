"""How fast ONNX Runtime runs a tower on the GPU, from host memory to host memory, beside the engines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.models.bundle import Bundle
from vlmsearch.models.inputs import Pixels
from vlmsearch.types import Vectors

GpuPrecision = Literal["fp32", "fp16"]
BATCHES = (1, 8, 32, 128, 256)
_WARM_UP = 3


@dataclass(frozen=True)
class OnnxTiming:
    """One precision at one batch size: milliseconds a batch (median), images a second, mean cosine to float32."""

    contender: str
    precision: GpuPrecision
    batch: int
    latency_ms: float
    images_per_second: float
    cosine: float

    def to_json(self) -> dict[str, object]:
        """As JSON has it."""
        return asdict(self)


def measure_onnx(
    bundle: Bundle,
    pixels: Pixels,
    reference: Vectors,
    *,
    precisions: Sequence[GpuPrecision] = ("fp32", "fp16"),
    device: int = 0,
    batches: Sequence[int] = BATCHES,
    rounds: int = 30,
) -> list[OnnxTiming]:
    """``onnx:`` with ``device=cuda:N`` on pixels, uint8 (n, size, size, 3), whose float32 vectors are ``reference``.

    ModelUnavailableError says why ONNX Runtime cannot use the GPU.
    """
    timings = []
    for precision in precisions:
        folder = f"{bundle.folder}/"
        with OnnxEncoder(folder, precision=precision, device=f"cuda:{device}", batch_size=max(batches)) as encoder:
            cosine = float((encoder.run_images(bundle, pixels) * reference).sum(axis=1).mean())
            for batch in batches:
                seconds = _seconds(encoder, bundle, np.resize(pixels, (batch, *pixels.shape[1:])), rounds)
                name = f"onnx:?device=cuda:{device}&precision={precision}"
                timings.append(OnnxTiming(name, precision, batch, 1000 * seconds, batch / seconds, cosine))
    return timings


def _seconds(encoder: OnnxEncoder, bundle: Bundle, pixels: Pixels, rounds: int) -> float:
    for _ in range(_WARM_UP):
        encoder.run_images(bundle, pixels)
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        encoder.run_images(bundle, pixels)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
