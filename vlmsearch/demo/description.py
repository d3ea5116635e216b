"""What a drawn scene is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """One drawn object: centre and diameter in units of a 256-unit canvas, tilt in degrees."""

    x: int
    y: int
    diameter: int
    tilt: int


@dataclass(frozen=True)
class ShapeGroup:
    """One to four equal objects of a scene that lie together."""

    shape: str
    colour: str
    size: str
    texture: str
    items: tuple[Item, ...]

    @property
    def count(self) -> int:
        """Number of objects in the group."""
        return len(self.items)


@dataclass(frozen=True)
class Description:
    """A described picture: one to three groups of objects, how they relate, and the background.

    ``relation`` says how the first group lies to the second ("left of", "right of", "above", "below", "inside"; empty
    for a single group). ``place`` is where the single group lies on the canvas, or, in scenes of three groups, on
    which side of the first two the third one lies; it is empty in scenes of two groups.
    """

    seed: int
    groups: tuple[ShapeGroup, ...]
    relation: str
    place: str
    background: str
