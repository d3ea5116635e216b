"""Compile the CUDA kernels of the library to PTX.

Every driver since CUDA 11.8 and every GPU since Volta takes it.

For developers, after a change of ``vlmsearch/tensorrt/engine/resize.cu``:
``pip install nvidia-cuda-nvrtc-cu11==11.8.89``, then ``python engines/compile_kernels.py``. It needs no GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import vlmsearch.tensorrt.engine
from vlmsearch.errors import BackendError, MissingDependencyError

SOURCE = Path(vlmsearch.tensorrt.engine.__file__).parent / "resize.cu"
PTX = SOURCE.with_suffix(".ptx")
_WHEEL = "nvidia-cuda-nvrtc-cu11"
_FLAGS = (b"--gpu-architecture=compute_70", b"--fmad=false")  # a fused multiply-add would round otherwise than Pillow


def compile_kernels() -> str:
    """Return the PTX of `SOURCE`.

    Its first line has the SHA-256 of the source.
    """
    compiler = ctypes.CDLL(str(_library()))
    source = SOURCE.read_bytes()
    program, flags = ctypes.c_void_p(), (ctypes.c_char_p * len(_FLAGS))(*_FLAGS)
    _check(compiler.nvrtcCreateProgram(ctypes.byref(program), source, SOURCE.name.encode(), 0, None, None))
    failed = compiler.nvrtcCompileProgram(program, len(_FLAGS), flags)
    if failed:
        raise BackendError(f"{SOURCE} cannot be compiled: {_text(compiler, program, 'nvrtcGetProgramLog')}")
    return f"// {hashlib.sha256(source).hexdigest()}\n{_text(compiler, program, 'nvrtcGetPTX')}"


def _text(compiler: ctypes.CDLL, program: ctypes.c_void_p, function: str) -> str:
    size = ctypes.c_size_t()
    _check(getattr(compiler, f"{function}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(getattr(compiler, function)(program, text))
    return text.value.decode()


def _library() -> Path:
    try:
        libraries = sorted(Path(str(file.locate())) for file in files(_WHEEL) or () if file.name.startswith("libnvrtc"))
    except PackageNotFoundError as exc:
        raise MissingDependencyError(f"pip install {_WHEEL}==11.8.89") from exc
    for path in libraries:  # the compiler looks for its builtins by their name, which comes first
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    return libraries[-1]


def _check(status: int) -> None:
    if status:
        raise BackendError(f"NVRTC failed with status {status}")


if __name__ == "__main__":
    PTX.write_text(compile_kernels(), encoding="utf-8")
