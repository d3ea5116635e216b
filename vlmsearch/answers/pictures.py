"""The pictures of a question and of its sources, and how they share what a model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vlmsearch.errors import InvalidInputError
from vlmsearch.generators.base import Picture, PictureOptions, SeesPictures
from vlmsearch.types import ImageInput, Match, RemoteImage, local_image

if TYPE_CHECKING:
    import PIL.Image

    from vlmsearch.media.limits import ImageLimits

_SMALLEST = 64
"""The longer side below which pictures are not scaled down."""
_STEP = 0.9
"""The factor by which pictures are scaled down until they share the tokens."""


@dataclass(frozen=True)
class PromptPictures:
    """The pictures of a prompt.

    Attributes:
        of_sources: Pictures by the places of their matches, from 0.
        of_question: The picture that the question brings.
    """

    of_sources: Mapping[int, PIL.Image.Image] = field(default_factory=dict)
    of_question: PIL.Image.Image | None = None

    def __len__(self) -> int:
        return len(self.of_sources) + (self.of_question is not None)

    @property
    def images(self) -> list[PIL.Image.Image]:
        """Return all of them."""
        return [*([] if self.of_question is None else [self.of_question]), *self.of_sources.values()]

    def first(self, count: int) -> PromptPictures:
        """Return ``count`` of them: that of the question, then those of the best matches."""
        of_question = self.of_question if count else None
        left = count - (of_question is not None)
        return PromptPictures(dict(sorted(self.of_sources.items())[:left]), of_question)

    def scaled(self, generator: SeesPictures, tokens: int) -> PromptPictures:
        """Return them so small that they take at most ``tokens`` together, if there is a size at which they do."""
        images = self.images
        side = max((max(image.size) for image in images), default=0)

        def cost(side: float) -> int:
            return sum(generator.picture_tokens(*_within(image, int(side))) for image in images)

        smallest = cost(_SMALLEST)
        while side > _SMALLEST and cost(side) > max(tokens, smallest):
            side = max(int(side * _STEP), _SMALLEST)
        return PromptPictures(
            {place: _resized(image, side) for place, image in self.of_sources.items()},
            None if self.of_question is None else _resized(self.of_question, side),
        )

    def of_first(self, sources: int) -> PromptPictures:
        """Return those of the first sources, with that of the question."""
        return replace(self, of_sources={at: image for at, image in self.of_sources.items() if at < sources})

    def tokens(self, generator: SeesPictures) -> int:
        """Return how many tokens they take."""
        return sum(generator.picture_tokens(*image.size) for image in self.images)


def load_pictures(
    generator: SeesPictures,
    matches: Sequence[Match],
    asked: ImageInput | RemoteImage | None,
    options: PictureOptions,
    limits: ImageLimits,
) -> PromptPictures:
    """Return the pictures that a generator is shown, each upright, in RGB and no larger than it sees.

    A match whose picture is gone, or cannot be read, has none.
    """
    from vlmsearch.media.images import shrunk_image

    side = min(options.side, generator.max_side)
    left = min(options.limit, generator.max_pictures)
    of_question = None
    if asked is not None and left:
        of_question = shrunk_image(local_image(asked), edge=side, limits=limits)
        left -= 1
    of_sources = {}
    for place, match in enumerate(matches):
        image = match.document.image
        if left and isinstance(image, Path):
            try:
                of_sources[place] = shrunk_image(image, edge=side, limits=limits)
            except InvalidInputError:
                continue
            left -= 1
    return PromptPictures(of_sources, of_question)


def with_pictures(text: str, lines: Sequence[str], pictures: PromptPictures, mark: str) -> tuple[str | Picture, ...]:
    """Return a prompt as parts: the lines of the sources, with their pictures behind them, in the place of a mark."""
    before, place_of_sources, after = text.partition(mark)
    parts: list[str | Picture] = [before]
    if place_of_sources:
        for place, line in enumerate(lines):
            parts.append(f"\n{line}" if place else line)
            if image := pictures.of_sources.get(place):
                parts += ["\n", Picture(image)]
        if pictures.of_question is not None:
            parts += ["\nThe picture of the question:\n"[0 if lines else 1 :], Picture(pictures.of_question)]
    parts.append(after)
    return _joined(parts)


def _joined(parts: Sequence[str | Picture]) -> tuple[str | Picture, ...]:
    """Return the parts with texts that follow each other as one."""
    joined: list[str | Picture] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part:
            joined.append(part)
    return tuple(joined)


def _within(image: PIL.Image.Image, side: int) -> tuple[int, int]:
    scale = min(side / max(image.size), 1.0)
    return max(round(image.width * scale), 1), max(round(image.height * scale), 1)


def _resized(image: PIL.Image.Image, side: int) -> PIL.Image.Image:
    size = _within(image, side)
    return image if size == image.size else image.resize(size)
