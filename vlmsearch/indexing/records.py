"""From documents to the records that a store keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.text import well_formed
from vlmsearch._util.tracing import encoding
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import BackendError, InvalidBatchError, InvalidInputError
from vlmsearch.media.images import copy_image, read_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.stores.documents import StoredDocument
from vlmsearch.stores.label_keys import split_labels, with_labels
from vlmsearch.types import (
    HALVES,
    Document,
    EncodedPassage,
    Field,
    ImageSource,
    Modality,
    Passage,
    Record,
    Reject,
    Stamp,
    Vectors,
)

T = TypeVar("T")
_Place: TypeAlias = "tuple[int, int]"
"""The place of a document in its batch, and the number of a passage or 0."""


@dataclass(frozen=True)
class Ready:
    """A document whose image, if any, is decoded; only its vectors are missing."""

    document: Document
    image: ImageSource | None
    stamp: Stamp
    replaces: bool
    unlabels: bool
    """Whether the document that it replaces had labels, and it has none."""
    passages: tuple[Passage, ...] = ()
    is_cut: bool = False
    """Whether the encoder reads the beginning of the text alone."""

    @property
    def id(self) -> str:
        """Return the document's."""
        return self.document.id


def encode(encoder: Encoder, ready: Sequence[Ready]) -> tuple[list[Record], list[Reject]]:
    """Return the records of one batch.

    An input that the encoder refuses becomes a Reject, and the others go on.
    """
    with encoding(encoder.fingerprint, "documents", len(ready)):
        return _encode(encoder, ready)


def _encode(encoder: Encoder, ready: Sequence[Ready]) -> tuple[list[Record], list[Reject]]:
    images = {(i, 0): item.image for i, item in enumerate(ready) if item.image is not None}
    try:
        by_image, bad = _encode_usable(encoder.encode_images, images, "image")
        texts = {place: well_formed(text) for place, text in _texts(ready) if place[0] not in bad}
        by_text, bad_texts = _encode_usable(encoder.encode_texts, texts, "text")
    except InvalidInputError as exc:
        raise BackendError(f"the encoder refused a batch and did not name all of its bad items: {exc}") from exc
    bad |= bad_texts
    records = [
        Record(
            plain(item.document),
            by_image.get((i, 0), {}) | by_text.get((i, 0), {}),
            item.stamp,
            encoder.fingerprint,
            tuple(EncodedPassage(passage, by_text.get((i, passage.number), {})) for passage in item.passages),
        )
        for i, item in enumerate(ready)
        if i not in bad
    ]
    return records, [Reject(ready[i].id, exc.code, str(exc), ready[i].stamp) for i, exc in bad.items()]


def _texts(ready: Sequence[Ready]) -> Iterator[tuple[_Place, str]]:
    """Yield what is encoded of texts: passages, or the whole text of a document without them."""
    for i, item in enumerate(ready):
        if item.document.text and not item.passages:
            yield (i, 0), item.document.text
        yield from (((i, passage.number), passage.encoded) for passage in item.passages)


def _encode_usable(
    encode: Callable[[list[T]], Mapping[str, Vectors]], inputs: Mapping[_Place, T], modality: Modality
) -> tuple[dict[_Place, dict[Field, NDArray[np.float32]]], dict[int, InvalidInputError]]:
    """Return the vectors of some inputs, and why some documents cannot be used."""
    if not inputs:
        return {}, {}
    places, bad = list(inputs), dict[int, InvalidInputError]()
    vectors: Mapping[str, Vectors] | None
    try:
        vectors = encode(list(inputs.values()))
    except InvalidBatchError as exc:
        bad = {places[item][0]: error for item, error in exc.items.items()}
        places = [place for item, place in enumerate(places) if item not in exc.items]
        vectors = exc.vectors
    if vectors is None:  # nothing was computed yet
        vectors = encode([inputs[place] for place in places]) if places else {}
    by_place: dict[_Place, dict[Field, NDArray[np.float32]]] = {place: {} for place in places}
    for space, rows in vectors.items():
        for place, row in zip(places, rows):
            by_place[place][Field(space, modality)] = row
    return by_place, bad


def digest(
    document: Document, image: ImageSource | None, limits: ImageLimits = DEFAULT_LIMITS, *, content: str = ""
) -> str:
    """Return the SHA-256 of a document's text, metadata and image.

    ``image`` is the image's content, as bytes or decoded. ``content`` is the SHA-256 of the image's bytes, if it is
    known.

    Labels among the metadata are kept apart: see `vlmsearch.stores.label_keys`. An image that is a file counts by its
    path too, which stores keep. Raises InvalidInputError for a decoded image that its file does not have whole.
    """
    if isinstance(image, Path):
        image = read_image(image)
    if content or image is None:
        pass
    elif isinstance(image, bytes):
        content = hashlib.sha256(image).hexdigest()
    else:
        copied = copy_image(image, limits)
        content = hashlib.sha256(f"{copied.mode}{copied.size}".encode() + copied.tobytes()).hexdigest()
    stored = StoredDocument.of(document)
    metadata, labels = split_labels(stored.metadata)
    parts = [stored.text, content, stored.image or "", sorted(metadata.items())]
    if any(isinstance(value, str) and HALVES.search(value) for value in metadata.values()):
        parts.append("escaped")  # Chroma kept it in another form once: it is written again
    form = json.dumps(parts, ensure_ascii=True)
    return with_labels(hashlib.sha256(form.encode()).hexdigest(), labels)


def plain(document: Document) -> Document:
    """Return the document without image bytes, as a store keeps it."""
    return document if isinstance(document.image, (Path, type(None))) else replace(document, image=None)
