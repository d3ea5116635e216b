"""From sources to a prompt that fits what a model reads."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from string import Template

from vlmsearch._util.text import sanitise
from vlmsearch.answers.sources import Place, Source
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.generators.base import (
    PROMPT_CHARS,
    CountsTokens,
    GenerationOptions,
    Generator,
    Picture,
    PictureOptions,
    SeesPictures,
)

TEMPLATE = Template(
    "Answer the question from the numbered sources. Cite each source that you use by its number in brackets, "
    "such as [1]. If the sources do not answer the question, say so.\n\n"
    "Sources:\n$sources\n\nQuestion: $question\nAnswer:"
)
"""The prompt of `Pipeline.ask`. ``$sources`` and ``$question`` are filled in, each source on a line of its own."""
_MARK = "\0"
"""The place of the sources in a text: a character that neither sources nor questions have."""
_PLACES = frozenset({"sources", "question"})
_MIN_SIDE = 64
"""Longer side below which pictures are not scaled down."""
_STEP = 0.9
"""Factor by which pictures are scaled down until they share the tokens."""


def parse_template(text: str) -> Template:
    """Return a template of one's own.

    ConfigError unless it has ``$sources`` and ``$question`` once and no other place. The form is that of
    `string.Template`: ``$$`` is a dollar sign.
    """
    template = Template(text)
    counts = _places_of(template)
    if None in counts:
        raise ConfigError("a template has a $ that begins no place; write $$ for a dollar sign")
    if counts.keys() != _PLACES:
        names = ", ".join(sorted(f"${name}" for name in counts)) or "none"
        raise ConfigError(f"a template has the places $sources and $question and no other; this one has {names}")
    for name, count in counts.items():
        if count > 1:
            raise ConfigError(f"a template has each place once; this one has ${name} {count:,} times")
    return template


def _places_of(template: Template) -> Counter[str | None]:
    """Return how often a template has each place; None stands for a $ that begins none."""
    places = (match for match in template.pattern.finditer(template.template) if match["escaped"] is None)
    return Counter(match["named"] or match["braced"] for match in places)


def default_options(generator: Generator) -> GenerationOptions:
    """Return the options of `Pipeline.ask` where none are given.

    Answers of a quarter of the model's context at most.
    """
    options = GenerationOptions()
    if not isinstance(generator, CountsTokens):
        return options
    return GenerationOptions(max_tokens=max(1, min(options.max_tokens, generator.context // 4)))


@dataclass(frozen=True, eq=False)
class Prompt:
    """A question with its sources, as a generator reads them.

    Neither a source nor the question can break out of its place: see `vlmsearch._util.text`.

    Attributes:
        question: The question.
        given: All sources that may be read, best first.
        places: Passages of them that may be read, in the order in which they are taken.
        template: Text with places for the sources and the question.
        picture: Picture that the question brings.
        picture_tokens: Tokens that all pictures share.
        is_unsure: Whether the sources are only what comes closest to the question.
        count: Number of the passages that are read, the first ones; None for all.
        side: Longer side of a picture, in pixels, to which larger ones are scaled down.
        tokens: Number of tokens of the prompt; None where it is unknown.
    """

    question: str
    given: tuple[Source, ...] = ()
    places: tuple[Place, ...] = ()
    template: Template = TEMPLATE
    picture: Picture | None = None
    picture_tokens: int = PictureOptions.tokens
    is_unsure: bool = False
    count: int | None = None
    side: float = math.inf
    tokens: int | None = None

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """Return the sources that are read, best first: those with a passage that is taken."""
        read: dict[int, list[int]] = {}
        for source, passage in self.places[: self.count]:
            read.setdefault(source, []).append(passage)
        return tuple(replace(self.given[number], read=tuple(places)) for number, places in read.items())

    @property
    def dropped(self) -> tuple[Source, ...]:
        """Return the weaker sources that do not fit."""
        return self.given[len(self.sources) :]

    @cached_property
    def _layout(self) -> tuple[str | Picture, ...]:
        """Return texts and pictures as given, in the order in which a model reads them."""
        text = self.template.substitute(sources=_MARK, question=sanitise(self.question))
        text, place, after = text.partition(_MARK)
        lines = [(source.line, source.picture) for source in self.sources]
        if self.picture:
            lines.append(("The picture of the question:", self.picture))
        parts: list[str | Picture] = []
        for number, (line, picture) in enumerate(lines if place else ()):
            text += f"\n{line}" if number else line
            if picture:
                parts += [f"{text}\n", picture]
                text = ""
        return tuple(part for part in [*parts, text + after] if part)

    @property
    def text(self) -> str:
        """Return the texts, which are all that a generator reads that sees no pictures."""
        return "".join(part for part in self._layout if isinstance(part, str))

    @property
    def pictures(self) -> list[Picture]:
        """Return the pictures, as they are given."""
        return [part for part in self._layout if isinstance(part, Picture)]

    @property
    def parts(self) -> list[str | Picture]:
        """Return texts and pictures, scaled down, in the order in which a model reads them."""
        return [_scaled(part, self.side) if isinstance(part, Picture) else part for part in self._layout]

    def with_pictures(self, count: int) -> Prompt:
        """Return a prompt with all sources and as many pictures: that of the question, then those of the best."""
        numbers = iter(range(count))

        def shown(picture: Picture | None) -> Picture | None:
            return None if picture is None or next(numbers, None) is None else picture

        of_question = shown(self.picture)
        given = tuple(replace(source, picture=shown(source.picture)) for source in self.given)
        return replace(self, picture=of_question, given=given, count=None)

    def tokens_of(self, generator: CountsTokens) -> int:
        """Return how many tokens it has for a generator."""
        return generator.count_tokens(self.text) + _picture_tokens(self.pictures, generator, self.side)


def fit_prompt(prompt: Prompt, generator: Generator, options: GenerationOptions) -> Prompt:
    """Return a prompt with as many passages, best first, as fit into the model's context.

    Room is left for the answer. A generator that does not count tokens gets all that `PROMPT_CHARS` hold. Pictures are
    scaled down until they fit; of the context they get what texts leave, at least half. Raises InvalidInputError
    (``too_long``) where not even the best passage fits.
    """
    prompt = _fitted(prompt, lambda fewer: len(fewer.text), PROMPT_CHARS)
    if not isinstance(generator, CountsTokens):
        return replace(prompt, side=_shared_side(prompt.pictures, generator, prompt.picture_tokens))
    room = generator.context - options.max_tokens
    if prompt.pictures:
        for_pictures = min(prompt.picture_tokens, max(room - generator.count_tokens(prompt.text), room // 2))
        prompt = replace(prompt, side=_shared_side(prompt.pictures, generator, for_pictures))
    fitted = _fitted(prompt, lambda fewer: fewer.tokens_of(generator), room)
    if prompt.sources and not fitted.sources:
        raise InvalidInputError(
            "too_long",
            f"the question and one source are {replace(prompt, count=1).tokens_of(generator)} tokens; {generator.name} "
            f"reads {generator.context}, of which {options.max_tokens} are kept for the answer: ask shorter, lower "
            "`max_tokens` or take another model",
        )
    return replace(fitted, tokens=fitted.tokens_of(generator))


def _fitted(prompt: Prompt, size: Callable[[Prompt], int], room: int) -> Prompt:
    """Return the prompt with as many passages as fit."""
    if size(prompt) <= room or not prompt.places:
        return prompt
    counts = range(1, len(prompt.places[: prompt.count]))
    return replace(prompt, count=bisect_right(counts, room, key=lambda count: size(replace(prompt, count=count))))


def _shared_side(pictures: list[Picture], generator: object, tokens: int) -> float:
    """Return the longer side at which pictures take ``tokens`` together, or as few as they can."""
    side: float = max((max(picture.image.size) for picture in pictures), default=0)
    enough = max(tokens, _picture_tokens(pictures, generator, _MIN_SIDE))
    while side > _MIN_SIDE and _picture_tokens(pictures, generator, side) > enough:
        side = max(int(side * _STEP), _MIN_SIDE)
    return side


def _picture_tokens(pictures: list[Picture], generator: object, side: float) -> int:
    if not isinstance(generator, SeesPictures):
        return 0
    return sum(generator.picture_tokens(*_size(picture, side)) for picture in pictures)


def _size(picture: Picture, side: float) -> tuple[int, int]:
    width, height = picture.image.size
    scale = min(side / max(width, height), 1.0)
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _scaled(picture: Picture, side: float) -> Picture:
    size = _size(picture, side)
    return picture if size == picture.image.size else Picture(picture.image.resize(size))
