"""TensorRT's runtime, the same for 8.6, 10 and 11: plans become programs, programs get contexts.

Only names are used that all three have, or what is asked for first: there are no bindings by number, every shape is
a tuple, and the caller owns the memory of activations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import tensorrt as trt

from vlmsearch._util.closable import Closable
from vlmsearch.errors import BackendError
from vlmsearch.tensorrt.engine.cublas import cublas
from vlmsearch.tensorrt.engine.cuda import OutOfMemoryError, Stream, find_gpu, uncaptured
from vlmsearch.tensorrt.engine.plans import Machine, Profile, Shape, ShapeRange, split_plans

# By name: numpy has no types for the others, and TensorRT's own table of 8.6.0 needs numpy's of 2022.
_TYPES: Mapping[str, np.dtype[Any]] = {
    "FLOAT": np.dtype(np.float32),
    "HALF": np.dtype(np.float16),
    "INT64": np.dtype(np.int64),
    "INT32": np.dtype(np.int32),
    "INT8": np.dtype(np.int8),
    "UINT8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}


class Log(trt.ILogger):  # type: ignore[misc]
    """TensorRT's messages: the last errors are kept, to be part of an exception."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self._errors: deque[str] = deque(maxlen=8)

    def log(self, severity: Any, message: str) -> None:
        """TensorRT calls it."""
        if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
            self._errors.append(" ".join(message.split()))

    def forget(self) -> None:
        """Drop what was said so far: what went wrong on the way to a plan explains nothing that comes after."""
        self._errors.clear()

    def failure(self, what: str) -> BackendError:
        """Return the error to raise for ``what``, with TensorRT's own words.

        OutOfMemoryError where memory was the cause.
        """
        said = "; ".join(self._errors) or "TensorRT gave no reason"
        self._errors.clear()
        lack = "out of memory" in said.lower() or "outofmemory" in said.lower()
        return (OutOfMemoryError if lack else BackendError)(f"{what}: {said[:600]}")


@lru_cache(maxsize=1)
def log() -> Log:
    """Return the one log of this process; TensorRT takes no second one."""
    return Log()


def started(kind: Callable[[Log], Any]) -> Any:
    """Start TensorRT's runtime or builder.

    BackendError where CUDA does not start for it, as on a GPU that is full.
    """
    log().forget()
    try:
        return kind(log())
    except TypeError as exc:  # the bindings' word for nothing
        raise log().failure("TensorRT does not start") from exc


def this_machine(device: int = 0) -> Machine:
    """Return what plans for the GPU ``device`` are bound to.

    ConfigError or ModelUnavailableError where there is none.
    """
    gpu = find_gpu(device)
    return Machine(trt.__version__, gpu.name, gpu.architecture, cublas())


@dataclass(frozen=True)
class Tensor:
    """An input or the output of a program; -1 in its shape is free."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape


class Program(Closable):
    """A plan on the current GPU, or several of the same model.

    BackendError where TensorRT refuses one.

    ``profiles`` are those of all plans. Several plans differ in nothing else.
    """

    inputs: tuple[Tensor, ...]
    output: Tensor
    profiles: tuple[Profile, ...]

    def __init__(self, plan: bytes) -> None:
        self._runtime = started(trt.Runtime)
        self._engines: list[tuple[Any, int]] = []  # of every profile: its plan's engine, and its number there
        profiles: list[Profile] = []
        for part in split_plans(plan):
            engine = self._runtime.deserialize_cuda_engine(part)
            if engine is None:
                self._engines = []
                raise log().failure("TensorRT cannot load the plan")
            inputs = self._tensors(engine)
            for index in range(engine.num_optimization_profiles):
                self._engines.append((engine, index))
                profiles.append(tuple(_range(engine, name, index) for name in inputs))
        self.profiles = tuple(profiles)

    def _tensors(self, engine: Any) -> list[str]:
        """Note the inputs, whose names it gives, and the output."""
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        outputs = [name for name in names if name not in inputs]
        if len(outputs) != 1:
            raise BackendError(f"a plan has one output, and this one has {', '.join(outputs) or 'none'}")
        self.inputs = tuple(_tensor(engine, name) for name in inputs)
        self.output = _tensor(engine, outputs[0])
        return inputs

    def activations(self, profile: int) -> int:
        """Bytes that a context needs while it runs with ``profile``."""
        engine, profile = self._engines[profile]
        for name in ("get_device_memory_size_for_profile_v2", "get_device_memory_size_for_profile"):
            if hasattr(engine, name):
                return int(getattr(engine, name)(profile))
        return int(
            engine.device_memory_size_v2 if hasattr(engine, "device_memory_size_v2") else engine.device_memory_size
        )

    def context(self, profile: int, stream: Stream, memory: int, size: int) -> Context:
        """Return a context for ``profile`` that keeps its activations in ``memory``."""
        engine, profile = self._engines[profile]
        with uncaptured:
            strategies = getattr(trt, "ExecutionContextAllocationStrategy", None)
            if strategies is None:
                made = engine.create_execution_context_without_device_memory()
            else:
                made = engine.create_execution_context(strategies.USER_MANAGED)
            if made is None:
                raise log().failure("TensorRT cannot make a context")
            if hasattr(made, "set_device_memory"):
                made.set_device_memory(memory, size)
            else:
                made.device_memory = memory
            _use_profile(made, profile, stream)
        return Context(made)

    def close(self) -> None:
        """Free the weights. Its contexts are gone before."""
        self._engines = []
        self._runtime = None


def _tensor(engine: Any, name: str) -> Tensor:
    kind = engine.get_tensor_dtype(name).name
    if kind not in _TYPES:
        raise BackendError(f"{name} of the plan is of type {kind}, which numpy has not")
    return Tensor(name, _TYPES[kind], tuple(engine.get_tensor_shape(name)))


def _range(engine: Any, name: str, profile: int) -> ShapeRange:
    minimum, best, maximum = (tuple(shape) for shape in engine.get_tensor_profile_shape(name, profile))
    return ShapeRange(name, minimum, best, maximum)


def _use_profile(context: Any, profile: int, stream: Stream) -> None:
    try:
        used = context.set_optimization_profile_async(profile, stream.handle)
    except RuntimeError:
        used = False
    if not used:
        raise log().failure(f"a context cannot use optimization profile {profile}")
    stream.synchronize()


class Context:
    """One way to run a program: shapes and addresses are set, then it is queued."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def set_shape(self, name: str, shape: Shape) -> None:
        """Set the shape of an input from now on."""
        if not self._context.set_input_shape(name, shape):
            raise log().failure(f"the plan does not take {name} of shape {shape}")

    def set_address(self, name: str, pointer: int) -> None:
        """Set where an input or the output lies on the GPU."""
        if not self._context.set_tensor_address(name, pointer):
            raise log().failure(f"the plan does not take an address for {name}")

    def enqueue(self, stream: Stream) -> None:
        """Queue one run."""
        if not self._context.execute_async_v3(stream.handle):
            raise log().failure("TensorRT failed")
