"""Matches and pictures as a generator reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

from vlmsearch._util.text import sanitise
from vlmsearch.errors import InvalidInputError
from vlmsearch.generators.base import Generator, Picture, PictureOptions, SeesPictures
from vlmsearch.media.limits import ImageLimits
from vlmsearch.types import (
    PASSAGE,
    Citation,
    ImageInput,
    Match,
    Passage,
    Reading,
    ReadText,
    RemoteImage,
    local_image,
    part_of,
)

_GAP = " […] "
"""Mark in a source where a part of its text is left out."""
_PIECE = re.compile(
    r".{400,999}(?:[.!?](?=\s)|[。！？]|(?=\n))|.{400,1000}(?=\s)|.{1,1000}",  # noqa: RUF001 - ends of sentences
    re.DOTALL,
)
"""A piece of a text without passages, up to the end of a sentence or word."""
_MAX_PIECE = 1000
"""Maximum length of a piece, in characters."""


@dataclass(frozen=True, eq=False)
class Source:
    """A match as a generator reads it.

    Attributes:
        number: Its number, from 1.
        match: The match.
        passages: All of its text: its passages, or pieces of a text that has none. Without a text it is its name.
        has_passages: Whether they are passages of its document.
        picture: Its picture; None where it has none that can be read, or that the generator is shown.
        read: Numbers of the passages that are read, best first.
    """

    number: int
    match: Match
    passages: Sequence[Passage]
    has_passages: bool = False
    picture: Picture | None = None
    read: tuple[int, ...] = ()

    @property
    def read_as(self) -> Reading:
        """Return how a generator reads it."""
        if self.match.document.text:
            return "both" if self.picture else "text"
        return "picture" if self.picture else "neither"

    @property
    def read_text(self) -> ReadText:
        """Return which part of its text is read."""
        unread = len(self.match.document.text or "") - sum(_length(self.passages[number - 1]) for number in self.read)
        if not self.has_passages:
            return ReadText(unread=unread)
        return ReadText(tuple(sorted(self.read)), len(self.passages), unread)

    @property
    def citation(self) -> Citation:
        """Return what cites it, with the best passage."""
        id = self.match.document.id
        return Citation(self.number, id, f"{id}{PASSAGE}{self.read[0]}" if self.has_passages else None)

    @cached_property
    def runs(self) -> list[str]:
        """Return the texts that are read, split where something is left out."""
        runs: list[str] = []
        for passage in (self.passages[number - 1] for number in sorted(self.read)):
            if passage.number - 1 in self.read:
                runs[-1] += passage.text
            else:
                is_headed = passage.text.lstrip().startswith(passage.heading)
                runs.append(passage.text if is_headed else f"{passage.heading}: {passage.text}")
        return runs

    @property
    def line(self) -> str:
        """Return its number and what is read, in one line that nothing can break out of."""
        return f"[{self.number}] {_GAP.join(map(sanitise, self.runs))}"

    def relevances(self) -> dict[int, float]:
        """Return the scores of the best passage and of those with half of it, by number."""
        if not (self.has_passages and self.match.passage):
            return {1: math.inf}
        parts = {part_of(id): score for id, score in self.match.parts.items() if score >= self.match.score / 2}
        id = self.match.document.id  # other parts are those of other pages
        numbers = {part.passage: score for part, score in parts.items() if part and part.passage and part.of == id}
        return {**numbers, self.match.passage.number: math.inf}


Place: TypeAlias = "tuple[int, int]"
"""A passage of a source: the place of the source, from 0, and the number of the passage."""


def reading_order(sources: Sequence[Source], chars: int) -> tuple[Place, ...]:
    """Return the passages of sources that are read, the first ones to be read first.

    The best passage of every source is first. Then come those that the search found with half of its score or more,
    by their scores, and then neighbours, the nearest first. They end before they have more characters than ``chars``.
    One is always read.
    """
    ranked = []
    for place, source in enumerate(sources):
        relevances = source.relevances()
        for passage in source.passages:
            distance = min(abs(passage.number - number) for number in relevances)
            ranked.append((distance, -relevances.get(passage.number, 0.0), (place, passage.number)))
    order = [place for *_, place in sorted(ranked)]
    lengths = accumulate(_length(sources[source].passages[number - 1]) for source, number in order)
    return tuple(order[: max(sum(length <= chars for length in lengths), 1)])


def _length(passage: Passage) -> int:
    """Return how many characters of a text a passage has; a name has none."""
    return passage.end - passage.start


def make_source(
    number: int, match: Match, picture: Picture | None = None, *, passages: Sequence[Passage] = (), chars: int = 0
) -> Source:
    """Return a match as the source with a number.

    Args:
        number: The number, from 1.
        match: The match.
        picture: Its picture.
        passages: All passages of its document. Those of another version of the text do not count.
        chars: How many characters of a text without passages may be read.
    """
    text, image = match.document.text, match.document.image
    if not text:
        name = f"the image {image.name if isinstance(image, Path) else match.document.id}"
        return Source(number, match, [Passage(1, 0, 0, "", name)], picture=picture)
    if passages and "".join(passage.text for passage in passages) == text:
        return Source(number, match, passages, has_passages=True, picture=picture)
    pieces = enumerate(_PIECE.finditer(text[: chars + _MAX_PIECE]), 1)
    cut = [Passage(number, piece.start(), piece.end(), "", piece[0]) for number, piece in pieces]
    return Source(number, match, cut, picture=picture)


def make_sources(
    matches: Sequence[Match],
    passages: Mapping[str, Sequence[Passage]],
    chars: int,
    asked: ImageInput | RemoteImage | None,
    generator: Generator,
    options: PictureOptions,
    limits: ImageLimits,
) -> tuple[tuple[Source, ...], Picture | None]:
    """Return the matches as sources, numbered from 1, and the picture of the question.

    A generator that sees is shown as many pictures as it takes: that of the question, then those of the best matches.
    They are upright, in RGB and no larger than it sees. A picture that is gone, or cannot be read, is left out.
    """
    from vlmsearch.media.images import shrunk_image

    side = left = 0
    if isinstance(generator, SeesPictures):
        side, left = min(options.side, generator.max_side), min(options.limit, generator.max_pictures)
    of_question = None
    if asked is not None and left:
        of_question = Picture(shrunk_image(local_image(asked), edge=side, limits=limits))
        left -= 1
    sources = []
    for number, match in enumerate(matches, 1):
        picture, image = None, match.document.image
        if left and isinstance(image, Path):
            try:
                picture = Picture(shrunk_image(image, edge=side, limits=limits))
                left -= 1
            except InvalidInputError:
                pass  # it is read by its text or its name
        known = passages.get(match.document.id, ())
        sources.append(make_source(number, match, picture, passages=known, chars=chars))
    return tuple(sources), of_question
