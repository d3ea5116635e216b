"""Decoded images on the GPU to a model's pixels.

They are equal bit for bit to what `Preprocess.apply` gives.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

from vlmsearch._util.closable import Closable
from vlmsearch.errors import BackendError
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.tensorrt.engine.cuda import DeviceBuffer, PinnedBuffer, Stream, copy_to_device

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
    """Return an address on the GPU."""
    return address, ctypes.c_void_p


def number(value: int) -> Argument:
    """Return a C int."""
    return value, ctypes.c_int


def _checked(answer: tuple[object, ...]) -> Any:
    if answer[0] != driver.CUresult.CUDA_SUCCESS:
        _, name = driver.cuGetErrorName(answer[0])
        raise BackendError(f"CUDA failed: {name.decode() if isinstance(name, bytes) else name}")
    return answer[1] if len(answer) > 1 else None


_PTX = Path(__file__).parent / "resize.ptx"
_KINDS = {"bicubic": (0, 2.0), "bilinear": (1, 1.0)}
"""The number of a filter in the kernels, and its support."""
_MAX_TAPS = 256
_ELONGATED = 16
_SWAPPED = 5
"""The first orientation that exchanges width and height."""
_FORM = np.dtype(
    [
        ("base", "u8"), ("step_x", "i8"), ("step_y", "i8"), ("temp", "i8"), ("width", "i4"), ("height", "i4"),
        ("out_width", "i4"), ("out_height", "i4"), ("left", "i4"), ("top", "i4"), ("first", "i4"), ("rows", "i4"),
        ("place", "i4"), ("turned", "i4"),
    ]
)  # fmt: skip
"""An image as the kernels read it."""


@dataclass(frozen=True)
class Raster:
    """Decoded RGB on the GPU, as it was stored: ``pitch`` is bytes a row, ``orientation`` EXIF's."""

    pointer: int
    width: int
    height: int
    pitch: int
    orientation: int
    place: int


@dataclass(frozen=True)
class Geometry:
    """The way from an upright image to a model's pixels; ``turned``: with rows and columns exchanged."""

    width: int
    height: int
    out_width: int
    out_height: int
    left: int
    top: int
    first: int
    rows: int
    taps: int
    turned: bool


def plan(width: int, height: int, orientation: int, preprocess: Preprocess) -> Geometry | None:
    """Return the computation for an image of that size.

    None where only the CPU path does it.

    The first of the two passes, which shows in the rounding, is that of Pillow 13.
    """
    if preprocess.interpolation not in _KINDS:
        return None
    if orientation >= _SWAPPED:
        width, height = height, width
    side = preprocess.size
    out_width = out_height = side
    if preprocess.crop:
        long = int(side * max(width, height) / min(width, height))
        if long > _ELONGATED * side:
            return None
        out_width, out_height = (side, long) if width < height else (long, side)
    turned = height > out_height and height - out_height > 2 * (width - out_width)
    if turned:
        width, height, out_width, out_height = height, width, out_height, out_width
    left, top = (out_width - side) // 2, (out_height - side) // 2
    support = _KINDS[preprocess.interpolation][1]
    taps = max(ceil(support * max(a / b, 1.0)) * 2 + 1 for a, b in ((width, out_width), (height, out_height)))
    if taps > _MAX_TAPS:
        return None
    scale = height / out_height
    reach = support * max(scale, 1.0)
    first = max(int((top + 0.5) * scale - reach + 0.5), 0)
    last = min(int((top + side - 0.5) * scale + reach + 0.5), height)
    return Geometry(width, height, out_width, out_height, left, top, first, last - first, taps, turned)


class Resizer(Closable):
    """Resizes and crops up to ``batch`` images at once on the current GPU. Used by one thread at a time."""

    def __init__(self, preprocess: Preprocess, batch: int) -> None:
        self._side = preprocess.size
        self._kind = _KINDS[preprocess.interpolation][0]
        self._kernels = Kernels(_PTX, ("weights", "along_rows", "along_columns"))
        self._forms = PinnedBuffer(batch * _FORM.itemsize)
        self._images = DeviceBuffer(batch * _FORM.itemsize)
        self._table = DeviceBuffer(1)
        self._temp = DeviceBuffer(1)

    def run(self, rasters: Sequence[tuple[Raster, Geometry]], target: int, stream: Stream) -> None:
        """Queue the pixels of images for ``target``, which holds a batch: each at its place.

        The stream has run what was queued before, and the images stay until this has run.
        """
        side, count = self._side, len(rasters)
        taps = max(geometry.taps for _, geometry in rasters)
        max_rows = max(geometry.rows for _, geometry in rasters)
        forms = self._forms.array((count,), _FORM)
        start = 0
        for index, (raster, geometry) in enumerate(rasters):
            forms[index] = _form(raster, geometry, start)
            start += 3 * geometry.rows * side
        self._table = _grown(self._table, 4 * count * 2 * side * (taps + 2))
        self._temp = _grown(self._temp, start)
        copy_to_device(self._images.pointer, self._forms.pointer, forms.nbytes, stream)
        images, table, temp = (pointer(buffer.pointer) for buffer in (self._images, self._table, self._temp))
        sizes = (number(side), number(taps))
        launch = self._kernels.launch
        launch("weights", (side, 2, count), (images, *sizes, number(self._kind), table), stream)
        launch("along_rows", (max_rows * side, count, 1), (images, *sizes, table, temp), stream)
        last = (images, *sizes, table, temp, pointer(target))
        launch("along_columns", (3 * side * side, count, 1), last, stream)

    def close(self) -> None:
        """Free its memory."""
        for part in (self._temp, self._table, self._images, self._forms, self._kernels):
            part.close()


def _form(raster: Raster, geometry: Geometry, temp: int) -> tuple[int, ...]:
    """Return one image as the kernels read it.

    Where the upright image's first pixel lies, and how far to its neighbours.
    """
    right, down = 3, raster.pitch
    far_right, far_down = right * (raster.width - 1), down * (raster.height - 1)
    base, step_x, step_y = {
        1: (0, right, down),
        2: (far_right, -right, down),
        3: (far_right + far_down, -right, -down),
        4: (far_down, right, -down),
        5: (0, down, right),
        6: (far_down, -down, right),
        7: (far_right + far_down, -down, -right),
        8: (far_right, down, -right),
    }[raster.orientation]
    g = geometry
    if g.turned:
        step_x, step_y = step_y, step_x
    sizes = (g.width, g.height, g.out_width, g.out_height, g.left, g.top, g.first, g.rows)
    return (raster.pointer + base, step_x, step_y, temp, *sizes, raster.place, int(g.turned))


def _grown(buffer: DeviceBuffer, size: int) -> DeviceBuffer:
    if buffer.size >= size:
        return buffer
    buffer.close()
    return DeviceBuffer(size + size // 4)
