"""Find out whether two images are duplicates: the same picture, whatever was done to it.

Duplicates may be encoded again, scaled, cropped by up to a fifth of each side, turned by quarters and mirrored,
brighter or in other colours. They may have a badge in a corner, one line of text or a frame that the other lacks. Any
other difference makes another picture. There are three steps; a step sees only what the one before it passed:

1. **Where one lies in the other.** Both are reduced to 16 x 16 grey values: a perceptual hash that keeps its numbers.
   Those of one image in its eight orientations are correlated with those of 49 windows of the other, both ways round.
2. **Exactly where.** The window and the light are fitted by Gauss-Newton steps on the grey values, to a fraction of a
   pixel: Lucas and Kanade, "An iterative image registration technique", IJCAI 1981. Pixels that differ count little
   (iteratively reweighted least squares with Cauchy's weights).
3. **What is left.** The colours of one are fitted to those of the other. The remaining difference decides by its size,
   and by whether it lies in one corner or in one line.

The numbers below were chosen on drawn scenes of other seeds than those of the tests; docs/howto/duplicates.md has the
figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlmsearch.media.images import opened_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.types import ImageSource

Grey = NDArray[np.float32]
"""Grey values from 0 to 255, (height, width)."""
Pixels = NDArray[np.float32]
"""Red, green and blue from 0 to 255, (height, width, 3)."""
Window = tuple[float, float, float, float]
"""A part of an image: left, top, right and bottom as shares of its sides."""

EDGE = 144
"""The sides of the square that an image is squashed to, in pixels: of a crop of two thirds there are still `_FINE`."""
_FINE = 96
"""The sides of what is compared pixel by pixel."""
_STEPS = ((24, 4, 24, 0.1), (48, 4, 16, 0.08), (_FINE, 3, 16, 0.08))
"""The sizes at which a window is fitted, with the fits at each. Two images are given up if more than a share of their
pixels differ by more than so many of 255."""
_SMALL, _HASHED = 32, 16
"""The sides of the image in a `Sketch`, and of its hashes."""
_FRAME = 0.07
"""The share of each side that may be a frame, and is not compared."""
_MIN_CORRELATION = 0.6
_TRIED = 3
"""The highest number of places that are fitted, beside that of two whole images."""
_SURE = 0.995
"""The correlation from which only the best way is fitted."""
_DIFFERENCE, _PER_NOISE, _MAX_NOISE, _PER_SLOPE = 16.0, 2.0, 4.0, 0.5
"""The difference of a pixel, of 255: a constant, a factor of the noise of encoding, and one of the slope of an edge."""
_FEW = 0.0012
"""The share of pixels that may differ anywhere."""
_CORNER = 0.22
"""The sides of what may differ in one corner."""
_LINE, _LONG, _FILLED = 0.105, 3.0, 2.4
"""The height of a line that may differ, its length and how much of it differs.

The latter two are minima, in heights of the line and in squares of its height.
"""
_GREY = np.array([0.299, 0.587, 0.114], np.float32)


def _spans() -> Iterator[tuple[float, float]]:
    for size in (1.0, 0.9, 0.8):
        for start in (0.0,) if size == 1 else (0.0, (1 - size) / 2, 1 - size):
            yield start, start + size


_WINDOWS: tuple[Window, ...] = tuple(
    (left, top, right, bottom) for (left, right), (top, bottom) in product(_spans(), _spans())
)
_WHOLE = 0
"""The place of the whole image among them."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """An image as the first step knows it: 1 KiB.

    Attributes:
        grey: The image as 32 x 32 grey values, a byte each.
    """

    grey: bytes

    @cached_property
    def turned(self) -> Grey:
        """Return the hash in its eight orientations, (8, 196)."""
        return _normal(np.stack([_turned(self._part((0, 0, 1, 1)), way) for way in range(8)]))

    @cached_property
    def windows(self) -> Grey:
        """Return the hash of each of its windows, (49, 196)."""
        return _normal(np.stack([self._part(window) for window in _WINDOWS]))

    @cached_property
    def _image(self) -> Image.Image:
        return Image.frombytes("L", (_SMALL, _SMALL), self.grey).convert("F")

    def _part(self, window: Window) -> Grey:
        return _resized(self._image, _HASHED, window)


@dataclass(frozen=True, eq=False)
class Look:
    """An image as the second and the third step know it: 61 KiB.

    Attributes:
        image: The image, squashed to a square of `EDGE` pixels.
    """

    image: Image.Image

    @cached_property
    def sketch(self) -> Sketch:
        """Return the sketch for the first step."""
        small = self.image.convert("L").resize((_SMALL, _SMALL), Image.Resampling.BOX)
        return Sketch(small.tobytes())

    @cached_property
    def grey(self) -> Image.Image:
        """Return the image in grey."""
        return self.image.convert("L").convert("F")

    def oriented(self, way: int) -> Look:
        """Return the image in another orientation."""
        return Look(Image.fromarray(np.ascontiguousarray(_turned(np.asarray(self.image), way)))) if way else self


def look_at(source: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> Look:
    """Read an image.

    Args:
        source: The image.
        limits: How large it may be.

    Returns:
        What is compared.

    Raises:
        InvalidInputError: It cannot be read.
    """
    with opened_image(source, at_least=EDGE, limits=limits) as image:
        return Look(image.resize((EDGE, EDGE), Image.Resampling.BILINEAR))


@dataclass(frozen=True)
class Placement:
    """A place of one image in the other.

    Attributes:
        correlation: The correlation of their hashes.
        window: The part of the outer image that is the inner one.
        way: The orientation of the inner image.
        swapped: Whether the second image is the outer one.
    """

    correlation: float
    window: Window
    way: int
    swapped: bool


def placements(first: Sketch, second: Sketch) -> list[Placement]:
    """Return the places of one image in the other, the most likely first.

    Empty for images that are not alike.

    Args:
        first: The first image.
        second: The second image.

    Returns:
        At most four places.
    """
    both = (first.windows @ second.turned.T, second.windows @ first.turned.T)
    correlations = {
        (swapped, *divmod(int(at), 8)): float(values.flat[at])
        for swapped, values in enumerate(both)
        for at in np.argsort(-values, axis=None)[:_TRIED]
    }
    best = sorted(correlations, key=lambda key: -correlations[key])[:_TRIED]
    if correlations[best[0]] < _MIN_CORRELATION:
        return []
    if correlations[best[0]] >= _SURE:
        best = best[:1]
    else:  # a badge may make a window look better than the whole
        whole = (0, _WHOLE, int(both[0][_WHOLE].argmax()))
        best += [] if whole in best else [whole]
    return [Placement(float(both[s][window, way]), _WINDOWS[window], way, bool(s)) for s, window, way in best]


def is_duplicate(first: Look, second: Look, ways: Sequence[Placement] | None = None) -> bool:
    """Return whether two images are duplicates.

    Args:
        first: The first image.
        second: The second image.
        ways: The result of `placements`, if it is known.

    Returns:
        True if every difference is one that this module lets pass.

    Example:
        >>> from vlmsearch.demo.scenes import make_scene
        >>> picture, another = make_scene(1).draw(), make_scene(2).draw()
        >>> cropped = picture.crop((20, 10, 250, 240)).rotate(90)
        >>> first, duplicate, other = (look_at(image) for image in (picture, cropped, another))
        >>> is_duplicate(first, duplicate), is_duplicate(first, other)
        (True, False)
    """
    ways = placements(first.sketch, second.sketch) if ways is None else ways
    return any(_agrees(first, second, placed) for placed in ways)


def _agrees(first: Look, second: Look, placed: Placement) -> bool:
    outer, inner = (second, first) if placed.swapped else (first, second)
    inner = inner.oriented(placed.way)
    window = _fitted(outer, inner, placed.window)
    if window is None:
        return False
    edge = round(_FINE * _FRAME)
    part, whole = (
        _resized(look.image, _FINE, box)[edge:-edge, edge:-edge]
        for look, box in ((outer, window), (inner, (0.0, 0.0, 1.0, 1.0)))
    )
    return _is_overlay(_differing(part, whole))


def _turned(pixels: NDArray[np.generic], way: int) -> NDArray[np.generic]:
    """Return one of the eight orientations: quarter turns, from 4 on mirrored."""
    turned = np.rot90(pixels, way % 4)
    return turned[:, ::-1] if way >= 4 else turned


def _resized(image: Image.Image, size: int, window: Window) -> NDArray[np.float32]:
    box = (window[0] * image.width, window[1] * image.height, window[2] * image.width, window[3] * image.height)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box), np.float32)


def _normal(hashes: NDArray[np.generic]) -> Grey:
    """Hashes without what may be a frame and without their means, of length one, (n, 196)."""
    flat = hashes[:, 1:-1, 1:-1].reshape(len(hashes), -1).astype(np.float32)
    flat -= flat.mean(1, keepdims=True)
    normal: Grey = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-3)
    return normal


def _fitted(outer: Look, inner: Look, window: Window) -> Window | None:
    """Return the window of the outer image that the inner one shows.

    It is exact to a fraction of a pixel.

    None where they differ widely.
    """
    place = np.array([window[0], window[1], window[2] - window[0], window[3] - window[1]])
    for size, steps, much, max_share in _STEPS:
        target, edge = _resized(inner.grey, size, (0, 0, 1, 1)), round(size * _FRAME)
        across = ((np.arange(size) + 0.5) / size).astype(np.float32)
        for _ in range(steps):
            now = _resized(outer.grey, size, _within(place))
            down, right = np.gradient(now)
            right, down = right / float(place[2]), down / float(place[3])
            columns = (right, down, right * across, down * across[:, None])
            kept = [values[edge:-edge, edge:-edge].ravel() for values in (*columns, now, target)]
            shown, wanted = kept[4], kept[5]
            gain, bias, weights = _light(shown, wanted)
            matrix = np.stack([*(size * gain * column for column in kept[:4]), shown, np.ones_like(shown)], 1)
            weighed = matrix * weights[:, None]
            normal = (weighed.T @ matrix).astype(np.float64)
            normal[np.diag_indices(6)] += 1e-3 + 1e-6 * normal.diagonal().max()  # for flat images
            place[:] += np.clip(np.linalg.solve(normal, weighed.T @ wanted)[:4], -0.05, 0.05)
        if float(np.mean(np.abs(wanted - gain * shown - bias) > much)) > max_share:
            return None
    return _within(place)


def _within(place: NDArray[np.float64]) -> Window:
    """Return the window of a place, brought into the image.

    ``place`` is left, top, width and height; each side is at least half of the image's.
    """
    place[:2] = np.clip(place[:2], 0, 0.35)
    place[2:] = np.clip(place[2:], 0.5, 1 - place[:2])
    left, top, width, height = map(float, place)
    return left, top, left + width, top + height


def _light(values: Grey, wanted: Grey) -> tuple[float, float, Grey]:
    """Return the gain and the bias that make values what is wanted.

    With them comes how much each value counted.
    """
    weights, gain, bias = np.ones_like(values), 1.0, 0.0
    for _ in range(3):
        total = weights.sum()
        mean, mean_wanted = (weights @ values) / total, (weights @ wanted) / total
        spread = (weights @ (values - mean) ** 2) / total
        both = (weights @ ((values - mean) * (wanted - mean_wanted))) / total
        gain = float(np.clip(both / spread, 0.6, 1.6)) if spread > 4 else 1.0
        bias = float(mean_wanted - gain * mean)
        left = np.abs(wanted - gain * values - bias)
        weights = 1 / (1 + (left / (3 * np.median(left) + 4)) ** 2)
    return gain, bias, weights


def _differing(part: Pixels, whole: Pixels) -> NDArray[np.bool_]:
    """Return the pixels that differ.

    The colours of the part are fitted to those of the whole first.
    """
    greys = [pixels @ _GREY for pixels in (part, whole)]
    if min(float(np.percentile(np.ptp(pixels, axis=2), 95)) for pixels in (part, whole)) < 8:
        part, whole = (np.repeat(grey[..., None], 3, 2) for grey in greys)  # one of them has no colours
    left = min((colours - whole for colours in _recoloured(part, whole)), key=_size)
    lighter = left @ _GREY
    hues: Pixels = (left - lighter[..., None]).astype(np.float32)
    other_hue = np.minimum(np.abs(_blurred(hues)), np.abs(hues)).max(2)
    worst = np.maximum(np.abs(lighter), other_hue)
    noise = min(float(np.percentile(worst, 80)), _MAX_NOISE)
    slope = np.maximum(*(np.hypot(*np.gradient(grey)) for grey in greys))
    differing: NDArray[np.bool_] = worst > _DIFFERENCE + _PER_NOISE * noise + _PER_SLOPE * slope
    return differing


def _blurred(values: Pixels) -> Pixels:
    """Means of 5 x 5 pixels: JPEG keeps colours, apart from the light, at a half of the size and coarsely."""
    for axis in (0, 1):
        sums = np.cumsum(np.pad(values, [(3, 2) if i == axis else (0, 0) for i in range(3)], "edge"), axis)
        size = values.shape[axis]
        upto, before = (np.take(sums, range(start, start + size), axis) for start in (5, 0))
        values = ((upto - before) / 5).astype(np.float32)
    return values


def _recoloured(part: Pixels, whole: Pixels) -> Iterator[Pixels]:
    """Yield the part as it is, and fitted to the whole.

    Saturation and the light of each channel are fitted.
    """
    yield part
    grey = (part @ _GREY)[..., None]
    for saturation in (1.0, 0.75, 1.3):
        colours = np.clip(grey + saturation * (part - grey), 0, 255).astype(np.float32)
        for channel in range(3):
            gain, bias, _ = _light(colours[..., channel].ravel(), whole[..., channel].ravel())
            colours[..., channel] = np.clip(gain * colours[..., channel] + bias, 0, 255)
        yield colours


def _size(left: Pixels) -> float:
    return float(np.minimum(np.abs(left), 60).mean())


def _is_overlay(differing: NDArray[np.bool_]) -> bool:
    """Return whether the difference is tiny, or lies in one corner or in one line."""
    total, few = int(differing.sum()), _FEW * differing.size
    if total <= few:
        return True
    corner = round(_FINE * (_CORNER - _FRAME))
    sides = (slice(None, corner), slice(-corner, None))
    if any(total - differing[rows, columns].sum() <= few for rows, columns in product(sides, sides)):
        return True
    return any(_is_line(turned, total - few) for turned in (differing, differing.T))


def _is_line(differing: NDArray[np.bool_], min_pixels: float) -> bool:
    """Return whether at least so many of the pixels that differ lie in one horizontal line."""
    height = round(_FINE * _LINE)
    counts = np.convolve(differing.sum(1), np.ones(height, int), "valid")
    top = int(counts.argmax())
    line = differing[top : top + height]
    if counts[top] < min_pixels:
        return False
    rows, columns = (np.flatnonzero(line.any(axis)) for axis in (1, 0))
    high, long = int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1
    return long >= _LONG * high and int(line.sum()) >= _FILLED * high * high
