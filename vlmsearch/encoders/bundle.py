"""The common part of all encoders of bundles. A runtime only has to run a tower on a batch."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

import numpy as np

from vlmsearch._util.arguments import check_counts
from vlmsearch._util.text import utf8_bytes
from vlmsearch._util.threads import Workers
from vlmsearch.encoders.base import BatchSizes, Encoder, compared_spaces
from vlmsearch.errors import ConfigError, InvalidBatchError, InvalidInputError, apply_to_each
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import Bundle, shortened
from vlmsearch.models.domain import domain_modality, open_domain
from vlmsearch.models.inputs import BatchLimits, Ids, Pixels, TextBatches, check_length, cut_vectors, to_pixels
from vlmsearch.types import ImageSource, Role, Vectors

_USUAL_CHARACTERS = 512
"""Characters of a text in a full batch that is not too large."""


class BundleEncoder(Encoder):
    """An encoder made of bundles: at most one with an image tower, any number for text.

    ``batch_size`` is the largest batch that a runtime gets to see; ``workers`` the threads that decode images; ``dim``
    the length that vectors are cut to, of the bundles that were trained for it (Matryoshka). A relevance that was
    fitted on whole vectors is not used for shorter ones, and neither is a domain.
    """

    def __init__(self, bundles: Sequence[Bundle], *, batch_size: int, workers: int, dim: int | None = None) -> None:
        check_counts(batch_size=batch_size)
        pictures = [bundle for bundle in bundles if bundle.preprocess]
        if len(pictures) > 1 or len({bundle.space.name for bundle in bundles}) < len(bundles):
            raise ConfigError(f"these models cannot work together: {', '.join(bundle.name for bundle in bundles)}")
        self.bundles = tuple(bundles)
        given = shortened([(bundle.space, bundle.fingerprint, bundle.dims) for bundle in bundles], dim)
        self.spaces, self.fingerprint = given.spaces, given.fingerprint
        self.relevance = {
            (bundle.space.name, modality): fit
            for bundle in bundles
            if bundle.space.name not in given.names
            for modality, fit in bundle.relevance.items()
        }
        self.domains = {
            (bundle.space.name, domain_modality(bundle)): domain
            for bundle in bundles
            if bundle.space.name not in given.names and (domain := open_domain(bundle)) is not None
        }
        self.shorter = {
            bundle.space.name: tuple(length for length in bundle.dims if length < space.dim)
            for bundle, space in zip(bundles, self.spaces)
        }
        self._picture = pictures[0] if pictures else None
        self.preprocess = pictures[0].preprocess if pictures else None
        self._texts = {bundle.space.name: TextBatches(bundle) for bundle in bundles}
        windows = {bundle.space.name: bundle.text.room("document") for bundle in bundles}
        self._text_space = min((space.name for space in compared_spaces(self.spaces)), key=windows.__getitem__)
        self.text_window = windows[self._text_space]
        self._batch_size = batch_size
        self.text_limits = BatchLimits(batch_size)
        self.batch_sizes = BatchSizes(batch_size, batch_size, batch_size * _USUAL_CHARACTERS)
        self._pool = Workers(workers, name="vlmsearch-decode", owner="the encoder")

    @abstractmethod
    def run_images(self, bundle: Bundle, pixels: Pixels) -> Vectors:
        """Vectors of one batch of pixels, uint8 (n, size, size, 3)."""

    @abstractmethod
    def run_texts(self, bundle: Bundle, ids: Ids, mask: Ids) -> Vectors:
        """Vectors of one batch of token ids and their mask, both int32 (n, length)."""

    def run_text_batches(self, bundle: Bundle, batches: Sequence[tuple[Ids, Ids]]) -> Iterable[Vectors]:
        """Vectors of each batch of token ids and their mask, in order: one batch after the other, unless overridden."""
        return (self.run_texts(bundle, ids, mask) for ids, mask in batches)

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Vectors per space; see `Encoder.encode_texts`."""
        return self._encode_texts(texts, role, None)

    def encode_prompted(self, texts: Sequence[str], *, prompt: str) -> dict[str, Vectors]:
        """Vectors per space; see `TakesPrompts`."""
        return self._encode_texts(texts, "document", prompt)

    def _encode_texts(self, texts: Sequence[str], role: Role, prompt: str | None) -> dict[str, Vectors]:
        self.check_open()
        apply_to_each(utf8_bytes, texts)
        vectors = {}
        for bundle, space in zip(self.bundles, self.spaces):
            run = partial(self.run_text_batches, bundle)
            whole = self._texts[space.name].encode(texts, role, self.text_limits, run, prompt)
            vectors[space.name] = cut_vectors(whole, space.dim)
        return vectors

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Vectors of the image space; see `Encoder.encode_images`. Decodes ahead while a batch runs."""
        self.check_open()
        bundle = self._picture
        if bundle is None:
            return {}
        vectors = np.empty((len(images), bundle.space.dim), np.float32)
        bad: dict[int, InvalidInputError] = {}
        start = 0
        for pixels in self._pixel_batches(images, _preprocess_of(bundle), bad):
            vectors[start : start + len(pixels)] = check_length(bundle, self.run_images(bundle, pixels))
            start += len(pixels)
        return self._image_vectors(bundle, vectors[:start], bad)

    def _image_vectors(
        self, bundle: Bundle, vectors: Vectors, bad: Mapping[int, InvalidInputError]
    ) -> dict[str, Vectors]:
        """Return what `encode_images` gives of the model's vectors of the images that can be used."""
        space = self.spaces[self.bundles.index(bundle)]
        by_space = {space.name: cut_vectors(vectors, space.dim)}
        if bad:
            raise InvalidBatchError(dict(bad), by_space)
        return by_space

    def prepare_image(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> ImageSource:
        """Return the image as the model sees it: upright, cropped, of the model's size."""
        if self._picture is None:
            raise ConfigError(f"{self.fingerprint} encodes no images")
        import PIL.Image

        return PIL.Image.fromarray(to_pixels(image, _preprocess_of(self._picture), limits))

    def count_tokens(self, texts: Sequence[str], *, space: str, role: Role = "document") -> list[int]:
        """Return how many tokens each text has; see `TokenizesTexts`."""
        apply_to_each(utf8_bytes, texts)
        return self._texts[space].count_tokens(texts, role)

    def text_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each text has; see `MeasuresTexts`."""
        return self.count_tokens(texts, space=self._text_space)

    def known_letters(self, texts: Sequence[str]) -> float | None:
        """Return the share of letters in tokens that mean something; see `Encoder.known_letters`."""
        return self._texts[self._text_space].known_letters(texts)

    def decode_tokens(self, rows: Sequence[Sequence[int]], *, space: str) -> list[str]:
        """Return the texts of token ids; see `TokenizesTexts`."""
        return self._texts[space].decode_tokens(rows)

    def check_open(self) -> None:
        """Raise BackendError once the encoder is closed."""
        self._pool.check_open()

    def close(self) -> None:
        """Stop the decoding threads."""
        self._pool.close()

    def _pixel_batches(
        self, images: Sequence[ImageSource], preprocess: Preprocess, bad: dict[int, InvalidInputError]
    ) -> Iterator[Pixels]:
        """Yield batches of the pixels of usable images, in order. The next is decoded while the caller works on one.

        Why an image cannot be used is put into ``bad``, by its number.
        """
        if len(images) == 1:
            try:
                yield to_pixels(images[0], preprocess)[None]
            except InvalidInputError as exc:
                bad[0] = exc
            return
        decoded: deque[tuple[int, list[Future[Pixels]]]] = deque()
        for start in range(0, len(images), self._batch_size):
            batch = images[start : start + self._batch_size]
            decoded.append((start, [self._pool.submit(to_pixels, image, preprocess) for image in batch]))
            if len(decoded) > 1:
                yield from _usable(*decoded.popleft(), bad)
        while decoded:
            yield from _usable(*decoded.popleft(), bad)


def _usable(start: int, decoded: Sequence[Future[Pixels]], bad: dict[int, InvalidInputError]) -> Iterator[Pixels]:
    """Yield the pixels of a batch, unless none of its images can be used. Its first one is number ``start``."""
    pixels = []
    for item, future in enumerate(decoded, start):
        try:
            pixels.append(future.result())
        except InvalidInputError as exc:
            bad[item] = exc
    if pixels:
        yield np.stack(pixels)


def _preprocess_of(bundle: Bundle) -> Preprocess:
    if bundle.preprocess is None:
        raise ConfigError(f"{bundle.name} has no image tower")
    return bundle.preprocess
