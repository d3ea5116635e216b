"""The scenes that a text fits, in a form that is compared in batches.

A scene is three sets of marks, one for each group that it can have. A text is three sets of marks that a group must not
have. It fits a scene if each of its groups can be given to a group of the scene without a forbidden mark. A set
is the bits of an integer of 64 bits.
"""

from __future__ import annotations

import itertools
from typing import Any

from vlmsearch.demo.description import Description, ShapeGroup
from vlmsearch.demo.queries import GroupQuery, SceneQuery
from vlmsearch.demo.scenes import COLOURS, SHAPES
from vlmsearch.demo.vocabulary import BACKGROUNDS, COUNTS, INVERSE, SIZES, TEXTURES

GROUPS = 3
_SIDES = ("centre", "top", "bottom", "left", "right")
_RELATED = {"left of": ("left", "right"), "above": ("top", "bottom"), "inside": ("inner", "outer")}
_RELATED |= {INVERSE[relation]: (second, first) for relation, (first, second) in _RELATED.items()}
_ABSENT = ("absent", True)


def _sets(*tables: tuple[str, Any]) -> dict[str, int]:
    """Return, for each kind of mark, the set of all of that kind."""
    return {kind: sum(_BITS[kind, value] for value in values) for kind, values in tables}


_EXCLUSIVE = (("shape", SHAPES), ("colour", COLOURS), ("size", SIZES), ("texture", TEXTURES), ("count", COUNTS),
              ("background", BACKGROUNDS))  # fmt: skip
_NAMES = [*((kind, value) for kind, values in _EXCLUSIVE for value in values),
          *(("lacks", side) for side in (*_SIDES, "inner", "outer")), _ABSENT]  # fmt: skip
_BITS: dict[tuple[str, Any], int] = {name: 1 << number for number, name in enumerate(_NAMES)}
_ALL = _sets(*_EXCLUSIVE)


def marks(scene: Description) -> list[int]:
    """Return the marks of each of the three groups that a scene can have."""
    behind = _BITS["background", scene.background]
    nested = ("inner", "outer") if scene.relation == "inside" else ("", "")
    rows = [
        behind | _marks(group, {*place.split(), nested[number] if number < 2 else ""})
        for number, (group, place) in enumerate(zip(scene.groups, scene.places, strict=True))
    ]
    return rows + [behind | _BITS[_ABSENT]] * (GROUPS - len(rows))


def _marks(group: ShapeGroup, lies: set[str]) -> int:
    is_ = (("shape", group.shape), ("colour", group.colour), ("size", group.size), ("texture", group.texture),
           ("count", group.count))  # fmt: skip
    return sum(_BITS[mark] for mark in is_) | sum(
        _BITS["lacks", side] for side in (*_SIDES, "inner", "outer") if side not in lies
    )


def forbidden(query: SceneQuery) -> list[int]:
    """Return the marks that a fitting scene's groups must not have.

    There are three groups.
    """
    behind = _other("background", query.background)
    marks = [behind | _BITS[_ABSENT] | _forbidden(group) for group in query.groups]
    for first, relation, second in query.relations:
        near, far = _RELATED[relation]
        marks[first] |= _BITS["lacks", near]
        marks[second] |= _BITS["lacks", far]
    return marks + [behind] * (GROUPS - len(marks))


def _forbidden(group: GroupQuery) -> int:
    asked = (("shape", group.shape), ("colour", group.colour), ("size", group.size), ("texture", group.texture),
             ("count", group.count))  # fmt: skip
    return sum(_other(kind, value) for kind, value in asked) | sum(_BITS["lacks", side] for side in group.place.split())


def _other(kind: str, value: str | int) -> int:
    """Return all marks of a kind but one; none where the value is left open."""
    return _ALL[kind] & ~_BITS[kind, value] if value else 0


def fits(asked: Any, shown: Any) -> Any:
    """Return which texts fit which scenes.

    Args:
        asked: What `forbidden` gives for each text: a 64-bit integer array or tensor of shape (texts, 3).
        shown: What `marks` gives for each scene: shape (scenes, 3).

    Returns:
        Booleans of shape (texts, scenes), of the same kind.
    """
    single = [[(asked[:, i, None] & shown[None, :, j]) == 0 for j in range(GROUPS)] for i in range(GROUPS)]
    given = [single[0][i] & single[1][j] & single[2][k] for i, j, k in itertools.permutations(range(GROUPS))]
    total = given[0]
    for part in given[1:]:
        total = total | part
    return total
