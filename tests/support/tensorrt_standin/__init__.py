"""A stand-in for the module ``tensorrt``, and for ``cuda.bindings.runtime``, for tests on machines without a GPU.

It comes in the shapes of TensorRT 8.6, 10 and 11, each with the names of that version and no others, and it computes:
a pretend plan holds its ONNX model. `fidelity` compares its claims with a real module.
"""

from __future__ import annotations

import gc
import importlib.machinery
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

from tests.support.tensorrt_standin import builder, context, cuda_runtime, runtime
from tests.support.tensorrt_standin.gpu import PretendGpu, reset
from tests.support.tensorrt_standin.versions import FULL, Version, cut, make_enums, make_types

_REPLACED = ("tensorrt", "cuda")
_RELOADED = (
    "vlmsearch.tensorrt.engine.", "vlmsearch.tensorrt.builder.", "vlmsearch.encoders.tensorrt",
    "vlmsearch.triton.backend.engine_tower", "vlmsearch.triton.backend.gpu_stage",
)  # fmt: skip
_KEPT = ("vlmsearch.tensorrt.engine.plans",)
CLASSES = (
    runtime._Runtime,
    runtime._ICudaEngine,
    context._IExecutionContext,
    runtime._EngineInspector,
    builder._Builder,
    builder._IBuilderConfig,
    builder._INetworkDefinition,
    builder._IOptimizationProfile,
    builder._ILayer,
    builder._ITensor,
    builder._ITimingCache,
    builder._OnnxParser,
    builder._ParserError,
)


def make_tensorrt(version: Version) -> ModuleType:
    """The module as one version has it."""
    module = ModuleType("tensorrt")
    module.__dict__["__version__"] = FULL[version]
    module.__dict__["__spec__"] = importlib.machinery.ModuleSpec("tensorrt", None)
    enums = make_enums(version)
    module.__dict__.update(enums)
    module.__dict__.update(make_types(enums["DataType"]))
    for kept in (runtime.ILogger, runtime.Logger, runtime.Dims, builder.IHostMemory):
        setattr(module, kept.__name__, kept)
    for cls in CLASSES:
        shaped = cut(cls, version)
        shaped.trt = module  # type: ignore[attr-defined]
        setattr(module, shaped.__name__, shaped)
    return module


@contextmanager
def standing_in(version: Version) -> Iterator[PretendGpu]:
    """TensorRT is there in that version meanwhile, on a new pretend GPU; what uses it must be imported in the block."""
    before = dict(sys.modules)
    _forget()
    cuda, bindings = ModuleType("cuda"), ModuleType("cuda.bindings")
    for module in (cuda, bindings):
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
    cuda.__path__ = bindings.__path__ = []
    bindings.runtime = cuda_runtime.make_module()  # type: ignore[attr-defined]
    cuda.bindings = bindings  # type: ignore[attr-defined]
    _collect()
    state = reset()
    sys.modules |= {
        "tensorrt": make_tensorrt(version),
        "cuda": cuda,
        "cuda.bindings": bindings,
        "cuda.bindings.runtime": bindings.runtime,
    }
    try:
        yield state
    finally:
        _forget()
        for name in [name for name in before if _is_ours(name)]:
            sys.modules[name] = before[name]
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                setattr(sys.modules[parent], child, before[name])
        _collect()


@cache
def _leave_out_what_is_there() -> None:
    """Have collections pass over torch and all else that was there before: they take a tenth of the time then."""
    gc.collect()
    gc.freeze()


def _collect() -> None:
    """End what the last block left in cycles, whose finalisers free memory of the GPU that it had."""
    _leave_out_what_is_there()
    gc.collect()


def _forget() -> None:
    for name in [name for name in sys.modules if _is_ours(name)]:
        parent, _, child = name.rpartition(".")
        sys.modules.get(parent, ModuleType("")).__dict__.pop(child, None)
        del sys.modules[name]


def _is_ours(name: str) -> bool:
    if name.split(".", maxsplit=1)[0] in _REPLACED:
        return True
    return name.startswith(_RELOADED) and name not in _KEPT
