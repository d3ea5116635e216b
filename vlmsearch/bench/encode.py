"""How fast a model encodes in each of its precisions, in one run on one machine.

The contenders take turns, so that whatever else the machine does meets all of them alike. Figures are medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from vlmsearch.building.data import passages
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ConfigError
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import Bundle, find_bundles
from vlmsearch.models.inputs import Pixels, to_pixels

BATCH = 32
INT8_NAME = "vlmsearch int8"
LONG_TOKENS = 256
"""A model that reads so many tokens is timed with long texts, too."""
_LONG_WORDS = 180
_PRECISIONS: tuple[Literal["int8", "fp32"], ...] = ("int8", "fp32")
Report = Callable[[str, int, int], None]
"""A callback that takes a task's name, the turns that are done, and all turns.

Turns are given by their number.
"""


@dataclass(frozen=True)
class EncodeTask:
    """A task: its texts or JPEG files, and the contenders that encode them, by name."""

    name: str
    inputs: Sequence[str] | Sequence[bytes]
    contenders: Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class EncodeTiming:
    """The seconds that each round of one contender took for a task."""

    task: str
    contender: str
    items: int
    seconds: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Items a second, in the median round."""
        return self.items / statistics.median(self.seconds)


def find_bundle(model: str) -> Bundle:
    """Return the bundle of a model; ConfigError where the name means several."""
    bundles = find_bundles(model)
    if len(bundles) != 1:
        raise ConfigError(f"{model} is several models; name one of {', '.join(bundle.name for bundle in bundles)}")
    return bundles[0]


def open_encoders(bundle: Bundle, threads: int, stack: ExitStack) -> dict[str, OnnxEncoder]:
    """Return an encoder in each precision by the contender's name; they close with ``stack``."""
    opened = {}
    for precision in _PRECISIONS:
        encoder = OnnxEncoder(f"{bundle.folder}/", precision=precision, threads=threads, batch_size=BATCH)
        opened[f"vlmsearch {precision}"] = stack.enter_context(encoder)
    return opened


def text_task(name: str, encoders: Mapping[str, OnnxEncoder], texts: Sequence[str]) -> EncodeTask:
    """Return the task of making vectors of texts."""
    return EncodeTask(name, texts, {who: partial(encoder.encode_texts, texts) for who, encoder in encoders.items()})


def pixel_task(preprocess: Preprocess, encoders: Mapping[str, OnnxEncoder], images: Sequence[bytes]) -> EncodeTask:
    """Return the task of making vectors of images that are decoded and resized already."""
    batches = pixel_batches(preprocess, images)
    contenders = {who: partial(_run_all, encoder, batches) for who, encoder in encoders.items()}
    return EncodeTask("pixels to vectors", images, contenders)


def pixel_batches(preprocess: Preprocess, images: Sequence[bytes]) -> list[Pixels]:
    """Return the pixels of images in batches."""
    pixels = np.stack([to_pixels(data, preprocess) for data in images])
    return [pixels[i : i + BATCH] for i in range(0, len(pixels), BATCH)]


def file_task(encoders: Mapping[str, OnnxEncoder], images: Sequence[bytes]) -> EncodeTask:
    """Return the task of making vectors of JPEG files in memory."""
    contenders = {who: partial(encoder.encode_images, images) for who, encoder in encoders.items()}
    return EncodeTask("JPEG to vectors", images, contenders)


def long_texts(count: int) -> list[str]:
    """Return ``count`` texts of 180 words, made of the project's passages: as long as the abstract of an article."""
    words = [word for passage in passages() for word in passage.text.split()]
    starts = range(0, count * _LONG_WORDS, _LONG_WORDS)
    return [" ".join(words[(start + i) % len(words)] for i in range(_LONG_WORDS)) for start in starts]


def measure(task: EncodeTask, *, rounds: int, report: Report) -> list[EncodeTiming]:
    """Return the times of all contenders, which run in turns.

    The first run of each does not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in task.contenders}
    turns = [turn for _ in range(rounds + 1) for turn in task.contenders.items()]
    for done, (name, run) in enumerate(turns):
        report(task.name, done, len(turns))
        started = time.perf_counter()
        run()
        seconds[name].append(time.perf_counter() - started)
    return [EncodeTiming(task.name, who, len(task.inputs), tuple(times[1:])) for who, times in seconds.items()]


def ratios(timings: Sequence[EncodeTiming]) -> dict[str, float]:
    """Return how many times faster our INT8 is than each other contender at its task."""
    int8 = {timing.task: timing.rate for timing in timings if timing.contender == INT8_NAME}
    return {
        f"{timing.task}: {INT8_NAME} / {timing.contender}": round(int8[timing.task] / timing.rate, 2)
        for timing in timings
        if timing.contender != INT8_NAME
    }


def _run_all(encoder: OnnxEncoder, batches: Sequence[Pixels]) -> None:
    for batch in batches:
        encoder.run_images(encoder.bundles[0], batch)
