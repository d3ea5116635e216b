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
class Group:
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
