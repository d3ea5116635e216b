"""The computations of a repository's Python models.

The code is the same as in process, without Triton's types.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.machine import available_cores
from vlmsearch.errors import InvalidInputError
from vlmsearch.media.images import Preprocess
from vlmsearch.media.limits import SERVER_LIMITS, ImageLimits
from vlmsearch.models.bundle import Bundle, padded_length
from vlmsearch.models.inputs import Chunk, Ids, Pixels, TextBatches, chunk_lengths, to_pixels
from vlmsearch.triton.client.protocol import status_of
from vlmsearch.types import Role

_LONG_TEXTS = 4
"""Whose tokens are kept while their pieces are asked for."""


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
    """Tokenises for one bundle, with the pieces of long texts cut as they are in process."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self._cut_again = lru_cache(_LONG_TEXTS)(lambda role, text: self._cut(role, [text])[0])

    def run(self, texts: Sequence[str], roles: Sequence[Role], pieces: Sequence[int] | None = None) -> Tokens:
        """Return token arrays of the ``pieces`` of the texts.

        Without ``pieces`` they are of as much of their beginnings as fits.

        A piece past the end of a text is its last one.
        """
        wanted = list(zip(roles, texts))
        different = list(dict.fromkeys(wanted))
        if pieces is not None and len(different) == 1:  # requests for all pieces of a long text follow each other
            cut = {different[0]: self._cut_again(*different[0])}
        else:
            cut = {}
            for role in dict.fromkeys(roles):
                own = [text for text_role, text in different if text_role == role]
                cut |= {(role, text): parts for text, parts in zip(own, self._cut(role, own))}
        if pieces is None:
            chosen = [self._beginning(role, cut[role, text]) for role, text in wanted]
        else:
            chosen = [cut[key][min(number, len(cut[key]) - 1)] for key, number in zip(wanted, pieces)]
        counts = [sum(piece.tokens for piece in cut[key]) for key in wanted]
        ids, mask = (self._widened(part, fill) for part, fill in zip(self._arrays(chosen), (self._input.pad, 0)))
        return Tokens(ids, mask, np.array(counts, np.int32))

    def _beginning(self, role: Role, parts: Sequence[Chunk]) -> Chunk:
        """Return as much of a text as fits."""
        head, room = len(self._input.prompt(role).ids), self._input.room(role)
        own = [id for part in parts for id in part.ids[head:]][:room]
        return replace(parts[0], ids=parts[0].ids[:head] + own, tokens=len(own))

    def _cut(self, role: Role, texts: Sequence[str]) -> list[list[Chunk]]:
        """Return the pieces of each text."""
        head, room = len(self._input.prompt(role).ids), self._input.room(role)
        return [
            list(self._split(text, ids, role, chunk_lengths(max(len(ids) - head, 0), room, "document")))
            for text, ids in enumerate(self._token_ids(texts, role))
        ]

    def _widened(self, part: Ids, fill: int) -> Ids:
        """Add columns up to the next of a few lengths.

        So requests of like lengths share a batch.
        """
        width = self._input.fill or padded_length(part.shape[1])
        return np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=fill)
