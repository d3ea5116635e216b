"""Whether there is room for a model: on the disk before it is downloaded, in memory before it is built."""

from __future__ import annotations

import shutil
from pathlib import Path

from vlmsearch._util.machine import available_memory
from vlmsearch.errors import ModelUnavailableError
from vlmsearch.models.bundle import PROFILES, cache_folder
from vlmsearch.models.recipe import find_recipe

_BUNDLE_SHARE = 2.2
"""A bundle in float32 and INT8, and the INT8 that is tried: bytes by bytes of the weights in float32."""
_MEMORY_SHARE = 0.75
"""Peak memory of a build without transformers, by bytes of the weights in float32; measured: docs/howto/models.md."""
_MIN_MEMORY = 600 * 2**20
"""Bytes that the libraries and the samples take, whatever the model."""
_FLOAT_BYTES = 4
_SMALLER = "clip"


def check_disk(name: str, *, download: int, weights: int, hub: Path) -> None:
    """Raise ModelUnavailableError where the disk has no room for a download or its bundle.

    Args:
        name: The model, for the message.
        download: Bytes that are downloaded into ``hub``.
        weights: Bytes of its weights in float32.
        hub: The cache of the hub.
    """
    bundle = round(weights * _BUNDLE_SHARE)
    places = {hub: download, cache_folder(): bundle}
    free = {place: _free(place) for place in places}
    is_one = free[hub] == free[cache_folder()]
    for place, needed in places.items():
        wanted = download + bundle if is_one else needed
        if free[place] < wanted:
            raise ModelUnavailableError(
                f"{name} needs {_size(wanted)} on the disk of {place}, and {_size(free[place])} are free"
                f"{_advice(weights)}"
            )


def check_memory(name: str, weights: int) -> None:
    """Raise ModelUnavailableError where the memory that is free is too little to build a model."""
    free, wanted = available_memory(), round(weights * _MEMORY_SHARE) + _MIN_MEMORY
    if free is not None and free < wanted:
        raise ModelUnavailableError(
            f"building {name} takes {_size(wanted)} of memory, and {_size(free)} are free{_advice(weights)}"
        )


def _free(folder: Path) -> int:
    """Return how many bytes are free where a folder is, or will be."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"


def _advice(weights: int) -> str:
    """Return what to take instead of a large model."""
    smaller = sum(find_recipe(name).parameters for name in PROFILES[_SMALLER]) * _FLOAT_BYTES
    if weights <= smaller:
        return ""
    return f"; onnx:{_SMALLER} is smaller ({_size(smaller)} of weights) and for English"
