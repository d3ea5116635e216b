"""The ranges of what every Linear reads, taken from samples in one pass and bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.export import ExportedTower
from vlmsearch.building.inputs import Feed, Feeds, open_session
from vlmsearch.building.layers import Array
from vlmsearch.models.bundle import Tower
from vlmsearch.models.mapped import MappedModel, map_model

_BINS = 8192
_BUDGET = 256 * 2**20
"""Bytes that the probed values of one batch may take."""


class Spread:
    """The range of a stream of rows, per channel and over all, with percentiles.

    The histogram's bins grow in width by powers of two, so that nothing has to be known of the values beforehand;
    percentiles are exact to one bin.
    """

    def __init__(self) -> None:
        self.lowest: Array | None = None
        self.highest: Array | None = None
        self._counts = np.zeros(_BINS, np.int64)
        self._limit = 2.0**-20

    def update(self, rows: Array) -> None:
        """Take in rows of shape (n, channels)."""
        low, high = rows.min(axis=0), rows.max(axis=0)
        self.lowest = low if self.lowest is None else np.minimum(self.lowest, low)
        self.highest = high if self.highest is None else np.maximum(self.highest, high)
        peak = max(float(high.max()), -float(low.min()))
        while self._limit <= peak:
            pairs = self._counts.reshape(-1, 2).sum(axis=1)
            self._counts[:] = 0
            self._counts[_BINS // 4 : _BINS * 3 // 4] = pairs
            self._limit *= 2
        places = ((rows.ravel() + np.float32(self._limit)) * np.float32(_BINS / (2 * self._limit))).astype(np.int32)
        self._counts += np.bincount(np.clip(places, 0, _BINS - 1), minlength=_BINS)

    def range(self, percentile: float = 100.0) -> tuple[float, float]:
        """Between which values a share of ``percentile`` / 100 lies; all of them with 100."""
        if self.lowest is None or self.highest is None:
            raise ValueError("nothing was taken in")
        low, high = float(self.lowest.min()), float(self.highest.max())
        if percentile >= 100:
            return low, high
        total = np.cumsum(self._counts)
        beyond = (1 - percentile / 100) / 2 * total[-1]
        width = 2 * self._limit / _BINS
        first, last = np.searchsorted(total, [beyond, total[-1] - beyond])
        return max(low, first * width - self._limit), min(high, (last + 1) * width - self._limit)

    def scaled(self, factors: Array) -> tuple[float, float]:
        """Between which values everything lies once each channel is divided by its factor."""
        if self.lowest is None or self.highest is None:
            raise ValueError("nothing was taken in")
        return float((self.lowest / factors).min()), float((self.highest / factors).max())

    def magnitude(self) -> Array:
        """Return the greatest absolute value of each channel."""
        if self.lowest is None or self.highest is None:
            raise ValueError("nothing was taken in")
        return np.maximum(np.abs(self.lowest), np.abs(self.highest))


@dataclass(frozen=True)
class Observation:
    """Measurements of one Linear: the spread of its inputs, and each input channel's greatest absolute weight."""

    inputs: Spread
    weight_peaks: Array

    def smoothing(self, alpha: float) -> Array:
        """Return what SmoothQuant divides the inputs by, per channel.

        ``alpha`` of the difficulty moves to the weights.
        """
        inputs, weights = (np.log(np.maximum(peaks, 1e-5)) for peaks in (self.inputs.magnitude(), self.weight_peaks))
        factors = alpha * inputs - (1 - alpha) * weights
        smooth: Array = np.exp(np.clip(factors - factors.mean(), -3.5, 3.5)).astype(np.float32)
        return smooth


def calibrate(exported: ExportedTower, feeds: Feeds, report: Callable[[int, int], None]) -> Mapping[str, Observation]:
    """Return what each Linear of a tower in float32 reads over all samples, padding left out.

    Values are looked at in batches small enough to stay within a fixed budget of memory.
    """
    session = open_session(_probed(exported))
    spreads = {name: Spread() for name in exported.linear_inputs}
    values = list(exported.linear_inputs.values())
    small = (_small(batch, len(values), exported.checkpoint, exported.tower) for batch in feeds.batches)
    batches = [part for parts in small for part in parts]
    for number, batch in enumerate(batches, start=1):
        mask = batch.get("attention_mask")
        for name, inputs in zip(spreads, session.run(values, batch)):
            kept = inputs[mask.astype(bool)] if mask is not None and inputs.shape[:2] == mask.shape else inputs
            spreads[name].update(kept.reshape(-1, inputs.shape[-1]))
        report(number, len(batches))
    return {name: Observation(spread, exported.weight_peaks[name]) for name, spread in spreads.items()}


def _probed(exported: ExportedTower) -> MappedModel:
    """Return the model with what its Linears read as further outputs."""
    mapped = map_model(exported.file)
    model = onnx.load_model_from_string(mapped.graph)
    for value in exported.linear_inputs.values():
        model.graph.output.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, [None] * 3))
    return MappedModel(model.SerializeToString(), mapped.folder)


def _small(batch: Feed, values: int, checkpoint: Checkpoint, tower: Tower) -> list[Feed]:
    """Return a batch in parts whose probed values fit the budget."""
    form = checkpoint.tower(tower).transformer
    first = next(iter(batch.values()))
    tokens = checkpoint.image.tokens if tower == "image" and checkpoint.image else first.shape[1]
    size = values * tokens * form.width * 2 * 4  # a quarter of the inputs is four times as wide
    step = max(1, int(_BUDGET / size))
    return [{name: array[i : i + step] for name, array in batch.items()} for i in range(0, len(first), step)]
