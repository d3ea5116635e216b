"""NVIDIA's own compiler without a GPU: TensorRT for RTX, with the interface of TensorRT 11, as the module ``tensorrt``.

It compiles for GPUs that are named. What it compiles is not loaded: a plan that fits no GPU of this machine cannot be,
and one that does would meet the pretend GPU, whose memory is not real.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, get_args

import tensorrt_rtx as trt

from tests.support.tensorrt_standin import standing_in

Target = Literal["SM89", "SM120"]
TARGETS: tuple[Target, ...] = get_args(Target)
Tensors = dict[str, tuple[str, tuple[int, ...]]]
"""The type and the shape of each tensor by name; -1 in a shape is free."""
_logs: list[Any] = []
"""The first log of the process: the library keeps its address and would write to it after its end."""


@dataclass(frozen=True)
class CompiledPlan:
    """A plan, and what the compiler was given for it.

    ``layers`` has how many layers of each kind there are, ``profiles`` the least, usual and greatest shape by input.
    """

    target: Target
    plan: bytes
    parser_errors: int
    inputs: Tensors
    outputs: Tensors
    layers: Counter[str]
    profiles: tuple[dict[str, tuple[tuple[int, ...], ...]], ...]


@dataclass
class Compiler:
    """The compiler of a process: the GPU that it compiles for, and the plans so far."""

    target: Target = "SM89"
    plans: list[CompiledPlan] = field(default_factory=list)


@contextmanager
def compiling() -> Iterator[Compiler]:
    """Have the compiler as ``tensorrt``, beside a pretend GPU.

    What uses it must be imported in the block.
    """
    compiler = Compiler()
    with standing_in("11"):
        sys.modules["tensorrt"] = _module(compiler)
        from vlmsearch.tensorrt.engine.runtime import log

        _logs.append(log())
        yield compiler


def _module(compiler: Compiler) -> ModuleType:
    module = ModuleType("tensorrt")
    vars(module).update(vars(trt))
    profiles: list[Any] = []
    parsers: list[Any] = []

    class Builder(trt.Builder):  # type: ignore[misc]
        """The compiler for the target."""

        def create_builder_config(self) -> Any:
            config = super().create_builder_config()
            config.num_compute_capabilities = 1
            assert config.set_compute_capability(getattr(trt.ComputeCapability, compiler.target), 0)
            profiles.clear()
            return config

        def create_optimization_profile(self) -> Any:
            profiles.append(super().create_optimization_profile())
            return profiles[-1]

        def build_serialized_network(self, network: Any, config: Any) -> Any:
            plan = super().build_serialized_network(network, config)
            inputs = _tensors(network.get_input(i) for i in range(network.num_inputs))
            compiler.plans.append(
                CompiledPlan(
                    target=compiler.target,
                    plan=bytes(memoryview(plan)) if plan else b"",
                    parser_errors=parsers[-1].num_errors,
                    inputs=inputs,
                    outputs=_tensors(network.get_output(i) for i in range(network.num_outputs)),
                    layers=Counter(network.get_layer(i).type.name for i in range(network.num_layers)),
                    profiles=tuple(
                        {name: tuple(map(tuple, profile.get_shape(name))) for name in inputs} for profile in profiles
                    ),
                )
            )
            return plan

    class OnnxParser(trt.OnnxParser):  # type: ignore[misc]
        """The parser, whose errors are counted."""

        def parse(self, *args: Any) -> bool:
            parsers[:] = [self]
            return bool(super().parse(*args))

    class Runtime(trt.Runtime):  # type: ignore[misc]
        """A runtime that loads nothing."""

        def deserialize_cuda_engine(self, plan: bytes) -> None:
            """Refuse a plan as the real one does for another GPU."""

    for kind in (Builder, OnnxParser, Runtime):
        setattr(module, kind.__name__, kind)
    return module


def _tensors(tensors: Iterator[Any]) -> Tensors:
    return {tensor.name: (tensor.dtype.name, tuple(tensor.shape)) for tensor in tensors}
