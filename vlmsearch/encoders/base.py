"""What an encoder is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from vlmsearch._util.closing import Closable
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.types import ImageSource, Modality, Role, Space, Vectors


class Encoder(Closable, ABC):
    """Turns texts and images into unit vectors, one array per space. May be used from several threads."""

    fingerprint: str
    """Model, revision, preprocessing and tokenizer; the same on every runtime and in every precision."""
    spaces: tuple[Space, ...]
    """The spaces it encodes into; their names are the keys of what the methods return."""
    floors: Mapping[tuple[str, Modality], float] = MappingProxyType({})
    """Per space and modality of the document: the cosine with a text that unrelated ones stay under, where measured."""

    @abstractmethod
    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Vectors of shape (len(texts), dim) for every space that takes text, by space name.

        A document longer than a model reads is split and its chunks are pooled. A query is cut, with a
        TextTruncatedWarning that says how much was read.

        Raises InvalidBatchError that names all texts which cannot be used: those that are not valid Unicode, and those
        that are larger than a server takes.
        """

    @abstractmethod
    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Vectors of shape (len(images), dim) for every space that takes images, by space name.

        Raises InvalidBatchError that names all images which cannot be used, with the vectors of the others where they
        were computed before that was known.
        """


@runtime_checkable
class PreparesImages(Protocol):
    """An encoder that can do the work of one image (reading, decoding, resizing) ahead of its batch.

    Indexing calls it from several threads while a batch is being encoded.
    """

    def prepare_image(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> ImageSource:
        """What `encode_images` takes with the least work left, same vectors; InvalidInputError for a bad image."""


def prepared_image(encoder: Encoder, image: ImageSource, limits: ImageLimits) -> ImageSource:
    """What `Encoder.encode_images` takes, of an image within the limits; InvalidInputError for any other."""
    if isinstance(encoder, PreparesImages):
        return encoder.prepare_image(image, limits)
    from vlmsearch.media.images import open_image  # here: `import vlmsearch` loads no Pillow

    return open_image(image, limits=limits)
