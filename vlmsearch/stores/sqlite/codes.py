"""Vectors as codes in memory, which a search compares first.

**INT8.** A code is a vector's numbers divided by its largest one and rounded to -127 to 127. The dot product of two
codes gives the cosine of their vectors but for rounding, whose spread is known. Errors of numbers are independent and
uniform within half a step. So the error of the cosine has a standard deviation of ``sqrt((a^2 + b^2) / 12)`` for
steps a and b. What comes within six of them of the best is compared again, by the vectors
themselves.

**Signs.** Of a vector that was turned at random, each number has one bit, whether it is positive. The share of bits in
which two vectors differ is a binomial variable around their angle divided by pi: Charikar, "Similarity Estimation
Techniques from Rounding Algorithms", STOC 2002. Comparing bits takes a sixth of the time of comparing codes. The
documents that differ least give a lower bound for the cosines of the best. Codes are compared only where no more bits
differ than such a cosine lets expect, and five standard deviations. Where these are too many, as for texts compared
with images, whose cosines lie close together, all codes are compared.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import simsimd
from numpy.typing import NDArray

from vlmsearch.stores.postings import span_of
from vlmsearch.types import Vectors

BLOCK = 2**15
"""Rows that lie together in memory and that one thread compares."""
_MAX_THREADS = 8
_SHARED_BLOCKS = 8
"""Blocks from which on several threads compare their codes."""
_CODE_SIGMAS = 6.0
_SIGN_SIGMAS = 5.0
_SPARSE = 4
"""The share, one in so many, below which codes are picked out to be compared."""
_FEW = 8
"""Signs are compared first where this leaves, at best, fewer than one code in so many."""
_MANY = 2**14
"""The number of documents from which on a search compares signs before codes.

It is a search over all of them.
"""
_SAMPLED = 8
"""One in so many documents tells how near the nearest are."""
_LEADING = 2
"""So many times as many as are wanted lead by their signs."""
_RANKED = 2**12
"""So many codes are compared at most to tell the ranks of matches."""
_TOLD = 0.45
"""The share of bits up to which signs tell documents apart: in half of them any two differ."""

_T = TypeVar("_T")
_Block = TypeVar("_Block")
Codes = NDArray[np.int8]
Signs = NDArray[np.uint8]
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]
Kinds = NDArray[np.uint8]
Candidates: TypeAlias = tuple[Places, Vectors, Vectors]
"""Places, the dot products of their codes with the query's, and their steps.

A product is times the step of its place.
"""


def quantise(vectors: Vectors) -> tuple[Vectors, Codes]:
    """Return the steps, shape (n,), and the codes, shape (n, dim), of vectors."""
    steps = np.abs(vectors).max(axis=1, initial=0) / np.float32(127)
    steps[steps == 0] = 1
    numbers = vectors / steps[:, None]
    return steps, np.rint(numbers, numbers).astype(np.int8)  # new memory would take more time than rounding


def signs_of(vectors: Vectors) -> Signs:
    """Return the bits of vectors, eight to a byte, shape (n, dim / 8)."""
    return np.packbits(vectors @ _turn(vectors.shape[1]) > 0, axis=1)


@functools.cache
def _turn(dim: int) -> Vectors:
    """Return the matrix that turns vectors at random, always the same: changed signs and a cosine transform, twice."""
    drawn = np.frombuffer(hashlib.shake_256(b"vlmsearch signs").digest(2 * dim), np.uint8).reshape(2, dim)
    number = np.arange(dim)
    cosine = np.cos(np.pi * (number[:, None] + 0.5) * number / dim) * math.sqrt(2 / dim)
    cosine[:, 0] /= math.sqrt(2)
    first, second = (np.where(bytes_ & 1, -1.0, 1.0)[:, None] * cosine for bytes_ in drawn)
    turn: Vectors = (first @ second).astype(np.float32)
    return turn


def find(rows: Places, wanted: Places) -> tuple[Places, NDArray[np.bool_]]:
    """Return the places of ``wanted`` in the sorted ``rows``, and whether each is there at all."""
    places = np.searchsorted(rows, wanted)
    there = np.zeros(len(wanted), np.bool_)
    inside = places < len(rows)
    there[inside] = rows[places[inside]] == wanted[inside]
    return places, there


@dataclass(frozen=True)
class CodeRows:
    """The codes of vectors, each with a number: that of its row, or of its place in memory."""

    numbers: Places
    steps: Vectors
    codes: Codes
    signs: Signs

    @classmethod
    def of(cls, numbers: Sequence[int], vectors: Vectors) -> CodeRows:
        """Return the codes of vectors."""
        return cls(np.array(numbers, np.int64), *quantise(vectors), signs_of(vectors))

    @classmethod
    def empty(cls, rows: int, dim: int) -> CodeRows:
        """Return arrays for so many rows, to be filled."""
        signs = np.empty((rows, -(-dim // 8)), np.uint8)
        return cls(np.empty(rows, np.int64), np.empty(rows, np.float32), np.empty((rows, dim), np.int8), signs)

    @classmethod
    def joined(cls, parts: Sequence[CodeRows]) -> CodeRows:
        """Return the rows of all parts, at least one."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*(part.arrays for part in parts))))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays, each with an entry for each row."""
        return self.numbers, self.steps, self.codes, self.signs

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, chosen: slice | NDArray[Any]) -> CodeRows:
        return CodeRows(*(array[chosen] for array in self.arrays))


@dataclass(frozen=True)
class CodeBlock:
    """The first ``used`` rows of arrays that more are added to behind them."""

    room: CodeRows
    used: int

    @property
    def rows(self) -> CodeRows:
        """Return the rows that are in use."""
        return self.room[: self.used]

    @property
    def free(self) -> int:
        """Return how many rows can be added."""
        return len(self.room) - self.used

    def with_rows(self, rows: CodeRows) -> CodeBlock:
        """Return this block with rows added; those who have this one do not see them."""
        end = self.used + len(rows)
        for have, more in zip(self.room.arrays, rows.arrays):
            have[self.used : end] = more
        return CodeBlock(self.room, end)


class CodeTable:
    """The codes of one field, by the places of their documents. Never changed: adding rows gives another one."""

    def __init__(self, dim: int, blocks: tuple[CodeBlock, ...] = ()) -> None:
        self.dim = dim
        self._blocks = blocks
        self._steps: Vectors | None = None

    def with_rows(self, rows: CodeRows) -> CodeTable:
        """Return the table with rows added, whose numbers are places."""
        blocks = list(self._blocks)
        if len(rows) * 2 >= BLOCK:  # taken as they are
            return CodeTable(self.dim, (*blocks, CodeBlock(rows, len(rows))))
        while len(rows):
            if not blocks or not blocks[-1].free:
                blocks.append(CodeBlock(CodeRows.empty(BLOCK, self.dim), 0))
            n = min(blocks[-1].free, len(rows))
            blocks[-1] = blocks[-1].with_rows(rows[:n])
            rows = rows[n:]
        return CodeTable(self.dim, tuple(blocks))

    def blocks(self) -> list[CodeRows]:
        """Return the rows of all blocks."""
        return [block.rows for block in self._blocks]

    def places(self) -> Places:
        """Return the places of all documents."""
        return np.concatenate([np.empty(0, np.int64), *(block.numbers for block in self.blocks())])

    def steps(self, count: int) -> Vectors:
        """Return the steps at ``count`` places, 0 for one without a code; not to be changed."""
        steps = self._steps
        if steps is None or len(steps) != count:
            steps = np.zeros(count, np.float32)
            for block in self.blocks():
                steps[span_of(block.numbers)] = block.steps
            self._steps = steps
        return steps

    def nearest(self, query: Vectors, limit: int, passing: Mask | None) -> Places:
        """Return places among which the ``limit`` best of those ``passing`` are, in no order.

        ``query`` has the shape (dim,); ``passing`` says for each place whether it counts, None that all do.
        """
        (step,), code = quantise(query[None])
        compare = _Comparison(code, float(step), limit)
        blocks = self.blocks()
        wanted = [None if passing is None else passing[span_of(rows.numbers)] for rows in blocks]
        chosen = self._by_signs(query, blocks, wanted, compare)
        if chosen is not None:
            return compare.best(_joined([compare.dots(rows, mask) for rows, mask in zip(blocks, chosen)]))
        share = -(-len(blocks) // _workers_of(len(blocks))) or 1
        parts = [range(start, min(start + share, len(blocks))) for start in range(0, len(blocks), share)]

        def scan(part: range) -> Candidates:
            return compare.scan([blocks[i] for i in part], [wanted[i] for i in part])

        return compare.best(_joined(list(_workers().map(scan, parts) if len(parts) > 1 else map(scan, parts))))

    def compared(self, query: Vectors, count: int, passing: Mask | None) -> FieldCosines:
        """Return what the codes say of the cosines with a query of shape (dim,).

        ``count`` is the number of places; ``passing`` says for each place whether it counts, None that all do.
        """
        return FieldCosines(self, query, count, passing)

    def cosines(self, compare: _Comparison, count: int, wanted: Mask | None) -> Vectors:
        """Return the cosines of wanted rows at ``count`` places; NaN where nothing is."""
        cosines = np.full(count, np.nan, np.float32)

        def fill(block: CodeRows) -> None:
            places, dots, _ = compare.dots(block, None if wanted is None else wanted[span_of(block.numbers)])
            cosines[span_of(block.numbers) if len(places) == len(block) else places] = dots * compare.step

        on_each(fill, self.blocks())
        return cosines

    def __len__(self) -> int:
        return sum(block.used for block in self._blocks)

    def differing(self, query: Vectors, count: int, passing: Mask | None) -> Vectors:
        """Return in how many bits what is at ``count`` places differs from a query.

        They are infinitely many where nothing is, or does not pass.
        """
        asked, differ = signs_of(query[None]), np.full(count, np.inf, np.float32)

        def fill(block: CodeRows) -> None:
            span = span_of(block.numbers)
            differ[span] = _differing(block.signs, asked, None if passing is None else passing[span])

        on_each(fill, self.blocks())
        return differ

    def _by_signs(
        self, query: Vectors, blocks: Sequence[CodeRows], wanted: Sequence[Mask | None], compare: _Comparison
    ) -> list[Mask] | None:
        """Return for each block the rows that may be among the best by their signs: None for too many."""
        rows = sum(map(len, blocks))
        first = 4 * compare.limit + 64
        if first * _FEW > rows or any(
            mask is not None and np.count_nonzero(mask) * _SPARSE < len(mask) for mask in wanted
        ):
            return None
        asked = signs_of(query[None])
        differ = [_differing(block.signs, asked, mask) for block, mask in zip(blocks, wanted)]
        sample = np.concatenate([bits[::_SAMPLED] for bits in differ])
        best, cut = np.partition(sample, [compare.limit // _SAMPLED, first // _SAMPLED])[
            [compare.limit // _SAMPLED, first // _SAMPLED]
        ]
        many = np.count_nonzero(sample <= self.max_bits(np.cos(np.pi * best / self.dim))) * _FEW > 2 * len(sample)
        if many or not math.isfinite(cut):
            return None
        near = _joined([compare.dots(block, bits <= cut) for block, bits in zip(blocks, differ)])
        if len(near[0]) < compare.limit or len(near[0]) * _FEW > rows:
            return None
        max_bits = self.max_bits(compare.min_cosine(near))
        chosen = [bits <= max_bits for bits in differ]
        return chosen if sum(map(np.count_nonzero, chosen)) * _FEW <= rows else None

    def max_bits(self, cosines: Any) -> Any:
        """Return the bits in which documents with such cosines, or higher ones, may differ."""
        angle = np.arccos(np.clip(cosines, -1.0, 1.0)) / np.pi  # a share of half a turn
        spread = np.sqrt(np.minimum(angle, 0.5) * (1 - np.minimum(angle, 0.5)) * self.dim)
        return angle * self.dim + _SIGN_SIGMAS * spread


class FieldCosines:
    """The cosines of one field with a query, as far as they were asked for: see `vlmsearch.stores.overview.Cosines`.

    Among many documents, those whose signs tell that they are too far away are not compared by their codes.
    """

    def __init__(self, table: CodeTable, query: Vectors, count: int, passing: Mask | None) -> None:
        self._table = table
        self._query = query
        self._count = count
        self._passing = passing
        self._compared = len(table) if passing is None else int(np.count_nonzero(passing))

    @functools.cached_property
    def _all(self) -> Vectors:
        return self._table.cosines(self._comparison, self._count, self._passing)

    @functools.cached_property
    def _comparison(self) -> _Comparison:
        (step,), code = quantise(self._query[None])
        return _Comparison(code, float(step), 0)

    @property
    def _is_dense(self) -> bool:
        return "_all" in vars(self) or self._compared < _MANY

    @functools.cached_property
    def _bits(self) -> Vectors:
        return self._table.differing(self._query, self._count, self._passing)

    def leading(self, count: int) -> Places:
        """Return the places of about so many documents, probably the nearest ones."""
        if self._is_dense:
            return np.flatnonzero(self._all >= -_about(-self._all[::_SAMPLED], count // _SAMPLED))
        return np.flatnonzero(self._bits <= _about(self._bits[::_SAMPLED], _LEADING * count // _SAMPLED))

    @functools.cached_property
    def _some(self) -> tuple[Mask, Vectors]:
        """Return the places whose codes were compared, and the cosines: zeros take no memory yet."""
        return np.zeros(self._count, np.bool_), np.zeros(self._count, np.float32)

    def above(self, cosines: NDArray[np.float64], kinds: Kinds) -> Places:
        """Return the places of all documents whose cosine may be that of their kind, or more."""
        if not self._is_dense:
            max_bits = self._table.max_bits(cosines).astype(np.float32)[kinds]
            if np.count_nonzero(max_bits > _TOLD * self._table.dim) * _FEW <= self._count:
                places = np.flatnonzero(self._bits <= max_bits)
                if len(places) * _FEW <= self._compared:
                    known, errors = self.at(places)
                    return places[known >= cosines[kinds[places]] - errors]
        max_error = self._comparison.errors(self._table.steps(self._count).max(initial=0))
        return np.flatnonzero(self._all >= (cosines - max_error).astype(np.float32)[kinds])

    def at(self, places: Places) -> tuple[Vectors, Vectors]:
        """Return the cosines of documents, whose places rise, and their errors at most. It is NaN for those without."""
        is_dense = self._is_dense or len(places) * _SPARSE > len(self._table)
        known, values = (None, self._all) if is_dense else self._some
        if known is not None and len(unknown := places[~known[places]]):
            known[unknown], values[unknown] = True, np.nan
            for block in self._table.blocks():
                ends = (block.numbers[0], block.numbers[-1] + 1) if len(block) else (0, 0)
                first, last = np.searchsorted(unknown, ends)
                if first < last:
                    rows, there = find(block.numbers, unknown[first:last])
                    numbers, dots, _ = self._comparison.picked(block, rows[there])
                    values[numbers] = dots * self._comparison.step
        return values[places], self._comparison.errors(self._table.steps(self._count)[places])

    def ranks(self, places: Places) -> NDArray[np.int64]:
        """Return the rank of documents among all that pass, from 1. It is 0 where the field does not find them."""
        values, _ = self.at(places)
        ranks = np.zeros(len(places), np.int64)
        if self._is_dense:
            for at in np.flatnonzero(~np.isnan(values)).tolist():
                ranks[at] = 1 + np.count_nonzero(self._all > values[at])
        else:
            sample, max_bits = np.sort(self._bits[::_SAMPLED]), self._table.max_bits(values)
            is_told = (np.searchsorted(sample, max_bits, side="right") * _SAMPLED <= _RANKED) & ~np.isnan(values)
            near = np.flatnonzero(self._bits <= max_bits[is_told].max(initial=-1))
            listed = np.sort(self.at(near)[0])
            ranks[is_told] = 1 + len(listed) - np.searchsorted(listed, values[is_told], side="right")
        return ranks


def _about(values: Vectors, count: int) -> float:
    """Return a value that about ``count`` of these, and at least one, do not exceed."""
    values = values[np.isfinite(values)]
    return float(np.partition(values, min(count, len(values) - 1))[min(count, len(values) - 1)]) if len(values) else 0.0


@dataclass(frozen=True)
class _Comparison:
    """The code of a query and its step, and how many documents are wanted."""

    code: Codes
    step: float
    limit: int

    def dots(self, rows: CodeRows, wanted: Mask | None) -> Candidates:
        """Compare those rows that are wanted."""
        if wanted is None:
            return rows.numbers, self._dots(rows.codes, rows.steps), rows.steps
        if np.count_nonzero(wanted) * _SPARSE < len(rows):
            return self.picked(rows, np.flatnonzero(wanted))
        return rows.numbers[wanted], self._dots(rows.codes, rows.steps)[wanted], rows.steps[wanted]

    def picked(self, rows: CodeRows, chosen: Places) -> Candidates:
        """Compare some of the rows."""
        return rows.numbers[chosen], self._dots(rows.codes[chosen], rows.steps[chosen]), rows.steps[chosen]

    def _dots(self, codes: Codes, steps: Vectors) -> Vectors:
        if not len(codes):
            return np.empty(0, np.float32)
        dots: Vectors = np.asarray(simsimd.cdist(codes, self.code, metric="dot", out_dtype="f32"))[:, 0] * steps
        return dots

    def scan(self, blocks: Sequence[CodeRows], wanted: Sequence[Mask | None]) -> Candidates:
        """Return candidates for the best of some blocks, all of them and some others."""
        candidates: list[Candidates] = []
        min_dot = -math.inf
        for block, mask in zip(blocks, wanted):
            places, dots, steps = self.dots(block, mask)
            if min_dot == -math.inf and len(dots) > self.limit:
                min_dot = float(_kth(dots, self.limit))
            near = np.flatnonzero(dots >= min_dot - 2 * self._error(steps.max(initial=0)))
            candidates.append((places[near], dots[near], steps[near]))
        return _joined(candidates)

    def min_cosine(self, candidates: Candidates) -> float:
        """Return a cosine that the ``limit`` best have at least."""
        _, dots, steps = candidates
        return float(_kth(dots - self._error(steps), self.limit)) * self.step

    def best(self, candidates: Candidates) -> Places:
        """Return the places that may be among the best."""
        places, dots, steps = candidates
        if len(places) <= self.limit:
            return places
        errors = self._error(steps)
        best: Places = places[dots + errors >= _kth(dots - errors, self.limit)]
        return best

    def errors(self, steps: Vectors) -> Vectors:
        """Return how far cosines of codes with these steps may be off."""
        errors: Vectors = self._error(steps) * self.step
        return errors

    def _error(self, steps: Any) -> Any:
        """Return the largest error of a dot product of codes, in units of the query's step."""
        return _CODE_SIGMAS * np.sqrt((steps**2 + self.step**2) / 12) / self.step


def _kth(values: Vectors, k: int) -> np.float32:
    """Return the k-th largest value."""
    value: np.float32 = np.partition(values, len(values) - k)[len(values) - k]
    return value


def _joined(candidates: Sequence[Candidates]) -> Candidates:
    if not candidates:
        return np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32)
    places, dots, steps = (np.concatenate(parts) for parts in zip(*candidates))
    return places, dots, steps


def _differing(signs: Signs, asked: Signs, wanted: Mask | None) -> Vectors:
    """Count the bits in which rows differ from the query. Rows that are not wanted have infinitely many."""
    if not len(signs):
        return np.empty(0, np.float32)
    bits = np.asarray(simsimd.cdist(signs, asked, metric="hamming", dtype="bin8", out_dtype="f32"))[:, 0]
    differ: Vectors = bits if wanted is None else np.where(wanted, bits, np.float32(np.inf))
    return differ


def on_each(function: Callable[[_Block], _T], blocks: Sequence[_Block]) -> list[_T]:
    """Return what a function makes of each block, in several threads where there are many."""
    return list(_workers().map(function, blocks) if _workers_of(len(blocks)) > 1 else map(function, blocks))


def _workers_of(blocks: int) -> int:
    """Return how many threads compare so many blocks: one where waiting for others takes longer than it gains."""
    return 1 if blocks < _SHARED_BLOCKS else min(os.cpu_count() or 1, _MAX_THREADS)


@functools.cache
def _workers() -> ThreadPoolExecutor:
    """Threads that compare blocks: the comparison itself lets go of Python's lock."""
    if hasattr(os, "register_at_fork"):  # a fork has none of the threads
        os.register_at_fork(after_in_child=_workers.cache_clear)
    return ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="vlmsearch-compare")
