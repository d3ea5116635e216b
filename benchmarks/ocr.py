"""How fast and how well text in pictures is read, beside RapidOCR alone, with the same models and one thread."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks.reading import ReadTiming, Report, time_reading
from vlmsearch.media import ocr
from vlmsearch.media.images import open_image

TURNS = (0, 90, 180, 270)
"""Degrees, anticlockwise."""
_SIDE = 672
_SIZES = (28, 36, 48)
"""Of the letters, in pixels."""
_LINES = (2, 2, 1, 1)
"""How many words each line has."""
_WORDS = (
    "anchor balcony candle dolphin elevator feather glacier hammer island jacket kettle ladder "
    "magnet needle orchard pepper quarry ribbon saddle temple umbrella violin walnut zebra"
)


@dataclass(frozen=True)
class FoundWords:
    """How many of the words that were drawn are among those that were read."""

    drawn: int
    bare: int
    read: int


def time_files(files: Sequence[Path], *, rounds: int, report: Report) -> list[ReadTiming]:
    """Time each picture, decoded before: RapidOCR alone, and `vlmsearch.media.ocr.read_text`.

    Raises:
        InvalidInputError: A picture cannot be read.
        MissingDependencyError: RapidOCR is not installed.
    """
    images = [open_image(file) for file in files]
    return [_time(file.name, [image], rounds, report) for file, image in zip(files, images)]


def time_drawn(pictures: Sequence[bytes], *, rounds: int, report: Report) -> list[tuple[ReadTiming, FoundWords]]:
    """Time pictures with words drawn over them at each of `TURNS`, and look for the words.

    Raises:
        MissingDependencyError: RapidOCR is not installed.
    """
    signs = [draw_sign(open_image(picture), seed) for seed, picture in enumerate(pictures)]
    found = []
    for turn in TURNS:
        images = [image.rotate(turn, expand=True) for image, _ in signs]
        timing = _time(f"drawn, turned by {turn}", images, rounds, report)
        hits = []
        for texts in (_bare(images), _read(images)):
            read = (set(re.findall(r"\w+", text.lower())) for text in texts)
            hits.append(sum(word in said for said, (_, words) in zip(read, signs) for word in words))
        found.append((timing, FoundWords(sum(len(words) for _, words in signs), *hits)))
    return found


def draw_sign(picture: Image.Image, seed: int) -> tuple[Image.Image, list[str]]:
    """Return a picture with four lines of text over it, and the words in them."""
    rng = random.Random(seed)
    image = picture.resize((_SIDE, _SIDE))
    draw = ImageDraw.Draw(image)
    words = rng.sample(_WORDS.split(), sum(_LINES))
    left = iter(words)
    for line, count in enumerate(_LINES):
        text = " ".join(next(left) for _ in range(count))
        font = ImageFont.load_default(size=rng.choice(_SIZES))
        place = (rng.randrange(20, 140), 30 + line * _SIDE // len(_LINES))
        draw.text(place, text, font=font, fill="white", stroke_width=2, stroke_fill="black")
    return image, words


def _time(name: str, images: Sequence[Image.Image], rounds: int, report: Report) -> ReadTiming:
    bare, read = partial(_bare, images), partial(_read, images)
    return time_reading(name, bare=bare, read=read, rounds=rounds, report=report)


def _bare(images: Sequence[Image.Image]) -> Iterator[str]:
    engine: Any = ocr.shared_engine()  # what it gives depends on what it finds
    for image in images:
        found = engine(np.ascontiguousarray(np.asarray(image)[:, :, ::-1]))
        yield "\n".join(getattr(found, "txts", None) or ())


def _read(images: Sequence[Image.Image]) -> Iterator[str]:
    for image in images:
        yield "\n".join(line.text for line in ocr.read_text(image))
