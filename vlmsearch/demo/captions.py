"""The language of the demonstration scenes: canonical captions, paraphrases, partial captions and short queries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from vlmsearch.demo.description import Description, ShapeGroup
from vlmsearch.demo.vocabulary import (
    AGAINST,
    BACKGROUNDS,
    COLOURS,
    COUNT_WORDS,
    COUNTS,
    INVERSE,
    OPENINGS,
    PLACES,
    RELATIONS,
    SHAPES,
    SIZES,
    TEXTURES,
    THIRD,
)

__all__ = ["canonical", "phrase", "position", "setting", "varied"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Detail:
    """Probabilities that an attribute of a group, or the background, is named."""

    size: float = 1.0
    texture: float = 1.0
    colour: float = 1.0
    count: float = 1.0
    background: float = 1.0


_FULL = _Detail()


def phrase(group: ShapeGroup) -> str:
    """Return what a group is called in canonical captions."""
    texture = "" if group.texture == "plain" else group.texture
    noun = SHAPES[group.shape][0][group.count > 1]
    return _join(COUNT_WORDS[group.count], group.size, texture, group.colour, noun)


def setting(scene: Description) -> str:
    """Return what the background is called in canonical captions."""
    return BACKGROUNDS[scene.background][0]


def position(scene: Description, group: ShapeGroup) -> str:
    """Return where a group lies, in the words of canonical captions."""
    if len(scene.groups) == 1:
        return PLACES[scene.place][0]
    first, second = scene.groups[:2]
    if group is first:
        return f"{RELATIONS[scene.relation][0]} {phrase(second)}"
    if group is second:
        return f"{RELATIONS[INVERSE[scene.relation]][0]} {phrase(first)}"
    return THIRD[scene.place][0]


def canonical(scene: Description) -> str:
    """Return the caption that names everything in the scene in fixed words."""
    first = phrase(scene.groups[0])
    if len(scene.groups) == 1:
        return f"{first} {PLACES[scene.place][0]} against {setting(scene)}"
    pair = f"{first} {position(scene, scene.groups[0])}"
    if len(scene.groups) == 2:
        return f"{pair} against {setting(scene)}"
    third = scene.groups[2]
    return f"{pair}, with {phrase(third)} {position(scene, third)}, against {setting(scene)}"


def varied(scene: Description, count: int, rng: random.Random, style: str) -> list[str]:
    """Return ``count`` captions of one style: "full", "partial", "short", or "mixed" for all three."""
    makers = {"full": _full, "partial": _partial, "short": _short}
    if style != "mixed" and style not in makers:
        raise ValueError(f"unknown caption style {style!r}; expected 'full', 'partial', 'short' or 'mixed'")
    mixed = ("full", "full", "full", "partial", "short")
    return [makers[_pick(rng, mixed) if style == "mixed" else style](scene, rng) for _ in range(count)]


def _full(scene: Description, rng: random.Random) -> str:
    """Phrase everything the canonical caption says in other words."""
    return _sentence(scene, rng, _FULL, third=True)


def _partial(scene: Description, rng: random.Random) -> str:
    """Leave out attributes, a group or the background."""
    detail = _Detail(0.5, 0.5, 0.9, 0.75, 0.5)
    if len(scene.groups) > 1 and rng.random() < 0.35:
        group = _pick(rng, scene.groups)
        return _with_background(_group(group, rng, detail), scene, rng, detail)
    return _sentence(scene, rng, detail, third=rng.random() < 0.6)


def _short(scene: Description, rng: random.Random) -> str:
    """Return a query of a few words that fits the scene."""
    group = _pick(rng, scene.groups)
    colour, place = _pick(rng, COLOURS.get(group.colour, (group.colour,))), _pick(rng, BACKGROUNDS[scene.background])
    kind = int(rng.random() * 14)
    if kind == 0:
        return place
    if kind == 1:
        return f"something {colour} {_pick(rng, AGAINST)} {place}"
    if kind == 2:
        return _pick(rng, SHAPES[group.shape])[int(rng.random() * 2)]
    if kind == 3:
        return _pick(rng, ("{}", "something {}", "{} things", "{} shapes")).format(colour)
    if kind == 4:
        return _with_background(_group(group, rng, _Detail(0, 0, 0.5, 0.7)), scene, rng, _FULL)
    if kind == 5 and len(scene.groups) > 1:
        return _pair(scene, rng, _Detail(0, 0, 0.5, 0.8))
    if kind in (6, 7) and len(scene.groups) > 1:
        detail = _Detail(0.1, 0.1, 0.7, 0.6)
        others = [other for other in scene.groups if other is not group]
        return f"{_group(group, rng, detail)} and {_group(_pick(rng, others), rng, detail)}"
    if kind == 8:
        return _group(group, rng, _Detail(0.4, 0.8, 0.6, 1))
    if kind in (9, 10):
        return _group(group, rng, _Detail(0.2, 0.3, 1, 0))
    return _group(group, rng, _Detail(0, 0, 1, 1))


def _sentence(scene: Description, rng: random.Random, detail: _Detail, *, third: bool) -> str:
    """Phrase a scene with the given amount of detail."""
    if len(scene.groups) == 1:
        text = _group(scene.groups[0], rng, detail)
        if detail is _FULL or rng.random() < 0.5:
            text = _join(text, _pick(rng, PLACES[scene.place]))
    else:
        text = _pair(scene, rng, detail)
    if len(scene.groups) == 3 and third:
        extra, side = _group(scene.groups[2], rng, detail), _pick(rng, THIRD[scene.place])
        form = int(rng.random() * 3)
        if form == 0 and side.startswith(("at ", "on ")):
            text = f"{text}, and {side} {extra}"
        else:
            text = f"{text}, {'with' if form == 1 else 'and'} {extra} {side}"
        return _with_background(text, scene, rng, detail, comma=True)
    return _with_background(text, scene, rng, detail)


def _pair(scene: Description, rng: random.Random, detail: _Detail) -> str:
    """Phrase how the first two groups lie to each other, from either side."""
    first, second = (_group(group, rng, detail) for group in scene.groups[:2])
    relation = scene.relation
    if rng.random() < 0.5:
        first, second, relation = second, first, INVERSE[relation]
        if relation == "around" and rng.random() < 0.4:
            return f"{first} with {second} inside"
    return f"{first} {_pick(rng, RELATIONS[relation])} {second}"


def _with_background(text: str, scene: Description, rng: random.Random, detail: _Detail, *, comma: bool = False) -> str:
    """Add an opening and, with the given probability, the background before or after a phrase."""
    if rng.random() >= detail.background:
        return _pick(rng, OPENINGS) + text
    preposition, background = _pick(rng, AGAINST), _pick(rng, BACKGROUNDS[scene.background])
    if rng.random() < 0.25:
        return f"{preposition} {background}, {text}"
    return f"{_pick(rng, OPENINGS)}{text}{',' if comma else ''} {preposition} {background}"


def _group(group: ShapeGroup, rng: random.Random, detail: _Detail) -> str:
    """Phrase a group of objects, leaving out attributes with the probabilities given."""
    counted = rng.random() < detail.count
    plural = group.count > 1 if counted else rng.random() < 0.5
    noun = _pick(rng, SHAPES[group.shape])[plural]
    adjective, suffix = _pick(rng, TEXTURES[group.texture]) if rng.random() < detail.texture else ("", "")
    size = _pick(rng, SIZES[group.size]) if rng.random() < detail.size else ""
    colour = _pick(rng, COLOURS.get(group.colour, (group.colour,))) if rng.random() < detail.colour else ""
    words = [size, adjective, colour] if rng.random() < 0.7 else [size, colour, adjective]
    rest = _join(*words, noun, suffix)
    if not counted:
        return rest
    article = _pick(rng, COUNTS[group.count])
    return _join("an" if article == "a" and rest[0] in "aeiou" else article, rest)


def _pick(rng: random.Random, options: Sequence[_T]) -> _T:
    """Choose one option uniformly."""
    return options[int(rng.random() * len(options))]


def _join(*words: str) -> str:
    """Join the words that are not empty."""
    return " ".join(word for word in words if word)
