"""Graphs of checkpoints in memory, for tests that look at them or run them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from vlmsearch.building import calibrate as calibration, export as exporting, quantize
from vlmsearch.building.calibrate import Observation
from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.fetch import text_input
from vlmsearch.building.graph import OnnxGraph
from vlmsearch.building.inputs import Feeds, text_feeds
from vlmsearch.building.layers import Arithmetic, CpuInt8Layers
from vlmsearch.building.quantize import QuantisationPlan, Subject
from vlmsearch.models.bundle import Precision, Tower
from vlmsearch.models.tokenizers import TextTokenizer
from vlmsearch.types import Vectors


def export(checkpoint: Checkpoint, tower: Tower, dtype: Arithmetic = np.float32) -> bytes:
    """One tower with all arithmetic in ``dtype``."""
    with tempfile.TemporaryDirectory() as folder:
        return exporting.export(checkpoint, tower, Path(folder) / "model.onnx", dtype).file.read_bytes()


def export_fused(checkpoint: Checkpoint, tower: Tower) -> bytes:
    """Return one tower as it is for a CPU, with nothing quantised."""
    graph = OnnxGraph(tower)
    checkpoint.write(tower, CpuInt8Layers(graph, {}))
    return graph.to_bytes()


def tokenizer_of(folder: Path) -> TextTokenizer:
    """Return the tokenizer of a checkpoint, which neither cuts nor pads."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return TextTokenizer(tokenizer, str(folder))


def feeds_of(checkpoint: Checkpoint, texts: Sequence[str], batch: int = 4) -> Feeds:
    """Return batches of texts."""
    return text_feeds(texts, text_input(checkpoint), tokenizer_of(checkpoint.folder), batch)


def assert_same(ours: Vectors, theirs: Vectors) -> None:
    """Check that vectors of length one have the directions of others, and differ from each other."""
    assert ours.dtype == np.float32
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-5)
    theirs = theirs / np.linalg.norm(theirs, axis=1, keepdims=True)
    assert (ours * theirs).sum(axis=1).min() > 0.99999
    assert np.std(ours @ ours.T) > 0.01, "all inputs give the same vector: the comparison would show nothing"


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
