"""What every encoder of bundles shares: texts to token ids, images to pixels, chunks to one vector.

A runtime only has to run a tower on a batch.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vlmsearch.bundles import Bundle
from vlmsearch.encoders.base import Encoder, TextTruncatedWarning
from vlmsearch.errors import ConfigError, InvalidInputError, VlmsearchError, one_line
from vlmsearch.image_limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.media import Preprocess, opened_image
from vlmsearch.panics import no_panics
from vlmsearch.types import ImageSource, Role, Vectors
from vlmsearch.workers import Workers

Ids = NDArray[np.int32]
Pixels = NDArray[np.uint8]


class BundleEncoder(Encoder):
    """An encoder made of bundles: at most one with an image tower, any number for text.

    ``batch_size`` is the largest batch that a runtime gets to see; ``workers`` the threads that decode images.
    """

    def __init__(self, bundles: Sequence[Bundle], *, batch_size: int, workers: int) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is at least 1, not {batch_size}")
        pictures = [bundle for bundle in bundles if bundle.preprocess]
        if len(pictures) > 1 or len({bundle.space.name for bundle in bundles}) < len(bundles):
            raise ConfigError(f"these models cannot work together: {', '.join(bundle.name for bundle in bundles)}")
        self.bundles = tuple(bundles)
        self.spaces = tuple(bundle.space for bundle in bundles)
        self.fingerprint = "+".join(bundle.fingerprint for bundle in bundles)
        self.floors = {
            (bundle.space.name, modality): floor for bundle in bundles for modality, floor in bundle.floors.items()
        }
        self._picture = pictures[0] if pictures else None
        self._texts = {bundle.space.name: TextBatches(bundle) for bundle in bundles}
        self._batch_size = self.text_batch_size = batch_size
        self._pool = Workers(workers, name="vlmsearch-decode", owner="the encoder")

    @abstractmethod
    def run_images(self, bundle: Bundle, pixels: Pixels) -> Vectors:
        """Vectors of one batch of pixels, uint8 (n, size, size, 3)."""

    @abstractmethod
    def run_texts(self, bundle: Bundle, ids: Ids, mask: Ids) -> Vectors:
        """Vectors of one batch of token ids and their mask, both int32 (n, length)."""

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Vectors per space; see `Encoder.encode_texts`."""
        self.check_open()
        return {
            bundle.space.name: self._texts[bundle.space.name].encode(
                texts, role, self.text_batch_size, partial(self.run_texts, bundle)
            )
            for bundle in self.bundles
        }

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Vectors of the image space; see `Encoder.encode_images`. Decodes ahead while a batch runs."""
        self.check_open()
        bundle = self._picture
        if bundle is None:
            return {}
        vectors = np.empty((len(images), bundle.space.dim), np.float32)
        start = 0
        for pixels in self._pixel_batches(images, _preprocess_of(bundle)):
            vectors[start : start + len(pixels)] = check_length(bundle, self.run_images(bundle, pixels))
            start += len(pixels)
        return {bundle.space.name: vectors}

    def prepare_image(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> ImageSource:
        """The image as the model sees it: upright, cropped, of the model's size."""
        if self._picture is None:
            raise ConfigError(f"{self.fingerprint} encodes no images")
        return PIL.Image.fromarray(to_pixels(image, _preprocess_of(self._picture), limits))

    def check_open(self) -> None:
        """Raise BackendError once the encoder is closed."""
        self._pool.check_open()

    def close(self) -> None:
        """Stop the decoding threads."""
        self._pool.close()

    def _pixel_batches(self, images: Sequence[ImageSource], preprocess: Preprocess) -> Iterator[Pixels]:
        """Batches of pixels in order, the next one being decoded while the caller works on this one."""
        starts = range(0, len(images), self._batch_size)
        if len(images) == 1:
            yield _decode(images, 0, preprocess)[None]
            return
        submit = self._pool.submit
        waiting = []
        for start in starts:
            stop = min(start + self._batch_size, len(images))
            waiting.append([submit(_decode, images, i, preprocess) for i in range(start, stop)])
            if len(waiting) > 1:
                yield np.stack([future.result() for future in waiting.pop(0)])
        for batch in waiting:
            yield np.stack([future.result() for future in batch])


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_tokenizer(bundle: Bundle) -> Tokenizer:
    """The bundle's tokenizer, which neither cuts nor fills up."""
    with no_panics(bundle.name):
        try:
            tokenizer = Tokenizer.from_buffer(bundle.read("tokenizer.json"))
        except VlmsearchError:
            raise
        except Exception as exc:  # the library raises nothing more particular
            raise ConfigError(f"{bundle.folder / 'tokenizer.json'} cannot be used: {one_line(exc)}") from exc
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def to_pixels(image: ImageSource, preprocess: Preprocess, limits: ImageLimits = DEFAULT_LIMITS) -> Pixels:
    """Pixels as a model takes them, uint8 (size, size, 3); InvalidInputError for an image that cannot be used."""
    with opened_image(image, at_least=preprocess.at_least, limits=limits) as upright:
        return preprocess.apply(upright)


def _decode(images: Sequence[ImageSource], item: int, preprocess: Preprocess) -> Pixels:
    try:
        return to_pixels(images[item], preprocess)
    except InvalidInputError as exc:
        raise InvalidInputError(exc.code, str(exc), item=item) from exc


def check_length(bundle: Bundle, vectors: Vectors) -> Vectors:
    """Return vectors that a model gave; ConfigError where they are not of the length that its bundle says."""
    if vectors.shape[1:] != (bundle.space.dim,):
        raise ConfigError(
            f"{bundle.name} says that its vectors have {bundle.space.dim} numbers, and its model gives the shape "
            f"{vectors.shape[1:]}: build it again"
        )
    return vectors


def _preprocess_of(bundle: Bundle) -> Preprocess:
    if bundle.preprocess is None:
        raise ConfigError(f"{bundle.name} has no image tower")
    return bundle.preprocess


@dataclass(frozen=True)
class Piece:
    """A stretch of one text that fits the model."""

    text: int
    ids: list[int]


class TextBatches:
    """Tokenises for one bundle and forms batches of like lengths, so that little is computed on padding."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._input = bundle.text
        self._tokenizer = open_tokenizer(bundle)

    def encode(self, texts: Sequence[str], role: Role, batch_size: int, run: Callable[[Ids, Ids], Vectors]) -> Vectors:
        """One unit vector a text, (len(texts), dim): the mean of its chunks, weighted by their length."""
        pieces = sorted(self._pieces(texts, role), key=lambda piece: len(piece.ids))
        totals = np.zeros((len(texts), self._bundle.space.dim), np.float32)
        for start in range(0, len(pieces), batch_size):
            batch = pieces[start : start + batch_size]
            weights = np.array([max(len(piece.ids), 1) for piece in batch], np.float32)
            vectors = check_length(self._bundle, run(*self._arrays(batch)))
            np.add.at(totals, [piece.text for piece in batch], vectors * weights[:, None])
        unit: Vectors = totals / np.maximum(np.linalg.norm(totals, axis=1, keepdims=True), 1e-12)
        return unit

    def _pieces(self, texts: Sequence[str], role: Role) -> Iterator[Piece]:
        room = self._input.room
        with no_panics(self._bundle.name):
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        for index, encoding in enumerate(encodings):
            ids = encoding.ids
            if len(ids) <= room:
                yield Piece(index, ids)
            elif role == "query":
                warnings.warn(
                    f"the query has {len(ids)} tokens and {self._bundle.name} reads {room}: the rest was not used",
                    TextTruncatedWarning,
                    stacklevel=5,
                )
                yield Piece(index, ids[:room])
            else:
                count = -(-len(ids) // room)
                for part in np.array_split(np.arange(len(ids)), count):
                    yield Piece(index, ids[part[0] : part[-1] + 1])

    def _arrays(self, batch: Sequence[Piece]) -> tuple[Ids, Ids]:
        form = self._input
        rows = [[*form.prefix, *piece.ids, *form.suffix] for piece in batch]
        ids = np.full((len(rows), max(map(len, rows))), form.pad, np.int32)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return ids, mask
