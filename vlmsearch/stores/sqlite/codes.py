"""Vectors as INT8 codes in memory: what a search compares with first.

A code is a vector's numbers divided by its largest one and rounded to -127 to 127. The dot product of two codes tells
their vectors' cosine but for rounding, whose spread is known: errors of numbers are independent and uniform within half
a step, so that of the cosine has a standard deviation of sqrt((a^2 + b^2) / 12) for steps a and b and vectors of length
one. What comes within six of them of the best is compared again, by the vectors themselves.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import simsimd
from numpy.typing import NDArray

from vlmsearch.types import Vectors

BLOCK = 2**15
"""Rows that lie together in memory, and that one thread compares."""
_MOST_THREADS = 8
_SHARED_BLOCKS = 8
"""From how many blocks on several threads compare them."""
_SIGMAS = 6.0
_SPARSE = 4
"""Codes are picked out before they are compared where fewer than one in so many is wanted."""

Codes = NDArray[np.int8]
Places = NDArray[np.int64]
Found: TypeAlias = tuple[Places, Vectors, Vectors]
"""Places, the dot products of their codes with the query's times their own steps, and these steps."""


def quantise(vectors: Vectors) -> tuple[Vectors, Codes]:
    """Return the steps, shape (n,), and the codes, shape (n, dim), of vectors."""
    steps = np.abs(vectors).max(axis=1, initial=0) / np.float32(127)
    steps[steps == 0] = 1
    return steps, np.rint(vectors / steps[:, None]).astype(np.int8)


def find(rows: Places, wanted: Places) -> tuple[Places, NDArray[np.bool_]]:
    """Return where in the sorted ``rows`` those that are ``wanted`` are, and whether each is there at all."""
    places = np.searchsorted(rows, wanted)
    there = np.zeros(len(wanted), np.bool_)
    inside = places < len(rows)
    there[inside] = rows[places[inside]] == wanted[inside]
    return places, there


@dataclass(frozen=True)
class CodeBlock:
    """The first ``used`` rows of arrays that more are added to behind them."""

    places: Places
    steps: Vectors
    codes: Codes
    used: int

    @property
    def free(self) -> int:
        """How many rows can be added."""
        return len(self.places) - self.used

    def with_rows(self, places: Places, steps: Vectors, codes: Codes) -> CodeBlock:
        """Return this block with rows added; those who have this one do not see them."""
        end = self.used + len(places)
        for have, more in ((self.places, places), (self.steps, steps), (self.codes, codes)):
            have[self.used : end] = more
        return CodeBlock(self.places, self.steps, self.codes, end)


class CodeTable:
    """The codes of one field, each with the place of its document. Never changed: adding rows gives another one."""

    def __init__(self, dim: int, blocks: tuple[CodeBlock, ...] = ()) -> None:
        self.dim = dim
        self._blocks = blocks

    def with_rows(self, places: Places, steps: Vectors, codes: Codes) -> CodeTable:
        """Return the table with rows added."""
        blocks = list(self._blocks)
        if len(places) * 2 >= BLOCK:  # taken as they are
            return CodeTable(self.dim, (*blocks, CodeBlock(places, steps, codes, len(places))))
        while len(places):
            if not blocks or not blocks[-1].free:
                empty = (
                    np.empty(BLOCK, np.int64),
                    np.empty(BLOCK, np.float32),
                    np.empty((BLOCK, self.dim), np.int8),
                )
                blocks.append(CodeBlock(*empty, 0))
            n = min(blocks[-1].free, len(places))
            blocks[-1] = blocks[-1].with_rows(places[:n], steps[:n], codes[:n])
            places, steps, codes = places[n:], steps[n:], codes[n:]
        return CodeTable(self.dim, tuple(blocks))

    def nearest(self, query: Vectors, limit: int, passing: NDArray[np.bool_] | None) -> Places:
        """Return the places among which the ``limit`` best are, of those that are ``passing``, in no order.

        ``query`` has the shape (dim,); ``passing`` says for each place whether it counts, None that all do.
        """
        (step,), code = quantise(query[None])

        def scan(blocks: Sequence[CodeBlock]) -> Found:
            return _scan(blocks, code, float(step), limit, passing)

        share = -(-len(self._blocks) // _workers_of(len(self._blocks)))
        parts = [self._blocks[start : start + share] for start in range(0, len(self._blocks), share or 1)]
        found = list(_workers().map(scan, parts) if len(parts) > 1 else map(scan, parts))
        return _best(_joined(found), float(step), limit)[0]


def _scan(
    blocks: Sequence[CodeBlock], code: Codes, step: float, limit: int, passing: NDArray[np.bool_] | None
) -> Found:
    """Return what may be among the ``limit`` best of some blocks, and some that may not."""
    found: list[Found] = []
    least = -math.inf
    for block in blocks:
        places, dots, steps = _compared(block, code, passing)
        if least == -math.inf and len(dots) > limit:
            least = float(np.partition(dots, len(dots) - limit)[len(dots) - limit])
        near = np.flatnonzero(dots >= least - 2 * _error(steps.max(initial=0), step))
        found.append((places[near], dots[near], steps[near]))
    return _joined(found)


def _joined(found: Sequence[Found]) -> Found:
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32)
    places, dots, steps = (np.concatenate(parts) for parts in zip(*found))
    return places, dots, steps


def _error(steps: Any, step: float) -> Any:
    """How far a dot product of codes with these steps may be off, in units of ``step``, that of the query."""
    return _SIGMAS * np.sqrt((steps**2 + step**2) / 12) / step


def _best(found: Found, step: float, limit: int) -> Found:
    """Keep what may be among the ``limit`` best."""
    places, dots, steps = found
    if len(places) <= limit:
        return found
    errors = _error(steps, step)
    worst = np.partition(dots - errors, len(dots) - limit)[len(dots) - limit]
    near = np.flatnonzero(dots + errors >= worst)
    return places[near], dots[near], steps[near]


def _workers_of(blocks: int) -> int:
    """How many threads compare so many blocks: one where waiting for others would take longer than it gains."""
    return 1 if blocks < _SHARED_BLOCKS else min(os.cpu_count() or 1, _MOST_THREADS)


def _compared(block: CodeBlock, code: Codes, passing: NDArray[np.bool_] | None) -> Found:
    """Compare those places of a block that are passing."""
    places, steps, codes = block.places[: block.used], block.steps[: block.used], block.codes[: block.used]
    if passing is None:
        return places, _dots(codes, code, steps), steps
    wanted = passing[places]
    if np.count_nonzero(wanted) * _SPARSE < len(places):
        rows = np.flatnonzero(wanted)
        return places[rows], _dots(codes[rows], code, steps[rows]), steps[rows]
    return places[wanted], _dots(codes, code, steps)[wanted], steps[wanted]


def _dots(codes: Codes, code: Codes, steps: Vectors) -> Vectors:
    if not len(codes):
        return np.empty(0, np.float32)
    dots: Vectors = np.asarray(simsimd.cdist(codes, code, metric="dot", out_dtype="f32"))[:, 0] * steps
    return dots


@functools.cache
def _workers() -> ThreadPoolExecutor:
    """Threads that compare blocks: the comparison itself lets go of Python's lock."""
    if hasattr(os, "register_at_fork"):  # a fork has none of the threads
        os.register_at_fork(after_in_child=_workers.cache_clear)
    return ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="vlmsearch-compare")
