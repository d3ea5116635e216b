"""From documents to the records that a store keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from vlmsearch._util.text import well_formed
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import BackendError, InvalidInputError
from vlmsearch.media.images import copy_image, read_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.types import HALVES, Document, Field, ImageSource, Record, Reject, Stamp, Vectors

T = TypeVar("T")


@dataclass(frozen=True)
class Ready:
    """A document whose image, if any, is decoded; only its vectors are missing."""

    document: Document
    image: ImageSource | None
    stamp: Stamp
    replaces: bool

    @property
    def id(self) -> str:
        """The document's."""
        return self.document.id


def encode(encoder: Encoder, ready: Sequence[Ready]) -> tuple[list[Record], list[Reject]]:
    """The records of one batch; an input that the encoder refuses becomes a Reject, and the others go on."""
    rejects: list[Reject] = []
    left = list(ready)
    vectors: list[dict[Field, NDArray[np.float32]]] = []
    while left:
        try:
            vectors = _vectors(encoder, left)
            break
        except InvalidInputError as exc:
            if exc.item is None:
                raise BackendError(f"the encoder refused a batch and did not say which item: {exc}") from exc
            bad = left.pop(exc.item)
            rejects.append(Reject(bad.document.id, exc.code, str(exc), bad.stamp))
    made = encoder.fingerprint
    return [Record(plain(one.document), found, one.stamp, made) for one, found in zip(left, vectors)], rejects


def _vectors(encoder: Encoder, ready: Sequence[Ready]) -> list[dict[Field, NDArray[np.float32]]]:
    """The vectors of each document, by field; InvalidInputError names the document whose image or text is refused."""
    found: list[dict[Field, NDArray[np.float32]]] = [{} for _ in ready]
    images = {i: one.image for i, one in enumerate(ready) if one.image is not None}
    texts = {i: well_formed(one.document.text) for i, one in enumerate(ready) if one.document.text}
    by_image = _each(encoder.encode_images, images)
    by_text = _each(encoder.encode_texts, texts)
    for space, rows in by_image.items():
        for i, row in zip(images, rows):
            found[i][Field(space, "image")] = row
    for space, rows in by_text.items():
        for i, row in zip(texts, rows):
            found[i][Field(space, "text")] = row
    return found


def _each(encode: Callable[[list[T]], Mapping[str, Vectors]], inputs: Mapping[int, T]) -> Mapping[str, Vectors]:
    """What an encoder makes of the inputs of some documents, whose places are the keys."""
    try:
        return encode(list(inputs.values())) if inputs else {}
    except InvalidInputError as exc:
        if exc.item is None:
            raise
        raise InvalidInputError(exc.code, str(exc), item=list(inputs)[exc.item]) from exc


def check_types(document: Document) -> None:
    """Raise InvalidInputError where a part of a document is of another type than it is said to be."""
    parts = (
        ("text is a string", document.text, (str, type(None))),
        ("image is a Path, bytes or a PIL image", document.image, (Path, bytes, Image, type(None))),
        ("metadata are a mapping", document.metadata, Mapping),
    )
    for said, value, kinds in parts:
        if not isinstance(value, kinds):
            raise InvalidInputError("invalid", f"the {said}, not {type(value).__name__}")


def digest(document: Document, image: ImageSource | None, limits: ImageLimits = DEFAULT_LIMITS) -> str:
    """SHA-256 over a document's text, metadata and image; ``image`` is the image's content, as bytes or decoded.

    An image that is a file counts by its path too, which stores keep. Raises InvalidInputError for a decoded image
    that its file does not have whole.
    """
    if isinstance(image, Path):
        image = read_image(image)
    if image is None:
        content = ""
    elif isinstance(image, bytes):
        content = hashlib.sha256(image).hexdigest()
    else:
        copied = copy_image(image, limits)
        content = hashlib.sha256(f"{copied.mode}{copied.size}".encode() + copied.tobytes()).hexdigest()
    path = str(document.image) if isinstance(document.image, Path) else ""
    parts = [document.text, content, path, sorted(document.metadata.items())]
    if any(isinstance(value, str) and HALVES.search(value) for value in document.metadata.values()):
        parts.append("escaped")  # Chroma kept it in another form once: it is written again
    form = json.dumps(parts, ensure_ascii=True)
    return hashlib.sha256(form.encode()).hexdigest()


def plain(document: Document) -> Document:
    """The document without image bytes, as a store keeps it."""
    return document if isinstance(document.image, (Path, type(None))) else replace(document, image=None)
