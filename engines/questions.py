"""Questions about drawn scenes, with the answers that their captions give: what the language model is trained on.

``Gallery(range(1000)).ask(seed)`` draws sources as `Pipeline.ask` would retrieve them, a question about them and the
one right answer, with its citations. The same seed gives the same question on every platform.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from vlmsearch.demo.captions import phrase, position, setting
from vlmsearch.demo.description import ShapeGroup
from vlmsearch.demo.scenes import COLOURS, SHAPES, Scene, make_scene

_MOST_SOURCES = 8
UNANSWERED = "The sources do not answer the question."
_COUNTS = {1: "one", 2: "two", 3: "three", 4: "four"}
_NOUNS = ("scenes", "scenes", "sources", "pictures", "images")
_OTHER_SUBJECTS = ("a dog", "a cat", "a house", "a tree", "people", "a car", "a horse", "two cats", "a bicycle",
                   "birds", "a boat", "a bridge", "a train", "snowmen", "a cup", "children", "letters", "a pentagon",
                   "a spiral", "cubes")  # fmt: skip
_UNRELATED = (
    "Who painted {0}?", "When was {0} made?", "How old is the painter?", "What is the capital of {1}?",
    "Who is the president of {1}?", "How much does {0} cost?", "Why is {0} so large?", "What is the weather in {1}?",
    "Where can I buy {0}?", "What is the name of {0}?", "Is {1} far away?", "How do I get to {1}?",
    "What time is it in {1}?", "Who took the photograph?", "Which camera was used?", "What does {0} mean?",
    "Tell me a joke.", "Translate this into French.", "How many people live in {1}?", "What is {2} plus {3}?",
    "Write a poem about {1}.", "Hello, how are you?", "What is your name?", "Who won the match?",
    "What did {0} eat yesterday?", "How many {2} are there in {3}?",
)  # fmt: skip
_CITIES = ("France", "Paris", "Norway", "Berlin", "Japan", "Rome", "Kenya", "Lima", "India", "Oslo", "Texas", "Cairo")
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Wanted:
    """What a question asks for: what is None may be anything."""

    shape: str | None = None
    colour: str | None = None
    size: str | None = None
    count: int | None = None
    background: str | None = None

    def fits(self, scene: Scene) -> bool:
        if self.background is not None and self.background != setting(scene):
            return False
        return any(self.group_fits(group) for group in scene.groups)

    def group_fits(self, group: ShapeGroup) -> bool:
        return (
            self.shape in (None, group.shape)
            and self.colour in (None, group.colour)
            and self.size in (None, group.size)
            and self.count in (None, group.count)
        )


_Asked = tuple[str, str, Sequence[int]]
_Scenes = Sequence["Scene | None"]
_NONE: Sequence[int] = ()


def _which(rng: random.Random, scenes: _Scenes) -> _Asked:
    noun = pick(rng, _NOUNS)
    if rng.random() < 0.06:
        words, found = pick(rng, _OTHER_SUBJECTS), []
    else:
        wanted = _want(rng, scenes)
        words, found = _phrase(rng, wanted), _numbers(scenes, wanted)
    form = pick(rng, ("Which {} show {}?", "Which {} show {}?", "Which {} have {}?", "What {} show {}?",
                       "Which {} contain {}?", "Show me {} with {}.", "Find {} with {}."))  # fmt: skip
    question = form.format(noun, words)
    if not found:
        return question, f"The sources do not show {words}.", _NONE
    return question, _shown(found, words), found


def _how_many_scenes(rng: random.Random, scenes: _Scenes) -> _Asked:
    wanted = _want(rng, scenes)
    words, found = _phrase(rng, wanted), _numbers(scenes, wanted)
    question = f"How many {pick(rng, _NOUNS)} show {words}?"
    if not found:
        return question, f"The sources do not show {words}.", _NONE
    many = {**_COUNTS, 5: "five", 6: "six", 7: "seven", 8: "eight"}[len(found)].capitalize()
    return question, f"{many}: {_list(found)}.", found


def _exists(rng: random.Random, scenes: _Scenes) -> _Asked:
    other = rng.random() < 0.06
    wanted = _want(rng, scenes)
    words = pick(rng, _OTHER_SUBJECTS) if other else _phrase(rng, wanted)
    found = [] if other else _numbers(scenes, wanted)
    form = pick(rng, ("Is there {}?", "Are there {}?", "Do the sources show {}?", "Does any scene show {}?",
                       "Is there a scene with {}?"))  # fmt: skip
    if not found:
        return form.format(words), f"No, the sources do not show {words}.", _NONE
    return form.format(words), f"Yes, in {_list(found)}.", found


def _exists_in(rng: random.Random, scenes: _Scenes) -> _Asked:
    number, scene = _target(rng, scenes)
    wanted = replace(_want(rng, [scene] if scene and rng.random() < 0.5 else scenes), background=None)
    words, place = _phrase(rng, wanted), _in_source(rng, number)
    question = pick(rng, ("Is there {} in {}?", "Are there {} in {}?")).format(words, place)
    if scene is None:
        return question, UNANSWERED, _NONE
    return question, f"Yes [{number}]." if wanted.fits(scene) else f"No [{number}].", [number]


def _how_many(rng: random.Random, scenes: _Scenes) -> _Asked:
    number, group, place = _entity(rng, scenes)
    named = _named(rng, group)
    question = f"How many {named}{_plural(group.shape)} are {f'in {place}' if place else 'there'}?"
    if number is None:
        return question, UNANSWERED, _NONE
    verb, noun = ("are", _plural(group.shape)) if group.count > 1 else ("is", group.shape)
    return question, f"There {verb} {_COUNTS[group.count]} {named}{noun} [{number}].", [number]


def _colour(rng: random.Random, scenes: _Scenes) -> _Asked:
    number, group, place = _entity(rng, scenes)
    subject, verb = _subject(group)
    question = f"What {pick(rng, ('colour', 'color'))} {verb} {subject}{_after(place)}?"
    return _or_not(question, f"{subject.capitalize()} {verb} {group.colour} [{number}].", number)


def _is_colour(rng: random.Random, scenes: _Scenes) -> _Asked:
    number, group, place = _entity(rng, scenes)
    subject, verb = _subject(group)
    asked = group.colour if rng.random() < 0.5 else pick(rng, COLOURS)
    answer = "Yes" if asked == group.colour else "No"
    question = f"{verb.capitalize()} {subject}{_after(place)} {asked}?"
    return _or_not(question, f"{answer}, {subject} {verb} {group.colour} [{number}].", number)


def _size(rng: random.Random, scenes: _Scenes) -> _Asked:
    number, group, place = _entity(rng, scenes)
    subject, verb = _subject(group)
    form = pick(rng, ("How large {} {}{}?", "How big {} {}{}?", "What size {} {}{}?"))
    return _or_not(form.format(verb, subject, _after(place)), f"{subject.capitalize()} {verb} {group.size} [{number}].",
                   number)  # fmt: skip


def _pattern(rng: random.Random, scenes: _Scenes) -> _Asked:
    number, group, place = _entity(rng, scenes)
    subject, verb = _subject(group)
    question = f"What pattern {'do' if verb == 'are' else 'does'} {subject}{_after(place)} have?"
    return _or_not(question, f"{subject.capitalize()} {verb} {group.texture} [{number}].", number)


def _where(rng: random.Random, scenes: _Scenes) -> _Asked:
    number, group, place = _entity(rng, scenes)
    subject, verb = _subject(group)
    question = f"Where {verb} {subject}{_after(place)}?"
    scene = scenes[number - 1] if number else None
    where = position(scene, group) if scene else ""
    return _or_not(question, f"{subject.capitalize()} {verb} {where} [{number}].", number)


def _background(rng: random.Random, scenes: _Scenes) -> _Asked:
    number, scene = _target(rng, scenes)
    form = pick(rng, ("What is the background of {}?", "What is behind the objects in {}?",
                       "What background does {} have?"))  # fmt: skip
    question = form.format(_in_source(rng, number))
    return _or_not(question, f"The background is {setting(scene)} [{number}]." if scene else "",
                   number if scene else None)  # fmt: skip


def _describe(rng: random.Random, scenes: _Scenes) -> _Asked:
    number, scene = _target(rng, scenes)
    form = pick(rng, ("What does {} show?", "What is in {}?", "Describe {}."))
    question = form.format(_in_source(rng, number))
    if scene is None:
        return question, UNANSWERED, _NONE
    groups = _list_words([phrase(group) for group in scene.groups])
    return question, f"It shows {groups} against {setting(scene)} [{number}].", [number]


def _unrelated(rng: random.Random, _scenes: _Scenes) -> _Asked:
    subject = pick(rng, ("the picture", "the scene", "the star", "source 1", pick(rng, _OTHER_SUBJECTS)))
    numbers = [str(int(rng.random() * 100)) for _ in range(2)]
    return pick(rng, _UNRELATED).format(subject, pick(rng, _CITIES), *numbers), UNANSWERED, _NONE


KINDS: Sequence[tuple[str, Callable[[random.Random, _Scenes], _Asked]]] = (
    *[("which", _which)] * 7,
    *[("exists", _exists)] * 3,
    *[("where", _where)] * 3,
    *[("how many scenes", _how_many_scenes), ("how many", _how_many), ("colour", _colour)] * 2,
    ("exists in", _exists_in), ("is colour", _is_colour), ("size", _size), ("pattern", _pattern),
    ("background", _background), ("describe", _describe), ("unrelated", _unrelated),
)  # fmt: skip
"""Each kind as often as it is asked: a name, and what makes a question, its answer and its citations of scenes."""


def _or_not(question: str, answer: str, number: int | None) -> _Asked:
    return (question, UNANSWERED, _NONE) if number is None else (question, answer, [number])


def _want(rng: random.Random, scenes: _Scenes) -> _Wanted:
    """Something that is there most of the time, and often there in part."""
    known = [scene for scene in scenes if scene]
    scene = pick(rng, known) if known and rng.random() < 0.8 else None
    group = pick(rng, scene.groups) if scene else None
    shape, colour = (group.shape, group.colour) if group else (pick(rng, SHAPES), pick(rng, COLOURS))
    background = setting(pick(rng, known)) if known else "a night sky"
    if scene and rng.random() < 0.8:
        background = setting(scene)
    if group and rng.random() < 0.15:
        colour = pick(rng, COLOURS)
    form = int(rng.random() * 12)
    if form < 3:
        return _Wanted(shape)
    if form < 6:
        return _Wanted(shape, colour)
    if form == 6:
        return _Wanted(shape, pick(rng, (colour, None)), count=group.count if group else 1)
    if form == 7:
        return _Wanted(shape, size=group.size if group else "large")
    if form == 8:
        return _Wanted(colour=colour)
    return _Wanted(background=background) if form == 9 else _Wanted(shape, background=background)


def _phrase(rng: random.Random, wanted: _Wanted) -> str:
    """How what is wanted is put into words."""
    behind = wanted.background or ""
    if wanted.shape is None:
        return pick(rng, (f"something {wanted.colour}", f"{wanted.colour} shapes")) if wanted.colour else behind
    many = wanted.count != 1 and (wanted.count is not None or rng.random() < 0.5)
    number = _COUNTS[wanted.count] if wanted.count and wanted.count > 1 else "" if many else "a"
    words = (number, wanted.size, wanted.colour, _plural(wanted.shape) if many else wanted.shape)
    text = " ".join(word for word in words if word)
    if text.startswith(("a orange", "a arrow")):
        text = f"an{text[1:]}"
    return f"{text} {pick(rng, ('against', 'against', 'on'))} {behind}" if behind else text


def _numbers(scenes: _Scenes, wanted: _Wanted) -> list[int]:
    return [number for number, scene in enumerate(scenes, 1) if scene and wanted.fits(scene)]


def _target(rng: random.Random, scenes: _Scenes) -> tuple[int, Scene | None]:
    """A source's number, now and then one that there is not."""
    if rng.random() < 0.05:
        return len(scenes) + 1 + int(rng.random() * 2), None
    number = int(rng.random() * len(scenes)) + 1
    return number, scenes[number - 1]


def _entity(rng: random.Random, scenes: _Scenes) -> tuple[int | None, ShapeGroup, str]:
    """A group, the number of its source (None if nothing says), and in which source the question looks for it."""
    number, scene = _target(rng, scenes)
    if scene is None or rng.random() < 0.08:
        other = make_scene(int(rng.random() * 1000)).groups[0]
        there = scene is not None and any(group.shape == other.shape for group in scene.groups)
        return (None, other, _in_source(rng, number)) if not there else _entity(rng, scenes)
    group = pick(rng, scene.groups)
    alone = len(_numbers(scenes, _Wanted(group.shape))) == 1
    return number, group, "" if alone and rng.random() < 0.6 else _in_source(rng, number)


def _in_source(rng: random.Random, number: int) -> str:
    return f"{pick(rng, ('source', 'source', 'scene', 'picture', 'image'))} {number}"


def _after(place: str) -> str:
    return f" in {place}" if place else ""


def _named(rng: random.Random, group: ShapeGroup) -> str:
    return f"{group.colour} " if rng.random() < 0.5 else ""


def _subject(group: ShapeGroup) -> tuple[str, str]:
    return (f"the {_plural(group.shape)}", "are") if group.count > 1 else (f"the {group.shape}", "is")


def _plural(shape: str) -> str:
    return f"{shape}es" if shape.endswith("s") else f"{shape}s"


def _shown(numbers: Sequence[int], words: str) -> str:
    one = len(numbers) == 1
    return f"{'Source' if one else 'Sources'} {_list(numbers)} {'shows' if one else 'show'} {words}."


def _list(numbers: Sequence[int]) -> str:
    return _list_words([f"[{number}]" for number in numbers])


def _list_words(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def pick(rng: random.Random, options: Sequence[_T]) -> _T:
    """Choose one option uniformly."""
    return options[int(rng.random() * len(options))]


@dataclass(frozen=True)
class Question:
    """A question about numbered sources and its answer; ``citations`` are the numbers in the answer, ascending."""

    kind: str
    sources: tuple[str, ...]
    question: str
    answer: str
    citations: tuple[int, ...]


class Gallery:
    """Scenes to ask about, by their seeds."""

    def __init__(self, seeds: range) -> None:
        self._scenes = [make_scene(seed) for seed in seeds]
        self._by: dict[str, list[int]] = {}
        for index, scene in enumerate(self._scenes):
            for key in {scene.background, *(g.shape for g in scene.groups), *(g.colour for g in scene.groups)}:
                self._by.setdefault(key, []).append(index)

    def ask(self, seed: int) -> Question:
        """The question that belongs to ``seed``."""
        rng = random.Random(seed)
        first = pick(rng, self._scenes)
        keys = [first.background, first.groups[0].shape, first.groups[0].colour]
        scenes: list[Scene | None] = [first]
        share, images = pick(rng, (0.0, 0.4, 0.8)), pick(rng, (0.0, 0.0, 0.2, 0.5))
        for _ in range(int(rng.random() * _MOST_SOURCES)):
            alike = self._by[pick(rng, keys)] if rng.random() < share else None
            scenes.append(self._scenes[pick(rng, alike)] if alike else pick(rng, self._scenes))
        for index in range(len(scenes)):
            if rng.random() < images:
                scenes[index] = None
        swap = int(rng.random() * len(scenes))
        scenes[0], scenes[swap] = scenes[swap], scenes[0]
        sources = tuple(_source(rng, scene) for scene in scenes)
        kind, make = pick(rng, KINDS)
        question, answer, citations = make(rng, scenes)
        return Question(kind, sources, question, answer, tuple(citations))


def _source(rng: random.Random, scene: Scene | None) -> str:
    if scene is None:
        number = int(rng.random() * 10_000)
        name = pick(rng, (f"scene-{number:04}", f"scene-{number:04}", f"scene-{number:04}", f"image{number}",
                           f"IMG_{number}", f"photo-{number}"))  # fmt: skip
        return f"the image {name}.{pick(rng, ('png', 'png', 'jpg'))}"
    if rng.random() < 0.75:
        return scene.caption()
    return scene.captions(1, int(rng.random() * 1000), style="full")[0]
