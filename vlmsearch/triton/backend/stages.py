"""The computations of a repository's Python models.

The code is the same as in process, without Triton's types.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.machine import available_cores
from vlmsearch.errors import InvalidInputError
from vlmsearch.media.limits import SERVER_LIMITS, ImageLimits
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import padded_length
from vlmsearch.models.inputs import Ids, Pixels, TextBatches, to_pixels, token_arrays, tower_ids
from vlmsearch.triton.client.protocol import status_of
from vlmsearch.types import Role


class ImageStage:
    """A decoder and resizer of the images of a batch, on several threads.

    A bad image harms no other. Large ones take turns.
    """

    def __init__(
        self, preprocess: Preprocess, *, limits: ImageLimits = SERVER_LIMITS, threads: int | None = None
    ) -> None:
        self._preprocess = preprocess
        self._limits = limits
        self._pool = ThreadPoolExecutor(threads or available_cores(), thread_name_prefix="decode")

    def run(self, images: Sequence[bytes]) -> tuple[Pixels, list[str]]:
        """Pixels, uint8 (n, size, size, 3), and for each item "" or why its pixels are black."""
        size = self._preprocess.size
        pixels = np.zeros((len(images), size, size, 3), np.uint8)
        statuses = list(self._pool.map(self._decode, images, pixels))
        return pixels, statuses

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _decode(self, image: bytes, out: Pixels) -> str:
        try:
            out[...] = to_pixels(image, self._preprocess, self._limits)
        except InvalidInputError as exc:
            return status_of(exc)
        return ""


@dataclass(frozen=True)
class Tokens:
    """A batch of one space: ids and mask, int32 (n, length), and how many tokens each whole text has, int32 (n,)."""

    ids: Ids
    mask: Ids
    counts: NDArray[np.int32]


class TextStage(TextBatches):
    """A tokenizer of one bundle that cuts long texts as they are cut in process."""

    def run(self, texts: Sequence[str], roles: Sequence[Role]) -> Tokens:
        """Return token arrays of as much of each text as fits."""
        whole = self._token_ids(texts, roles)
        counts = [self._own_tokens(ids, role) for ids, role in zip(whole, roles)]
        arrays = token_arrays([tower_ids(ids, self._input, role) for ids, role in zip(whole, roles)], self._input)
        ids, mask = (self._widened(part, fill) for part, fill in zip(arrays, (self._input.pad, 0)))
        return Tokens(ids, mask, np.array(counts, np.int32))

    def _widened(self, part: Ids, fill: int) -> Ids:
        """Add columns up to the next of a few lengths.

        So requests of like lengths share a batch.
        """
        width = self._input.fill or padded_length(part.shape[1])
        return np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=fill)
