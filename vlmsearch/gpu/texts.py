"""Token ids in few lengths, so that few shapes have to be captured."""

from __future__ import annotations

import numpy as np

from vlmsearch.encoders.towers import Ids

_STEPS = ((64, 8), (128, 16), (1 << 30, 32))


def padded_length(length: int, most: int) -> int:
    """The length that texts of ``length`` tokens are padded to: a multiple of 8, later of 16 and 32, up to ``most``."""
    step = next(step for limit, step in _STEPS if length <= limit)
    return max(length, min(-(-length // step) * step, most))


def pad_texts(ids: Ids, mask: Ids, *, pad: int, most: int) -> tuple[Ids, Ids]:
    """Ids and mask with columns of ``pad`` and 0 added; what they are when the length is one of the few already."""
    rows, length = ids.shape
    target = padded_length(length, most)
    if target == length:
        return ids, mask
    longer, seen = np.full((rows, target), pad, np.int32), np.zeros((rows, target), np.int32)
    longer[:, :length] = ids
    seen[:, :length] = mask
    return longer, seen
