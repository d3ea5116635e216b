"""Token ids in few lengths, so that few shapes have to be captured."""

from __future__ import annotations

import numpy as np

from vlmsearch.models.bundle import LENGTH_STEP, TextInput, padded_length
from vlmsearch.models.inputs import Ids

_STEPS = ((64, LENGTH_STEP), (128, 2 * LENGTH_STEP), (1 << 30, 4 * LENGTH_STEP))


def engine_length(length: int, longest: int) -> int:
    """Return the columns that texts of ``length`` tokens are padded to.

    A multiple of 8, later of 16 and 32, or ``longest``.

    ``longest`` is a multiple of 8 itself.
    """
    step = next(step for limit, step in _STEPS if length <= limit)
    return min(padded_length(length, step), longest)


def pad_texts(ids: Ids, mask: Ids, form: TextInput) -> tuple[Ids, Ids]:
    """Return ids and mask with columns of padding and of 0 added.

    What they are when the length is one of the few already.
    """
    rows, length = ids.shape
    target = form.fill or engine_length(length, form.longest)
    if target == length:
        return ids, mask
    longer, seen = np.full((rows, target), form.pad, np.int32), np.zeros((rows, target), np.int32)
    longer[:, :length] = ids
    seen[:, :length] = mask
    return longer, seen
