"""How fast photographs become pixels on one core, and how well decoding and a model share all cores.

Contenders take turns on the same files; figures are medians of the rounds.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlmsearch.encoders.base import Encoder
from vlmsearch.encoders.bundle import BundleEncoder
from vlmsearch.errors import ConfigError
from vlmsearch.media.images import Preprocess, open_image
from vlmsearch.models.inputs import available_cores, to_pixels

_GRAIN = 5.0
"""Standard deviation of a sensor's noise, in levels of 255."""
_QUALITY = 92
"""With this grain files get 0.22 to 0.28 bytes a pixel: 2.7 MB for 12 megapixels, as those of telephones."""
_MOST_PIXELS = 100_000_000
"""In all pictures of one size, so that a run with those of a camera takes seconds."""
Report = Callable[[str, int, int], None]
"""Takes a step's name, how many turns of it are done, and how many there are."""


@dataclass(frozen=True)
class Pictures:
    """JPEG files of one kind: ``name`` says what they are."""

    name: str
    files: tuple[bytes, ...]

    @property
    def kilobytes(self) -> float:
        """The mean length of a file, in 1,000 bytes."""
        return sum(map(len, self.files)) / len(self.files) / 1000


@dataclass(frozen=True)
class DecodeTiming:
    """Photographs a second of one core's time that a contender decoded in the median round, of files in memory."""

    pictures: Pictures
    contender: str
    rate: float


@dataclass(frozen=True)
class Overlap:
    """Photographs a second in the median round: decoded on all cores, encoded when decoded, and both at once."""

    pictures: Pictures
    decoded: float
    encoded: float
    both: float

    @property
    def of_slower(self) -> float:
        """How near both at once come to the slower of the two: at most 1, where the model runs on a GPU."""
        return self.both / min(self.decoded, self.encoded)

    @property
    def of_shared(self) -> float:
        """How near they come to cores that are never idle: about 1 at most, where the model shares the cores."""
        return self.both * (1 / self.decoded + 1 / self.encoded)


def camera_pictures(files: Sequence[bytes], size: tuple[int, int], *, progressive: bool = False) -> Pictures:
    """Return pictures as a camera would save them: brought to a size, with grain, at quality 92 and 4:2:0.

    Args:
        files: Image files. So many are used that all of one size have at most 100 megapixels, but at least one.
        size: Width and height in pixels.
        progressive: Whether the JPEG files are progressive.
    """
    width, height = size
    noise = np.random.default_rng(0).normal(0, _GRAIN, (height, width, 3)).round().astype(np.int16)
    found = []
    for data in files[: max(1, _MOST_PIXELS // (width * height))]:
        smooth = np.asarray(open_image(data).resize(size, Image.Resampling.BICUBIC), np.int16)
        out = BytesIO()
        grainy = Image.fromarray(np.clip(smooth + noise, 0, 255).astype(np.uint8))
        grainy.save(out, "JPEG", quality=_QUALITY, subsampling="4:2:0", progressive=progressive)
        found.append(out.getvalue())
    return Pictures(f"{width}x{height}{', progressive' * progressive}", tuple(found))


def preprocess_of(encoder: Encoder) -> Preprocess:
    """Return how a model takes its images; ConfigError for an encoder that does not decode them for a bundle."""
    bundles = encoder.bundles if isinstance(encoder, BundleEncoder) else ()
    for bundle in bundles:
        if bundle.preprocess:
            return bundle.preprocess
    raise ConfigError(f"{encoder.fingerprint} has no image tower that runs here: give an encoder such as onnx:demo")


def decoders(preprocess: Preprocess) -> dict[str, Callable[[bytes], Any]]:
    """Return who decodes a JPEG file, by name: to an RGB image, or to pixels of shape (size, size, 3)."""
    return {
        "vlmsearch: JPEG to RGB": partial(open_image, at_least=preprocess.at_least),
        "vlmsearch: JPEG to pixels": partial(to_pixels, preprocess=preprocess),
        **_peers(preprocess),
    }


def time_decoding(
    pictures: Pictures, preprocess: Preprocess, *, rounds: int, report: Report | None = None
) -> list[DecodeTiming]:
    """Time ours and the installed peers on one core, by its CPU time, which other work on the machine leaves alone."""
    work = {name: partial(_each, decode, pictures.files) for name, decode in decoders(preprocess).items()}
    seconds = _in_turns(f"decoding {pictures.name}", work, rounds, time.thread_time, report)
    return [DecodeTiming(pictures, name, len(pictures.files) / each) for name, each in seconds.items()]


def time_overlap(
    pictures: Pictures, encoder: Encoder, *, count: int, rounds: int, report: Report | None = None
) -> Overlap:
    """Time decoding on all cores, encoding of what is decoded, and `Encoder.encode_images` of ``count`` files."""
    preprocess = preprocess_of(encoder)
    files = list(itertools.islice(itertools.cycle(pictures.files), count))
    decode = partial(to_pixels, preprocess=preprocess)
    with ThreadPoolExecutor(available_cores(), thread_name_prefix="vlmsearch-bench") as pool:
        decoded = [Image.fromarray(pixels) for pixels in pool.map(decode, files)]
        work: dict[str, Callable[[], object]] = {
            "decoded": lambda: list(pool.map(decode, files)),
            "encoded": lambda: encoder.encode_images(decoded),
            "both": lambda: encoder.encode_images(files),
        }
        seconds = _in_turns(f"{pictures.name} to vectors", work, rounds, time.perf_counter, report)
    return Overlap(pictures, **{name: count / each for name, each in seconds.items()})


def _peers(preprocess: Preprocess) -> dict[str, Callable[[bytes], Any]]:
    """Return what is installed: transformers' image processor, and PyTorch's resizing with vector instructions."""
    try:
        import torch
        import transformers
        from torch.nn import functional
    except ImportError:
        return {}
    torch.set_num_threads(1)
    side, name = preprocess.size, preprocess.interpolation
    kind: Any = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
    square = {"height": side, "width": side}
    processor = kind(
        size={"shortest_edge": side} if preprocess.crop else square,
        crop_size=square,
        do_center_crop=preprocess.crop,
        resample=Image.Resampling[name.upper()],
    )

    def process(data: bytes) -> NDArray[np.uint8]:
        image = Image.open(BytesIO(data)).convert("RGB")
        values = processor(image, do_rescale=False, do_normalize=False)["pixel_values"][0]
        made: NDArray[np.uint8] = np.asarray(values).transpose(1, 2, 0)
        return made

    def interpolate(data: bytes) -> NDArray[np.uint8]:
        pixels = torch.from_numpy(np.array(Image.open(BytesIO(data)).convert("RGB"))).permute(2, 0, 1)[None]
        height, width = pixels.shape[2:]
        short = min(height, width)
        shape = (side * height // short, side * width // short) if preprocess.crop else (side, side)
        resized = functional.interpolate(pixels, shape, mode=name, antialias=True)[0].permute(1, 2, 0)
        top, left = (shape[0] - side) // 2, (shape[1] - side) // 2
        made: NDArray[np.uint8] = resized[top : top + side, left : left + side].numpy()
        return made

    peers: dict[str, Callable[[bytes], Any]] = {"Pillow and transformers' processor": process}
    if name != "lanczos":  # which PyTorch does not have
        peers["Pillow and PyTorch's resizing"] = interpolate
    return peers


def _each(decode: Callable[[bytes], object], files: Sequence[bytes]) -> None:
    for data in files:
        decode(data)


def _in_turns(
    step: str,
    work: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float],
    report: Report | None,
) -> dict[str, float]:
    """Return everyone's seconds in the median round, after one turn each that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    turns = [turn for _ in range(rounds + 1) for turn in work.items()]
    for done, (name, run) in enumerate(turns):
        if report:
            report(step, done, len(turns))
        begun = clock()
        run()
        seconds[name].append(clock() - begun)
    return {name: statistics.median(times[1:]) for name, times in seconds.items()}
