"""What is done to duplicates of an image, and scenes that are not duplicates: those that differ in one attribute."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO

from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from vlmsearch.demo.backgrounds import BACKGROUNDS
from vlmsearch.demo.scenes import COLOURS, SHAPES, TEXTURES, Scene

Edit = Callable[[Image.Image, random.Random], Image.Image]


def _encode(image: Image.Image, rng: random.Random) -> Image.Image:
    out = BytesIO()
    image.save(out, "JPEG", quality=rng.randint(30, 95))
    return Image.open(BytesIO(out.getvalue())).convert("RGB")


def _scale(image: Image.Image, rng: random.Random) -> Image.Image:
    factor = rng.choice((0.4, 0.6, 0.8, 1.3, 1.7, 2.0))
    filter = rng.choice((Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS))
    return image.resize((round(image.width * factor), round(image.height * factor)), filter)


def _crop(image: Image.Image, rng: random.Random) -> Image.Image:
    """Take off up to 20 % of the width and of the height, from any side."""
    width, height = (round(side * rng.uniform(0.8, 0.97)) for side in image.size)
    left, top = rng.randint(0, image.width - width), rng.randint(0, image.height - height)
    return image.crop((left, top, left + width, top + height))


def _turn(image: Image.Image, rng: random.Random) -> Image.Image:
    turned = image.rotate(90 * rng.randint(1, 3), expand=True)
    return ImageOps.mirror(turned) if rng.random() < 0.3 else turned


def _mirror(image: Image.Image, rng: random.Random) -> Image.Image:
    return ImageOps.mirror(image) if rng.random() < 0.7 else ImageOps.flip(image)


def _text(image: Image.Image, rng: random.Random) -> Image.Image:
    """Write one line in some place, with an outline so that it can be read on anything."""
    image = image.copy()
    words = rng.choice(("© 2024 Example Studio", "HOLIDAY 2023", "www.example.com", "PROOF - do not copy", "14:32:07"))
    size = image.height * rng.uniform(0.05, 0.09)
    place = (image.width * rng.uniform(0.03, 0.3), image.height * rng.choice((0.03, 0.45, 0.88)))
    ImageDraw.Draw(image).text(place, words, "white", font_size=size, stroke_width=1, stroke_fill="black")
    return image


def _logo(image: Image.Image, rng: random.Random) -> Image.Image:
    """Put a badge with letters into a corner, 10 to 18 % of the shorter side."""
    image = image.copy()
    side = round(min(image.size) * rng.uniform(0.1, 0.18))
    margin = round(min(image.size) * 0.03)
    left = rng.choice((margin, image.width - side - margin))
    top = rng.choice((margin, image.height - side - margin))
    draw = ImageDraw.Draw(image)
    colour = rng.choice(((20, 20, 20), (240, 240, 240), (200, 30, 60), (30, 80, 200)))
    draw.rounded_rectangle((left, top, left + side, top + side), side / 4, colour, outline="white")
    draw.text((left + side * 0.25, top + side * 0.2), "VS", (250, 200, 60), font_size=side * 0.5)
    return image


def _border(image: Image.Image, rng: random.Random) -> Image.Image:
    """Put a frame around it, or over its edge."""
    width = round(min(image.size) * rng.uniform(0.02, 0.06))
    colour = rng.choice(("white", "black", "#806040"))
    if rng.random() < 0.5:
        return ImageOps.expand(image, width, colour)
    return ImageOps.expand(image.crop((width, width, image.width - width, image.height - width)), width, colour)


def _colours(image: Image.Image, rng: random.Random) -> Image.Image:
    """Change brightness, contrast, saturation or the white balance; or take the colours out."""
    kind = rng.randrange(5)
    if kind == 4:
        return ImageOps.grayscale(image).convert("RGB")
    if kind == 3:
        gains = [rng.uniform(0.8, 1.15) for _ in range(3)]
        return image.point([min(255, round(value * gain)) for gain in gains for value in range(256)])
    enhancer = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[kind]
    return enhancer(image).enhance(rng.choice((0.7, 0.8, 1.2, 1.3)))


EDITS: dict[str, Edit] = {
    "encoded": _encode,
    "scaled": _scale,
    "cropped": _crop,
    "turned": _turn,
    "mirrored": _mirror,
    "text": _text,
    "logo": _logo,
    "border": _border,
    "colours": _colours,
}


def altered(scene: Scene, rng: random.Random) -> Scene:
    """The scene with one attribute changed: a colour, a shape, a texture, or the background."""
    which = rng.randrange(len(scene.groups))
    group = scene.groups[which]
    kind = rng.choice(("colour", "shape", "texture", "background"))
    if kind == "background":
        return replace(scene, background=_other(tuple(BACKGROUNDS), scene.background, rng))
    if kind == "colour":
        changed = replace(group, colour=_other(COLOURS, group.colour, rng))
    elif kind == "shape":
        changed = replace(group, shape=_other(SHAPES, group.shape, rng))
    else:
        changed = replace(group, texture=_other(TEXTURES, group.texture, rng))
    return replace(scene, groups=(*scene.groups[:which], changed, *scene.groups[which + 1 :]))


def _other(options: tuple[str, ...], present: str, rng: random.Random) -> str:
    return rng.choice([option for option in options if option != present])
