"""Which parts of a document its vectors owe their evidence to: leave each out, encode the rest, and look what falls.

For images this is the occlusion of Zeiler and Fergus, "Visualizing and Understanding Convolutional Networks", ECCV
2014: windows in the image's mean colour, here 7 by 7 of them. Each is a quarter of the width and of the height, and
half of it overlaps the next. Where an image shows a thing twice, covering one changes little. So each window is shown
alone as well. It adds the mean of the fall without it and the rise with nothing else, the ends of its Shapley value.

For texts the parts are sentences, or the words of a text that is one short sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vlmsearch.search.explanation import SIDE, WINDOWS, PassageEvidence, Regions

if TYPE_CHECKING:
    from PIL import Image

_MAX_PASSAGES = 64
"""Number of parts of a text, from the first on, that are left out in turn."""
_MAX_WORDS = 40
"""Maximum number of words in a sentence whose words are left out in turn."""
_EDGE = 512
"""The longer side, in pixels, that an image is made smaller to."""
_BATCH = 7
_SENTENCE = re.compile(r"\S.*?(?:[.!?\u2026][\"')\]]*(?=\s|$)|[\u3002\uff01\uff1f]|(?=\n|$))")
_WORD = re.compile(r"\w+(?:['-]\w+)*")


def find_regions(
    image: Image.Image,
    worth: Callable[[Sequence[Image.Image]], NDArray[np.float64]],
    *,
    goes_on: Callable[[int], bool],
) -> Regions:
    """Return which parts of an image its evidence comes from.

    Args:
        image: An upright RGB image.
        worth: The evidence of each of some images.
        goes_on: Asked with the number of windows that are done, before each batch, whether to do another.

    Returns:
        The map. Where it ends early, the windows that were tried are spread over the image.
    """
    from PIL import Image  # here: `import vlmsearch` loads no Pillow

    image = image.copy()
    image.thumbnail((_EDGE, _EDGE))
    pixels = np.asarray(image)
    mean = pixels.mean((0, 1)).round().astype(np.uint8)
    rows, columns = (np.linspace(0, side, SIDE + 2).round().astype(int) for side in pixels.shape[:2])
    at = [(y, x) for y in range(SIDE) for x in range(SIDE)]
    at.sort(key=lambda place: (place[0] % 2 + 2 * (place[1] % 2), place))  # the first ones are spread over the image
    blank = np.full_like(pixels, mean)
    adds: dict[tuple[int, int], float] = {}
    whole, nothing = worth([image, Image.fromarray(blank)])
    while len(adds) < WINDOWS and goes_on(len(adds)):
        batch = at[len(adds) : len(adds) + _BATCH]
        boxes = [(slice(rows[y], rows[y + 2]), slice(columns[x], columns[x + 2])) for y, x in batch]
        covered = worth([_paste(pixels, blank, box) for box in boxes])
        alone = worth([_paste(blank, pixels, box) for box in boxes])
        adds |= {place: float(add) for place, add in zip(batch, (whole - covered + alone - nothing) / 2)}
    return Regions(tuple(tuple(adds.get((y, x)) for x in range(SIDE)) for y in range(SIDE)))


def _paste(pixels: NDArray[np.uint8], others: NDArray[np.uint8], box: tuple[slice, slice]) -> Image.Image:
    """Return an image with the pixels of another in a box."""
    from PIL import Image

    pasted = pixels.copy()
    pasted[box] = others[box]
    return Image.fromarray(pasted)


def find_passages(text: str, worth: Callable[[Sequence[str]], NDArray[np.float64]]) -> list[PassageEvidence]:
    """Return how much of a text's evidence each of its sentences gives.

    Of one sentence, the parts are its words.

    Args:
        text: The text.
        worth: The evidence of each of some texts.

    Returns:
        The parts, in their order; none of a text that is one long sentence or a single word.
    """
    spans = [match.span() for match in _SENTENCE.finditer(text)]
    if len(spans) < 2:
        spans = [match.span() for match in _WORD.finditer(text)]
        if not 2 <= len(spans) <= _MAX_WORDS:
            return []
    spans = spans[:_MAX_PASSAGES]
    whole, *without = worth([text, *(text[:start] + text[end:] for start, end in spans)])
    return [PassageEvidence(start, end, float(whole - value)) for (start, end), value in zip(spans, without)]
