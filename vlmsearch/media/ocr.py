"""Text in pictures, by RapidOCR: lines with their places, whichever way the text is turned.

The models are those in RapidOCR's wheel (PP-OCRv6, small); nothing is downloaded. They read English, German, French,
Spanish, Portuguese, Italian, Dutch, Swedish, Danish, Finnish, Polish, Romanian and Turkish; Czech, Hungarian and
Vietnamese with errors in some accents; and they know the letters of Chinese and Japanese. They do not know those of
Cyrillic, Greek, Arabic, Hebrew, Thai, Devanagari or Korean. Needs the extra ``ocr``.

RapidOCR finds lines at any angle and turns those that are upside down, by a classifier that errs for some. So a line
that is read badly is read the other way round as well, and the better reading counts; in which order lines are read
depends on how most of the text is turned.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlmsearch._util.extras import install_command
from vlmsearch.errors import MissingDependencyError

if TYPE_CHECKING:
    from rapidocr import RapidOCR

_MODELS = {  # of each step, the file in the wheel
    "Det": "PP-OCRv6_det_small.onnx",
    "Cls": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
    "Rec": "PP-OCRv6_rec_small.onnx",
}
_MIN_CONFIDENCE = 0.5
"""The confidence below which a line is not text; RapidOCR's own default."""
_SURE = 0.9
"""The confidence above which a line is not read the other way round as well."""
_TALL = 1.5
"""The ratio of height to width from which RapidOCR turns a line to read it.

It turns by 90 degrees.
"""
_SAME_LINE = 0.5
"""The smallest overlap of two boxes on one line, by the height of the lower."""
_WORD_GAP = 1.0
"""The largest gap between words of one line, in heights of the line.

The detector parts some lines.
"""
_DOWN, _OVER, _UP = 90, 180, 270
"""Text that is read from top to bottom, upside down, and from bottom to top."""
_MAX_SIDE = 2000
"""A longer side, in pixels, is shrunk to that; RapidOCR's own default."""
_MIN_SIDE = 32
_ELONGATED = 4
"""The ratio of length to width from which a picture is made wider: the detector takes 736 pixels at least."""
_MIN_HEIGHT = 8
"""Pixels; no text is lower than that."""
_OPENING = threading.Lock()


@dataclass(frozen=True)
class Line:
    """A line of text in a picture.

    Attributes:
        text: What it says.
        box: Left, top, width and height in pixels; the smallest upright rectangle around it.
        confidence: From 0 to 1, the mean of its characters'.
    """

    text: str
    box: tuple[int, int, int, int]
    confidence: float


def read_text(image: Image.Image) -> list[Line]:
    """Read the text in a picture.

    Any thread may call this; all share one engine, whose models run in the calling thread.

    Args:
        image: An upright RGB picture, as `vlmsearch.media.images.open_image` gives it; the text in it may be turned by
            90, 180 or 270 degrees, or slanted.

    Returns:
        The lines with a confidence of at least 0.5, in reading order: from top to bottom as the text is turned, and
        from left to right.

    Raises:
        MissingDependencyError: RapidOCR is not installed.

    Example:
        >>> [line.text for line in read_text(open_image(Path("sign.jpg")))]  # doctest: +SKIP
        ['STATION ROAD', 'Platform 2']
    """
    if min(image.size) < _MIN_HEIGHT:
        return []
    engine = shared_engine()
    pixels, scale = _prepared(image)
    crops, corners = _detect(engine, pixels)
    if not crops:
        return []
    upright = engine.cls_and_rotate(crops)[0]
    flipped = [not np.array_equal(crop, now) for crop, now in zip(crops, upright)]
    readings = _recognise(engine, upright)
    weak = [item for item, (_, confidence) in enumerate(readings) if confidence < _SURE]
    for item, other in zip(weak, _recognise(engine, [_flip(upright[item]) for item in weak])):
        if other[1] > readings[item][1]:
            readings[item], flipped[item] = other, not flipped[item]
    lines = [
        _OcrLine(*reading, box / scale, _direction(box, is_flipped))
        for reading, box, is_flipped in zip(readings, corners, flipped)
        if reading[0].strip() and reading[1] >= _MIN_CONFIDENCE
    ]
    return [line.line(image.size) for line in _in_order(lines, image.size)]


def boxes_text(lines: Sequence[Line]) -> str:
    """Return the boxes of lines as one string, as metadata have it: ``x,y,w,h`` a line, joined with ``;``."""
    return ";".join(",".join(map(str, line.box)) for line in lines)


@dataclass(frozen=True)
class _OcrLine:
    text: str
    confidence: float
    corners: NDArray[np.float64]
    direction: int
    """By how many degrees the text is turned, clockwise: 0, 90, 180 or 270."""

    def joined(self, other: _OcrLine) -> _OcrLine:
        """Return one line with what follows on it."""
        letters = len(self.text), len(other.text)
        confidence = float(np.average([self.confidence, other.confidence], weights=letters))
        corners = np.concatenate([self.corners, other.corners])
        return _OcrLine(f"{self.text.strip()} {other.text.strip()}", confidence, corners, self.direction)

    def line(self, size: tuple[int, int]) -> Line:
        """Return the line with its box, inside of the picture."""
        left, top = np.clip(np.floor(self.corners.min(axis=0)), 0, np.subtract(size, 1)).astype(int).tolist()
        right, bottom = np.clip(np.ceil(self.corners.max(axis=0)), (left + 1, top + 1), size).astype(int).tolist()
        return Line(self.text.strip(), (left, top, right - left, bottom - top), float(self.confidence))


def _prepared(image: Image.Image) -> tuple[NDArray[np.uint8], float]:
    """Return the pixels that are looked at, blue first, and their scale.

    The scale is how much smaller they are than the picture.
    """
    scale = min(_MAX_SIDE / max(image.size), 1.0)
    image = image.convert("RGB")
    if scale < 1:
        width, height = (max(round(side * scale), 1) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=2.0)
    shortest = max(max(image.size) // _ELONGATED, _MIN_SIDE)
    if min(image.size) < shortest:  # the detector enlarges a picture until its shorter side suffices
        padded = Image.new("RGB", (max(image.width, shortest), max(image.height, shortest)))
        padded.paste(image)
        image = padded
    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1]), scale


def _detect(engine: RapidOCR, pixels: NDArray[np.uint8]) -> tuple[list[NDArray[np.uint8]], NDArray[np.float32]]:
    """Return the lines in a picture: each cut out, lying, and its corners (from the top left, clockwise)."""
    from rapidocr.main import RapidOCRError

    try:
        crops, detected = engine.detect_and_crop(pixels, {})
    except RapidOCRError:  # it has no text
        return [], np.empty((0, 4, 2), np.float32)
    return crops, np.asarray(detected.boxes, np.float32)


def _recognise(engine: RapidOCR, crops: list[NDArray[np.uint8]]) -> list[tuple[str, float]]:
    """Return what each line says, and how sure that is."""
    if not crops:
        return []
    read = engine.recognize_txt(crops)
    return list(zip(read.txts or (), map(float, read.scores)))


def _flip(crop: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(crop[::-1, ::-1])


def _direction(box: NDArray[np.float32], is_flipped: bool) -> int:
    """Return how a line is turned: RapidOCR turns one that is much higher than wide anticlockwise before it is read."""
    width = max(np.linalg.norm(box[0] - box[1]), np.linalg.norm(box[2] - box[3]))
    height = max(np.linalg.norm(box[0] - box[3]), np.linalg.norm(box[1] - box[2]))
    return 90 * bool(int(height) >= _TALL * int(width)) + 180 * is_flipped


def _in_order(parts: Sequence[_OcrLine], size: tuple[int, int]) -> list[_OcrLine]:
    """Lines in the order in which they are read, as most of the text is turned."""
    letters = Counter[int]()
    for line in parts:
        letters[line.direction] += len(line.text)
    direction = max(letters, key=lambda turn: (letters[turn], -turn), default=0)
    boxes = [_upright(line.corners, direction, size) for line in parts]
    rows: list[list[int]] = []
    for item in sorted(range(len(parts)), key=lambda item: boxes[item][1] + boxes[item][3]):
        _, top, _, bottom = boxes[item]
        if rows:
            _, above, _, below = boxes[rows[-1][0]]
            if min(bottom, below) - max(top, above) >= _SAME_LINE * min(bottom - top, below - above):
                rows[-1].append(item)
                continue
        rows.append([item])
    lines: list[_OcrLine] = []
    for row in rows:
        end = -float("inf")
        for item in sorted(row, key=lambda item: boxes[item][0]):
            left, top, right, bottom = boxes[item]
            if left - end <= _WORD_GAP * (bottom - top):
                lines[-1] = lines[-1].joined(parts[item])
            else:
                lines.append(parts[item])
            end = max(end, right) if left - end <= _WORD_GAP * (bottom - top) else right
    return lines


def _upright(corners: NDArray[np.float64], direction: int, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return the left, top, right and bottom of a line when its text is upright.

    They are those in the picture that is turned so.
    """
    across, down = corners[:, 0], corners[:, 1]
    if direction == _DOWN:
        across, down = down, size[0] - across
    elif direction == _OVER:
        across, down = size[0] - across, size[1] - down
    elif direction == _UP:
        across, down = size[1] - down, across
    return float(across.min()), float(down.min()), float(across.max()), float(down.max())


def shared_engine() -> RapidOCR:
    """Return RapidOCR as `read_text` has it; MissingDependencyError where it is not installed."""
    with _OPENING:  # two threads that begin at once open one
        return _opened()


@cache
def _opened() -> RapidOCR:
    """Return the engine that all threads share.

    Its models run in the thread that asks, for several read pictures at once.
    """
    try:
        import rapidocr
    except ImportError as exc:
        raise MissingDependencyError(f"reading text in pictures needs RapidOCR: {install_command('ocr')}") from exc
    models = Path(rapidocr.__file__).parent / "models"
    params: dict[str, object] = {f"{step}.model_path": str(models / name) for step, name in _MODELS.items()}
    params["EngineConfig.onnxruntime.intra_op_num_threads"] = 1
    params["Global.log_level"] = "error"
    return rapidocr.RapidOCR(params=params)
