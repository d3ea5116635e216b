"""The cuBLAS that TensorRT 8.6 is linked with.

Its kernels may be newer than those of TensorRT: 12.9 has some for Hopper.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from typing import Any

SWITCH = "DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805"
"""The preview feature that keeps TensorRT from it; versions without one have all such kernels themselves."""
_PARTS = (("libcublas.so", "cublasGetProperty"), ("libcublasLt.so", "cublasLtGetProperty"))
_MAJORS = (12, 11)


def cublas() -> str:
    """Return the version of the cuBLAS that this process's TensorRT can use, as ``12.9.1``.

    "" where there is none.
    """
    trt = importlib.import_module("tensorrt")
    if not hasattr(getattr(trt, "PreviewFeature", None), SWITCH):
        return ""
    for major in _MAJORS:
        versions = {_version(f"{name}.{major}", function) for name, function in _PARTS}
        if len(versions) == 1 and versions != {""}:
            return versions.pop()
    return ""


def _version(library: str, function: str) -> str:
    """Return the version of a library that is loaded already; else "".

    Those that TensorRT is linked with are.
    """
    number, numbers = ctypes.c_int(), []
    try:
        tell: Any = getattr(ctypes.CDLL(library, mode=os.RTLD_LAZY | os.RTLD_NOLOAD), function)
    except (OSError, AttributeError):
        return ""
    for part in range(3):  # libraryPropertyType_t: major, minor, patch
        if tell(part, ctypes.byref(number)) != 0:
            return ""
        numbers.append(number.value)
    return ".".join(map(str, numbers))
