"""TensorRT's builder: from an ONNX file to a plan, on TensorRT 8.6, 10 and 11 by one path.

What differs between them is asked of the module, never of its version. A network is strongly typed where TensorRT can
do that: then the precision is that of the file. Before that, FP16 and INT8 are flags. INT8 always comes from
QuantizeLinear and DequantizeLinear in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tensorrt as trt

from vlmsearch._util.files import replace_file
from vlmsearch.errors import BackendError
from vlmsearch.models.bundle import cache_folder
from vlmsearch.tensorrt.engine.cublas import SWITCH
from vlmsearch.tensorrt.engine.plans import Machine, Profile
from vlmsearch.tensorrt.engine.runtime import log, started

BuiltPrecision = Literal["int8", "fp16", "fp32"]
_CUBLAS = ("CUBLAS", "CUBLAS_LT")
_OTHERS = (*_CUBLAS, "CUDNN")
"""Libraries whose kernels TensorRT can use, up to version 10. It takes for granted that they are there, the same
that a plan was built with; so it is left to its own kernels where nothing else is asked for."""
_WORKSPACE = 8 * 2**30


@dataclass(frozen=True)
class Settings:
    """Settings of a build: ``level`` is the builder's optimization level, 0 to 5, None for TensorRT's own choice.

    ``cublas`` is the version of the cuBLAS whose kernels TensorRT 8.6 may use, "" for none. It has to be there
    wherever the plan is loaded.
    """

    precision: BuiltPrecision
    profiles: tuple[Profile, ...]
    level: int | None = None
    cublas: str = ""


def strongly_typed() -> bool:
    """Return whether a network's precisions are those of its ONNX file.

    Then FP16 must be in the file.
    """
    return hasattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")


def timing_file(machine: Machine) -> Path:
    """Return the timing cache of a kind of machine, in the user's cache."""
    name = f"{machine.tensorrt}-{machine.gpu}-{machine.architecture}.cache"
    return cache_folder() / "timings" / name.replace(" ", "-").replace("/", "-")


def build_plan(onnx: bytes, settings: Settings, *, timing_cache: Path) -> bytes:
    """Return the plan of an ONNX file for the current GPU; BackendError in TensorRT's own words.

    ``timing_cache`` is a file that is read and replaced, or one beside it where cuBLAS is used. One of another TensorRT
    or GPU is not used, and one that cannot be read or written makes builds slower and nothing else.
    """
    builder = started(trt.Builder)
    network = builder.create_network(_network_flags())
    parser = trt.OnnxParser(network, log())
    if not parser.parse(onnx):
        told = "; ".join(parser.get_error(i).desc() for i in range(parser.num_errors))
        raise log().failure(f"TensorRT {trt.__version__} cannot read the model ({told})")
    config = builder.create_builder_config()
    _configure(config, settings)
    if not strongly_typed() and settings.precision != "fp32":
        _keep_float32(network, config)
    for profile in settings.profiles:
        _add_profile(builder, config, network, profile)
    if settings.cublas:
        timing_cache = timing_cache.with_name(f"{timing_cache.stem}-cublas-{settings.cublas}{timing_cache.suffix}")
    with _timing(config, timing_cache):
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise log().failure(f"TensorRT {trt.__version__} built no {settings.precision} engine")
    log().forget()
    return bytes(memoryview(plan))


def _network_flags() -> int:
    known = trt.NetworkDefinitionCreationFlag
    names = ("EXPLICIT_BATCH", "STRONGLY_TYPED")
    return sum(1 << int(getattr(known, name)) for name in names if hasattr(known, name))


def _configure(config: Any, settings: Settings) -> None:
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, _WORKSPACE)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.max_aux_streams = 0  # a capture that forks onto them fails when another thread uses the default stream
    if settings.level is not None:
        config.builder_optimization_level = settings.level
    if not strongly_typed():
        for name in {"fp32": (), "fp16": ("FP16",), "int8": ("FP16", "INT8")}[settings.precision]:
            config.set_flag(getattr(trt.BuilderFlag, name))
    preview: Any = getattr(trt, "PreviewFeature", None)
    if not strongly_typed() and hasattr(preview, "PROFILE_SHARING_0806"):  # or one context alone could use a profile
        config.set_preview_feature(preview.PROFILE_SHARING_0806, True)
    sources = config.get_tactic_sources() & ~_bits(_OTHERS)
    if settings.cublas:
        sources |= _bits(_CUBLAS)
        config.set_preview_feature(getattr(preview, SWITCH), False)
    config.set_tactic_sources(sources)


def _bits(names: Sequence[str]) -> int:
    """Return the sources that there are, as TensorRT wants them."""
    return sum(1 << int(getattr(trt.TacticSource, name)) for name in names if hasattr(trt.TacticSource, name))


def _keep_float32(network: Any, config: Any) -> None:
    """Have vectors scaled to length one in float32: in FP16 the lengths would be off by 0.0003."""
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    for i in range(network.num_layers):
        layer = network.get_layer(i)
        if layer.name.startswith("unit/") and not layer.name.startswith(("unit/Squeeze", "unit/Cast")):
            layer.precision = trt.DataType.FLOAT
            layer.set_output_type(0, trt.DataType.FLOAT)


def _add_profile(builder: Any, config: Any, network: Any, profile: Profile) -> None:
    added = builder.create_optimization_profile()
    inputs = {network.get_input(i).name for i in range(network.num_inputs)}
    for shapes in profile:
        if shapes.input in inputs:
            added.set_shape(shapes.input, shapes.min, shapes.opt, shapes.max)
    if config.add_optimization_profile(added) < 0:
        raise BackendError(f"TensorRT {trt.__version__} refuses the optimization profile {_shapes(profile)}")


def _shapes(profile: Profile) -> str:
    return ", ".join(f"{r.input} {r.min} to {r.max}, usually {r.opt}" for r in profile)


@contextmanager
def _timing(config: Any, path: Path) -> Iterator[None]:
    """Use the kernel timings in a file for a block.

    The file is written anew after it.
    """
    known = b""
    with suppress(OSError):
        known = path.read_bytes()
    cache = config.create_timing_cache(known)
    if cache is None or not config.set_timing_cache(cache, False):
        config.set_timing_cache(config.create_timing_cache(b""), False)
    yield
    with suppress(OSError):
        replace_file(path, bytes(memoryview(config.get_timing_cache().serialize())))
