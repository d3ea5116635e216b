"""Questions about drawn scenes, with the answers that their captions give: what the language models are trained on.

``Gallery(range(1000)).ask(seed)`` draws sources as `Pipeline.ask` would retrieve them, a question about them and the
one right answer, with its citations. ``ask_pictures`` does so for sources that are pictures, too. The same seed gives
the same question on every platform.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from vlmsearch.answers.prompts import TEMPLATE
from vlmsearch.demo.captions import phrase, position, setting
from vlmsearch.demo.description import ShapeGroup
from vlmsearch.demo.scenes import COLOURS, SHAPES, TEXTURES, Scene, make_scene
from vlmsearch.demo.vocabulary import COLOURS as COLOUR_WORDS, SHAPES as SHAPE_WORDS

_MAX_SOURCES = 8
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
class _WantedGroup:
    """The group that a question asks for.

    Whatever is None may be anything.
    """

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


_AnsweredQuestion = tuple[str, str, Sequence[int]]
_Scenes = Sequence["Scene | None"]
_NONE: Sequence[int] = ()


def _which(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    noun = pick(rng, _NOUNS)
    if rng.random() < 0.06:
        words, numbers = pick(rng, _OTHER_SUBJECTS), []
    else:
        wanted = _want(rng, scenes)
        words, numbers = _phrase(rng, wanted), _numbers(scenes, wanted)
    form = pick(rng, ("Which {} show {}?", "Which {} show {}?", "Which {} have {}?", "What {} show {}?",
                       "Which {} contain {}?", "Show me {} with {}.", "Find {} with {}."))  # fmt: skip
    question = form.format(noun, words)
    if not numbers:
        return question, f"The sources do not show {words}.", _NONE
    return question, _shown(numbers, words), numbers


def _how_many_scenes(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    wanted = _want(rng, scenes)
    words, numbers = _phrase(rng, wanted), _numbers(scenes, wanted)
    question = f"How many {pick(rng, _NOUNS)} show {words}?"
    if not numbers:
        return question, f"The sources do not show {words}.", _NONE
    many = {**_COUNTS, 5: "five", 6: "six", 7: "seven", 8: "eight"}[len(numbers)].capitalize()
    return question, f"{many}: {_list(numbers)}.", numbers


def _exists(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    other = rng.random() < 0.06
    wanted = _want(rng, scenes)
    words = pick(rng, _OTHER_SUBJECTS) if other else _phrase(rng, wanted)
    numbers = [] if other else _numbers(scenes, wanted)
    form = pick(rng, ("Is there {}?", "Are there {}?", "Do the sources show {}?", "Does any scene show {}?",
                       "Is there a scene with {}?"))  # fmt: skip
    if not numbers:
        return form.format(words), f"No, the sources do not show {words}.", _NONE
    return form.format(words), f"Yes, in {_list(numbers)}.", numbers


def _exists_in(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    number, scene = _target(rng, scenes)
    wanted = replace(_want(rng, [scene] if scene and rng.random() < 0.5 else scenes), background=None)
    words, place = _phrase(rng, wanted), _in_source(rng, number)
    question = pick(rng, ("Is there {} in {}?", "Are there {} in {}?")).format(words, place)
    if scene is None:
        return question, UNANSWERED, _NONE
    return question, f"Yes [{number}]." if wanted.fits(scene) else f"No [{number}].", [number]


def _how_many(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    number, group, place = _entity(rng, scenes)
    named = _named(rng, group)
    question = f"How many {named}{_plural(group.shape)} are {f'in {place}' if place else 'there'}?"
    if number is None:
        return question, UNANSWERED, _NONE
    verb, noun = ("are", _plural(group.shape)) if group.count > 1 else ("is", group.shape)
    return question, f"There {verb} {_COUNTS[group.count]} {named}{noun} [{number}].", [number]


def _colour(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    number, group, place = _entity(rng, scenes)
    subject, verb = _subject(group)
    question = f"What {pick(rng, ('colour', 'color'))} {verb} {subject}{_after(place)}?"
    return _or_not(question, f"{subject.capitalize()} {verb} {group.colour} [{number}].", number)


def _is_colour(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    number, group, place = _entity(rng, scenes)
    subject, verb = _subject(group)
    asked = group.colour if rng.random() < 0.5 else pick(rng, COLOURS)
    answer = "Yes" if asked == group.colour else "No"
    question = f"{verb.capitalize()} {subject}{_after(place)} {asked}?"
    return _or_not(question, f"{answer}, {subject} {verb} {group.colour} [{number}].", number)


def _size(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    number, group, place = _entity(rng, scenes)
    subject, verb = _subject(group)
    form = pick(rng, ("How large {} {}{}?", "How big {} {}{}?", "What size {} {}{}?"))
    return _or_not(form.format(verb, subject, _after(place)), f"{subject.capitalize()} {verb} {group.size} [{number}].",
                   number)  # fmt: skip


def _pattern(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    number, group, place = _entity(rng, scenes)
    subject, verb = _subject(group)
    question = f"What pattern {'do' if verb == 'are' else 'does'} {subject}{_after(place)} have?"
    return _or_not(question, f"{subject.capitalize()} {verb} {group.texture} [{number}].", number)


def _where(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    number, group, place = _entity(rng, scenes)
    subject, verb = _subject(group)
    question = f"Where {verb} {subject}{_after(place)}?"
    scene = scenes[number - 1] if number else None
    where = position(scene, group) if scene else ""
    return _or_not(question, f"{subject.capitalize()} {verb} {where} [{number}].", number)


def _background(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    number, scene = _target(rng, scenes)
    form = pick(rng, ("What is the background of {}?", "What is behind the objects in {}?",
                       "What background does {} have?"))  # fmt: skip
    question = form.format(_in_source(rng, number))
    return _or_not(question, f"The background is {setting(scene)} [{number}]." if scene else "",
                   number if scene else None)  # fmt: skip


def _describe(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    number, scene = _target(rng, scenes)
    form = pick(rng, ("What does {} show?", "What is in {}?", "Describe {}."))
    question = form.format(_in_source(rng, number))
    if scene is None:
        return question, UNANSWERED, _NONE
    groups = _list_words([phrase(group) for group in scene.groups])
    return question, f"It shows {groups} against {setting(scene)} [{number}].", [number]


def _unrelated(rng: random.Random, _scenes: _Scenes) -> _AnsweredQuestion:
    subject = pick(rng, ("the picture", "the scene", "the star", "source 1", pick(rng, _OTHER_SUBJECTS)))
    numbers = [str(int(rng.random() * 100)) for _ in range(2)]
    return pick(rng, _UNRELATED).format(subject, pick(rng, _CITIES), *numbers), UNANSWERED, _NONE


KINDS: Sequence[tuple[str, Callable[[random.Random, _Scenes], _AnsweredQuestion]]] = (
    *[("which", _which)] * 7,
    *[("exists", _exists)] * 3,
    *[("where", _where)] * 3,
    *[("how many scenes", _how_many_scenes), ("how many", _how_many), ("colour", _colour)] * 2,
    ("exists in", _exists_in), ("is colour", _is_colour), ("size", _size), ("pattern", _pattern),
    ("background", _background), ("describe", _describe), ("unrelated", _unrelated),
)  # fmt: skip
"""Each kind as often as it is asked: a name, and what makes a question, its answer and its citations of scenes."""


def _or_not(question: str, answer: str, number: int | None) -> _AnsweredQuestion:
    return (question, UNANSWERED, _NONE) if number is None else (question, answer, [number])


def _want(rng: random.Random, scenes: _Scenes) -> _WantedGroup:
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
        return _WantedGroup(shape)
    if form < 6:
        return _WantedGroup(shape, colour)
    if form == 6:
        return _WantedGroup(shape, pick(rng, (colour, None)), count=group.count if group else 1)
    if form == 7:
        return _WantedGroup(shape, size=group.size if group else "large")
    if form == 8:
        return _WantedGroup(colour=colour)
    return _WantedGroup(background=background) if form == 9 else _WantedGroup(shape, background=background)


def _phrase(rng: random.Random, wanted: _WantedGroup) -> str:
    """Return the group that is asked for in words."""
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


def _numbers(scenes: _Scenes, wanted: _WantedGroup) -> list[int]:
    return [number for number, scene in enumerate(scenes, 1) if scene and wanted.fits(scene)]


def _target(rng: random.Random, scenes: _Scenes) -> tuple[int, Scene | None]:
    """Return a source's number, now and then one that there is not."""
    if rng.random() < 0.05:
        return len(scenes) + 1 + int(rng.random() * 2), None
    number = int(rng.random() * len(scenes)) + 1
    return number, scenes[number - 1]


def _entity(rng: random.Random, scenes: _Scenes) -> tuple[int | None, ShapeGroup, str]:
    """Return a group, the number of its source, and the source in the question.

    The number is None if nothing says. The question looks for the group in the last.
    """
    number, scene = _target(rng, scenes)
    if scene is None or rng.random() < 0.08:
        other = make_scene(int(rng.random() * 1000)).groups[0]
        there = scene is not None and any(group.shape == other.shape for group in scene.groups)
        return (None, other, _in_source(rng, number)) if not there else _entity(rng, scenes)
    group = pick(rng, scene.groups)
    alone = len(_numbers(scenes, _WantedGroup(group.shape))) == 1
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
    is_single = len(numbers) == 1
    return f"{'Source' if is_single else 'Sources'} {_list(numbers)} {'shows' if is_single else 'show'} {words}."


def _list(numbers: Sequence[int]) -> str:
    return _list_words([f"[{number}]" for number in numbers])


def _list_words(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def pick(rng: random.Random, options: Sequence[_T]) -> _T:
    """Choose one option uniformly."""
    return options[int(rng.random() * len(options))]


OWN = "The picture of the question:"
"""The line before a picture that a question brings along."""
_SYNONYMS = 0.12
"""The share of everyday questions that use another word for a shape or a colour."""
_DIGITS = {1: "one", 2: "two", 3: "three", 4: "four"}
_Hits = Sequence[tuple[int, Scene, ShapeGroup]]
"""Groups with the numbers of their sources."""


@dataclass(frozen=True)
class _Thing:
    """A thing that an everyday question asks about: its words, and the groups that fit them."""

    singular: str
    plural: str
    hits: _Hits

    def subject(self, rng: random.Random) -> tuple[str, str]:
        """Return "the star" and "is", or the plural; mostly as it is shown."""
        is_plural = self.hits[0][2].count > 1 if self.hits else rng.random() < 0.5
        if rng.random() < 0.15:
            is_plural = not is_plural
        return (f"the {self.plural}", "are") if is_plural else (f"the {self.singular}", "is")

    def indefinite(self, rng: random.Random) -> str:
        """Return "a star" or "stars"."""
        article = "an" if self.singular[0] in "aeiou" else "a"
        return f"{article} {self.singular}" if rng.random() < 0.6 else self.plural


def _thing(rng: random.Random, scenes: _Scenes) -> _Thing:
    """Draw a thing: mostly one that a source shows, else a shape that may be there, else something never drawn."""
    known = [scene for scene in scenes if scene]
    chance = rng.random()
    if chance < 0.1 or not known:
        singular, plural = pick(rng, _EVERYDAY_SUBJECTS) if rng.random() < 0.4 else _invented(rng)
        return _Thing(singular, plural, ())
    group = pick(rng, pick(rng, known).groups)
    shape, colour = group.shape, group.colour if rng.random() < 0.5 else None
    if chance < 0.16:
        shape = pick(rng, SHAPES)
    elif chance < 0.24:
        shape, colour = pick(rng, (group.shape, pick(rng, SHAPES))), pick(rng, COLOURS)
    wanted = _WantedGroup(shape, colour)
    hits = [
        (number, scene, group)
        for number, scene in enumerate(scenes, 1)
        if scene
        for group in scene.groups
        if wanted.group_fits(group)
    ]
    words = pick(rng, SHAPE_WORDS[shape]) if rng.random() < _SYNONYMS else SHAPE_WORDS[shape][0]
    if colour and rng.random() < _SYNONYMS:
        colour = pick(rng, COLOUR_WORDS.get(colour, (colour,)))
    singular, plural = (f"{colour} {word}" if colour else word for word in words)
    return _Thing(singular, plural, hits)


_EVERYDAY_SUBJECTS = (
    ("dog", "dogs"), ("cat", "cats"), ("house", "houses"), ("tree", "trees"), ("person", "people"), ("car", "cars"),
    ("horse", "horses"), ("bicycle", "bicycles"), ("bird", "birds"), ("boat", "boats"), ("bridge", "bridges"),
    ("train", "trains"), ("snowman", "snowmen"), ("cup", "cups"), ("child", "children"), ("letter", "letters"),
    ("pentagon", "pentagons"), ("spiral", "spirals"), ("cube", "cubes"), ("elephant", "elephants"),
    ("black dog", "black dogs"), ("red car", "red cars"), ("mountain", "mountains"), ("face", "faces"),
    ("pyramid", "pyramids"), ("chair", "chairs"), ("fish", "fish"), ("apple", "apples"), ("plane", "planes"),
)  # fmt: skip


_BEGINS = ("b", "br", "c", "ch", "d", "dr", "f", "g", "h", "j", "k", "kl", "l", "m", "n", "p", "pl", "qu", "r", "s",
           "sh", "st", "t", "tr", "u", "v", "w", "z")  # fmt: skip
_MIDDLES = ("a", "e", "i", "o", "u", "ai", "ea", "ee", "oo", "ou")
_ENDINGS = ("", "n", "r", "l", "m", "t", "ck", "d", "p", "ng", "rn", "ll", "st", "x", "w")


def _invented(rng: random.Random) -> tuple[str, str]:
    """Return a word that no list has, so that a model learns to repeat any word."""
    word = "".join(
        pick(rng, _BEGINS) + pick(rng, _MIDDLES) + pick(rng, _ENDINGS) for _ in range(1 + int(rng.random() * 3))
    )
    if rng.random() < 0.3:
        word = f"{pick(rng, COLOURS)} {word}"
    return word, f"{word}s"


def _answered(begin: str, parts: Sequence[str], hits: _Hits) -> tuple[str, Sequence[int]]:
    """Return an answer that cites a source after each part, and the citations."""
    numbers = [number for number, *_ in hits]
    return f"{begin} {_list_words([f'{part} [{n}]' for part, n in zip(parts, numbers)])}.", numbers


def _everyday_count(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    thing = _thing(rng, scenes)
    form = pick(rng, ("How many {}?", "How many {}?", "How many {} are there?", "How many {} are there?",
                       "How many {} do you see?", "How many {} are shown?", "Count the {}.",
                       "Number of {}?"))  # fmt: skip
    question = form.format(thing.plural)
    if not thing.hits:
        return question, UNANSWERED, _NONE
    colour = _colour_in(thing)
    parts = [
        f"{_DIGITS[group.count]} {colour}{group.shape if group.count == 1 else _plural(group.shape)}"
        for _, _, group in thing.hits
    ]
    begin = "There is" if thing.hits[0][2].count == 1 else "There are"
    return question, *_answered(begin, parts, thing.hits)


def _colour_in(thing: _Thing) -> str:
    """Return the colour that a question names, with a space after it; "" for none.

    It is in canonical words.
    """
    shape = thing.hits[0][2].shape
    is_named = not any(thing.singular == singular for singular, _ in SHAPE_WORDS[shape])
    return f"{thing.hits[0][2].colour} " if is_named else ""


def _the(thing: _Thing) -> str:
    """Return the subject of an answer in canonical words: "The green stars are"."""
    group = thing.hits[0][2]
    subject, verb = _subject(group)
    return f"The {_colour_in(thing)}{subject.removeprefix('the ')} {verb}"


def _everyday_colour(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    thing = _thing(rng, scenes)
    while _is_coloured(thing):
        thing = _thing(rng, scenes)
    subject, verb = thing.subject(rng)
    word = pick(rng, ("colour", "colour", "color"))
    form = pick(rng, ("What {2} {1} {0}?", "What {2} {1} {0}?", "Which {2} {1} {0}?", "Which {2} do {0} have?",
                       "{2} of {0}?", "What is the {2} of {0}?"))  # fmt: skip
    question = _capital(form.format(subject, verb, word))
    if verb == "is":
        question = question.replace(" do ", " does ")
    if not thing.hits:
        return question, UNANSWERED, _NONE
    return question, *_answered(_the(thing), [group.colour for *_, group in thing.hits], thing.hits)


def _is_coloured(thing: _Thing) -> bool:
    words = thing.singular.split()
    return words[0] in COLOURS or any(words[0] in names for names in COLOUR_WORDS.values())


def _everyday_where(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    thing = _thing(rng, scenes)
    subject, verb = thing.subject(rng)
    short = "Where's {0}?" if verb == "is" else "Where are {0}?"
    form = pick(rng, ("Where {1} {0}?", "Where {1} {0}?", "Where {1} {0}?", short, "In which part {1} {0}?"))
    question = form.format(subject, verb)
    if not thing.hits:
        return question, UNANSWERED, _NONE
    return question, *_answered(_the(thing), [position(scene, group) for _, scene, group in thing.hits], thing.hits)


def _everyday_size(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    thing = _thing(rng, scenes)
    subject, verb = thing.subject(rng)
    question = pick(rng, ("How big {1} {0}?", "How large {1} {0}?", "What size {1} {0}?")).format(subject, verb)
    if not thing.hits:
        return question, UNANSWERED, _NONE
    return question, *_answered(_the(thing), [group.size for *_, group in thing.hits], thing.hits)


def _everyday_pattern(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    thing = _thing(rng, scenes)
    subject, verb = thing.subject(rng)
    does = "does" if verb == "is" else "do"
    question = pick(rng, ("What pattern {2} {0} have?", "Which pattern {1} on {0}?", "Pattern of {0}?")).format(
        subject, "is", does
    )
    if not thing.hits:
        return question, UNANSWERED, _NONE
    return question, *_answered(_the(thing), [group.texture for *_, group in thing.hits], thing.hits)


def _everyday_is(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    thing = _thing(rng, scenes)
    while not thing.hits or _colour_in(thing):
        thing = _thing(rng, [*scenes, make_scene(int(rng.random() * 1000))])
    subject, verb = thing.subject(rng)
    name, words = pick(rng, (("colour", COLOURS), ("texture", TEXTURES), ("size", ("small", "large"))))
    hits = [hit for hit in thing.hits if hit[0] <= len(scenes)]
    given = [str(getattr(group, name)) for *_, group in hits]
    asked = given[0] if given and rng.random() < 0.5 else pick(rng, words)
    question = f"{verb.capitalize()} {subject} {asked}?"
    if not hits:
        return question, UNANSWERED, _NONE
    begin = _the(replace(thing, hits=hits))
    if len(hits) == 1:
        begin = f"{'Yes' if asked == given[0] else 'No'}, {begin[0].lower()}{begin[1:]}"
    return question, *_answered(begin, given, hits)


def _everyday_behind(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    thing = _thing(rng, scenes)
    subject, _ = thing.subject(rng)
    question = pick(rng, ("What is behind {}?", "What's behind {}?", "What is the background of {}?")).format(subject)
    if not thing.hits:
        return question, UNANSWERED, _NONE
    return question, *_answered("The background is", [setting(scene) for _, scene, _ in thing.hits], thing.hits)


def _everyday_exists(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    thing = _thing(rng, scenes)
    words = thing.indefinite(rng)
    form = pick(rng, ("Is there {}?", "Is there {}?", "Are there {}?", "Do you see {}?", "Can you see {}?",
                       "Do the pictures show {}?", "Does a picture show {}?", "Any picture with {}?"))  # fmt: skip
    if words == thing.plural and rng.random() < 0.3:
        form = pick(rng, ("Are there any {}?", "Any {}?", "Do you see any {}?"))
    if not thing.hits:
        return form.format(words), f"No, the sources do not show {words}.", _NONE
    numbers = [number for number, *_ in thing.hits]
    return form.format(words), f"Yes, in {_list(numbers)}.", numbers


def _everyday_which(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    thing = _thing(rng, scenes)
    words = thing.indefinite(rng)
    form = pick(rng, ("Which one shows {}?", "Which picture shows {}?", "Which picture has {}?", "Find {}.",
                       "Show me {}.", "In which picture is {}?", "Which image has {}?", "{}"))  # fmt: skip
    question = _capital(form.format(words))
    if not thing.hits:
        return question, f"The sources do not show {words}.", _NONE
    numbers = [number for number, *_ in thing.hits]
    return question, _shown(numbers, words), numbers


def _everyday_describe(rng: random.Random, scenes: _Scenes) -> _AnsweredQuestion:
    number, scene = int(rng.random() * len(scenes)) + 1, None
    scene = scenes[number - 1]
    if len(scenes) == 1:
        question = pick(rng, ("What do you see?", "What is in the picture?", "What does the picture show?",
                               "Describe the picture.", "What is this?"))  # fmt: skip
    else:
        question = pick(rng, ("Describe picture {}.", "What is in picture {}?", "What does picture {} show?")).format(
            number
        )
    if scene is None:
        return question, UNANSWERED, _NONE
    return question, f"{describe(scene)} [{number}].", [number]


def describe(scene: Scene) -> str:
    """Return what a scene shows, without a full stop."""
    groups = _list_words([phrase(group) for group in scene.groups])
    return f"It shows {groups} against {setting(scene)}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


EVERYDAY_KINDS: Sequence[tuple[str, Callable[[random.Random, _Scenes], _AnsweredQuestion]]] = (
    *[("everyday count", _everyday_count), ("everyday where", _everyday_where)] * 4,
    *[("everyday colour", _everyday_colour), ("everyday exists", _everyday_exists)] * 3,
    *[("everyday which", _everyday_which)] * 2,
    ("everyday size", _everyday_size), ("everyday pattern", _everyday_pattern), ("everyday behind", _everyday_behind),
    ("everyday describe", _everyday_describe), ("everyday is", _everyday_is), ("unrelated", _unrelated),
)  # fmt: skip
"""Questions as people type them; each kind as often as it is asked."""


def _ask_own(rng: random.Random, own: Scene) -> _AnsweredQuestion:
    """Ask about the picture that a question brings along; the answer cites nothing."""
    form = int(rng.random() * 4)
    if form == 0:
        return pick(rng, ("What is this?", "What is in the picture of the question?",
                          "What does the picture of the question show?")), f"{describe(own)}.", _NONE  # fmt: skip
    thing = _thing(rng, [own])
    place = "in the picture of the question"
    subject, verb = thing.subject(rng)
    question = (
        f"How many {thing.plural} are {place}?",
        f"What colour {verb} {subject} {place}?",
        f"Where {verb} {subject} {place}?",
    )[form - 1]
    if not thing.hits:
        return question, "The picture of the question does not show that.", _NONE
    group = thing.hits[0][2]
    if form == 1:
        noun = group.shape if group.count == 1 else _plural(group.shape)
        there = "There is" if group.count == 1 else "There are"
        return question, f"{there} {_DIGITS[group.count]} {_colour_in(thing)}{noun}.", _NONE
    return question, f"{_the(thing)} {group.colour if form == 2 else position(own, group)}.", _NONE


def _casual(rng: random.Random, question: str) -> str:
    """Write a question as people do: half of them in lower case, without the mark at the end, or both."""
    chance = rng.random()
    if chance < 0.35:
        question = question.lower()
    if 0.2 < chance < 0.5:
        question = question.rstrip("?.")
    return question


@dataclass(frozen=True)
class Question:
    """A question about numbered sources and its answer; ``citations`` are the numbers in the answer, ascending.

    ``pictures`` has the scene of each source that is shown as a picture, and None for the others. ``own`` is the scene
    of the picture that the question brings along.
    """

    kind: str
    sources: tuple[str, ...]
    question: str
    answer: str
    citations: tuple[int, ...]
    pictures: tuple[Scene | None, ...] = ()
    own: Scene | None = None

    def parts(self) -> list[str | Scene]:
        """Return the prompt that `Pipeline.ask` makes; scenes stand for their pictures."""
        before, after = TEMPLATE.template.split("$sources")
        parts: list[str | Scene] = [before]
        pictures = self.pictures or (None,) * len(self.sources)
        for number, (source, scene) in enumerate(zip(self.sources, pictures), 1):
            parts += [f"[{number}] {source}\n", *([scene, "\n"] if scene else [])]
        if self.own:
            parts += [f"{OWN}\n", self.own, "\n"]
        parts.append(after.removeprefix("\n").replace("$question", self.question))
        joined: list[str | Scene] = []
        for part in parts:
            last = joined[-1] if joined else None
            if isinstance(part, str) and isinstance(last, str):
                joined[-1] = last + part
            else:
                joined.append(part)
        return joined


@dataclass(frozen=True)
class Mixture:
    """The sources of `Gallery.ask_pictures`.

    Attributes:
        pictures: Number of pictures, that of the question among them.
        max_sources: The most sources.
        captioned: Share of the pictures that come with a caption.
        own: Share of the questions that bring a picture along.
        everyday: Share of the questions that are asked as people type them.
        kinds: Kinds to ask; None for all.
    """

    pictures: int
    max_sources: int = 5
    captioned: float = 0.25
    own: float = 0.08
    everyday: float = 0.6
    kinds: Sequence[tuple[str, Callable[[random.Random, _Scenes], _AnsweredQuestion]]] | None = None


class Gallery:
    """Scenes to ask about, by their seeds."""

    def __init__(self, seeds: range) -> None:
        self._scenes = [make_scene(seed) for seed in seeds]
        self._by: dict[str, list[int]] = {}
        for index, scene in enumerate(self._scenes):
            for key in {scene.background, *(g.shape for g in scene.groups), *(g.colour for g in scene.groups)}:
                self._by.setdefault(key, []).append(index)

    def ask(self, seed: int) -> Question:
        """Return the question that belongs to ``seed``."""
        rng = random.Random(seed)
        first = pick(rng, self._scenes)
        keys = [first.background, first.groups[0].shape, first.groups[0].colour]
        scenes: list[Scene | None] = [first]
        share, images = pick(rng, (0.0, 0.4, 0.8)), pick(rng, (0.0, 0.0, 0.2, 0.5))
        for _ in range(int(rng.random() * _MAX_SOURCES)):
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

    def ask_pictures(self, seed: int, mixture: Mixture, count: int = 1) -> list[Question]:
        """Return ``count`` questions about the same sources; some of these are pictures.

        Args:
            seed: Number to which the sources and the questions belong.
            mixture: The kinds of sources.
            count: Number of questions, above 0.
        """
        rng = random.Random(seed)
        shown = mixture.pictures
        own = pick(rng, self._scenes) if shown and rng.random() < mixture.own else None
        shown -= own is not None
        others = int(rng.random() * (mixture.max_sources + 1 - shown)) if rng.random() < 0.5 or not shown else 0
        total = max(1, shown + others)
        first = pick(rng, self._scenes)
        keys = [first.background, first.groups[0].shape, first.groups[0].colour, first.groups[-1].shape]
        share, hidden = pick(rng, (0.0, 0.4, 0.8)), pick(rng, (0.0, 0.0, 0.3))
        known: list[Scene] = [first]
        while len(known) < total:
            alike = self._by[pick(rng, keys)] if rng.random() < share else None
            known.append(self._scenes[pick(rng, alike)] if alike else pick(rng, self._scenes))
        places = sorted(range(total), key=lambda _: rng.random())[:shown]
        scenes: list[Scene | None] = []
        for index in sorted(range(total), key=lambda _: rng.random()):
            is_hidden = len(scenes) not in places and rng.random() < hidden
            scenes.append(None if is_hidden else known[index])
        pictures = tuple(scene if index in places else None for index, scene in enumerate(scenes))
        sources = tuple(
            _source(rng, None if picture and rng.random() >= mixture.captioned else scene)
            for scene, picture in zip(scenes, pictures)
        )
        questions = []
        for _ in range(count):
            if own and rng.random() < 0.6:
                kind, (question, answer, citations) = "own", _ask_own(rng, own)
            else:
                kinds = mixture.kinds or (EVERYDAY_KINDS if rng.random() < mixture.everyday else KINDS)
                kind, make = pick(rng, kinds)
                question, answer, citations = make(rng, scenes)
            question = _casual(rng, question)
            questions.append(Question(kind, sources, question, answer, tuple(citations), pictures, own))
        return questions


def _source(rng: random.Random, scene: Scene | None) -> str:
    if scene is None:
        number = int(rng.random() * 10_000)
        name = pick(rng, (f"scene-{number:04}", f"scene-{number:04}", f"scene-{number:04}", f"image{number}",
                           f"IMG_{number}", f"photo-{number}"))  # fmt: skip
        return f"the image {name}.{pick(rng, ('png', 'png', 'jpg'))}"
    if rng.random() < 0.75:
        return scene.caption()
    return scene.captions(1, int(rng.random() * 1000), style="full")[0]
