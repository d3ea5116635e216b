"""One tower of a checkpoint as an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.graph import OnnxGraph
from vlmsearch.building.layers import Arithmetic, Array, CpuInt8Layers, Int8Scaling, Layers, QdqLayers
from vlmsearch.models.bundle import Precision, Tower


@dataclass(frozen=True)
class ExportedTower:
    """A tower in a file, and what calibration has to know of its Linears.

    ``linear_inputs`` is the value that each Linear that may be quantised reads, ``weight_peaks`` the greatest absolute
    weight of each input channel of those Linears.
    """

    checkpoint: Checkpoint
    tower: Tower
    file: Path
    linear_inputs: Mapping[str, str]
    weight_peaks: Mapping[str, Array]


def export(checkpoint: Checkpoint, tower: Tower, file: Path, dtype: Arithmetic = np.float32) -> ExportedTower:
    """Write one tower with all arithmetic in ``dtype``."""
    with file.open("w+b") as out:
        graph = OnnxGraph(tower, out)
        layers = Layers(graph, dtype)
        checkpoint.write(tower, layers)
        graph.finish()
    return ExportedTower(checkpoint, tower, file, layers.linear_inputs, layers.weight_peaks)


def export_quantised(
    checkpoint: Checkpoint, tower: Tower, precision: Precision, parts: Mapping[str, Int8Scaling], file: Path
) -> None:
    """Write one tower in ``int8`` (for ONNX Runtime on a CPU) or ``qdq`` (for TensorRT)."""
    with file.open("w+b") as out:
        graph = OnnxGraph(tower, out)
        checkpoint.write(tower, QdqLayers(graph, parts) if precision == "qdq" else CpuInt8Layers(graph, parts))
        graph.finish()
