"""A tower on ONNX Runtime, for Triton's Python backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from vlmsearch.encoders.towers import available_cores
from vlmsearch.serving.protocol import EMBEDDING
from vlmsearch.types import Vectors


class OnnxTower:
    """One ONNX model; its threads sleep while it has nothing to do, for the other models' sake."""

    def __init__(self, path: Path, *, device: str = "cpu", device_id: int = 0, threads: int | None = None) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads or available_cores()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers: list[object] = ["CPUExecutionProvider"]
        if device == "gpu":
            providers.insert(0, ("CUDAExecutionProvider", {"device_id": device_id}))
        self._session = ort.InferenceSession(str(path), options, providers=providers)
        if device == "gpu" and "CUDAExecutionProvider" not in self._session.get_providers():
            raise RuntimeError("ONNX Runtime has no CUDA here: install onnxruntime-gpu into the server's environment")

    def run(self, inputs: Mapping[str, NDArray[np.generic]]) -> Vectors:
        """Unit vectors, float32 (n, dim)."""
        vectors: Vectors = self._session.run([EMBEDDING], dict(inputs))[0]
        return vectors
