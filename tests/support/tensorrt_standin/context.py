"""TensorRT's execution contexts over the pretend GPU."""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.tensorrt_standin.gpu import ILLEGAL_ADDRESS, MEMORY_ALLOCATION, STATE, CudaError, Stream
from tests.support.tensorrt_standin.runtime import (
    IMPLICIT,
    NO_MEMORY,
    Dims,
    ILogger,
    engine_memory,
    kind_of,
    profile_memory,
    shape_of,
)
from tests.support.tensorrt_standin.versions import only

_REMEMBERED = 512


class _IExecutionContext:
    def __init__(self, engine: Any, memory: int) -> None:
        self._engine = engine
        self._own = memory
        self._memory = memory
        self._memory_size = engine_memory(engine)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._changes = 0
        self._ran = -1
        self._profile = -1
        if not engine.taken.get(0) or engine.parts.header["shared"]:
            self._take(0)

    def __del__(self) -> None:
        if self._profile >= 0:
            self._engine.taken[self._profile] -= 1
        if self._own:
            with suppress(CudaError):
                STATE.free(self._own)

    def _take(self, profile: int) -> None:
        if self._profile >= 0:
            self._engine.taken[self._profile] -= 1
        self._profile = profile
        self._engine.taken[profile] = self._engine.taken.get(profile, 0) + 1

    def _error(self, message: str) -> bool:
        self._engine.logger.log(ILogger.ERROR, message)
        return False

    @property
    def engine(self) -> Any:
        return self._engine

    def _set_memory(self, memory: int, size: int) -> None:
        self._memory, self._memory_size = memory, size
        self._changes += 1

    device_memory = only("8.6", "10")(
        property(
            lambda self: self._memory,
            lambda self, memory: self._set_memory(memory, engine_memory(self.engine)),
        )
    )

    @only("11")
    def set_device_memory(self, memory: int, size: int) -> None:
        self._set_memory(memory, size)

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        engine = self._engine
        others = engine.taken.get(profile_index, 0) - (self._profile == profile_index)
        if not 0 <= profile_index < engine.num_optimization_profiles or (others and not engine.parts.header["shared"]):
            self._error(f"3: Profile {profile_index} has been chosen for another IExecutionContext.")
            raise RuntimeError("Error in set optimization profile async.")
        STATE.stream(stream_handle)
        if profile_index != self._profile:
            self._take(profile_index)
            self._shapes.clear()
            self._changes += 1
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        engine = self._engine
        if not isinstance(shape, tuple):
            raise TypeError("set_input_shape(): incompatible function arguments")
        if name not in engine.inputs or self._profile < 0:
            return self._error(f"3: set_input_shape of {name} failed")
        least, _, most = engine.get_tensor_profile_shape(name, self._profile)
        if len(shape) != len(most) or not all(a <= b <= c for a, b, c in zip(least, shape, most)):
            return self._error(f"3: {name} of shape {shape} is outside of {least} to {most}")
        self._shapes[name] = shape
        self._changes += 1
        return True

    def get_tensor_shape(self, name: str) -> Dims:
        if name in self._engine.inputs:
            return Dims(self._shapes.get(name, shape_of(self._engine.inputs[name])))
        rows = next(iter(self._shapes.values()))[0] if self._shapes else -1
        return Dims((rows, *shape_of(self._engine.outputs[name])[1:]))

    def infer_shapes(self) -> list[str]:
        return [name for name in self._engine.inputs if name not in self._shapes]

    def set_tensor_address(self, name: str, memory: int) -> bool:
        if name not in self._engine.inputs | self._engine.outputs:
            return self._error(f"3: there is no tensor {name}")
        if self._addresses.get(name) != memory:
            self._addresses[name] = memory
            self._changes += 1
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        engine = self._engine
        stream = STATE.stream(stream_handle)
        names = [*engine.inputs, *engine.outputs]
        if self._profile < 0 or any(name not in self._addresses for name in names) or self.infer_shapes():
            return self._error("3: [executionContext.cpp::enqueueV3] shapes, addresses or a profile are missing")
        if not self._memory:
            return self._error("3: [executionContext.cpp::enqueueV3] no device memory was set")
        rows = next(iter(self._shapes.values()))[0]
        if STATE.most_rows is not None and rows > STATE.most_rows:
            return self._error(NO_MEMORY)
        if stream.captured and (STATE.no_capture or self._ran != self._changes):
            stream.captured.invalid = True
            return self._error("1: [resizeRunner.cpp] Cuda Runtime (operation not permitted when stream is capturing)")
        if not stream.captured and self._ran != self._changes and STATE.captures:  # it prepares itself for new shapes
            return self._error(IMPLICIT)
        self._queue(stream)
        return True

    def _queue(self, stream: Stream) -> None:
        """Queue one run; as part of a graph it may only run while this context is as it is now."""
        STATE.launches += not stream.captured
        self._ran = self._changes
        run = _Run(self._engine, dict(self._shapes), dict(self._addresses), self._memory, self._need())
        if not stream.captured:
            stream.add(run)
            return
        mine, changes = weakref.ref(self), self._changes

        def replay() -> None:
            context = mine()
            if context is None or context._changes != changes:
                raise CudaError(ILLEGAL_ADDRESS)
            run()

        stream.add(replay)

    def _need(self) -> int:
        need = profile_memory(self._engine, self._profile)
        if need > self._memory_size:
            raise CudaError(MEMORY_ALLOCATION)
        return need


@dataclass(frozen=True)
class _Run:
    """One run of a program, with all that it had when it was queued."""

    engine: Any
    shapes: dict[str, tuple[int, ...]]
    addresses: dict[str, int]
    memory: int
    need: int

    def __call__(self) -> None:
        engine = self.engine
        STATE.bytes_at(self.memory, self.need)[:] = 0x5A
        feeds: dict[str, NDArray[np.generic]] = {}
        for name, shape in self.shapes.items():
            kind = kind_of(engine.inputs[name])
            size = int(np.prod(shape)) * kind.itemsize
            feeds[name] = STATE.bytes_at(self.addresses[name], size).view(kind).reshape(shape)
        for name, value in zip(engine.outputs, self._computed(feeds)):
            result = _with_noise(value, engine.parts.header["noise"])
            STATE.bytes_at(self.addresses[name], result.nbytes)[:] = result.reshape(-1).view(np.uint8)

    def _computed(self, feeds: dict[str, NDArray[np.generic]]) -> list[NDArray[np.float32]]:
        """What ONNX Runtime computes; the same batch of the same model is computed once, however often it is run."""
        key = tuple((name, array.shape, hash(array.tobytes())) for name, array in feeds.items())
        known = self.engine.computed
        if key not in known:
            if len(known) > _REMEMBERED:
                known.clear()
            known[key] = self.engine.session.run(list(self.engine.outputs), feeds)
        found: list[NDArray[np.float32]] = known[key]
        return found


def _with_noise(value: NDArray[np.float32], noise: float) -> NDArray[np.generic]:
    if not noise:
        return np.ascontiguousarray(value)
    rows = value + noise * np.random.default_rng(0).standard_normal(value.shape[1:])
    return np.ascontiguousarray((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(value.dtype))
