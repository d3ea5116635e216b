"""Diagnosis of what does not run on the GPU: drivers, CUDA libraries and the wheels of ONNX Runtime.

Reads what is installed and asks the driver; needs none of the packages that use a GPU.
"""

from __future__ import annotations

import ctypes
import importlib
import re
import sys
from dataclasses import dataclass

from vlmsearch._util.extras import installed_versions

DRIVER = "libcuda.so.1"
CPU_WHEEL, GPU_WHEEL = "onnxruntime", "onnxruntime-gpu"
CUDA_PROVIDER = "CUDAExecutionProvider"
_NO_DEVICE = 100
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_LOAD_SECONDS = 120
_LOAD = """
import ctypes, pathlib, onnxruntime
preload = getattr(onnxruntime, "preload_dlls", None)
if preload:
    preload()
folder = pathlib.Path(onnxruntime.__file__).parent / "capi"
ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), ctypes.RTLD_GLOBAL)
ctypes.CDLL(str(folder / "libonnxruntime_providers_cuda.so"))
"""


@dataclass(frozen=True)
class Device:
    """One GPU: its name, compute capability and bytes of memory."""

    name: str
    capability: tuple[int, int]
    memory: int


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver: the newest CUDA that it runs, its GPUs, and what is wrong ("" where nothing is)."""

    cuda: tuple[int, int] = (0, 0)
    devices: tuple[Device, ...] = ()
    fault: str = ""


@dataclass(frozen=True)
class Wheels:
    """The wheels of ONNX Runtime that are installed, and the one that the module is from.

    ``cuda`` is the CUDA that it is built for, "" for the CPU wheel.
    """

    installed: dict[str, str]
    module: str
    version: str
    cuda: str
    providers: tuple[str, ...]


def find_driver(library: str = DRIVER) -> Driver:
    """Ask the driver; its ``fault`` says why there is none, or no GPU for this process."""
    try:
        cuda = load_library(library)
    except OSError:
        return Driver(fault="there is no NVIDIA driver")
    number = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(number))
    newest = (number.value // 1000, number.value % 1000 // 10)
    status = cuda.cuInit(0)
    if status == _NO_DEVICE:
        return Driver(newest, fault="the driver finds no GPU that this process may use (see CUDA_VISIBLE_DEVICES)")
    if status:
        return Driver(newest, fault=f"the NVIDIA driver does not start (CUDA error {status})")
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return Driver(newest, tuple(_device(cuda, index) for index in range(count.value)))


def load_library(name: str) -> ctypes.CDLL:
    """Return a shared library. OSError where the loader does not find it, or something that it needs."""
    return ctypes.CDLL(name)


def _device(cuda: ctypes.CDLL, index: int) -> Device:
    handle, name, memory = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    cuda.cuDeviceGet(ctypes.byref(handle), index)
    cuda.cuDeviceGetName(name, len(name), handle)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    numbers = []
    for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        number = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, handle)
        numbers.append(number.value)
    return Device(name.value.decode(errors="replace"), (numbers[0], numbers[1]), memory.value)


def onnx_wheels() -> Wheels:
    """Return the wheels of ONNX Runtime; ImportError where the module cannot be loaded."""
    importlib.import_module("vlmsearch._util.ort")
    runtime = importlib.import_module("onnxruntime")
    providers = tuple(runtime.get_available_providers())
    return Wheels(
        installed=installed_versions((CPU_WHEEL, GPU_WHEEL)),
        # wheels of 1.20 do not name themselves
        module=runtime.package_name or (GPU_WHEEL if CUDA_PROVIDER in providers else CPU_WHEEL),
        version=runtime.__version__,
        cuda=str(runtime.cuda_version),
        providers=providers,
    )


def wheel_fault(wheels: Wheels, *, gpu: bool) -> tuple[str, str]:
    """Return the fault of the wheels of ONNX Runtime, and the command that puts it right.

    Two empty strings where nothing is.

    The CPU and the GPU wheel hold the same files: of two that are installed the last one works, and whichever is
    uninstalled takes files of the other with it. ``gpu`` says that a GPU shall be used.
    """
    both = len(wheels.installed) > 1
    wanted = GPU_WHEEL if gpu or (both and wheels.module == GPU_WHEEL) else CPU_WHEEL
    exact = wheels.installed.get(wanted)
    pinned = f"{wanted}=={exact}" if exact else wanted
    mend = f"pip uninstall -y {CPU_WHEEL} {GPU_WHEEL} && pip install --force-reinstall --no-deps {pinned}"
    if both:
        have = " and ".join(f"{name} {number}" for name, number in wheels.installed.items())
        loser = CPU_WHEEL if wheels.module == GPU_WHEEL else GPU_WHEEL
        if gpu and loser == CPU_WHEEL and CUDA_PROVIDER in wheels.providers:
            return "", ""
        return f"{have} are both installed, and {wheels.module} overwrote the files of {loser}", mend
    if gpu and CUDA_PROVIDER not in wheels.providers:
        return f"{wheels.module} {wheels.version} is the build for the CPU", mend
    return "", ""


def missing_library() -> str:
    """Return the shared library that CUDA in ONNX Runtime lacks, from another process. "" for none."""
    import subprocess

    command = [sys.executable, "-c", _LOAD]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LOAD_SECONDS)  # noqa: S603
    except subprocess.TimeoutExpired:
        return ""
    match = re.search(r"OSError: (\S+): cannot open shared object file", done.stderr)
    return match[1] if match else ""


def gpu_fault(index: int, said: str = "") -> tuple[str, str]:
    """Return why ONNX Runtime did not bind GPU ``index``, and what helps.

    ``said`` is what ONNX Runtime itself said; it is the answer where nothing else is found.
    """
    wheels = onnx_wheels()
    fault, mend = wheel_fault(wheels, gpu=True)
    if fault:
        return fault, mend
    driver = find_driver()
    if driver.fault:
        return driver.fault, "install NVIDIA's driver, or use device=cpu"
    needs = tuple(int(part) for part in wheels.cuda.split(".")[:2]) if wheels.cuda else (0, 0)
    if driver.cuda[0] < needs[0]:
        have = f"the driver is too old: it runs CUDA {driver.cuda[0]}.{driver.cuda[1]}"
        mend = f"install a driver for CUDA {needs[0]}, or a {GPU_WHEEL} built for CUDA {driver.cuda[0]}"
        return f"{have}, and {wheels.module} {wheels.version} is built for {wheels.cuda}", mend
    if index >= len(driver.devices):
        return f"there is no GPU {index}: there are {len(driver.devices)}, numbered from 0", ""
    missing = missing_library()
    if missing:
        mend = f"pip install '{GPU_WHEEL}[cuda,cudnn]=={wheels.version}'"
        return f"{missing} is missing, which {wheels.module} {wheels.version} needs", mend
    return said or "ONNX Runtime gives no reason", "vlmsearch doctor"


def has_library(name: str) -> bool:
    """Return whether the loader finds a shared library."""
    try:
        load_library(name)
    except OSError:
        return False
    return True


def library_version(name: str, function: str) -> int:
    """Return the number that a library's version function gives; 0 where the library is not found."""
    try:
        return int(getattr(load_library(name), function)())
    except (OSError, AttributeError):
        return 0
