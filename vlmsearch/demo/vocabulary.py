"""The words for the parts of scenes.

The first word for a part is that of canonical captions.
"""

from __future__ import annotations

SHAPES: dict[str, tuple[tuple[str, str], ...]] = {
    "circle": (("circle", "circles"), ("circle", "circles"), ("disc", "discs"), ("ball", "balls")),
    "square": (("square", "squares"), ("square", "squares"), ("box", "boxes")),
    "triangle": (("triangle", "triangles"),),
    "star": (("star", "stars"),),
    "heart": (("heart", "hearts"),),
    "ring": (("ring", "rings"), ("ring", "rings"), ("hoop", "hoops")),
    "cross": (("cross", "crosses"), ("cross", "crosses"), ("plus sign", "plus signs")),
    "hexagon": (("hexagon", "hexagons"),),
    "crescent": (("crescent", "crescents"), ("crescent", "crescents"), ("moon", "moons"), ("half moon", "half moons")),
    "arrow": (("arrow", "arrows"),),
    "diamond": (("diamond", "diamonds"), ("diamond", "diamonds"), ("rhombus", "rhombuses")),
    "flower": (("flower", "flowers"), ("flower", "flowers"), ("blossom", "blossoms")),
}
COLOURS: dict[str, tuple[str, ...]] = {
    "red": ("red", "red", "red", "scarlet"),
    "turquoise": ("turquoise", "turquoise", "teal", "cyan"),
    "purple": ("purple", "purple", "violet"),
    "yellow": ("yellow", "yellow", "yellow", "golden"),
}
SIZES = {"small": ("small", "small", "little", "tiny"), "large": ("large", "large", "big", "huge")}
TEXTURES: dict[str, tuple[tuple[str, str], ...]] = {
    "plain": (("", ""), ("", ""), ("", ""), ("plain", "")),
    "striped": (("striped", ""), ("striped", ""), ("", "with stripes")),
    "dotted": (("dotted", ""), ("spotted", ""), ("", "with dots"), ("", "with spots")),
    "checked": (("checked", ""), ("checkered", ""), ("", "with a checked pattern")),
}
COUNTS = {
    1: ("a", "a", "one", "a single"),
    2: ("two", "two", "a pair of", "2"),
    3: ("three", "three", "three", "3"),
    4: ("four", "four", "a group of four", "4"),
}
COUNT_WORDS = {1: "a", 2: "two", 3: "three", 4: "four"}
BACKGROUNDS: dict[str, tuple[str, ...]] = {
    "white": ("a white background", "plain white", "white paper"),
    "grey": ("a grey background", "plain grey", "a gray background"),
    "black": ("a black background", "plain black", "a dark background"),
    "pale pink": ("a pale pink background", "a light pink background", "pale pink"),
    "pale green": ("a pale green background", "a light green background", "pale green"),
    "blue gradient": ("a blue gradient", "a blue gradient background", "a white and blue gradient"),
    "sunset": ("a sunset", "a sunset sky", "an evening sky", "the sky at sunset"),
    "night sky": ("a night sky", "a starry sky", "the sky at night", "a starry night"),
    "meadow": ("a meadow", "grass and sky", "green grass and blue sky", "grass", "a green field"),
    "beach": ("a beach", "a sandy beach", "sea and sand", "the seaside"),
    "snow": ("a snowy landscape", "snow", "snowy hills", "a winter landscape"),
    "checkerboard": ("a checkerboard", "a chessboard", "a grey and white checkerboard"),
    "brick wall": ("a brick wall", "bricks", "a wall of bricks"),
    "wooden planks": ("wooden planks", "a wooden background", "wood", "a wooden table"),
    "graph paper": ("graph paper", "squared paper", "a blue grid"),
    "yellow stripes": ("yellow stripes", "a yellow striped background", "striped wallpaper"),
    "polka dots": ("polka dots", "a polka dot background", "a green dotted background"),
}
RELATIONS: dict[str, tuple[str, ...]] = {
    "left of": ("to the left of", "left of", "on the left of"),
    "right of": ("to the right of", "right of", "on the right of"),
    "above": ("above", "above", "over", "on top of"),
    "below": ("below", "below", "under", "beneath"),
    "inside": ("inside", "in", "within"),
    "around": ("around", "containing", "surrounding"),
}
INVERSE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above", "inside": "around"}
PLACES: dict[str, tuple[str, ...]] = {
    "centre": ("in the centre", "in the middle", "in the center"),
    "top": ("at the top", "in the upper half"),
    "bottom": ("at the bottom", "in the lower half"),
    "left": ("on the left", "on the left side"),
    "right": ("on the right", "on the right side"),
    "top left": ("in the top left corner", "in the upper left corner", "at the top left"),
    "top right": ("in the top right corner", "in the upper right corner", "at the top right"),
    "bottom left": ("in the bottom left corner", "in the lower left corner", "at the bottom left"),
    "bottom right": ("in the bottom right corner", "in the lower right corner", "at the bottom right"),
}
THIRD = {
    "top": ("above", "above them", "at the top"),
    "bottom": ("below", "below them", "at the bottom"),
    "left": ("on the left", "on the left side"),
    "right": ("on the right", "on the right side"),
}
AGAINST = ("against", "against", "on", "in front of")
OPENINGS = ("", "", "", "", "a picture of ", "an image of ", "a scene with ", "a drawing of ")
