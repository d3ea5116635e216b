"""A tower on ONNX Runtime, for Triton's Python backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.machine import available_cores
from vlmsearch.models.session import CoresSession, OnnxSession, Place
from vlmsearch.types import Vectors


class OnnxTower:
    """One ONNX model, whose threads sleep while it has nothing to do.

    They do so for the other models' sake.

    ModelUnavailableError says why a GPU that was asked for cannot be used.
    """

    def __init__(self, path: Path, *, device: str = "cpu", device_id: int = 0, threads: int | None = None) -> None:
        cores, model = threads or available_cores(), str(path)
        self._session = (
            OnnxSession(model, Place(cores, device_id), path.name)
            if device == "gpu"
            else CoresSession(lambda: model, path.name, threads=cores)
        )

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> Vectors:
        """Unit vectors, float32 (n, dim)."""
        return self._session.run(inputs)
