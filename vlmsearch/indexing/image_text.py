"""Text that is read in images: how it changes a document, and how the stamp of the document records it.

The digest of such a document is that of its source with a mark, such as ``~ocr1``, before that of its labels. A run
that reads no text in images finds it unchanged. A run that does reads images without a mark, or with that of another
edition.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from vlmsearch.media.images import open_image
from vlmsearch.media.limits import ImageLimits
from vlmsearch.types import Document, ImageSource

BOXES = "ocr"
"""The key in the metadata of where the lines are: ``x,y,w,h`` in pixels of the upright image, joined with ``;``."""
_SEPARATOR = "~"
_MARK = f"{_SEPARATOR}ocr1"
"""The number is raised where the same image gives another text than before."""

_DESCRIBED = f"{_SEPARATOR}seen"
_LETTERS = 2
"""Letters and digits of a line at least: less is a ring that was read as 0, or a cross."""


def with_mark(digest: str) -> str:
    """Return the digest of a document whose image was read, from the one of its source."""
    return f"{digest}{_MARK}"


def without_mark(digest: str) -> str:
    """Return the digest that a document had before its image was read."""
    return digest.partition(_SEPARATOR)[0]


def with_description_mark(digest: str, description: str) -> str:
    """Return the digest of a document with a description.

    The given one has none or that of another description.

    The mark comes after that of a picture whose text was read, and before that of labels.
    """
    base, plus, labels = digest.partition("+")
    if not base:
        return digest
    mark = hashlib.sha256(description.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{without_description(base)}{_DESCRIBED}{mark}{plus}{labels}"


def without_description(digest: str) -> str:
    """Return the digest that a document had before its picture was described."""
    return digest.partition(_DESCRIBED)[0]


def with_image_text(document: Document, image: ImageSource, limits: ImageLimits) -> Document:
    """Return a document with the text in its image; the same where there is none.

    Raises:
        InvalidInputError: The image cannot be decoded.
        MissingDependencyError: RapidOCR is not installed.
    """
    from vlmsearch.media.ocr import boxes_text, read_text

    read = read_text(open_image(image, limits=limits))
    lines = [line for line in read if sum(map(str.isalnum, line.text)) >= _LETTERS]
    if not lines:
        return document
    text = "\n".join(line.text for line in lines)
    return replace(document, text=text, metadata={**document.metadata, BOXES: boxes_text(lines)})
