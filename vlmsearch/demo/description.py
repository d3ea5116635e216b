"""What a drawn scene is made of."""

from __future__ import annotations

from dataclasses import dataclass

_SIDES = {"left of": ("left", "right"), "right of": ("right", "left"), "above": ("top", "bottom"),
          "below": ("bottom", "top")}  # fmt: skip
_OPPOSITE = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}


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
    for a single group). ``place`` is the place of a single group on the canvas. In scenes of three groups it is
    the side of the first two on which the third one lies. It is empty in scenes of two groups.
    """

    seed: int
    groups: tuple[ShapeGroup, ...]
    relation: str
    place: str
    background: str

    @property
    def places(self) -> tuple[str, ...]:
        """Return where each group lies: "centre", a side such as "top", or a corner such as "top left"."""
        if len(self.groups) == 1:
            return (self.place,)
        return places(self.relation, self.place)


def places(relation: str, place: str) -> tuple[str, ...]:
    """Return the places of two groups with a relation.

    Where a ``place`` is given, that of a third one comes with them.
    """
    if relation == "inside":
        return ("centre", "centre")
    sides = _SIDES[relation]
    if not place:
        return sides
    other = _OPPOSITE[place]
    upright = place in ("left", "right")
    return (*(f"{side} {other}" if upright else f"{other} {side}" for side in sides), place)
