"""Which names there are in which TensorRT: the stand-in's claims, and how a class is cut to one version.

Versions 8.6 and 10 are the first of their line (8.6.0, 10.0.1), 11 is 11.1: what came in between is not there, so that
code which leans on it fails.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

Version = Literal["8.6", "10", "11"]
VERSIONS: tuple[Version, ...] = ("8.6", "10", "11")
FULL: Mapping[Version, str] = MappingProxyType({"8.6": "8.6.0", "10": "10.0.1", "11": "11.1.0.106"})


def _everywhere(members: Mapping[str, int]) -> dict[Version, Mapping[str, int]]:
    return dict.fromkeys(VERSIONS, members)


ENUMS: Mapping[str, Mapping[Version, Mapping[str, int]]] = {
    "BuilderFlag": {
        "8.6": {
            "FP16": 0, "INT8": 1, "DEBUG": 2, "GPU_FALLBACK": 3, "STRICT_TYPES": 4, "REFIT": 5,
            "DISABLE_TIMING_CACHE": 6, "TF32": 7, "SPARSE_WEIGHTS": 8, "SAFETY_SCOPE": 9,
            "OBEY_PRECISION_CONSTRAINTS": 10, "PREFER_PRECISION_CONSTRAINTS": 11, "DIRECT_IO": 12,
            "REJECT_EMPTY_ALGORITHMS": 13, "ENABLE_TACTIC_HEURISTIC": 14, "VERSION_COMPATIBLE": 15,
            "EXCLUDE_LEAN_RUNTIME": 16, "FP8": 17,
        },
        "10": {
            "FP16": 0, "INT8": 1, "DEBUG": 2, "GPU_FALLBACK": 3, "REFIT": 4, "DISABLE_TIMING_CACHE": 5, "TF32": 6,
            "SPARSE_WEIGHTS": 7, "SAFETY_SCOPE": 8, "OBEY_PRECISION_CONSTRAINTS": 9,
            "PREFER_PRECISION_CONSTRAINTS": 10, "DIRECT_IO": 11, "REJECT_EMPTY_ALGORITHMS": 12,
            "VERSION_COMPATIBLE": 13, "EXCLUDE_LEAN_RUNTIME": 14, "FP8": 15, "ERROR_ON_TIMING_CACHE_MISS": 16,
            "BF16": 17, "DISABLE_COMPILATION_CACHE": 18, "STRIP_PLAN": 19, "REFIT_IDENTICAL": 20,
            "WEIGHT_STREAMING": 21,
        },
        "11": {
            "DEBUG": 0, "GPU_FALLBACK": 1, "REFIT": 2, "DISABLE_TIMING_CACHE": 3, "TF32": 4, "SPARSE_WEIGHTS": 5,
            "SAFETY_SCOPE": 6, "DIRECT_IO": 7, "VERSION_COMPATIBLE": 12, "EXCLUDE_LEAN_RUNTIME": 13,
            "ERROR_ON_TIMING_CACHE_MISS": 15, "DISABLE_COMPILATION_CACHE": 17, "STRIP_PLAN": 18,
            "REFIT_IDENTICAL": 19, "WEIGHT_STREAMING": 20, "REFIT_INDIVIDUAL": 22, "STRICT_NANS": 23,
            "MONITOR_MEMORY": 24, "EDITABLE_TIMING_CACHE": 26, "DISTRIBUTIVE_INDEPENDENCE": 27,
        },
    },
    "NetworkDefinitionCreationFlag": {
        "8.6": {"EXPLICIT_BATCH": 0, "EXPLICIT_PRECISION": 1},
        "10": {"EXPLICIT_BATCH": 0, "STRONGLY_TYPED": 1},
        "11": {"STRONGLY_TYPED": 0, "PREFER_JIT_PYTHON_PLUGINS": 1, "PREFER_AOT_PYTHON_PLUGINS": 2},
    },
    "TacticSource": {
        "8.6": {"CUBLAS": 0, "CUBLAS_LT": 1, "CUDNN": 2, "EDGE_MASK_CONVOLUTIONS": 3, "JIT_CONVOLUTIONS": 4},
        "10": {"CUBLAS": 0, "CUBLAS_LT": 1, "CUDNN": 2, "EDGE_MASK_CONVOLUTIONS": 3, "JIT_CONVOLUTIONS": 4},
        "11": {"EDGE_MASK_CONVOLUTIONS": 0, "JIT_CONVOLUTIONS": 1},
    },
    "PreviewFeature": {
        "8.6": {
            "FASTER_DYNAMIC_SHAPES_0805": 0, "DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805": 1,
            "PROFILE_SHARING_0806": 2,
        },
        "10": {"PROFILE_SHARING_0806": 0},
        "11": {"ALIASED_PLUGIN_IO_10_03": 0, "RUNTIME_ACTIVATION_RESIZE_10_10": 1},
    },
    "MemoryPoolType": _everywhere({
        "WORKSPACE": 0, "DLA_MANAGED_SRAM": 1, "DLA_LOCAL_DRAM": 2, "DLA_GLOBAL_DRAM": 3, "TACTIC_DRAM": 4,
    }),
    "ProfilingVerbosity": {
        "8.6": {"LAYER_NAMES_ONLY": 0, "NONE": 1, "DETAILED": 2, "DEFAULT": 0, "VERBOSE": 2},
        "10": {"LAYER_NAMES_ONLY": 0, "NONE": 1, "DETAILED": 2},
        "11": {"LAYER_NAMES_ONLY": 0, "NONE": 1, "DETAILED": 2},
    },
    "LayerInformationFormat": _everywhere({"ONELINE": 0, "JSON": 1}),
    "HardwareCompatibilityLevel": {
        "8.6": {"NONE": 0, "AMPERE_PLUS": 1},
        "10": {"NONE": 0, "AMPERE_PLUS": 1},
        "11": {"NONE": 0, "AMPERE_PLUS": 1, "SAME_COMPUTE_CAPABILITY": 2},
    },
    "TensorIOMode": _everywhere({"NONE": 0, "INPUT": 1, "OUTPUT": 2}),
    "TensorLocation": _everywhere({"DEVICE": 0, "HOST": 1}),
    "DataType": {
        "8.6": {"FLOAT": 0, "HALF": 1, "INT8": 2, "INT32": 3, "BOOL": 4, "UINT8": 5, "FP8": 6},
        "10": {
            "FLOAT": 0, "HALF": 1, "INT8": 2, "INT32": 3, "BOOL": 4, "UINT8": 5, "FP8": 6, "BF16": 7, "INT64": 8,
            "INT4": 9,
        },
        "11": {
            "FLOAT": 0, "HALF": 1, "INT8": 2, "INT32": 3, "BOOL": 4, "UINT8": 5, "FP8": 6, "BF16": 7, "INT64": 8,
            "INT4": 9, "FP4": 10,
        },
    },
    "ExecutionContextAllocationStrategy": {
        "8.6": {},
        "10": {"STATIC": 0, "ON_PROFILE_CHANGE": 1, "USER_MANAGED": 2},
        "11": {"STATIC": 0, "ON_PROFILE_CHANGE": 1, "USER_MANAGED": 2},
    },
}  # fmt: skip
"""Per enum and version its members; none where the version has no such enum."""

_SHORT = {
    "float32": "FLOAT", "float16": "HALF", "int8": "INT8", "int32": "INT32", "bool": "BOOL", "uint8": "UINT8",
    "fp8": "FP8", "bfloat16": "BF16", "int64": "INT64", "int4": "INT4", "fp4": "FP4",
}  # fmt: skip


def make_types(data_type: type[enum.IntEnum]) -> dict[str, enum.IntEnum]:
    """The types by their short names, as the module has them."""
    return {short: data_type[name] for short, name in _SHORT.items() if name in data_type.__members__}


class Only:
    """A member of a class that only some versions have; ``name`` where they differ in what it does."""

    def __init__(self, member: object, versions: tuple[Version, ...], name: str | None) -> None:
        self.member = member
        self.versions = versions
        self.name = name


def only(*versions: Version, name: str | None = None) -> Callable[[Any], Any]:
    """Mark a method or property as one of these versions alone."""
    return lambda member: Only(member, versions, name)


def cut(cls: type, version: Version) -> type:
    """The class as ``version`` has it."""
    members: dict[str, object] = {}
    for name, member in vars(cls).items():
        if name in ("__dict__", "__weakref__"):
            continue
        if not isinstance(member, Only):
            members[name] = member
        elif version in member.versions:
            members[member.name or name] = member.member
    return type(cls.__name__.removeprefix("_"), cls.__bases__, members)


def make_enums(version: Version) -> dict[str, type[enum.IntEnum]]:
    """The enums of one version."""
    return {
        name: enum.IntEnum(name, dict(members[version]))  # type: ignore[misc]
        for name, members in ENUMS.items()
        if members[version]
    }
