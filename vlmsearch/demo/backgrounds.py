"""Backgrounds of the demonstration scenes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image, ImageDraw

__all__ = ["BACKGROUNDS", "RGB", "Background", "mix", "paint_background"]

RGB = tuple[int, int, int]
Painter = Callable[[Image.Image, random.Random], None]


@dataclass(frozen=True)
class Background:
    """A kind of background: its main tones, which objects must stand out from, and how it is painted."""

    tones: tuple[RGB, ...]
    paint: Painter


def mix(first: RGB, second: RGB, share: float) -> RGB:
    """Blend two colours; ``share`` is the part of the second."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def paint_background(name: str, side: int, rng: random.Random) -> Image.Image:
    """Return a square RGB canvas with the named background."""
    canvas = Image.new("RGB", (side, side))
    BACKGROUNDS[name].paint(canvas, rng)
    return canvas


def _plain(colour: RGB) -> Painter:
    """Return a painter of one colour, slightly varied."""

    def paint(canvas: Image.Image, rng: random.Random) -> None:
        change = int(rng.random() * 9) - 4
        red, green, blue = (max(0, min(255, value + change)) for value in colour)
        canvas.paste((red, green, blue), (0, 0, *canvas.size))

    return paint


def _gradient(canvas: Image.Image, top: RGB, bottom: RGB, box: tuple[float, float] = (0.0, 1.0)) -> None:
    """Fill the rows between two relative heights with a vertical gradient."""
    start, stop = (round(part * canvas.height) for part in box)
    mask = Image.linear_gradient("L").resize((canvas.width, stop - start))
    lower = Image.new("RGB", mask.size, bottom)
    canvas.paste(Image.composite(lower, Image.new("RGB", mask.size, top), mask), (0, start))


def _blue_gradient(canvas: Image.Image, _rng: random.Random) -> None:
    _gradient(canvas, (240, 247, 255), (84, 146, 236))


def _sunset(canvas: Image.Image, rng: random.Random) -> None:
    side = canvas.width
    _gradient(canvas, (104, 56, 140), (240, 104, 96), (0.0, 0.55))
    _gradient(canvas, (240, 104, 96), (255, 190, 92), (0.55, 1.0))
    pen = ImageDraw.Draw(canvas)
    for _ in range(4):
        x, y, width = rng.random() * side, (0.1 + 0.5 * rng.random()) * side, (0.2 + 0.2 * rng.random()) * side
        pen.rounded_rectangle([x - width, y, x + width, y + side * 0.018], side * 0.009, fill=(228, 128, 134))


def _night_sky(canvas: Image.Image, rng: random.Random) -> None:
    side = canvas.width
    _gradient(canvas, (10, 14, 48), (40, 44, 104))
    pen = ImageDraw.Draw(canvas)
    for _ in range(70):
        x, y, radius = rng.random() * side, rng.random() * side, (0.003 + 0.006 * rng.random()) * side
        pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(255, 252, 226))


def _hills(canvas: Image.Image, rng: random.Random, height: float, wave: float, colour: RGB) -> None:
    """Fill everything below a wavy line."""
    side, phase = canvas.width, rng.random() * 6.28
    line = [(x * side / 32, side * (height + wave * math.sin(x / 5 + phase))) for x in range(33)]
    ImageDraw.Draw(canvas).polygon([*line, (side, side), (0, side)], fill=colour)


def _meadow(canvas: Image.Image, rng: random.Random) -> None:
    side = canvas.width
    _gradient(canvas, (122, 190, 250), (206, 232, 255), (0.0, 0.62))
    _hills(canvas, rng, 0.52, 0.03, (122, 196, 84))
    _hills(canvas, rng, 0.68, 0.03, (104, 180, 70))
    pen = ImageDraw.Draw(canvas)
    for _ in range(60):
        x, y, blade = rng.random() * side, (0.6 + 0.4 * rng.random()) * side, side * 0.02
        pen.line([(x, y), (x + blade * 0.4, y - blade)], fill=(84, 154, 56), width=max(1, side // 160))
    for _ in range(2):
        x, y, r = rng.random() * side, (0.08 + 0.2 * rng.random()) * side, side * 0.045
        for dx in (-1.1, 0.0, 1.1):
            pen.ellipse([x + dx * r - r, y - r * 0.7, x + dx * r + r, y + r * 0.7], fill=(248, 252, 255))


def _beach(canvas: Image.Image, rng: random.Random) -> None:
    _gradient(canvas, (168, 220, 252), (226, 244, 255), (0.0, 0.36))
    _gradient(canvas, (56, 150, 206), (120, 206, 226), (0.36, 0.7))
    _hills(canvas, rng, 0.655, 0.014, (250, 252, 252))
    _hills(canvas, rng, 0.68, 0.014, (240, 218, 164))


def _snow(canvas: Image.Image, rng: random.Random) -> None:
    side = canvas.width
    _gradient(canvas, (120, 140, 172), (176, 192, 214), (0.0, 0.75))
    _hills(canvas, rng, 0.6, 0.05, (226, 234, 246))
    _hills(canvas, rng, 0.74, 0.04, (246, 249, 255))
    pen = ImageDraw.Draw(canvas)
    for _ in range(60):
        x, y, radius = rng.random() * side, rng.random() * side, (0.005 + 0.006 * rng.random()) * side
        pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(255, 255, 255))


def _checkerboard(canvas: Image.Image, _rng: random.Random) -> None:
    side, step = canvas.width, canvas.width / 8
    canvas.paste((242, 242, 242), (0, 0, side, side))
    pen = ImageDraw.Draw(canvas)
    for index in range(64):
        row, column = divmod(index, 8)
        if (row + column) % 2:
            corner = (round(column * step), round(row * step))
            pen.rectangle([corner, (round((column + 1) * step) - 1, round((row + 1) * step) - 1)], fill=(190, 192, 198))


def _bricks(canvas: Image.Image, rng: random.Random) -> None:
    side = canvas.width
    canvas.paste((224, 206, 192), (0, 0, side, side))
    pen, height, width, gap = ImageDraw.Draw(canvas), side / 9, side / 4.5, side / 64
    for row in range(9):
        for column in range(-1, 6):
            x, y = (column + (row % 2) / 2) * width, row * height
            colour = mix((178, 94, 74), (160, 78, 62), rng.random())
            pen.rectangle([x, y, x + width - gap, y + height - gap], fill=colour)


def _planks(canvas: Image.Image, rng: random.Random) -> None:
    side, step = canvas.width, canvas.width / 6
    pen = ImageDraw.Draw(canvas)
    for row in range(6):
        colour = mix((214, 170, 116), (196, 150, 98), rng.random())
        pen.rectangle([0, row * step, side, (row + 1) * step], fill=colour)
        for _ in range(5):
            x, y = rng.random() * side, (row + rng.random()) * step
            pen.line([(x - side * 0.15, y), (x + side * 0.15, y)], fill=(184, 138, 88), width=max(1, side // 220))
        pen.rectangle([0, row * step, side, row * step + side * 0.012], fill=(134, 92, 52))


def _graph_paper(canvas: Image.Image, _rng: random.Random) -> None:
    side = canvas.width
    canvas.paste((250, 252, 255), (0, 0, side, side))
    pen = ImageDraw.Draw(canvas)
    for index in range(1, 12):
        at = index * side / 12
        for line in ([(at, 0), (at, side)], [(0, at), (side, at)]):
            pen.line(line, fill=(130, 176, 232), width=max(1, side // 96))


def _stripes(canvas: Image.Image, _rng: random.Random) -> None:
    side, step = canvas.width, canvas.width / 10
    canvas.paste((255, 248, 226), (0, 0, side, side))
    pen = ImageDraw.Draw(canvas)
    for index in range(0, 10, 2):
        pen.rectangle([index * step, 0, (index + 1) * step, side], fill=(250, 226, 150))


def _confetti(canvas: Image.Image, _rng: random.Random) -> None:
    side = canvas.width
    canvas.paste((214, 240, 228), (0, 0, side, side))
    pen, step, radius = ImageDraw.Draw(canvas), side / 7, side / 40
    for row in range(8):
        for column in range(8):
            x, y = (column + (row % 2) / 2) * step, row * step
            pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(128, 204, 172))


BACKGROUNDS: dict[str, Background] = {
    "white": Background(((252, 252, 252),), _plain((250, 250, 250))),
    "grey": Background(((150, 152, 158),), _plain((150, 152, 158))),
    "black": Background(((22, 22, 26),), _plain((24, 24, 28))),
    "pale pink": Background(((252, 212, 222),), _plain((250, 212, 222))),
    "pale green": Background(((206, 240, 198),), _plain((206, 240, 198))),
    "blue gradient": Background(((240, 247, 255), (84, 146, 236), (150, 190, 245)), _blue_gradient),
    "sunset": Background(((130, 66, 130), (240, 104, 96), (252, 170, 92)), _sunset),
    "night sky": Background(((10, 14, 48), (40, 44, 104)), _night_sky),
    "meadow": Background(((122, 190, 250), (206, 232, 255), (112, 188, 76)), _meadow),
    "beach": Background(((168, 220, 252), (90, 180, 216), (240, 218, 164)), _beach),
    "snow": Background(((130, 148, 178), (236, 242, 251)), _snow),
    "checkerboard": Background(((242, 242, 242), (190, 192, 198)), _checkerboard),
    "brick wall": Background(((168, 84, 68), (224, 206, 192)), _bricks),
    "wooden planks": Background(((205, 160, 107),), _planks),
    "graph paper": Background(((250, 252, 255),), _graph_paper),
    "yellow stripes": Background(((255, 248, 226), (250, 226, 150)), _stripes),
    "polka dots": Background(((214, 240, 228), (128, 204, 172)), _confetti),
}
