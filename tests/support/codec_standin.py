"""What the product uses of CUDA's driver and of nvImageCodec, over the pretend GPU.

Kernels are the product's own source, compiled by the C++ compiler and run thread by thread; what they are given is
checked against the PTX that is shipped. JPEGs are decoded by Pillow, into rows with padding.
"""
# ruff: noqa: N802 - the names are those of CUDA

from __future__ import annotations

import ctypes
import enum
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import PIL.Image
import pytest

import vlmsearch.tensorrt.engine
from tests.support.tensorrt_standin import standing_in
from tests.support.tensorrt_standin.gpu import STATE
from tests.support.tensorrt_standin.versions import Version

SOURCE = Path(vlmsearch.tensorrt.engine.__file__).parent / "resize.cu"
_PARAMETER = re.compile(r"\.param \.([us]\d+) (\w+)_param_\d+")
_TYPES = {"u64": ctypes.c_void_p, "u32": ctypes.c_int}
_HARNESS = """
struct Three { int x, y, z; };
static Three blockIdx, blockDim, threadIdx;
#define __global__
#define __device__
#include SOURCE
template <class Kernel, class... Arguments>
static void each(const int *grid, const int *block, Kernel kernel, Arguments... arguments) {
    blockDim = {block[0], block[1], block[2]};
    for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++)
                for (threadIdx.x = 0; threadIdx.x < block[0]; threadIdx.x++) kernel(arguments...);
}
typedef void *P;
typedef unsigned char U;
extern "C" void run_weights(const int *g, const int *b, P images, int side, int taps, int kind, P table) {
    each(g, b, weights, (const Image *)images, side, taps, kind, (int *)table);
}
extern "C" void run_along_rows(const int *g, const int *b, P images, int side, int taps, P table, P temp) {
    each(g, b, along_rows, (const Image *)images, side, taps, (const int *)table, (U *)temp);
}
extern "C" void run_along_columns(const int *g, const int *b, P images, int side, int taps, P table, P temp, P out) {
    each(g, b, along_columns, (const Image *)images, side, taps, (const int *)table, (const U *)temp, (U *)out);
}
"""


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_IMAGE = 200


@lru_cache(maxsize=1)
def _compiled() -> ctypes.CDLL:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    (folder / "harness.cpp").write_text(_HARNESS.replace("SOURCE", f'"{SOURCE}"'))
    flags = ["-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", str(folder / "kernels.so")]
    subprocess.run([compiler, *flags, str(folder / "harness.cpp")], check=True)
    library = ctypes.CDLL(str(folder / "kernels.so"))
    shutil.rmtree(folder)
    return library


def _entries(ptx: str) -> dict[str, list[type]]:
    """The kernels of a PTX file, with the types of their parameters."""
    entries: dict[str, list[type]] = {name: [] for name in re.findall(r"\.entry (\w+)", ptx)}
    for kind, name in _PARAMETER.findall(ptx):
        entries[name].append(_TYPES[kind])
    return entries


class _Driver:
    def __init__(self) -> None:
        self.loaded = 0

    def cuModuleLoadData(self, address: int) -> tuple[CUresult, object]:
        ptx = ctypes.string_at(address).decode()
        if hashlib.sha256(SOURCE.read_bytes()).hexdigest() not in ptx.splitlines()[0]:
            return CUresult.CUDA_ERROR_INVALID_IMAGE, None
        self.loaded += 1
        return CUresult.CUDA_SUCCESS, _entries(ptx)

    def cuModuleGetFunction(self, module: dict[str, list[type]], name: bytes) -> tuple[CUresult, object]:
        return CUresult.CUDA_SUCCESS, (name.decode(), module[name.decode()])

    def cuLaunchKernel(self, function: tuple[str, list[type]], *arguments: Any) -> tuple[CUresult]:
        name, types = function
        *sizes, shared, stream, parameters, extra = arguments
        assert list(parameters[1]) == types, f"{name} takes {types}, not {parameters[1]}"
        assert (len(sizes), shared, extra) == (6, 0, 0)
        assert max(sizes[1:3]) < 65536
        grid, block = (ctypes.c_int * 3)(*sizes[:3]), (ctypes.c_int * 3)(*sizes[3:])
        kernel = getattr(_compiled(), f"run_{name}")
        kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *types]
        STATE.stream(stream).add(lambda: kernel(grid, block, *parameters[0]))
        return (CUresult.CUDA_SUCCESS,)

    def cuModuleUnload(self, module: object) -> tuple[CUresult]:
        self.loaded -= 1
        return (CUresult.CUDA_SUCCESS,)

    def cuGetErrorName(self, error: CUresult) -> tuple[CUresult, bytes]:
        return CUresult.CUDA_SUCCESS, error.name.encode()


class BackendKind(enum.Enum):
    CPU_ONLY = 1
    GPU_ONLY = 2
    HYBRID_CPU_GPU = 3
    HW_GPU_ONLY = 4


class Backend:
    def __init__(self, kind: BackendKind) -> None:
        self.backend_kind = kind


class DecodeParams:
    def __init__(self, *, apply_exif_orientation: bool = True) -> None:
        self.apply_exif_orientation = apply_exif_orientation


class CodeStream:
    def __init__(self, data: bytes) -> None:
        self.data = data


class Image:
    """Decoded RGB on the pretend GPU; its memory goes with it."""

    def __init__(self, pixels: np.ndarray, stream: int) -> None:
        self.height, self.width, _ = pixels.shape
        self.pitch = -(-self.width * 3 // 64) * 64
        self._pointer = STATE.allocate(self.height * self.pitch)
        padded = np.full((self.height, self.pitch), 0xEE, np.uint8)
        padded[:, : self.width * 3] = pixels.reshape(self.height, -1)
        size = padded.size
        pointer = self._pointer
        STATE.stream(stream).add(lambda: np.copyto(STATE.bytes_at(pointer, size), padded.reshape(-1)))

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": (self.height, self.width, 3),
            "strides": (self.pitch, 3, 1),
            "typestr": "|u1",
            "data": (self._pointer, False),
            "version": 3,
        }

    def __del__(self) -> None:
        if self._pointer in STATE.allocations:
            STATE.free(self._pointer)


class Decoder:
    """Decodes baseline JPEGs, as the hardware does."""

    decoded = 0

    def __init__(self, *, device_id: int, backends: Sequence[Backend]) -> None:
        assert device_id == STATE.device
        assert BackendKind.CPU_ONLY not in [backend.backend_kind for backend in backends]

    def decode(self, streams: Sequence[CodeStream], *, params: DecodeParams, cuda_stream: int) -> list[Image | None]:
        assert not params.apply_exif_orientation
        return [self._one(stream.data, cuda_stream) for stream in streams]

    def _one(self, data: bytes, stream: int) -> Image | None:
        image = PIL.Image.open(BytesIO(data))
        if image.info.get("progressive"):
            return None
        type(self).decoded += 1
        return Image(np.array(image.convert("RGB")), stream)


@contextmanager
def pretend_gpu(version: Version = "8.6") -> Iterator[_Driver]:
    """Like `standing_in`, with CUDA's driver and nvImageCodec as well."""
    driver = _Driver()
    low, nvidia, codec = (ModuleType(name) for name in ("cuda.bindings.driver", "nvidia", "nvidia.nvimgcodec"))
    for name in dir(driver):
        if name.startswith("cu"):
            setattr(low, name, getattr(driver, name))
    vars(low)["CUresult"] = CUresult
    for thing in (BackendKind, Backend, DecodeParams, CodeStream, Decoder):
        setattr(codec, thing.__name__, thing)
    vars(nvidia)["nvimgcodec"] = codec
    with standing_in(version), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["cuda.bindings"], "driver", low, raising=False)
        for module in (low, nvidia, codec):
            patch.setitem(sys.modules, module.__name__, module)
        yield driver
