"""What a query says about drawn scenes, and which scenes it fits: the truth that a search is judged by."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vlmsearch.demo.description import Description, ShapeGroup
from vlmsearch.demo.drawing import COLOURS as DRAWN_COLOURS
from vlmsearch.demo.vocabulary import (
    AGAINST,
    BACKGROUNDS,
    COLOURS,
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


@dataclass(frozen=True)
class GroupQuery:
    """A query for one group of objects.

    An empty string, and a count of 0, leave an attribute open.

    "A" and "an" leave the count open too: where there are three red stars, there is a red star.
    """

    shape: str = ""
    colour: str = ""
    size: str = ""
    texture: str = ""
    count: int = 0
    place: str = ""

    def fits(self, group: ShapeGroup, place: str) -> bool:
        """Return whether a group that lies at ``place`` fits the query.

        What lies top left lies at the top.
        """
        return (
            self.shape in ("", group.shape)
            and self.colour in ("", group.colour)
            and self.size in ("", group.size)
            and self.texture in ("", group.texture)
            and self.count in (0, group.count)
            and set(self.place.split()) <= set(place.split())
        )


@dataclass(frozen=True)
class SceneQuery:
    """A query for a scene: a background (empty: any), groups, and their relations.

    ``relations`` has the numbers of two groups and how the first lies to the second: "left of", "right of", "above",
    "below", "inside" or "around".

    Example:
        >>> from vlmsearch.demo.scenes import make_scene
        >>> query = parse_query("a red star on the beach")
        >>> make_scene(1989).caption()
        'two small checked purple diamonds above a small red star against a beach'
        >>> query.fits(make_scene(1989)), query.fits(make_scene(1990))
        (True, False)
    """

    groups: tuple[GroupQuery, ...] = ()
    relations: tuple[tuple[int, str, int], ...] = ()
    background: str = ""

    def fits(self, scene: Description) -> bool:
        """Return whether a scene has all that is asked for.

        Each group asked for is another group of it.
        """
        if self.background not in ("", scene.background):
            return False
        if not self.groups:
            return True
        places = scene.places
        fitting = [
            [number for number, group in enumerate(scene.groups) if asked.fits(group, places[number])]
            for asked in self.groups
        ]
        return any(
            len(set(chosen)) == len(chosen)
            and all(
                _holds(scene, chosen[first], relation, chosen[second]) for first, relation, second in self.relations
            )
            for chosen in itertools.product(*fitting)
        )


def parse_query(text: str) -> SceneQuery:
    """Return what a caption of any style, or a query in its words, says.

    Args:
        text: Such as "a red star", "something blue on snow", "grass", or all that `Scene.captions` gives.

    Returns:
        What has to hold in a scene that it fits.

    Raises:
        ValueError: It is not in the language of the captions.

    Example:
        >>> query = parse_query("two golden discs on a starry sky")
        >>> query.groups[0].count, query.groups[0].colour, query.groups[0].shape, query.background
        (2, 'yellow', 'circle', 'night sky')
    """
    words = " ".join(text.casefold().split()).strip(" .")
    if match := _BACKGROUND_ALONE.fullmatch(words):
        return SceneQuery(background=_BACKGROUND_NAMES[match["background"]])
    for form in _FORMS:
        if match := form.fullmatch(words):
            return _read(match.groupdict())
    raise ValueError(f"not in the language of the drawn scenes: {text!r}")


def _holds(scene: Description, first: int, relation: str, second: int) -> bool:
    """Return whether the ``first`` group of a scene lies so to the ``second``."""
    if relation in ("inside", "around"):
        return scene.relation == "inside" and (first, second) == ((0, 1) if relation == "inside" else (1, 0))
    near, far = _ENDS[relation]
    places = scene.places
    return near in places[first].split() and far in places[second].split()


def _read(parts: Mapping[str, str | None]) -> SceneQuery:
    named = [name for name in ("first", "second", "third") if parts.get(name)]
    places = {"first": _PLACE_NAMES.get(parts.get("place") or "", "")}
    relations: list[tuple[int, str, int]] = []
    if relation := parts.get("relation"):
        relations.append((0, _RELATION_NAMES[relation], 1))
    elif parts.get("inside"):
        relations.append((0, "around", 1))
    side = parts.get("side") or ""
    if side in _RELATION_NAMES or side.endswith(" them"):
        relations += [(2, _RELATION_NAMES[side.removesuffix(" them")], other) for other in (0, 1)]
    else:
        places["third"] = _PLACE_NAMES.get(side, "")
    groups = tuple(_read_group(parts[name] or "", places.get(name, "")) for name in named)
    return SceneQuery(groups, tuple(relations), _BACKGROUND_NAMES.get(parts.get("background") or "", ""))


def _read_group(text: str, place: str) -> GroupQuery:
    match = _GROUP_PARTS.fullmatch(text) or _COLOUR_PARTS.fullmatch(text)
    parts = match.groupdict("") if match else {}
    words = parts.get("words", "").split()
    return GroupQuery(
        _SHAPE_NAMES.get(parts.get("noun", ""), ""),
        next((_COLOUR_NAMES[word] for word in (*words, parts.get("colour", "")) if word in _COLOUR_NAMES), ""),
        next((_SIZE_NAMES[word] for word in words if word in _SIZE_NAMES), ""),
        next((_TEXTURE_NAMES[word] for word in (*words, parts.get("suffix", "")) if word in _TEXTURE_NAMES), ""),
        _COUNT_NAMES.get(parts.get("count", ""), 0),
        place,
    )


def _names(table: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return each word of a vocabulary and what it stands for."""
    return {word: name for name, words in table.items() for word in words}


def _any(words: Iterable[str]) -> str:
    """Return a pattern for one of some words."""
    return f"(?:{'|'.join(re.escape(word) for word in sorted(set(words), key=len, reverse=True))})"


_SHAPE_NAMES = {word: name for name, nouns in SHAPES.items() for noun in nouns for word in noun}
_COLOUR_NAMES = {name: name for name in DRAWN_COLOURS} | _names(COLOURS)
_SIZE_NAMES = _names(SIZES)
_TEXTURE_NAMES = {word: name for name, pairs in TEXTURES.items() for pair in pairs for word in pair if word}
_COUNT_NAMES = {word: count for count, words in COUNTS.items() for word in words if word != "a"}
_BACKGROUND_NAMES = _names(BACKGROUNDS) | {
    f"the{word[1:]}": name for word, name in _names(BACKGROUNDS).items() if word.startswith("a ")
}
_RELATION_NAMES = _names(RELATIONS)
_PLACE_NAMES = _names(PLACES) | _names(THIRD)
_ENDS = {"left of": ("left", "right"), "above": ("top", "bottom")}
_ENDS |= {INVERSE[relation]: (far, near) for relation, (near, far) in _ENDS.items()}

_ADJECTIVE = _any(word for word in (*_COLOUR_NAMES, *_SIZE_NAMES, *_TEXTURE_NAMES) if " " not in word)
_SUFFIX = _any(word for word in _TEXTURE_NAMES if " " in word)
_COUNT = _any((*_COUNT_NAMES, "a", "an", "the"))
_NOUN = _any(_SHAPE_NAMES)
_COLOUR = _any(_COLOUR_NAMES)
_COLOUR_ALONE = rf"(?:something {_COLOUR}|{_COLOUR}(?: things| shapes)?)"
_GROUP = rf"(?:(?:{_COUNT} )?(?:{_ADJECTIVE} )*{_NOUN}(?: {_SUFFIX})?)"
_GROUP_PARTS = re.compile(
    rf"(?:(?P<count>{_COUNT}) )?(?P<words>(?:{_ADJECTIVE} )*)(?P<noun>{_NOUN})(?: (?P<suffix>{_SUFFIX}))?"
)
_COLOUR_PARTS = re.compile(rf"(?:something )?(?P<colour>{_COLOUR})(?: things| shapes)?")
_BACKGROUND = rf"{_any(AGAINST)} (?P<background>{_any(_BACKGROUND_NAMES)})"
_BACKGROUND_ALONE = re.compile(rf"(?P<background>{_any(_BACKGROUND_NAMES)})")
_SIDE = _any(word for words in THIRD.values() for word in words)
_PAIRS = (
    rf"(?P<first>{_GROUP}) (?P<relation>{_any(_RELATION_NAMES)}) (?P<second>{_GROUP})",
    rf"(?P<first>{_GROUP}) with (?P<second>{_GROUP}) (?P<inside>inside)",
)
_THIRDS = (
    "",
    rf",? (?:with|and) (?P<third>{_GROUP}) (?P<side>{_SIDE})",
    rf",? and (?P<side>{_SIDE}) (?P<third>{_GROUP})",
)
_BODIES = (
    rf"(?P<first>{_GROUP}|{_COLOUR_ALONE})(?: (?P<place>{_any(_PLACE_NAMES)}))?",
    rf"(?P<first>{_GROUP}) and (?P<second>{_GROUP})",
    *(pair + third for pair in _PAIRS for third in _THIRDS),
)
_FORMS = tuple(
    re.compile(form)
    for body in _BODIES
    for form in (
        rf"{_any(OPENINGS)}{body}(?:,? {_BACKGROUND})?",
        rf"{_BACKGROUND}, {body}",
    )
)
