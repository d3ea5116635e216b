"""Procedural scenes: coloured shapes on varied backgrounds, fully determined by an integer seed.

``make_scene(seed)`` describes a scene, ``Scene.draw`` renders it and ``Scene.caption``/``Scene.captions`` put it
into words. Only ``random.Random.random`` is drawn from, whose sequence Python guarantees for a given seed, so a
seed names the same scene on every platform and version.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from PIL import Image

from vlmsearch.demo import captions as _captions, drawing as _drawing
from vlmsearch.demo.backgrounds import BACKGROUNDS
from vlmsearch.demo.description import Description, Item, ShapeGroup, places

__all__ = ["COLOURS", "SHAPES", "TEXTURES", "Item", "Scene", "ShapeGroup", "make_scene"]

CANVAS = 256
SHAPES = tuple(_drawing.CONTOURS)
COLOURS = tuple(_drawing.COLOURS)
TEXTURES = ("plain", "striped", "dotted", "checked")

_THIN_SHAPES = frozenset({"ring", "crescent", "cross", "arrow", "flower"})
_CONTAINER_HALF_WIDTH = {"circle": 0.31, "square": 0.31, "hexagon": 0.29, "ring": 0.235}
_MIN_CONTRAST = 110.0

_Box = tuple[int, int, int, int]
_PLACES: dict[str, _Box] = {
    "centre": (26, 26, 230, 230),
    "top": (14, 12, 242, 124),
    "bottom": (14, 132, 242, 244),
    "left": (12, 14, 124, 242),
    "right": (132, 14, 244, 242),
    "top left": (12, 12, 124, 124),
    "top right": (132, 12, 244, 124),
    "bottom left": (12, 132, 124, 244),
    "bottom right": (132, 132, 244, 244),
}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Scene(Description):
    """A described picture that can be drawn and put into words."""

    def draw(self, size: int = CANVAS) -> Image.Image:
        """Render the scene as an anti-aliased square RGB image of ``size`` pixels a side."""
        return _drawing.render(self, size)

    def caption(self) -> str:
        """Return the canonical caption, which names everything the scene is made of."""
        return _captions.canonical(self)

    def captions(self, count: int, seed: int = 0, *, style: str = "mixed") -> list[str]:
        """Return ``count`` varied captions.

        ``style`` is "full" for paraphrases that keep all information, or "partial" to leave out some groups or
        attributes. It is "short" for search queries of a few words, or "mixed" for all three, full ones most often. The
        same arguments give the same captions; the list may repeat itself for simple scenes.
        """
        return _captions.varied(self, count, random.Random(self.seed * 1_000_003 + seed), style)


def make_scene(seed: int) -> Scene:
    """Describe the scene that belongs to ``seed``."""
    rng = random.Random(seed)
    background = _pick(rng, tuple(BACKGROUNDS))
    number = _pick(rng, (1, 1, 2, 2, 2, 2, 3, 3))
    if number == 1:
        place = _pick(rng, ("centre", *_PLACES))
        group = _make_group(rng, _PLACES[place], background, ())
        return Scene(seed, (group,), "", place, background)
    relation = _pick(rng, ("left of", "right of", "above", "below", "inside"))
    if number == 2 and relation == "inside":
        return Scene(seed, _make_nested(rng, background), relation, "", background)
    if number == 2:
        boxes = [_PLACES[side] for side in places(relation, "")]
        return Scene(seed, _make_groups(rng, boxes, background), relation, "", background)
    relation = _pick(rng, ("left of", "right of", "above", "below"))
    upright = relation in ("above", "below")
    place = _pick(rng, ("left", "right") if upright else ("top", "bottom"))
    boxes = [_PLACES[side] for side in places(relation, place)]
    return Scene(seed, _make_groups(rng, boxes, background), relation, place, background)


def _pick(rng: random.Random, options: Sequence[_T]) -> _T:
    """Choose one option uniformly."""
    return options[int(rng.random() * len(options))]


def _between(rng: random.Random, low: int, high: int) -> int:
    """Choose an integer from ``low`` to ``high``, both included."""
    return low + int(rng.random() * (high - low + 1))


def _make_groups(rng: random.Random, boxes: Sequence[_Box], background: str) -> tuple[ShapeGroup, ...]:
    """Fill each box with a group; shapes never repeat within a scene."""
    groups: tuple[ShapeGroup, ...] = ()
    for box in boxes:
        groups += (_make_group(rng, box, background, tuple(group.shape for group in groups)),)
    return groups


def _make_group(rng: random.Random, box: _Box, background: str, used_shapes: Sequence[str]) -> ShapeGroup:
    """Choose a group whose colour stands out and whose objects fit into the box."""
    shape = _pick(rng, [name for name in SHAPES if name not in used_shapes])
    colour = _pick(rng, _visible_colours(BACKGROUNDS[background].tones))
    texture = _pick_texture(rng, shape)
    size = _pick(rng, ("small", "large"))
    width, height = box[2] - box[0], box[3] - box[1]
    capacity = (width // 100) * (height // 100) if size == "large" else 4
    count = _between(rng, 1, min(4, capacity))
    low, high = (86, min(106, width - 8, height - 8)) if size == "large" else (44, 54)
    if size == "large" and count > 2:
        high = 94
    items = _arrange(rng, box, count, _between(rng, low, high))
    return ShapeGroup(shape, colour, size, texture, items)


def _make_nested(rng: random.Random, background: str) -> tuple[ShapeGroup, ...]:
    """Choose a large container and a group of small objects inside it."""
    container = _pick(rng, tuple(_CONTAINER_HALF_WIDTH))
    tones = BACKGROUNDS[background].tones
    outer_colour = _pick(rng, _visible_colours(tones))
    behind = tones if container == "ring" else (_drawing.COLOURS[outer_colour],)
    inner_colour = _pick(rng, [name for name in _visible_colours(behind) if name != outer_colour])
    diameter = _between(rng, 204, 220)
    x, y = _between(rng, 122, 134), _between(rng, 122, 134)
    half = int(diameter * _CONTAINER_HALF_WIDTH[container])
    shape = _pick(rng, [name for name in SHAPES if name != container])
    count = _between(rng, 1, 4)
    inner = _arrange(rng, (x - half, y - half, x + half, y + half), count, _between(rng, 40, 46))
    outer = ShapeGroup(container, outer_colour, "large", "plain", (Item(x, y, diameter, 0),))
    return ShapeGroup(shape, inner_colour, "small", _pick_texture(rng, shape), inner), outer


def _pick_texture(rng: random.Random, shape: str) -> str:
    """Choose a texture that remains recognisable on the shape, plain in half of the cases."""
    if rng.random() < 0.5:
        return "plain"
    return _pick(rng, ("striped",) if shape in _THIN_SHAPES else TEXTURES[1:])


def _visible_colours(tones: Sequence[tuple[int, int, int]]) -> list[str]:
    """Return the colours that stand out from every given tone."""
    return [
        name
        for name, rgb in _drawing.COLOURS.items()
        if all(sum((a - b) ** 2 for a, b in zip(rgb, tone, strict=True)) >= _MIN_CONTRAST**2 for tone in tones)
    ]


def _arrange(rng: random.Random, box: _Box, count: int, diameter: int) -> tuple[Item, ...]:
    """Spread ``count`` objects over a grid of the box, slightly out of line."""
    width, height = box[2] - box[0], box[3] - box[1]
    grids = [(columns, -(-count // columns)) for columns in range(1, count + 1)]
    fits = [
        (columns, rows)
        for columns, rows in grids
        if (columns - 1) * rows < count and min(width // columns, height // rows) >= diameter + 2
    ]
    columns, rows = _pick(rng, fits or [(2, 2)])
    step_x = min(width // columns, diameter * 3 // 2)
    step_y = min(height // rows, diameter * 3 // 2)
    shift_x, shift_y = (min(12, (side - step * n) // 2) for side, step, n in
                        ((width, step_x, columns), (height, step_y, rows)))  # fmt: skip
    middle_x = (box[0] + box[2]) // 2 + _between(rng, -shift_x, shift_x)
    middle_y = (box[1] + box[3]) // 2 + _between(rng, -shift_y, shift_y)
    slack_x, slack_y = (max(0, min(6, (step - diameter) // 2 - 1)) for step in (step_x, step_y))
    items = []
    for index in range(count):
        row, column = divmod(index, columns)
        in_row = min(columns, count - row * columns)
        x = middle_x + (2 * column - in_row + 1) * step_x // 2 + _between(rng, -slack_x, slack_x)
        y = middle_y + (2 * row - rows + 1) * step_y // 2 + _between(rng, -slack_y, slack_y)
        items.append(Item(x, y, diameter, _between(rng, -9, 9)))
    return tuple(items)
