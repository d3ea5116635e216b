"""Which drawn scenes a query fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from vlmsearch.demo.description import Description, Item, ShapeGroup
from vlmsearch.demo.queries import GroupQuery, SceneQuery, parse_query
from vlmsearch.demo.scenes import COLOURS, SHAPES, make_scene


def scene(*groups: str, relation: str = "", place: str = "", background: str = "white") -> Description:
    """A scene of groups such as "2 small striped red star"."""
    made = []
    for group in groups:
        count, size, texture, colour, shape = group.split()
        made.append(ShapeGroup(shape, colour, size, texture, (Item(0, 0, 0, 0),) * int(count)))
    return Description(0, tuple(made), relation, place, background)


STAR = scene("1 small plain red star", place="top left", background="meadow")
TWO = scene("3 large dotted red star", "1 small plain blue circle", relation="above", background="night sky")
NESTED = scene("2 small plain pink heart", "1 large plain black ring", relation="inside", background="snow")
THREE = scene(
    "1 small plain red star", "1 small plain red ring", "4 small striped green arrow",
    relation="left of", place="top", background="beach",
)  # fmt: skip


@pytest.mark.parametrize("style", ["full", "partial", "short", "mixed"])
def test_every_caption_is_understood_and_fits_its_own_scene(style: str) -> None:
    for seed in range(800):
        drawn = make_scene(seed)
        for caption in (drawn.caption(), *drawn.captions(3, 1, style=style)):
            assert parse_query(caption).fits(drawn), caption


def test_a_canonical_caption_fits_no_scene_that_differs_in_one_thing() -> None:
    for seed in range(400):
        drawn = make_scene(seed)
        query = parse_query(drawn.caption())
        for number, group in enumerate(drawn.groups):
            others = [
                replace(
                    group, shape=next(name for name in SHAPES if name not in {each.shape for each in drawn.groups})
                ),
                replace(group, colour=next(name for name in COLOURS if name != group.colour)),
                replace(group, size="small" if group.size == "large" else "large"),
            ]
            if group.texture != "plain":  # canonical captions do not name it
                others.append(replace(group, texture="plain"))
            if group.count > 1:  # "a" leaves the count open
                others.append(replace(group, items=group.items[1:]))
            for other in others:
                groups = (*drawn.groups[:number], other, *drawn.groups[number + 1 :])
                assert not query.fits(replace(drawn, groups=groups)), (drawn.caption(), other)
        assert not query.fits(replace(drawn, background="snow" if drawn.background != "snow" else "beach"))
        if len(drawn.groups) > 1:
            turned = {
                "left of": "right of",
                "right of": "left of",
                "above": "below",
                "below": "above",
                "inside": "above",
            }
            assert not query.fits(replace(drawn, relation=turned[drawn.relation])), drawn.caption()


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("a red star", [STAR, TWO, THREE]),
        ("Red stars.", [STAR, TWO, THREE]),
        ("one red star", [STAR, THREE]),
        ("three red stars", [TWO]),
        ("a group of four arrows with stripes", [THREE]),
        ("a spotted scarlet star", [TWO]),
        ("a plain star", [STAR, THREE]),
        ("a big star", [TWO]),
        ("a blue star", []),
        ("something blue", [TWO]),
        ("red things", [STAR, TWO, THREE]),
        ("something red on grass", [STAR]),
        ("a moon", []),
        ("grass", [STAR]),
        ("the beach", [THREE]),
        ("plain white", []),
        ("a star on the beach", [THREE]),
        ("a star at the top", [STAR, TWO]),
        ("a star in the upper left corner", [STAR]),
        ("a star on the left", [STAR, THREE]),
        ("a hoop in the middle", [NESTED]),
        ("stars and a ball", [TWO]),
        ("a red star and a red hoop", [THREE]),
        ("red star and red star", []),
        ("a star over a circle", [TWO]),
        ("a circle beneath three stars", [TWO]),
        ("a circle above three stars", []),
        ("hearts in a ring", [NESTED]),
        ("a ring around two hearts", [NESTED]),
        ("a ring with two hearts inside", [NESTED]),
        ("two hearts above a ring", []),
        ("a ring in two hearts", []),
        ("green arrows on top of a star", [THREE]),
        ("a ring to the right of a star, with four arrows above them, on the seaside", [THREE]),
        ("a star left of a ring, and at the top arrows", [THREE]),
        ("a star left of a ring, with arrows below", []),
        ("against a starry sky, a picture of a star", None),
        ("against a starry sky, a star", [TWO]),
    ],
)  # fmt: skip
def test_all_that_is_named_has_to_hold(query: str, fits: Sequence[Description] | None) -> None:
    if fits is None:
        with pytest.raises(ValueError, match="not in the language of the drawn scenes"):
            parse_query(query)
        return
    asked = parse_query(query)
    assert [each for each in (STAR, TWO, NESTED, THREE) if asked.fits(each)] == fits


def test_what_is_not_in_the_language_is_refused() -> None:
    for text in ("", "a dog in the snow", "a red red", "invoice 4711", "a star near a ring"):
        with pytest.raises(ValueError, match="not in the language of the drawn scenes"):
            parse_query(text)


def test_words_and_what_they_stand_for() -> None:
    assert parse_query(
        "2 tiny striped teal boxes on the right of a blossom, in front of a wall of bricks"
    ) == SceneQuery(
        (GroupQuery("square", "turquoise", "small", "striped", 2), GroupQuery("flower")),
        ((0, "right of", 1),),
        "brick wall",
    )
    assert parse_query("yellow stripes") == SceneQuery(background="yellow stripes")
    assert parse_query("golden stars with stripes") == SceneQuery((GroupQuery("star", "yellow", texture="striped"),))


def test_groups_lie_where_they_are_drawn() -> None:
    for seed in range(500):
        drawn = make_scene(seed)
        for place, group in zip(drawn.places, drawn.groups, strict=True):
            ends = {"left": (0, 0, 128), "right": (0, 128, 256), "top": (1, 0, 128), "bottom": (1, 128, 256)}
            for word in place.split():
                axis, low, high = ends.get(word, (0, 0, 256))
                assert all(low <= (item.x, item.y)[axis] <= high for item in group.items), drawn
