"""`onnxruntime` as it is with the GPU wheel and a GPU."""

from __future__ import annotations

import ctypes
from typing import ClassVar

import numpy as np
import onnxruntime as ort

CUDA, TENSORRT, CPU = "CUDAExecutionProvider", "TensorrtExecutionProvider", "CPUExecutionProvider"
Given = list[tuple[str, dict[str, str]]]


class FakeCuda:
    """The driver's library: its functions fill in what they are given pointers to."""

    def __init__(self, *, newest: int = 13000, status: int = 0, count: int = 1) -> None:
        self._newest, self._status, self._count = newest, status, count

    def cuDriverGetVersion(self, number: ctypes.Array[ctypes.c_int]) -> int:  # noqa: N802
        number._obj.value = self._newest  # type: ignore[attr-defined]
        return 0

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self._status

    def cuDeviceGetCount(self, count: ctypes.Array[ctypes.c_int]) -> int:  # noqa: N802
        count._obj.value = self._count  # type: ignore[attr-defined]
        return 0

    def cuDeviceGet(self, handle: ctypes.Array[ctypes.c_int], index: int) -> int:  # noqa: N802
        handle._obj.value = index  # type: ignore[attr-defined]
        return 0

    def cuDeviceGetName(self, name: ctypes.Array[ctypes.c_char], size: int, handle: ctypes.c_int) -> int:  # noqa: N802
        name.value = b"NVIDIA L4"
        return 0

    def cuDeviceTotalMem_v2(self, memory: ctypes.Array[ctypes.c_size_t], handle: ctypes.c_int) -> int:  # noqa: N802
        memory._obj.value = 24 * 2**30  # type: ignore[attr-defined]
        return 0

    def cuDeviceGetAttribute(self, number: ctypes.Array[ctypes.c_int], which: int, handle: ctypes.c_int) -> int:  # noqa: N802
        number._obj.value = {75: 8, 76: 9}[which]  # type: ignore[attr-defined]
        return 0


class Session:
    """A session that says it is bound as asked and computes on the CPU; what it was given is kept."""

    given: ClassVar[Given] = []

    def __init__(self, model: bytes, options: ort.SessionOptions, *, providers: Given, enable_fallback: int) -> None:
        assert enable_fallback == 0
        type(self).given = providers
        self._session = ort.InferenceSession(model, options, providers=[CPU])

    def get_providers(self) -> list[str]:
        return [name for name, _ in self.given]

    def get_outputs(self) -> list[ort.NodeArg]:
        return list(self._session.get_outputs())

    def io_binding(self) -> Binding:
        return Binding(self._session.io_binding())

    def run_with_iobinding(self, binding: Binding) -> None:
        self._session.run_with_iobinding(binding.real)


class Binding:
    """I/O binding whose devices must be GPUs, and are the CPU."""

    def __init__(self, real: ort.IOBinding) -> None:
        self.real = real

    def bind_ortvalue_input(self, name: str, value: ort.OrtValue) -> None:
        self.real.bind_ortvalue_input(name, value)

    def bind_output(self, name: str, device: str, index: int) -> None:
        assert (device, index) == ("cuda", 1)
        self.real.bind_output(name, "cpu")

    def get_outputs(self) -> list[ort.OrtValue]:
        outputs: list[ort.OrtValue] = self.real.get_outputs()
        return outputs


class OrtValue:
    """`ort.OrtValue` on a machine with a GPU."""

    @staticmethod
    def ortvalue_from_numpy(array: np.ndarray, device: str, index: int) -> ort.OrtValue:
        assert (device, index) == ("cuda", 1)
        assert array.flags.c_contiguous
        return ort.OrtValue.ortvalue_from_numpy(array)


class Runtime:
    """`onnxruntime` as it is with the GPU wheel and a GPU."""

    InferenceSession = Session
    OrtValue = OrtValue
    SessionOptions = ort.SessionOptions

    @staticmethod
    def get_available_providers() -> list[str]:
        return [TENSORRT, CUDA, CPU]

    @staticmethod
    def set_default_logger_severity(severity: int) -> None:
        assert severity in (2, 4)
