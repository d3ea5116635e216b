"""An execution slot runs one batch at a time: a stream, a program's contexts and graphs, and the memory they need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.closable import Closable
from vlmsearch.errors import BackendError
from vlmsearch.tensorrt.engine.cuda import (
    Capture,
    CudaGraph,
    DeviceArray,
    DeviceBuffer,
    OutOfMemoryError,
    PinnedBuffer,
    Stream,
    copy_on_device,
    copy_to_device,
    copy_to_host,
    uncaptured,
)
from vlmsearch.tensorrt.engine.plans import Shape
from vlmsearch.tensorrt.engine.runtime import Context, Program, Tensor

_MAX_GRAPHS = 160  # more than 9 batch sizes times 16 lengths; what comes later is launched


@dataclass(frozen=True, eq=False)
class Step:
    """The run of batches of one size: its profile, its shapes, and whether it is a graph. Compared by identity."""

    profile: int
    rows: int
    shapes: tuple[tuple[str, Shape], ...]
    graph: bool


class _Buffer:
    """One input or output: memory on the GPU, and the pinned memory of the host that goes with it."""

    def __init__(self, tensor: Tensor, rows: int, row: int, held: ExitStack) -> None:
        self.name = tensor.name
        self.dtype = tensor.dtype
        self.device = held.enter_context(DeviceBuffer(rows * row * tensor.dtype.itemsize))
        self.host = held.enter_context(PinnedBuffer(self.device.size))
        self._views: dict[Shape, NDArray[np.generic]] = {}

    def view(self, shape: Shape) -> NDArray[np.generic]:
        """Return the pinned memory in that shape."""
        if shape not in self._views:
            self._views[shape] = self.host.array(shape, self.dtype)
        return self._views[shape]


@dataclass
class _PreparedStep:
    """A context whose shapes stay as they are, and its graph once it was captured."""

    context: Context
    graph: CudaGraph | None = None


class ExecutionSlot(Closable):
    """Batches of up to ``rows`` on the current GPU. Used by one thread at a time.

    ``sizes`` gives the most elements a row of each tensor has, ``profiles`` those that may be asked for. All memory is
    taken here; OutOfMemoryError leaves nothing behind.
    """

    def __init__(self, program: Program, rows: int, sizes: Mapping[str, int], profiles: Iterable[int]) -> None:
        self._program = program
        self._prepared: dict[Step, _PreparedStep] = {}
        self._loose: dict[int, tuple[Context, Step | None]] = {}
        self._plain: set[Step] = set()
        with ExitStack() as held:
            self.stream = held.enter_context(Stream())
            size = max(program.activations(profile) for profile in profiles)
            self._activations = held.enter_context(DeviceBuffer(size))
            self._inputs = [_Buffer(tensor, rows, sizes[tensor.name], held) for tensor in program.inputs]
            self._output = _Buffer(program.output, rows, sizes[program.output.name], held)
            self._held = held.pop_all()
        self._width = sizes[program.output.name]
        self.rows = rows

    @property
    def memory(self) -> int:
        """Bytes that it holds on the GPU, graphs left out."""
        return self._activations.size + sum(buffer.device.size for buffer in (*self._inputs, self._output))

    @property
    def graphs(self) -> int:
        """Return how many graphs it has captured."""
        return sum(prepared.graph is not None for prepared in self._prepared.values())

    def stage(self, arrays: Sequence[NDArray[np.generic]], start: int, stop: int) -> None:
        """Queue the copy of rows of the inputs, in the program's order, to the GPU."""
        for buffer, array in zip(self._inputs, arrays):
            rows = array[start:stop]
            np.copyto(buffer.view(rows.shape), rows, casting="same_kind")
            copy_to_device(buffer.device.pointer, buffer.host.pointer, rows.size * buffer.dtype.itemsize, self.stream)

    def stage_device(self, arrays: Sequence[DeviceArray], start: int, stop: int) -> None:
        """Queue the copy of rows that are on the GPU already."""
        for buffer, array in zip(self._inputs, arrays):
            row = int(np.prod(array.shape[1:])) * buffer.dtype.itemsize
            copy_on_device(buffer.device.pointer, array.pointer + start * row, (stop - start) * row, self.stream)

    def launch(self, step: Step) -> None:
        """Queue the program on what was staged."""
        prepared = self._prepared.get(step)
        full = prepared is None and len(self._prepared) >= _MAX_GRAPHS
        if not step.graph or step in self._plain or full:
            self._enqueue(step)
            return
        if prepared is None:
            with uncaptured:
                self._prepare(step).context.enqueue(self.stream)  # the first run of a context may not be captured
            return
        graph = prepared.graph or self._capture(step, prepared)
        if graph:
            graph.launch(self.stream)
        else:
            self._enqueue(step)

    def fetch(self, rows: int) -> None:
        """Queue the copy of the output's first rows to the host."""
        output = self._output
        size = rows * self._width * output.dtype.itemsize
        copy_to_host(output.host.pointer, output.device.pointer, size, self.stream)

    def receive(self, target: NDArray[np.float32]) -> None:
        """Wait for the queued work, and write the output's rows into ``target``."""
        self.stream.synchronize()
        target[:] = self._output.view(target.shape)

    def settle(self) -> None:
        """Wait until nothing is queued, whatever came of it."""
        with suppress(BackendError):
            self.stream.synchronize()

    def graphed(self, step: Step) -> bool:
        """Return whether ``step`` runs as a graph now."""
        prepared = self._prepared.get(step)
        return prepared is not None and prepared.graph is not None

    def _prepare(self, step: Step) -> _PreparedStep:
        prepared = _PreparedStep(self._context(step.profile))
        self._set_shapes(prepared.context, step)
        self._prepared[step] = prepared
        return prepared

    def _capture(self, step: Step, prepared: _PreparedStep) -> CudaGraph | None:
        """Return a graph of a step.

        A step that cannot be captured runs without one from now on.
        """
        try:
            with Capture(self.stream) as capture:
                prepared.context.enqueue(self.stream)
        except OutOfMemoryError:
            raise
        except BackendError:
            self._plain.add(step)
            del self._prepared[step]
            return None
        prepared.graph = capture.graph
        return prepared.graph

    def _enqueue(self, step: Step) -> None:
        """Queue a step without a graph; TensorRT prepares itself in the first run with other shapes."""
        context, current = self._loose.get(step.profile, (None, None))
        if context and current is step:
            context.enqueue(self.stream)
            return
        with uncaptured:
            context = context or self._context(step.profile)
            self._set_shapes(context, step)
            self._loose[step.profile] = context, step
            context.enqueue(self.stream)

    def _set_shapes(self, context: Context, step: Step) -> None:
        for name, shape in step.shapes:
            context.set_shape(name, shape)

    def _context(self, profile: int) -> Context:
        context = self._program.context(profile, self.stream, self._activations.pointer, self._activations.size)
        for buffer in (*self._inputs, self._output):
            context.set_address(buffer.name, buffer.device.pointer)
        return context

    def close(self) -> None:
        """Free all of it."""
        for prepared in self._prepared.values():
            if prepared.graph:
                prepared.graph.close()
        self._prepared.clear()
        self._loose.clear()
        self._held.close()


class SlotPool(Closable):
    """Up to ``size`` slots, made by ``make`` when they are first needed.

    There are fewer once the memory did not suffice.
    """

    def __init__(self, make: Callable[[], ExecutionSlot], size: int) -> None:
        self.all: list[ExecutionSlot] = []
        self.size = size
        self._make = make
        self._idle: list[ExecutionSlot] = []
        self._making = 0
        self._closed = False
        self._changed = threading.Condition()

    @contextmanager
    def take(self, wanted: int = 1) -> Iterator[list[ExecutionSlot]]:
        """Wait for one slot, and take up to ``wanted`` where more are free.

        BackendError after `close`.
        """
        first = self._free_slot()
        held = [first] if first else []
        try:
            while len(held) < wanted and (slot := self._free_slot(wait=False)):
                held.append(slot)
            yield held
        finally:
            with self._changed:
                self._idle.extend(held)
                self._changed.notify_all()

    def close(self) -> None:
        """Wait for the slots that are in use, and close all."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._idle) == len(self.all) and not self._making)
            slots, self.all, self._idle = self.all, [], []
        for slot in slots:
            slot.close()

    def _free_slot(self, *, wait: bool = True) -> ExecutionSlot | None:
        with self._changed:
            while not self._idle:
                if self._closed:
                    break
                if len(self.all) + self._making < self.size:
                    return self._another(wait=wait)
                if not wait:
                    return None
                self._changed.wait()
            if self._closed:
                raise BackendError("the engine is closed")
            return self._idle.pop()

    def _another(self, *, wait: bool) -> ExecutionSlot | None:
        """Return a slot that is made now, with the lock given back meanwhile.

        If there is no memory, one that is there.
        """
        self._making += 1
        self._changed.release()
        try:
            slot = self._make()
        except OutOfMemoryError:
            slot = None
            if not self.all:
                raise
        finally:
            self._changed.acquire()
            self._making -= 1
            self._changed.notify_all()
        if slot is None:
            self.size = max(1, len(self.all) + self._making)
            return self._free_slot(wait=wait)
        self.all.append(slot)
        return slot
