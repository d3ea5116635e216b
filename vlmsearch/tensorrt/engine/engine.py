"""A plan that runs: batches of any size in, vectors out, from any thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.closable import Closable
from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.tensorrt.engine.cuda import DeviceArray, OutOfMemoryError, current, find_gpu, free_memory
from vlmsearch.tensorrt.engine.plans import Shape
from vlmsearch.tensorrt.engine.profiles import Steps
from vlmsearch.tensorrt.engine.runtime import Program
from vlmsearch.tensorrt.engine.slots import ExecutionSlot, SlotPool
from vlmsearch.tensorrt.engine.timing import Timing, time_step
from vlmsearch.types import Vectors

GRAPHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Batch sizes that run as CUDA graphs."""
_SPLIT_ROWS = 64
_SPLIT_BYTES = 4 * 2**20


class Engine(Closable):
    """A TensorRT plan on one GPU, to be used from several threads.

    ``contexts`` batches run at once, each with memory of its own. ``graphs`` are the batch sizes that run as CUDA
    graphs; a few more rows are computed if it saves time. ``max_batch`` bounds the rows that are computed at
    once, and with them the memory. Raises BackendError where TensorRT refuses the plan, ConfigError or
    ModelUnavailableError where there is no such GPU.
    """

    def __init__(
        self,
        plan: bytes,
        *,
        device: int = 0,
        contexts: int = 2,
        graphs: Sequence[int] = GRAPHS,
        max_batch: int | None = None,
    ) -> None:
        if contexts < 1 or (max_batch or 1) < 1:
            raise ConfigError(f"contexts and max_batch are at least 1, not {contexts} and {max_batch}")
        self.gpu = find_gpu(device)
        self._weights = len(plan)
        self._pool = SlotPool(self._new_slot, contexts)
        with current(device):
            self._program = Program(plan)
            try:
                self._steps = Steps(self._program, graphs)
                self._limit = self._steps.limit(max_batch)
                with self._pool.take():
                    pass
            except BaseException:
                self._program.close()
                raise
        self.dim = self._program.output.shape[-1]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return what the program takes."""
        return tuple(tensor.name for tensor in self._program.inputs)

    @property
    def max_batch(self) -> int:
        """Return the most rows that are computed at once.

        It falls once the memory did not suffice.
        """
        return self._limit

    @property
    def memory(self) -> int:
        """Bytes of GPU memory that it holds: weights, activations, inputs and outputs."""
        return self._weights + sum(slot.memory for slot in self._pool.all)

    @property
    def graphs(self) -> int:
        """Return how many CUDA graphs are captured, over all contexts."""
        return sum(slot.graphs for slot in self._pool.all)

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> Vectors:
        """Return the output of a batch of any size, float32 (n, dim).

        Inputs are the program's, by name.
        """
        rows = self._rows(inputs)
        return self._run(rows, _shapes(inputs), _FromHost([inputs[name] for name in self.inputs]))

    def run_device(self, inputs: Mapping[str, DeviceArray]) -> Vectors:
        """Return what `run` gives, of inputs that are on the GPU already.

        They are of the program's types, in C order; their memory is free again when this returns.
        """
        rows = self._rows(inputs)
        return self._run(rows, _shapes(inputs), _FromDevice([inputs[name] for name in self.inputs]))

    def timed(self, inputs: Mapping[str, NDArray[np.generic]], *, runs: int = 50) -> Timing:
        """Return how long the GPU takes for one batch, at most ``max_batch`` rows."""
        rows = self._rows(inputs)
        if not 1 <= rows <= self._limit:
            raise ConfigError(f"batches of 1 to {self._limit} can be timed, not of {rows}")
        step = self._steps.exact(rows, _shapes(inputs))
        source = _FromHost([inputs[name] for name in self.inputs])
        with current(self.gpu.index), self._pool.take() as (slot,):
            source.stage(slot, 0, rows)
            return time_step(slot, step, runs)

    def close(self) -> None:
        """Wait for the batches that run, and free all memory. Calling it twice is allowed."""
        with current(self.gpu.index):
            self._pool.close()
            self._program.close()

    def _new_slot(self) -> ExecutionSlot:
        while True:
            limit = self._limit
            try:
                return ExecutionSlot(self._program, limit, self._steps.sizes, self._steps.profiles_for(limit))
            except OutOfMemoryError as exc:
                if self._pool.all:
                    raise
                if limit <= self._steps.min_batch:
                    raise OutOfMemoryError(f"{exc}: {self._shortage()}") from exc
                self._limit = max(limit // 2, self._steps.min_batch)

    def _shortage(self) -> str:
        memory = max(map(self._program.activations, self._steps.profiles_for(1)))
        need, free = (f"{size / 2**20:,.0f} MiB" for size in (memory, free_memory()))
        return (
            f"the engine computes in {need} of GPU memory, and {free} are free. One for smaller batches needs less: "
            f"`vlmsearch build NAME --engine tensorrt --profile 1,8,32`, and tensorrt:NAME?profile=1,8,32"
        )

    def _rows(self, inputs: Mapping[str, NDArray[np.generic]] | Mapping[str, DeviceArray]) -> int:
        if inputs.keys() != set(self.inputs):
            given = ", ".join(inputs) or "nothing"
            raise BackendError(f"the plan takes {', '.join(self.inputs)}, not {given}")
        counts = {array.shape[0] for array in inputs.values()}
        if len(counts) != 1:
            raise BackendError(f"the inputs are of different lengths: {', '.join(map(str, sorted(counts)))}")
        return counts.pop()

    def _run(self, rows: int, shapes: Mapping[str, Shape], source: _Source) -> Vectors:
        vectors = np.empty((rows, self.dim), np.float32)
        if not rows:
            return vectors
        max_rows = self._steps.batch_for(shapes)
        done = 0
        with current(self.gpu.index):
            while done < rows:
                piece = min(self._piece(rows - done, source.row_bytes), max_rows)
                with self._pool.take(2 if piece < rows - done else 1) as slots:
                    piece = min(piece, *(slot.rows for slot in slots), rows - done)
                    flight = _Flight(self._steps, slots, shapes, source, piece)
                    done = flight.run(vectors, done)
                if flight.failure:
                    self._shrink(piece, flight.failure)
        return vectors

    def _piece(self, rows: int, row_bytes: int) -> int:
        """Return how many rows go at once.

        All that fit, or where copying takes long, so many that it overlaps computing.
        """
        if self._pool.size > 1 and row_bytes * rows >= 2 * _SPLIT_BYTES:
            min_rows = max(_SPLIT_ROWS, _SPLIT_BYTES // row_bytes)
            return min((size for size in self._steps.usual if min_rows <= size < self._limit), default=self._limit)
        return self._limit

    def _shrink(self, piece: int, failure: str) -> None:
        if piece == 1:
            raise OutOfMemoryError(failure)
        self._limit = min(self._limit, piece // 2)


class _Source(Protocol):
    """The source of a batch; ``row_bytes`` are copied from the host for each row."""

    row_bytes: int

    def stage(self, slot: ExecutionSlot, start: int, stop: int) -> None:
        """Queue the copy of some rows to a slot."""


class _FromHost:
    def __init__(self, arrays: Sequence[NDArray[np.generic]]) -> None:
        self._arrays = arrays
        self.row_bytes = sum(array[:1].nbytes for array in arrays)

    def stage(self, slot: ExecutionSlot, start: int, stop: int) -> None:
        slot.stage(self._arrays, start, stop)


class _FromDevice:
    row_bytes = 0

    def __init__(self, arrays: Sequence[DeviceArray]) -> None:
        self._arrays = arrays

    def stage(self, slot: ExecutionSlot, start: int, stop: int) -> None:
        slot.stage_device(self._arrays, start, stop)


@dataclass
class _Flight:
    """A batch under way in pieces: while one slot computes, the next is filled."""

    steps: Steps
    slots: Sequence[ExecutionSlot]
    shapes: Mapping[str, Shape]
    source: _Source
    piece: int
    failure: str = ""

    def run(self, vectors: Vectors, start: int) -> int:
        """Fill ``vectors`` from row ``start`` on; the rows before what is returned are done."""
        idle, flying = deque(self.slots), deque[tuple[ExecutionSlot, int, int]]()
        try:
            while flying or (start < len(vectors) and not self.failure):
                if idle and start < len(vectors) and not self.failure:
                    stop = min(start + self.piece, len(vectors))
                    if self._send(idle[0], start, stop):
                        flying.append((idle.popleft(), start, stop))
                        start = stop
                else:
                    slot, first, last = flying.popleft()
                    idle.append(slot)
                    slot.receive(vectors[first:last])
        except BaseException:
            for slot in self.slots:
                slot.settle()
            raise
        return start

    def _send(self, slot: ExecutionSlot, start: int, stop: int) -> bool:
        try:
            self.source.stage(slot, start, stop)
            slot.launch(self.steps.find(stop - start, self.shapes, max_rows=slot.rows))
            slot.fetch(stop - start)
        except OutOfMemoryError as exc:
            slot.settle()
            self.failure = str(exc)  # not the exception, whose frames would keep this, and the GPU's memory, alive
            return False
        return True


def _shapes(inputs: Mapping[str, NDArray[np.generic]] | Mapping[str, DeviceArray]) -> dict[str, Shape]:
    return {name: array.shape for name, array in inputs.items()}
