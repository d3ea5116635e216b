"""Exact search: every vector of a field is compared, read from MongoDB in blocks or from blocks that were kept."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from bson import decode, encode
from numpy.typing import NDArray
from pymongo import timeout

from vlmsearch._util.cancellation import check_cancelled, run_apart
from vlmsearch._util.retry import MAX_SECONDS
from vlmsearch.stores.mongodb.connection import Row, Rows
from vlmsearch.stores.mongodb.values import unpack, vector_path
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.types import Field, Vectors

_VECTOR_SUBTYPE = 9
_FLOAT32 = b"\x27\x00"
_LONGER = 10
"""Times the limit of one request that the server may be at all of a scan."""
_TAIL = 2
"""Bytes after the last vector of a row: the ends of the two nested objects."""
_ID = b"\x02_id\x00"
_VERSION = b"\x02version\x00"


@dataclass(frozen=True)
class VectorBlock:
    """Vectors, and for each the beginning of its row in BSON: id and version."""

    heads: Sequence[bytes]
    vectors: NDArray[np.float32]

    @property
    def size(self) -> int:
        """Return about how many bytes of memory it takes."""
        return self.vectors.nbytes + sum(map(len, self.heads)) + 64 * len(self.heads)

    def hit(self, index: int, cosine: float) -> VersionedHit:
        """Return the hit at a place."""
        id, version = _texts(self.heads[index])
        return VersionedHit(id, min(1.0, max(-1.0, cosine)), version)


def read_blocks(rows: Rows, field: Field, dim: int, where: Row) -> Iterator[VectorBlock]:
    """Return the vectors of those rows that pass ``where``. Only one block is in memory at a time."""
    path = vector_path(field)
    batches: Any = rows.find_raw_batches({path: {"$exists": True}, **where}, {"version": 1, path: 1})
    seconds = rows.database.client.options.timeout
    with timeout(seconds and min(_LONGER * seconds, MAX_SECONDS)):  # the server counts all batches against this
        first = run_apart(lambda: list(islice(batches, 1)), seconds)
    return (_block(batch, path.partition(".")[2], dim) for batch in chain(first, batches))


def merge_blocks(blocks: Sequence[VectorBlock]) -> VectorBlock:
    """Return one block of all."""
    return VectorBlock([head for block in blocks for head in block.heads], np.concatenate([b.vectors for b in blocks]))


def nearest(blocks: Iterable[VectorBlock], queries: Vectors, limit: int) -> list[list[VersionedHit]]:
    """Find the nearest rows of each query, best first. Equal cosines are in the order of the ids."""
    best: list[list[VersionedHit]] = [[] for _ in queries]
    min_cosines = np.full(len(queries), -np.inf, np.float32)
    for block in blocks:
        check_cancelled()  # who gave the search up waits for nothing more
        is_single = len(queries) == 1  # a product with a vector is faster than one with a matrix of one column
        columns = (block.vectors @ queries[0])[None] if is_single else queries @ block.vectors.T
        for query, column in enumerate(columns):
            candidates = np.flatnonzero(column >= min_cosines[query])
            if len(candidates) > limit:  # all of those that tie with the last are kept, for their ids decide
                edge = np.partition(column[candidates], -limit)[-limit]
                candidates = candidates[column[candidates] >= edge]
            if not len(candidates):
                continue
            hits = best[query] + [block.hit(i, float(column[i])) for i in candidates.tolist()]
            best[query] = sorted(hits, key=lambda hit: (-hit.score, hit.id))[:limit]
            if len(best[query]) == limit:
                min_cosines[query] = best[query][-1].score
    return best


def _block(batch: bytes, name: str, dim: int) -> VectorBlock:
    """Return one batch of BSON rows. The vector is read from the end of each, where it is."""
    size = 4 * dim
    mark = struct.pack("<iB", size + 2, _VECTOR_SUBTYPE) + _FLOAT32
    heads, parts, at = [], [], 0
    while at < len(batch):
        end = at + int.from_bytes(batch[at : at + 4], "little")
        start = end - _TAIL - size
        head = batch[at:start]
        if head.endswith(mark) and _is_head(head):
            parts.append(batch[start : end - _TAIL])
        else:
            row = decode(batch[at:end])
            head = encode({"_id": row["_id"], "version": row["version"]})
            parts.append(unpack(row["vectors"][name]).tobytes())
        heads.append(head)
        at = end
    return VectorBlock(heads, np.frombuffer(b"".join(parts), "<f4").reshape(len(heads), dim))


def _is_head(head: bytes) -> bool:
    """Return whether the id comes first and the version after it."""
    after = 13 + int.from_bytes(head[9:13], "little")
    return head[4:9] == _ID and head[after : after + len(_VERSION)] == _VERSION


def _texts(head: bytes) -> tuple[str, str]:
    """Return id and version of a row that begins with them."""
    after = 13 + int.from_bytes(head[9:13], "little")
    start = after + len(_VERSION) + 4
    length = int.from_bytes(head[start - 4 : start], "little")
    return head[13 : after - 1].decode(), head[start : start + length - 1].decode()
