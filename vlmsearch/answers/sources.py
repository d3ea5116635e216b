"""Matches and pictures as a generator reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmsearch._util.text import sanitise
from vlmsearch.errors import InvalidInputError
from vlmsearch.generators.base import Generator, Picture, PictureOptions, SeesPictures
from vlmsearch.media.limits import ImageLimits
from vlmsearch.types import ImageInput, Match, Reading, RemoteImage, local_image

SOURCE_CHARS = 1000
"""Characters of a source's text in a prompt."""


@dataclass(frozen=True, eq=False)
class Source:
    """A match as a generator reads it.

    Attributes:
        match: The match.
        line: Its number with its text, or with the name of its picture, in one line.
        picture: Its picture; None where it has none that can be read, or that the generator is shown.
    """

    match: Match
    line: str
    picture: Picture | None = None

    @property
    def read_as(self) -> Reading:
        """Return how a generator reads it."""
        if self.match.document.text:
            return "both" if self.picture else "text"
        return "picture" if self.picture else "neither"


def make_source(number: int, match: Match, picture: Picture | None = None) -> Source:
    """Return a match as the source with a number, which cannot break out of its line: see `vlmsearch._util.text`."""
    text, image = match.document.text, match.document.image
    name = f"the image {image.name if isinstance(image, Path) else match.document.id}"
    return Source(match, f"[{number}] {sanitise(text[:SOURCE_CHARS] if text else name)}", picture)


def make_sources(
    matches: Sequence[Match],
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
        sources.append(make_source(number, match, picture))
    return tuple(sources), of_question
