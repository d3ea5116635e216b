"""A pretend GPU: real memory behind device pointers, and streams that run late, as real ones do.

Work is queued and only done when somebody waits for it, so that code which reads too early reads the wrong thing.
Every access is checked against what is allocated; a wrong one poisons the GPU, as it does in CUDA.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

SUCCESS, INVALID_VALUE, MEMORY_ALLOCATION, INSUFFICIENT_DRIVER = 0, 1, 2, 35
NO_DEVICE, INVALID_DEVICE, INVALID_HANDLE, NOT_READY, ILLEGAL_ADDRESS = 100, 101, 400, 600, 700
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, CAPTURE_IMPLICIT = 900, 901, 906

Work = Callable[[], None]


class CudaError(Exception):
    """A CUDA call or a kernel failed with ``code``."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Allocation:
    size: int
    memory: NDArray[np.uint8]
    device: int  # -1: the host's


@dataclass
class Captured:
    work: list[Work] = field(default_factory=list)
    invalid: bool = False
    thread: int = field(default_factory=threading.get_ident)


@dataclass
class Stream:
    device: int
    queue: deque[Work] = field(default_factory=deque)
    captured: Captured | None = None

    def add(self, work: Work) -> None:
        (self.queue if self.captured is None else self.captured.work).append(work)


@dataclass
class Event:
    timed: bool
    time: float = 0.0
    pending: Stream | None = None  # where it was recorded, until it happened


class PretendGpu:
    """The whole machine: ``devices`` GPUs with ``memory`` bytes each, and a driver for CUDA ``driver``."""

    def __init__(self) -> None:
        self.driver = 13000
        self.devices = 1
        self.name = "NVIDIA Pretend"
        self.capability = (9, 0)
        self.memory = 2**30
        self.used = 0
        self.peak = 0
        self.poison = SUCCESS
        self.lock = threading.RLock()
        self.allocations: dict[int, Allocation] = {}
        self.objects: dict[int, object] = {}
        self.thread = threading.local()
        self.launches = 0
        self.graph_launches = 0
        self.most_rows: int | None = None
        """Batches of more rows run out of memory."""
        self.no_capture = False
        """Whether TensorRT's work cannot be captured."""
        self.built = 0
        self.refuse_build = False
        self.no_context = False
        """Whether TensorRT finds no room for what CUDA itself takes."""
        self.may_build = threading.Event()
        """Builds wait for it."""
        self.may_build.set()
        self.noise: dict[str, float] = {}
        """Per precision, how far a plan's vectors are off."""
        self.cublas = ""
        """The version of cuBLAS on this machine."""
        self._next = 0x1000

    @property
    def device(self) -> int:
        return getattr(self.thread, "device", 0)

    def check(self) -> None:
        if self.driver < 12000:
            raise CudaError(INSUFFICIENT_DRIVER)
        if not self.devices:
            raise CudaError(NO_DEVICE)
        if self.poison:
            raise CudaError(self.poison)

    def use(self) -> None:
        """What TensorRT does first."""
        self.check()
        if self.no_context:
            raise CudaError(MEMORY_ALLOCATION)

    def register(self, thing: object) -> int:
        with self.lock:
            self._next += 0x10
            self.objects[self._next] = thing
            return self._next

    def stream(self, handle: int) -> Stream:
        found = self.objects.get(int(handle))
        if not isinstance(found, Stream):
            raise CudaError(INVALID_HANDLE)
        if found.device != self.device:
            raise CudaError(INVALID_HANDLE)
        return found

    def allocate(self, size: int, *, host: bool = False) -> int:
        with self.lock:
            self.forbid_in_capture()
            if not host and self.used + size > self.memory:
                raise CudaError(MEMORY_ALLOCATION)
            memory = np.full(size + 256, 0xA5, np.uint8)
            pointer = (memory.ctypes.data + 255) // 256 * 256
            self.allocations[pointer] = Allocation(size, memory, -1 if host else self.device)
            self.used += 0 if host else size
            self.peak = max(self.peak, self.used)
            return pointer

    def free(self, pointer: int, *, host: bool = False) -> None:
        with self.lock:
            found = self.allocations.get(pointer)
            if found is None or (found.device < 0) != host:
                raise CudaError(INVALID_VALUE)
            for thing in self.objects.values():  # as cudaFree does, wait for the work that may use it
                if isinstance(thing, Stream) and thing.captured is None:
                    self.drain(thing)
            del self.allocations[pointer]
            self.used -= 0 if host else found.size

    def forbid_in_capture(self) -> None:
        """A call that no thread may make while it captures."""
        for thing in self.objects.values():
            if isinstance(thing, Stream) and thing.captured and thing.captured.thread == threading.get_ident():
                thing.captured.invalid = True
                raise CudaError(CAPTURE_UNSUPPORTED)

    def use_default_stream(self) -> None:
        """What it does waits for streams that TensorRT may have forked a capture onto: no thread may do it then."""
        if self.captures:
            raise CudaError(CAPTURE_IMPLICIT)

    @property
    def captures(self) -> bool:
        """Whether any thread captures a stream."""
        with self.lock:
            return any(isinstance(thing, Stream) and thing.captured for thing in self.objects.values())

    def bytes_at(self, pointer: int, size: int, *, host: bool = False) -> NDArray[np.uint8]:
        """Memory at a pointer, anywhere in an allocation; an illegal address where it is none of ours."""
        with self.lock:
            for start, found in self.allocations.items():
                if start <= pointer and pointer + size <= start + found.size and (found.device < 0) == host:
                    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pointer))
        raise CudaError(ILLEGAL_ADDRESS)

    def drain(self, stream: Stream, until: Event | None = None) -> None:
        """Do what is queued, up to an event."""
        with self.lock:
            while stream.queue and not (until is not None and until.pending is not stream):
                work = stream.queue.popleft()
                if self.poison:
                    continue
                try:
                    work()
                except CudaError as fault:
                    self.poison = fault.code


STATE = PretendGpu()


def reset() -> PretendGpu:
    """The machine as new, everything gone that was on it."""
    STATE.__init__()  # type: ignore[misc]
    return STATE
