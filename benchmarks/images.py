"""Photographs on their way to pixels on one core, and how well decoding and a model share all cores.

Contenders take turns on the same files; figures are medians of the rounds.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.common import print_figures, rounds_option
from vlmsearch._util.machine import available_cores
from vlmsearch.bench.encode import in_turns
from vlmsearch.building.progress import steps
from vlmsearch.building.quantize import Report
from vlmsearch.cli.bench.data import read_images
from vlmsearch.encoders.base import Encoder
from vlmsearch.encoders.bundle import BundleEncoder
from vlmsearch.errors import ConfigError
from vlmsearch.media.images import Preprocess, open_image
from vlmsearch.models.inputs import to_pixels
from vlmsearch.registry import open_encoder

_GRAIN = 5.0
"""Standard deviation of a sensor's noise, in levels of 255."""
_QUALITY = 92
"""With this grain files get 0.22 to 0.28 bytes a pixel: 2.7 MB for 12 megapixels, as those of telephones."""
_MOST_PIXELS = 100_000_000
"""In all pictures of one size, so that a run with those of a camera takes seconds."""


@dataclass(frozen=True)
class Pictures:
    """JPEG files of one kind: ``name`` says what they are."""

    name: str
    files: tuple[bytes, ...]


@click.command()
@click.option("--encoder", default="onnx:demo", show_default=True, metavar="URL",
              help="What makes the vectors: a model that runs here.")  # fmt: skip
@click.option("--images", type=click.Path(path_type=Path), metavar="DIR",
              help="A folder of JPEG files.  [default: drawn scenes]")  # fmt: skip
@click.option("--size", "sizes", type=(int, int), multiple=True, default=((640, 480), (1024, 768), (4032, 3024)),
              show_default=True, metavar="WIDTH HEIGHT",
              help="Bring the images to this size, with grain, as a camera would save them.")  # fmt: skip
@click.option("--progressive", is_flag=True, help="Save them as progressive JPEG files.")
@click.option("--count", default=128, show_default=True, type=click.IntRange(1), help="How many images are encoded.")
@rounds_option
def main(
    encoder: str, images: Path | None, sizes: Sequence[tuple[int, int]], progressive: bool, count: int, rounds: int
) -> None:
    """Time JPEG files on their way to vectors: decoding alone on one core, and together with the model on all.

    "JPEG to RGB" decodes, at a fraction of the size where the model cannot tell; "JPEG to pixels" resizes and crops as
    well. Of decoding and encoding at once, "of slower" compares with the slower of the two, to which a model on a GPU
    can come near; a model on the CPU shares the cores with the decoders, and "of shared" compares with cores that are
    never idle.
    """
    decoding: list[tuple[str, ...]] = []
    overlap: list[tuple[str, ...]] = []
    files = read_images(images, count)
    with open_encoder(encoder) as opened, steps("images") as report:
        preprocess = preprocess_of(opened)
        for size in sizes:
            pictures = camera_pictures(files, size, progressive=progressive)
            kilobytes = sum(map(len, pictures.files)) / len(pictures.files) / 1000
            for name, rate in time_decoding(pictures, preprocess, rounds, report).items():
                decoding.append((pictures.name, name, f"{kilobytes:.0f}", f"{rate:.0f}"))
            decoded, encoded, both = time_overlap(pictures, opened, preprocess, count, rounds, report)
            shares = both / min(decoded, encoded), both * (1 / decoded + 1 / encoded)
            rates = (f"{rate:.0f}" for rate in (decoded, encoded, both))
            overlap.append((pictures.name, *rates, *(f"{share:.2f}" for share in shares)))
    title = f"{encoder}, {rounds} rounds"
    print_figures(f"{title}, one core", ("images", "who", "kB", "images/s"), decoding, left=2)
    names = ("images", "decoded/s", "encoded/s", "both/s", "of slower", "of shared")
    print_figures(f"{title}, all cores", names, overlap)


def camera_pictures(files: Sequence[bytes], size: tuple[int, int], *, progressive: bool = False) -> Pictures:
    """Return up to 100 megapixels as a camera would save them: of a size, with grain, at quality 92 and 4:2:0."""
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


def time_decoding(pictures: Pictures, preprocess: Preprocess, rounds: int, report: Report) -> dict[str, float]:
    """Images a second of one core, by its CPU time, which other work on the machine leaves alone."""
    work = {name: partial(_decode_all, decode, pictures.files) for name, decode in decoders(preprocess).items()}
    seconds = in_turns(f"decoding {pictures.name}", work, rounds=rounds, report=report, clock=time.thread_time)
    return {name: len(pictures.files) / statistics.median(times) for name, times in seconds.items()}


def time_overlap(
    pictures: Pictures, encoder: Encoder, preprocess: Preprocess, count: int, rounds: int, report: Report
) -> tuple[float, float, float]:
    """Images a second: decoded on all cores, encoded when they are decoded, and both at once."""
    files = list(itertools.islice(itertools.cycle(pictures.files), count))
    decode = partial(to_pixels, preprocess=preprocess)
    with ThreadPoolExecutor(available_cores()) as pool:
        decoded = [Image.fromarray(pixels) for pixels in pool.map(decode, files)]
        work: dict[str, Callable[[], object]] = {
            "decoded": lambda: list(pool.map(decode, files)),
            "encoded": lambda: encoder.encode_images(decoded),
            "both": lambda: encoder.encode_images(files),
        }
        seconds = in_turns(f"{pictures.name} to vectors", work, rounds=rounds, report=report)
    alone, vectors, both = (count / statistics.median(times) for times in seconds.values())
    return alone, vectors, both


def _decode_all(decode: Callable[[bytes], object], files: Sequence[bytes]) -> None:
    for data in files:
        decode(data)


def _peers(preprocess: Preprocess) -> dict[str, Callable[[bytes], Any]]:
    """Return transformers' image processor, and PyTorch's resizing with vector instructions."""
    import torch
    import transformers
    from torch.nn import functional

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


if __name__ == "__main__":
    main()
