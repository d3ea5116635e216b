"""Graphs of checkpoints in memory, for tests that look at them or run them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vlmsearch.building import calibrate as calibration
from vlmsearch.building import export as exporting
from vlmsearch.building import quantize
from vlmsearch.building.calibrate import Observation
from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.inputs import Feeds
from vlmsearch.building.layers import Arithmetic
from vlmsearch.building.quantize import QuantisationPlan, Subject
from vlmsearch.models.bundle import Precision, Tower


def export(checkpoint: Checkpoint, tower: Tower, dtype: Arithmetic = np.float32) -> bytes:
    """One tower with all arithmetic in ``dtype``."""
    with tempfile.TemporaryDirectory() as folder:
        return exporting.export(checkpoint, tower, Path(folder) / "model.onnx", dtype).file.read_bytes()


def calibrate(checkpoint: Checkpoint, tower: Tower, feeds: Feeds) -> Mapping[str, Observation]:
    """What each Linear of a tower reads."""
    with tempfile.TemporaryDirectory() as folder:
        exported = exporting.export(checkpoint, tower, Path(folder) / "model.onnx")
        return calibration.calibrate(exported, feeds, lambda done, total: None)


def write(
    subject: Subject[quantize.D], precision: Precision, plan: QuantisationPlan, seen: Mapping[str, Observation]
) -> Path:
    """One tower in a lower precision."""
    quantize.write(subject, precision, plan, seen, subject.scratch)
    return subject.scratch


def scratch() -> Path:
    """A file of its own."""
    return Path(tempfile.mkdtemp()) / "model.onnx"
