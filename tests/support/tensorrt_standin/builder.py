"""TensorRT's builder over the pretend GPU: it checks what TensorRT checks, and packs the ONNX model as the plan."""

from __future__ import annotations

from typing import Any

import onnx
from google.protobuf.message import DecodeError

from tests.support.tensorrt_standin.gpu import STATE
from tests.support.tensorrt_standin.runtime import ILogger, PlanParts, check_logger, start
from tests.support.tensorrt_standin.versions import only

_Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class IHostMemory(bytearray):
    """Memory that TensorRT gives: to be read as a buffer."""

    @property
    def nbytes(self) -> int:
        return len(self)


class _ILayer:
    """One node of the graph."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self.node = node
        self.name = node.name or node.output[0]
        self._precision: Any = None

    @property
    def num_inputs(self) -> int:
        return len(self.node.input)

    @property
    def num_outputs(self) -> int:
        return len(self.node.output)

    precision = only("8.6", "10")(
        property(lambda self: self._precision, lambda self, kind: setattr(self, "_precision", kind))
    )

    @only("8.6", "10")
    def set_output_type(self, index: int, dtype: Any) -> None:
        if not 0 <= index < self.num_outputs:
            raise IndexError(index)


class _ITensor:
    def __init__(self, value: onnx.ValueInfoProto) -> None:
        self.name = value.name
        dims = value.type.tensor_type.shape.dim
        self.shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in dims)


class _INetworkDefinition:
    trt: Any

    def __init__(self, flags: int) -> None:
        known = self.trt.NetworkDefinitionCreationFlag
        if flags >> (max(known) + 1):
            raise ValueError(f"create_network(): unknown flags {flags}")
        self.implicit = hasattr(known, "EXPLICIT_BATCH") and not hasattr(known, "STRONGLY_TYPED") and not flags & 1
        typed = getattr(known, "STRONGLY_TYPED", None)
        self.strongly_typed = typed is not None and (not hasattr(known, "EXPLICIT_BATCH") or bool(flags >> typed & 1))
        self.model = b""
        self.layers: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.operators: set[str] = set()

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def get_layer(self, index: int) -> Any:
        return self.layers[index]

    def get_input(self, index: int) -> Any:
        return self.inputs[index]

    def get_output(self, index: int) -> Any:
        return self.outputs[index]


class _ParserError:
    def __init__(self, text: str) -> None:
        self._text = text

    def desc(self) -> str:
        return self._text

    def node(self) -> int:
        return -1


class _OnnxParser:
    trt: Any

    def __init__(self, network: _INetworkDefinition, logger: ILogger) -> None:
        self._network = network
        self._logger = check_logger(logger)
        self._errors: list[str] = []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> Any:
        return self.trt.ParserError(self._errors[index])

    def parse(self, model: bytes, path: str | None = None) -> bool:
        network = self._network
        if network.implicit:
            self._errors.append(
                "This version of the ONNX parser only supports networks with an explicit batch dimension"
            )
            return False
        try:
            graph = onnx.load_from_string(bytes(model)).graph
        except DecodeError:
            self._errors.append("Failed to parse the ONNX model")
            return False
        given = {value.name for value in graph.initializer}
        network.model = bytes(model)
        network.layers = [self.trt.ILayer(node) for node in graph.node]
        network.operators = {node.op_type for node in graph.node}
        network.inputs = [self.trt.ITensor(value) for value in graph.input if value.name not in given]
        network.outputs = [self.trt.ITensor(value) for value in graph.output]
        return True


class _IOptimizationProfile:
    def __init__(self) -> None:
        self.ranges: dict[str, _Range] = {}

    def set_shape(self, input: str, min: tuple[int, ...], opt: tuple[int, ...], max: tuple[int, ...]) -> None:
        if not all(isinstance(shape, tuple) for shape in (min, opt, max)):
            raise TypeError("set_shape(): incompatible function arguments")
        if not len(min) == len(opt) == len(max) or not all(a <= b <= c for a, b, c in zip(min, opt, max)):
            raise RuntimeError("Shape provided for max is inconsistent with other shapes.")
        self.ranges[input] = min, opt, max


class _ITimingCache:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> IHostMemory:
        return IHostMemory(self.content)


class _IBuilderConfig:
    trt: Any

    def __init__(self) -> None:
        self.profiling_verbosity = self.trt.ProfilingVerbosity.LAYER_NAMES_ONLY
        self.builder_optimization_level = 3
        self.hardware_compatibility_level = self.trt.HardwareCompatibilityLevel.NONE
        self.max_aux_streams = -1
        self.profiles: list[_IOptimizationProfile] = []
        self.features: dict[Any, bool] = {_switch(self.trt): True}
        self._flags: set[Any] = {self.trt.BuilderFlag.TF32}
        self._pools: dict[Any, int] = {}
        self._tactics = sum(1 << int(source) for source in self.trt.TacticSource)
        self._cache: Any = None

    def set_flag(self, flag: Any) -> None:
        self._flags.add(self._a(flag, "BuilderFlag"))

    def clear_flag(self, flag: Any) -> None:
        self._flags.discard(self._a(flag, "BuilderFlag"))

    def get_flag(self, flag: Any) -> bool:
        return self._a(flag, "BuilderFlag") in self._flags

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        self._pools[self._a(pool, "MemoryPoolType")] = pool_size

    def set_preview_feature(self, feature: Any, enable: bool) -> None:
        self.features[self._a(feature, "PreviewFeature")] = enable

    def get_tactic_sources(self) -> int:
        return self._tactics

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        if tactic_sources >> (max(self.trt.TacticSource) + 1):
            return False
        self._tactics = tactic_sources
        return True

    def add_optimization_profile(self, profile: Any) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: bytes) -> Any:
        return self.trt.ITimingCache(bytes(serialized_timing_cache))

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        mine = f"timings of {self.trt.__version__} on {STATE.name}\n".encode()
        if cache.content and not cache.content.startswith(mine) and not ignore_mismatch:
            return False
        self._cache = cache
        cache.content = cache.content or mine
        return True

    def get_timing_cache(self) -> Any:
        return self._cache

    @property
    def _cublas(self) -> bool:
        """Whether kernels of cuBLAS may be used: both of its parts are sources, and are not left out, as by default."""
        known = self.trt.TacticSource.__members__
        bits = [self._tactics >> known[name] & 1 for name in ("CUBLAS", "CUBLAS_LT") if name in known]
        return bool(bits) and all(bits) and not self.features[_switch(self.trt)]

    def _a(self, value: Any, kind: str) -> Any:
        if not isinstance(value, getattr(self.trt, kind)):
            raise TypeError(f"incompatible function arguments: {value!r} is no {kind}")
        return value


class _Builder:
    trt: Any

    def __init__(self, logger: ILogger) -> None:
        self.logger = start(logger)

    platform_has_fast_fp16 = only("8.6", "10")(property(lambda self: True))
    platform_has_fast_int8 = only("8.6", "10")(property(lambda self: True))

    def create_network(self, flags: int = 0) -> Any:
        return self.trt.INetworkDefinition(flags)

    def create_builder_config(self) -> Any:
        return self.trt.IBuilderConfig()

    def create_optimization_profile(self) -> Any:
        return self.trt.IOptimizationProfile()

    def build_serialized_network(self, network: Any, config: Any) -> Any:
        STATE.may_build.wait()
        flags = {flag.name for flag in self.trt.BuilderFlag if config.get_flag(flag)}
        problem = self._problem(network, config, flags)
        if problem:
            self.logger.log(ILogger.ERROR, problem)
            return None
        STATE.built += 1
        sharing = getattr(getattr(self.trt, "PreviewFeature", None), "PROFILE_SHARING_0806", None)
        precision = _precision(network, flags)
        header = {
            "tensorrt": self.trt.__version__,
            "architecture": list(STATE.capability),
            "profiles": [profile.ranges for profile in config.profiles],
            "flags": sorted(flags),
            "shared": not self.trt.__version__.startswith("8") or config.features.get(sharing, False),
            "layers": [layer.name for layer in network.layers],
            "precision": precision,
            "noise": STATE.noise.get(precision, 0.0),
            "cublas": STATE.cublas if config._cublas else "",
        }
        return IHostMemory(PlanParts(header, network.model).pack())

    def _problem(self, network: Any, config: Any, flags: set[str]) -> str:
        """Why TensorRT would not build it."""
        names = {flag for flag in flags if flag in ("FP16", "INT8", "BF16", "FP8", "INT4")}
        dynamic = {tensor.name for tensor in network.inputs if -1 in tensor.shape}
        if STATE.refuse_build:
            return "10: Could not find any implementation for node"
        if not network.model:
            return "4: Network must have at least one output"
        if network.strongly_typed and names:
            return f"4: BuilderFlag::k{min(names)} is not compatible with a strongly typed network"
        if not network.strongly_typed and "QuantizeLinear" in network.operators and "INT8" not in flags:
            return "4: Networks with Q/DQ layers require Int8 precision to be enabled"
        if dynamic and not config.profiles:
            return "4: Network has dynamic or shape inputs, but no optimization profile has been defined"
        if any(dynamic - profile.ranges.keys() for profile in config.profiles):
            return "4: a dynamic input is missing dimensions in profile 0"
        return ""


def _switch(trt: Any) -> Any:
    """The preview feature that leaves the kernels of cuBLAS and cuDNN out."""
    return getattr(getattr(trt, "PreviewFeature", None), "DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805", None)


def _precision(network: Any, flags: set[str]) -> str:
    if "QuantizeLinear" in network.operators:
        return "int8"
    half = any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in _weights(network.model))
    return "fp16" if half or "FP16" in flags else "fp32"


def _weights(model: bytes) -> Any:
    return onnx.load_from_string(model).graph.initializer
