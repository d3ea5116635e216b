"""What the product uses of ``cuda.bindings.runtime``, over the pretend GPU: results are tuples, the error first."""
# ruff: noqa: N801, N802, N815, N816 - the names are those of CUDA

from __future__ import annotations

import enum
import functools
import threading
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

from tests.support.tensorrt_standin.gpu import (
    CAPTURE_INVALIDATED,
    CAPTURE_UNSUPPORTED,
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    STATE,
    Captured,
    CudaError,
    Event,
    Stream,
)


class cudaError_t(enum.IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35
    cudaErrorNoDevice = 100
    cudaErrorInvalidDevice = 101
    cudaErrorInvalidResourceHandle = 400
    cudaErrorNotReady = 600
    cudaErrorIllegalAddress = 700
    cudaErrorStreamCaptureUnsupported = 900
    cudaErrorStreamCaptureInvalidated = 901
    cudaErrorStreamCaptureImplicit = 906


class cudaMemcpyKind(enum.IntEnum):
    cudaMemcpyHostToHost = 0
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3


class cudaStreamCaptureMode(enum.IntEnum):
    cudaStreamCaptureModeGlobal = 0
    cudaStreamCaptureModeThreadLocal = 1
    cudaStreamCaptureModeRelaxed = 2


cudaEventDisableTiming = 2
_TEXTS = {
    2: "out of memory",
    100: "no CUDA-capable device is detected",
    700: "an illegal memory access was encountered",
}


class _Handle:
    def __init__(self, value: int) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value


def _call(function: Callable[..., object]) -> Callable[..., tuple[object, ...]]:
    """A function as CUDA's bindings give it: what it raises is the first of the tuple, the rest None."""
    results = 1 if function.__annotations__["return"] != "None" else 0

    @functools.wraps(function)
    def called(*args: object) -> tuple[object, ...]:
        try:
            if function.__name__ not in _WITHOUT_DEVICE:
                STATE.check()
            answer = function(*args)
        except CudaError as fault:
            return (cudaError_t(fault.code), *([None] * results))
        if not results:
            return (cudaError_t.cudaSuccess,)
        return (cudaError_t.cudaSuccess, *(answer if isinstance(answer, tuple) else (answer,)))

    return called


_WITHOUT_DEVICE = {
    "cudaDriverGetVersion",
    "cudaRuntimeGetVersion",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaGetLastError",
    "cudaFree",
    "cudaFreeHost",
    "cudaStreamDestroy",
    "cudaEventDestroy",
    "cudaGraphDestroy",
    "cudaGraphExecDestroy",
}


def cudaGetDeviceCount() -> int:
    return STATE.devices


def cudaDriverGetVersion() -> int:
    return STATE.driver


def cudaRuntimeGetVersion() -> int:
    return 12090


def cudaGetErrorName(error: int) -> bytes:
    return cudaError_t(error).name.encode()


def cudaGetErrorString(error: int) -> bytes:
    return _TEXTS.get(int(error), cudaError_t(error).name).encode()


def cudaGetLastError() -> None:
    return None


def cudaGetDevice() -> int:
    return STATE.device


def cudaSetDevice(device: int) -> None:
    if not 0 <= device < STATE.devices:
        raise CudaError(INVALID_DEVICE)
    STATE.thread.device = device


def cudaGetDeviceProperties(device: int) -> object:
    if not 0 <= device < STATE.devices:
        raise CudaError(INVALID_DEVICE)
    major, minor = STATE.capability
    name = STATE.name.encode().ljust(256, b"\0")
    return SimpleNamespace(name=name, major=major, minor=minor, totalGlobalMem=STATE.memory)


def cudaMemGetInfo() -> tuple[int, int]:
    return STATE.memory - STATE.used, STATE.memory


def cudaMalloc(size: int) -> int:
    return STATE.allocate(size)


def cudaFree(pointer: int) -> None:
    STATE.free(pointer)


def cudaMallocHost(size: int) -> int:
    return STATE.allocate(size, host=True)


def cudaFreeHost(pointer: int) -> None:
    STATE.free(pointer, host=True)


def cudaMemset(pointer: int, value: int, count: int) -> None:
    STATE.use_default_stream()
    STATE.bytes_at(pointer, count)[:] = value


def cudaMemcpyAsync(target: int, source: int, count: int, kind: cudaMemcpyKind, stream: int) -> None:
    to_host = kind == cudaMemcpyKind.cudaMemcpyDeviceToHost
    from_host = kind == cudaMemcpyKind.cudaMemcpyHostToDevice

    def work() -> None:
        STATE.bytes_at(target, count, host=to_host)[:] = STATE.bytes_at(source, count, host=from_host)

    STATE.stream(stream).add(work)


def cudaStreamCreateWithFlags(flags: int) -> object:
    return _Handle(STATE.register(Stream(STATE.device)))


def cudaStreamDestroy(stream: object) -> None:
    found = STATE.objects.pop(int(stream), None)  # type: ignore[call-overload]
    if not isinstance(found, Stream):
        raise CudaError(INVALID_HANDLE)
    STATE.drain(found)


def cudaStreamSynchronize(stream: int) -> None:
    if stream == 0:  # the default stream, on which everything is done at once here
        STATE.use_default_stream()
        return
    found = STATE.stream(stream)
    if found.captured:
        found.captured.invalid = True
        raise CudaError(CAPTURE_UNSUPPORTED)
    STATE.drain(found)
    STATE.check()


def cudaStreamWaitEvent(stream: int, event: int, flags: int) -> None:
    found = _event(event)
    where = found.pending
    if where is not None:
        STATE.stream(stream).add(lambda: STATE.drain(where, found))


def cudaEventCreateWithFlags(flags: int) -> object:
    return _Handle(STATE.register(Event(timed=not flags & cudaEventDisableTiming)))


def cudaEventRecord(event: int, stream: int) -> None:
    found, where = _event(event), STATE.stream(stream)
    found.pending = where

    def happen() -> None:
        found.time = time.perf_counter()
        found.pending = None

    where.add(happen)


def cudaEventSynchronize(event: int) -> None:
    found = _event(event)
    if found.pending is not None:
        STATE.drain(found.pending, found)
    STATE.check()


def cudaEventElapsedTime(start: int, stop: int) -> float:
    first, last = _event(start), _event(stop)
    if not (first.timed and last.timed) or first.pending or last.pending:
        raise CudaError(INVALID_HANDLE)
    return (last.time - first.time) * 1000 + 1e-4


def cudaEventDestroy(event: object) -> None:
    if STATE.objects.pop(int(event), None) is None:  # type: ignore[call-overload]
        raise CudaError(INVALID_HANDLE)


def cudaStreamBeginCapture(stream: int, mode: cudaStreamCaptureMode) -> None:
    if mode != cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal:
        raise CudaError(INVALID_VALUE)
    STATE.stream(stream).captured = Captured(thread=threading.get_ident())


def cudaStreamEndCapture(stream: int) -> object:
    found = STATE.stream(stream)
    captured, found.captured = found.captured, None
    if captured is None or captured.invalid:
        raise CudaError(CAPTURE_INVALIDATED)
    return _Handle(STATE.register(captured))


def cudaGraphInstantiate(graph: object, flags: int) -> object:
    captured = STATE.objects.get(int(graph))  # type: ignore[call-overload]
    if not isinstance(captured, Captured):
        raise CudaError(INVALID_HANDLE)
    return _Handle(STATE.register(tuple(captured.work)))


def cudaGraphDestroy(graph: object) -> None:
    if not isinstance(STATE.objects.pop(int(graph), None), Captured):  # type: ignore[call-overload]
        raise CudaError(INVALID_HANDLE)


def cudaGraphLaunch(executable: int, stream: int) -> None:
    work = STATE.objects.get(int(executable))
    if not isinstance(work, tuple):
        raise CudaError(INVALID_HANDLE)
    STATE.graph_launches += 1
    for each in work:
        STATE.stream(stream).add(each)


def cudaGraphExecDestroy(executable: object) -> None:
    if not isinstance(STATE.objects.pop(int(executable), None), tuple):  # type: ignore[call-overload]
        raise CudaError(INVALID_HANDLE)


def _event(handle: int) -> Event:
    found = STATE.objects.get(int(handle))
    if not isinstance(found, Event):
        raise CudaError(INVALID_HANDLE)
    return found


def make_module() -> ModuleType:
    """The module as it is imported."""
    module = ModuleType("cuda.bindings.runtime")
    for name, value in list(globals().items()):
        if name.startswith("cuda"):
            function = callable(value) and not isinstance(value, type)
            setattr(module, name, _call(value) if function else value)
    return module
