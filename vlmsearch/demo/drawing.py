"""Rendering of scenes: contours, colours, textures and anti-aliasing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from PIL import Image, ImageDraw

from vlmsearch.demo.backgrounds import RGB, mix, paint_background
from vlmsearch.demo.description import Description, Item, ShapeGroup

__all__ = ["COLOURS", "CONTOURS", "render"]

Points = list[tuple[float, float]]

COLOURS: dict[str, RGB] = {
    "red": (222, 38, 42),
    "orange": (248, 136, 22),
    "yellow": (252, 220, 40),
    "green": (36, 160, 66),
    "turquoise": (44, 208, 200),
    "blue": (34, 92, 224),
    "purple": (134, 52, 178),
    "pink": (250, 124, 184),
    "brown": (128, 76, 36),
    "black": (24, 24, 28),
    "white": (250, 250, 250),
}
_SUPERSAMPLING = 3


def _regular(corners: int, radius: float = 1.0, turn: float = 0.0) -> Points:
    """Return the corners of a regular polygon, the first one on top."""
    angles = [math.pi * 2 * index / corners - math.pi / 2 + turn for index in range(corners)]
    return [(radius * math.cos(angle), radius * math.sin(angle)) for angle in angles]


def _star() -> Points:
    """Return a five-pointed star."""
    outer, inner = _regular(5, 1.06), _regular(5, 0.45, math.pi / 5)
    return [(x, y + 0.06) for pair in zip(outer, inner, strict=True) for x, y in pair]


def _heart() -> Points:
    """Return a heart."""
    angles = [math.pi * 2 * index / 60 for index in range(60)]
    return [
        (
            math.sin(a) ** 3,
            -(13 * math.cos(a) - 5 * math.cos(2 * a) - 2 * math.cos(3 * a) - math.cos(4 * a)) / 15.5 - 0.1,
        )
        for a in angles
    ]


def _crescent() -> Points:
    """Return a waxing moon: an outer arc closed by a flatter inner one."""
    outer = [math.radians(52 + 256 * index / 40) for index in range(41)]
    arc: Points = [(math.cos(a) + 0.12, math.sin(a)) for a in outer]
    tip_x, tip_y = arc[-1]
    centre_x = 0.52
    radius = math.hypot(tip_x - centre_x, tip_y)
    start = math.atan2(tip_y, tip_x - centre_x) % (2 * math.pi)
    inner = [start + 2 * (math.pi - start) * index / 30 for index in range(1, 30)]
    return arc + [(centre_x + radius * math.cos(a), radius * math.sin(a)) for a in inner]


def _flower() -> Points:
    """Return a blossom with six petals."""
    angles = [math.pi * 2 * index / 120 for index in range(120)]
    radii = [0.52 + 0.5 * abs(math.cos(3 * angle)) ** 0.7 for angle in angles]
    return [(radius * math.sin(angle), -radius * math.cos(angle)) for radius, angle in zip(radii, angles, strict=True)]


def _cross() -> Points:
    """Return a plus sign."""
    quarter: Points = [(0.32, -0.96), (0.32, -0.32), (0.96, -0.32)]
    points: Points = []
    for _ in range(4):
        points += quarter
        quarter = [(-y, x) for x, y in quarter]
    return points


CONTOURS: dict[str, Callable[[], list[Points]]] = {
    "circle": lambda: [_regular(72, 0.98)],
    "square": lambda: [[(-0.86, -0.86), (0.86, -0.86), (0.86, 0.86), (-0.86, 0.86)]],
    "triangle": lambda: [[(0.0, -0.92), (1.0, 0.84), (-1.0, 0.84)]],
    "star": lambda: [_star()],
    "heart": lambda: [_heart()],
    "ring": lambda: [_regular(72), _regular(72, 0.56)],
    "cross": lambda: [_cross()],
    "hexagon": lambda: [_regular(6, 1.02, math.pi / 6)],
    "crescent": lambda: [_crescent()],
    "arrow": lambda: [[(-1.0, -0.3), (0.08, -0.3), (0.08, -0.84), (1.0, 0.0), (0.08, 0.84), (0.08, 0.3), (-1.0, 0.3)]],
    "diamond": lambda: [[(0.0, -1.06), (0.72, 0.0), (0.0, 1.06), (-0.72, 0.0)]],
    "flower": lambda: [_flower(), _regular(36, 0.24)],
}
_POINTS = {name: contour() for name, contour in CONTOURS.items()}


def render(scene: Description, size: int) -> Image.Image:
    """Draw the scene as an RGB image, larger first and then reduced for smooth edges."""
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    rng = random.Random(scene.seed ^ 0x5CE7E)
    side = size * _SUPERSAMPLING
    canvas = paint_background(scene.background, side, rng)
    for group in reversed(scene.groups):
        shade = tuple(max(0, min(255, value + int(rng.random() * 21) - 10)) for value in COLOURS[group.colour])
        for item in group.items:
            _paint_item(canvas, group, item, (shade[0], shade[1], shade[2]), side / 256)
    return canvas.reduce(_SUPERSAMPLING)


def _paint_item(canvas: Image.Image, group: ShapeGroup, item: Item, shade: RGB, scale: float) -> None:
    """Paint one object with texture, outline and a soft shadow."""
    patch_side = int(item.diameter * scale * 1.3) + 4
    radius, middle = item.diameter * scale / 2, patch_side / 2
    turn = math.radians(item.tilt)
    sine, cosine = math.sin(turn) * radius, math.cos(turn) * radius
    contours = [
        [(middle + x * cosine - y * sine, middle + x * sine + y * cosine) for x, y in contour]
        for contour in _POINTS[group.shape]
    ]
    line = max(1, round((2.2 + item.diameter / 60) * scale))
    patch = _texture_patch(group.texture, shade, patch_side, item.diameter * scale)
    mask = Image.new("L", (patch_side, patch_side), 0)
    pen, mask_pen = ImageDraw.Draw(patch), ImageDraw.Draw(mask)
    dark = mix(shade, (0, 0, 0), 0.45) if sum(shade) > 150 else (90, 90, 98)
    for index, contour in enumerate(contours):
        filled = index == 0 or group.shape != "ring"
        mask_pen.polygon(contour, fill=255 if filled else 0)
        if group.shape == "flower" and index == 1:
            pen.polygon(contour, fill=_contrast(shade))
        closed = [*contour, contour[0], contour[1]]
        mask_pen.line(closed, fill=255, width=line, joint="curve")
        pen.line(closed, fill=dark, width=line, joint="curve")
    left, top = round(item.x * scale - middle), round(item.y * scale - middle)
    offset = max(1, round(3 * scale))
    canvas.paste((10, 10, 25), (left + offset, top + offset), mask.point(_SHADOW))
    canvas.paste(patch, (left, top), mask)


_SHADOW = [value * 70 // 255 for value in range(256)]


def _contrast(shade: RGB) -> RGB:
    """Return a second tone for textures: lighter for dark colours, darker for light ones."""
    return mix(shade, (255, 255, 255), 0.68) if sum(shade) < 600 else mix(shade, (60, 50, 70), 0.5)


def _texture_patch(texture: str, shade: RGB, side: int, diameter: float) -> Image.Image:
    """Return a square filled with the texture."""
    patch = Image.new("RGB", (side, side), shade)
    if texture == "plain":
        return patch
    pen, tone, middle = ImageDraw.Draw(patch), _contrast(shade), side / 2
    if texture == "striped":
        step = diameter / 4
        for index in range(-4, 5):
            x = middle + index * step
            pen.line([(x + side * 0.3, -2), (x - side * 0.3, side + 2)], fill=tone, width=round(step * 0.46))
        return patch
    step = diameter / (4 if texture == "dotted" else 3.4)
    for row in range(-4, 5):
        for column in range(-4, 5):
            if texture == "checked" and (row + column) % 2 == 0:
                x, y = middle + column * step, middle + row * step
                pen.rectangle([x, y, x + step, y + step], fill=tone)
            elif texture == "dotted":
                x, y = middle + (column + (row % 2) * 0.5) * step, middle + row * step
                pen.ellipse([x - step * 0.29, y - step * 0.29, x + step * 0.29, y + step * 0.29], fill=tone)
    return patch
