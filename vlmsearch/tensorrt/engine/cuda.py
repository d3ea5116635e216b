"""CUDA's runtime: devices, streams, events, memory and graphs, without torch."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import runtime
from numpy.typing import DTypeLike, NDArray
from typing_extensions import Self

from vlmsearch._util.closable import Closable
from vlmsearch.errors import BackendError, ConfigError, ModelUnavailableError

_SUCCESS = runtime.cudaError_t.cudaSuccess
_OUT_OF_MEMORY = runtime.cudaError_t.cudaErrorMemoryAllocation
_TO_DEVICE = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
_TO_HOST = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
_ON_DEVICE = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice
_NON_BLOCKING = 1
_DRIVER_FILE = Path("/proc/driver/nvidia/version")


class OutOfMemoryError(BackendError):
    """The GPU has no memory left for this; a smaller batch may fit."""


@dataclass(frozen=True)
class Gpu:
    """One GPU: its name, compute capability and memory, and the driver and runtime that run it.

    ``driver`` is the driver's own version where the system tells it; ``cuda`` the newest CUDA that the driver runs,
    ``runtime`` the CUDA of the bindings.
    """

    index: int
    name: str
    capability: tuple[int, int]
    memory: int
    driver: str
    cuda: str
    runtime: str

    @property
    def architecture(self) -> str:
        """Return the compute capability as the field writes it: ``sm_90``."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


def device_count() -> int:
    """Return the number of GPUs, at least 1.

    ModelUnavailableError where there is no driver or no GPU.
    """
    error, count = runtime.cudaGetDeviceCount()
    if error == runtime.cudaError_t.cudaErrorInsufficientDriver:
        number = checked(runtime.cudaDriverGetVersion())
        needs = _version(checked(runtime.cudaRuntimeGetVersion()))
        if not number:
            raise ModelUnavailableError("the NVIDIA driver is not installed, and a GPU needs it; onnx: runs without")
        raise ModelUnavailableError(
            f"the NVIDIA driver runs CUDA {_version(number)} at most, and this is CUDA {needs}: install a newer "
            f"driver, or pip install 'cuda-bindings<{number // 1000 + 1}'; onnx: runs without"
        )
    if error == runtime.cudaError_t.cudaErrorNoDevice or (error == _SUCCESS and not count):
        raise ModelUnavailableError(
            "there is no NVIDIA GPU that this process may use (nvidia-smi and CUDA_VISIBLE_DEVICES tell); "
            "onnx: runs without"
        )
    check(error)
    return int(count)


def find_gpu(index: int = 0) -> Gpu:
    """Return what the GPU ``index`` is.

    ConfigError where there are fewer, ModelUnavailableError where there is none.
    """
    count = device_count()
    if not 0 <= index < count:
        raise ConfigError(f"there is no GPU {index}: there are {count}, numbered from 0")
    properties = checked(runtime.cudaGetDeviceProperties(index))
    cuda = _version(checked(runtime.cudaDriverGetVersion()))
    return Gpu(
        index=index,
        name=properties.name.rstrip(b"\0").decode(),
        capability=(int(properties.major), int(properties.minor)),
        memory=int(properties.totalGlobalMem),
        driver=_driver_version() or f"for CUDA {cuda}",
        cuda=cuda,
        runtime=_version(checked(runtime.cudaRuntimeGetVersion())),
    )


def free_memory() -> int:
    """Return how many bytes of the current GPU nobody uses."""
    error, free, _ = runtime.cudaMemGetInfo()
    check(error)
    return int(free)


uncaptured = threading.RLock()
"""Held by whoever captures a graph, and by whoever does what must not happen meanwhile.

TensorRT may fork a capture onto streams that wait for the default stream. Work on the default stream then fails in
every thread, that of TensorRT's own making as well.
"""


@contextmanager
def current(device: int) -> Iterator[None]:
    """``device`` is this thread's GPU meanwhile."""
    before = checked(runtime.cudaGetDevice())
    if before == device:
        yield
        return
    check(*runtime.cudaSetDevice(device))
    try:
        yield
    finally:
        check(*runtime.cudaSetDevice(before))


class Stream(Closable):
    """A queue of work on the current GPU; ``handle`` is what CUDA calls it."""

    def __init__(self) -> None:
        self._stream = checked(runtime.cudaStreamCreateWithFlags(_NON_BLOCKING))
        self.handle = int(self._stream)

    def synchronize(self) -> None:
        """Wait until all its work is done; BackendError if some of it failed."""
        check(*runtime.cudaStreamSynchronize(self.handle))

    def close(self) -> None:
        """Let go of it; what is queued still runs."""
        stream, self._stream = self._stream, None
        if stream is not None:
            runtime.cudaStreamDestroy(stream)


class Event(Closable):
    """A mark in a stream that others can wait for.

    With ``timed`` two of them give a time.
    """

    def __init__(self, *, timed: bool = False) -> None:
        flags = 0 if timed else runtime.cudaEventDisableTiming
        self._event = checked(runtime.cudaEventCreateWithFlags(flags))
        self.handle = int(self._event)

    def record(self, stream: Stream | int) -> None:
        """Queue it on ``stream``, or on the stream with that handle: it happens when all work before it is done."""
        check(*runtime.cudaEventRecord(self.handle, stream if isinstance(stream, int) else stream.handle))

    def synchronize(self) -> None:
        """Wait until it happened."""
        check(*runtime.cudaEventSynchronize(self.handle))

    def since(self, earlier: Event) -> float:
        """Milliseconds from ``earlier``; both have happened and are ``timed``."""
        return float(checked(runtime.cudaEventElapsedTime(earlier.handle, self.handle)))

    def close(self) -> None:
        """Let go of it."""
        event, self._event = self._event, None
        if event is not None:
            runtime.cudaEventDestroy(event)


class DeviceBuffer(Closable):
    """Memory on the current GPU, zeroed; OutOfMemoryError where there is none left."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pointer = int(checked(runtime.cudaMalloc(max(size, 1))))
        try:
            with uncaptured:
                check(*runtime.cudaMemset(self.pointer, 0, size))
                check(*runtime.cudaStreamSynchronize(0))  # other streams do not wait for it
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the memory back; its size is 0 from then on."""
        pointer, self.pointer, self.size = self.pointer, 0, 0
        if pointer:
            runtime.cudaFree(pointer)


@dataclass(frozen=True)
class DeviceArray:
    """An array on the GPU, in C order: what an input of a program is copied from, row by row."""

    pointer: int
    shape: tuple[int, ...]


class PinnedBuffer(Closable):
    """Memory of the host that the GPU copies from and to by itself, zeroed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pointer = int(checked(runtime.cudaMallocHost(max(size, 1))))
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.pointer))
        self._bytes[:] = 0

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
        """Return the start of it as an array, not to be used after `close`."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        array: NDArray[np.generic] = self._bytes[:size].view(dtype).reshape(shape)
        return array

    def close(self) -> None:
        """Give the memory back."""
        pointer, self.pointer = self.pointer, 0
        if pointer:
            self._bytes = np.empty(0, np.uint8)
            runtime.cudaFreeHost(pointer)


def copy_to_device(device: int, host: int, size: int, stream: Stream) -> None:
    """Queue a copy of ``size`` bytes from a pinned buffer's pointer to a device buffer's."""
    check(*runtime.cudaMemcpyAsync(device, host, size, _TO_DEVICE, stream.handle))


def copy_to_host(host: int, device: int, size: int, stream: Stream) -> None:
    """Queue a copy of ``size`` bytes from a device buffer's pointer to a pinned buffer's."""
    check(*runtime.cudaMemcpyAsync(host, device, size, _TO_HOST, stream.handle))


def copy_on_device(target: int, source: int, size: int, stream: Stream) -> None:
    """Queue a copy of ``size`` bytes between two pointers of the GPU."""
    check(*runtime.cudaMemcpyAsync(target, source, size, _ON_DEVICE, stream.handle))


def check(error: object) -> None:
    """Raise BackendError for an error of CUDA; OutOfMemoryError where memory was the cause."""
    if error != _SUCCESS:
        _fail(error)


def _fail(error: object) -> None:
    runtime.cudaGetLastError()  # or the next call would report it again
    name, text = (_said(ask(error)) for ask in (runtime.cudaGetErrorName, runtime.cudaGetErrorString))
    kind = OutOfMemoryError if error == _OUT_OF_MEMORY else BackendError
    raise kind(f"CUDA failed: {name}: {text}")


def _said(answer: tuple[object, object]) -> str:
    text = answer[1]
    return text.decode() if isinstance(text, bytes) else str(text)


def checked(answer: tuple[object, ...]) -> Any:
    """Return what a call of CUDA gave, if it succeeded."""
    check(answer[0])
    return answer[1]


def _version(number: int) -> str:
    """12090 as CUDA writes it: 12.9; nothing for 0."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def _driver_version() -> str:
    try:
        words = _DRIVER_FILE.read_text(encoding="utf-8").splitlines()[0].split()
    except (OSError, IndexError):
        return ""
    return next((word for word in words if word[0].isdigit() and "." in word), "")


class CudaGraph(Closable):
    """A graph of work that was captured once and is queued as a whole."""

    def __init__(self, executable: object) -> None:
        self._executable = executable
        self._handle = int(executable)  # type: ignore[call-overload]

    def launch(self, stream: Stream) -> None:
        """Queue it."""
        check(*runtime.cudaGraphLaunch(self._handle, stream.handle))

    def close(self) -> None:
        """Let go of it."""
        executable, self._executable = self._executable, None
        if executable is not None:
            runtime.cudaGraphExecDestroy(executable)


class Capture:
    """A ``with`` block whose work on ``stream`` is captured, not run; then ``graph`` is there.

    One thread captures at a time. Work that cannot be captured is a BackendError at the end of the block.
    """

    graph: CudaGraph

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        uncaptured.acquire()
        try:
            check(*runtime.cudaStreamBeginCapture(self._stream.handle, mode))
        except BaseException:
            uncaptured.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            outcome, captured = runtime.cudaStreamEndCapture(self._stream.handle)
        finally:
            uncaptured.release()
        try:
            if kind is None:
                check(outcome)
                self.graph = CudaGraph(checked(runtime.cudaGraphInstantiate(captured, 0)))
        finally:
            if outcome == runtime.cudaError_t.cudaSuccess and captured:
                runtime.cudaGraphDestroy(captured)
            runtime.cudaGetLastError()  # TensorRT would take it for its own
