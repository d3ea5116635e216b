"""Lists of words as TensorRT-LLM's tensors hold them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_NONE = -1


def to_word_list(rows: Sequence[Sequence[Sequence[int]]]) -> NDArray[np.int32]:
    """INT32 (rows, 2, length) of words as token ids: the ids of all words of a row, and where each word ends.

    Rows are filled up with 0 and -1.
    """
    longest = max((sum(map(len, words)) for words in rows), default=0)
    array = np.zeros((len(rows), 2, max(longest, 1)), np.int32)
    array[:, 1] = _NONE
    for row, words in zip(array, rows):
        ids = [token for word in words for token in word]
        row[0, : len(ids)] = ids
        row[1, : len(words)] = np.cumsum([len(word) for word in words])
    return array


def from_word_list(row: NDArray[np.int32]) -> list[list[int]]:
    """Return the words that `to_word_list` wrote into one row, (2, length)."""
    words, start = [], 0
    for stop in row[1].tolist():
        if stop <= start:
            break
        words.append(row[0, start:stop].tolist())
        start = stop
    return words
