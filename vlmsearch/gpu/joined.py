"""Several TensorRT plans in one file, where one plan cannot be built for all batches: they make one program.

The file begins with a mark, the number of plans and their sizes, eight bytes each; then the plans follow. A single plan
stays as it is, so that other programs can load it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_MARK = b"vlmsearch: plans"
_NUMBER = struct.Struct("<Q")


def join_plans(plans: Sequence[bytes]) -> bytes:
    """One file of several plans; of one plan the plan itself."""
    if len(plans) == 1:
        return plans[0]
    return b"".join([_MARK, *map(_NUMBER.pack, [len(plans), *map(len, plans)]), *plans])


def split_plans(data: bytes) -> list[bytes | memoryview]:
    """What `join_plans` was given: of several plans views, as they are large."""
    if not data.startswith(_MARK):
        return [data]
    start = len(_MARK) + _NUMBER.size
    (count,) = _NUMBER.unpack_from(data, len(_MARK))
    sizes = [_NUMBER.unpack_from(data, start + i * _NUMBER.size)[0] for i in range(count)]
    start += count * _NUMBER.size
    plans: list[bytes | memoryview] = []
    for size in sizes:
        plans.append(memoryview(data)[start : start + size])
        start += size
    return plans
