"""TensorRT's runtime over the pretend GPU: a plan holds an ONNX model, and ONNX Runtime computes it.

It is as strict as TensorRT is known to be: one context a profile unless profiles are shared, no capture before the
first run, no change of a context whose graph is still used, shapes within the profile, live memory of enough bytes.
"""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from tests.support.tensorrt_standin.gpu import STATE, CudaError
from tests.support.tensorrt_standin.versions import only
from vlmsearch.building.inputs import open_session

MAGIC = b"STANDIN1"
IMPLICIT = "1: [graphContext.cpp] Cuda Runtime (operation would make the legacy stream depend on a capturing stream)"
NO_MEMORY = "1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)"
_KINDS = {
    np.float32: "FLOAT",
    np.float16: "HALF",
    np.int32: "INT32",
    np.int64: "INT64",
    np.uint8: "UINT8",
    np.int8: "INT8",
}


class Dims(tuple[int, ...]):
    """A shape, as TensorRT gives it."""

    __slots__ = ()


class ILogger:
    """The base of what takes messages; a subclass that forgets to call ``__init__`` is refused, as pybind11 does."""

    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    def __init__(self) -> None:
        self.made = True

    def log(self, severity: int, msg: str) -> None:
        raise RuntimeError('Tried to call pure virtual function "nvinfer1::ILogger::log"')


class Logger(ILogger):
    """TensorRT's own, which prints."""

    def __init__(self, min_severity: int = ILogger.WARNING) -> None:
        super().__init__()
        self.min_severity = min_severity

    def log(self, severity: int, msg: str) -> None:
        if severity <= self.min_severity:
            print(f"[TRT] {msg}")


def check_logger(logger: object) -> ILogger:
    if not isinstance(logger, ILogger) or not getattr(logger, "made", False):
        raise TypeError("incompatible constructor arguments: a logger is needed")
    return logger


@dataclass(frozen=True)
class PlanParts:
    """What a pretend plan is made of."""

    header: dict[str, Any]
    model: bytes

    def pack(self) -> bytes:
        head = json.dumps(self.header).encode()
        return MAGIC + struct.pack("<I", len(head)) + head + self.model

    @classmethod
    def unpack(cls, data: bytes) -> PlanParts:
        if data[: len(MAGIC)] != MAGIC:
            raise ValueError
        (size,) = struct.unpack_from("<I", data, len(MAGIC))
        start = len(MAGIC) + 4
        return cls(json.loads(data[start : start + size]), data[start + size :])


def start(logger: ILogger) -> ILogger:
    """What a builder and a runtime do first: the logger is one, and there is a GPU."""
    found = check_logger(logger)
    try:
        STATE.use()
    except CudaError as error:
        found.log(ILogger.ERROR, f"6: CUDA initialization failure with error: {error.code}")
        raise TypeError("pybind11::init(): factory function returned nullptr") from error
    return found


class _Runtime:
    trt: Any

    def __init__(self, logger: ILogger) -> None:
        self.logger = start(logger)

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> Any:
        try:
            parts = PlanParts.unpack(bytes(serialized_engine))
        except (ValueError, struct.error):
            self.logger.log(
                ILogger.ERROR, "1: [stdArchiveReader.cpp] Serialization assertion magicTagRead == kMAGIC_TAG failed"
            )
            return None
        if parts.header["tensorrt"] != self.trt.__version__:
            self.logger.log(ILogger.ERROR, "6: The engine plan file is not compatible with this version of TensorRT")
            return None
        if parts.header["architecture"] != list(STATE.capability):
            self.logger.log(ILogger.ERROR, "6: The engine plan file is generated on an incompatible device")
            return None
        if parts.header.get("cublas", "") not in ("", STATE.cublas):
            self.logger.log(ILogger.ERROR, "6: The engine plan needs a cuBLAS that is not there")
            return None
        try:
            weights = STATE.allocate(len(parts.model))
        except CudaError:
            self.logger.log(ILogger.ERROR, NO_MEMORY)
            return None
        return self.trt.ICudaEngine(self.logger, parts, weights)


@lru_cache(maxsize=16)
def _session(model: bytes) -> ort.InferenceSession:
    return open_session(model, threads=1)


@lru_cache(maxsize=16)
def _computed(model: bytes) -> dict[object, Any]:
    """What was computed of a model so far, by its inputs."""
    return {}


class _ICudaEngine:
    trt: Any

    def __init__(self, logger: ILogger, parts: PlanParts, weights: int) -> None:
        self.logger = logger
        self.parts = parts
        self.taken: dict[int, int] = {}
        self.computed = _computed(parts.model)
        self._weights = weights
        self.session = _session(parts.model)
        graph = onnx.load_from_string(parts.model).graph
        given = {value.name for value in graph.initializer}
        self.inputs = {value.name: value for value in graph.input if value.name not in given}
        self.outputs = {value.name: value for value in graph.output}

    def __del__(self) -> None:
        with suppress(CudaError):
            STATE.free(self._weights)

    @property
    def num_io_tensors(self) -> int:
        return len(self.inputs) + len(self.outputs)

    @property
    def num_layers(self) -> int:
        return len(self.parts.header["layers"])

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.parts.header["profiles"])

    def get_tensor_name(self, index: int) -> str:
        names: list[str] = [*self.inputs, *self.outputs]
        return names[index]

    def get_tensor_mode(self, name: str) -> Any:
        modes = self.trt.TensorIOMode
        return modes.INPUT if name in self.inputs else modes.OUTPUT if name in self.outputs else modes.NONE

    def get_tensor_shape(self, name: str) -> Dims:
        return Dims(shape_of((self.inputs | self.outputs)[name]))

    def get_tensor_dtype(self, name: str) -> Any:
        return self.trt.DataType[_KINDS[kind_of((self.inputs | self.outputs)[name]).type]]

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        if name not in self.inputs:
            raise ValueError(name)
        ranges = self.parts.header["profiles"][profile_index]
        fixed = [list(shape_of(self.inputs[name]))] * 3
        return [Dims(shape) for shape in ranges.get(name, fixed)]

    def create_engine_inspector(self) -> Any:
        return self.trt.EngineInspector(self)

    device_memory_size = only("8.6", "10")(property(lambda self: engine_memory(self)))
    device_memory_size_v2 = only("11")(property(lambda self: engine_memory(self)))

    @only("10")
    def get_device_memory_size_for_profile(self, profile_index: int) -> int:
        return profile_memory(self, profile_index)

    @only("11")
    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        return profile_memory(self, profile_index)

    @only("8.6", "10")
    def create_execution_context_without_device_memory(self) -> Any:
        return without_memory(self)

    @only("8.6", name="create_execution_context")
    def create_execution_context_86(self) -> Any:
        return with_memory(self)

    @only("10", "11", name="create_execution_context")
    def create_execution_context_10(self, strategy: Any = None) -> Any:
        strategies = self.trt.ExecutionContextAllocationStrategy
        if strategy is not None and not isinstance(strategy, strategies):
            raise TypeError("create_execution_context(): incompatible function arguments")
        return without_memory(self) if strategy == strategies.USER_MANAGED else with_memory(self)


def without_memory(engine: _ICudaEngine) -> Any:
    """A context to be given memory, or None while a stream is captured: making it uses the default stream."""
    if STATE.captures:
        engine.logger.log(ILogger.ERROR, IMPLICIT)
        return None
    return engine.trt.IExecutionContext(engine, 0)


def with_memory(engine: _ICudaEngine) -> Any:
    """A context with activations of its own, or None where the GPU has no memory left."""
    try:
        return engine.trt.IExecutionContext(engine, STATE.allocate(engine_memory(engine)))
    except CudaError:
        engine.logger.log(ILogger.ERROR, NO_MEMORY)
        return None


def engine_memory(engine: _ICudaEngine) -> int:
    return max(profile_memory(engine, index) for index in range(engine.num_optimization_profiles))


def profile_memory(engine: _ICudaEngine, index: int) -> int:
    rows: int = max(most[0] for _, _, most in engine.parts.header["profiles"][index].values())
    return 4096 * rows


class _EngineInspector:
    def __init__(self, engine: _ICudaEngine) -> None:
        self._engine = engine

    def get_engine_information(self, format: Any) -> str:
        header = self._engine.parts.header
        kind = "I/O Tensors" if header["tensorrt"].startswith("11") else "Bindings"
        return json.dumps({"Layers": header["layers"], kind: [*self._engine.inputs, *self._engine.outputs]})


def shape_of(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(d.dim_value if d.HasField("dim_value") else -1 for d in value.type.tensor_type.shape.dim)


def kind_of(value: onnx.ValueInfoProto) -> np.dtype[Any]:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
