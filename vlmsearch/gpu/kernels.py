"""The library's own CUDA kernels, loaded from PTX, which the driver compiles for its GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from vlmsearch.closing import Closable
from vlmsearch.errors import BackendError
from vlmsearch.gpu.cuda import Stream

_THREADS = 256

Argument = tuple[int, Any]
"""A value and its type in C."""


class Kernels(Closable):
    """The kernels of one PTX file on the current GPU; BackendError where the driver refuses it."""

    def __init__(self, ptx: Path, names: Sequence[str]) -> None:
        text = ctypes.create_string_buffer(ptx.read_bytes())
        self._module = _checked(driver.cuModuleLoadData(ctypes.addressof(text)))
        self._functions = {name: _checked(driver.cuModuleGetFunction(self._module, name.encode())) for name in names}

    def launch(self, name: str, grid: tuple[int, int, int], arguments: Sequence[Argument], stream: Stream) -> None:
        """Queue a kernel; the grid's first number is of threads, the others of blocks."""
        blocks = -(-grid[0] // _THREADS)
        values = tuple(value for value, _ in arguments)
        types = tuple(kind for _, kind in arguments)
        _checked(
            driver.cuLaunchKernel(
                self._functions[name], blocks, grid[1], grid[2], _THREADS, 1, 1, 0, stream.handle, (values, types), 0
            )
        )

    def close(self) -> None:
        """Let go of them."""
        module, self._module = self._module, None
        if module is not None:
            driver.cuModuleUnload(module)


def pointer(address: int) -> Argument:
    """An address on the GPU."""
    return address, ctypes.c_void_p


def number(value: int) -> Argument:
    """A C int."""
    return value, ctypes.c_int


def _checked(answer: tuple[object, ...]) -> Any:
    if answer[0] != driver.CUresult.CUDA_SUCCESS:
        _, name = driver.cuGetErrorName(answer[0])
        raise BackendError(f"CUDA failed: {name.decode() if isinstance(name, bytes) else name}")
    return answer[1] if len(answer) > 1 else None
