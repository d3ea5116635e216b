"""MPNet (Song et al., 2020): RoBERTa's positions, and a bias for the distance of two tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from vlmsearch.building.checkpoint import Checkpoint, read_transformer
from vlmsearch.building.families.bert import sentences
from vlmsearch.building.families.roberta import Roberta
from vlmsearch.building.layers import Layers
from vlmsearch.building.transformer import distances
from vlmsearch.building.weights import Json, Weights, read_weights
from vlmsearch.models.bundle import padded_length

_PAD = 1
"""Whatever a configuration says: the model itself takes no other."""
_BUCKETS, _FARTHEST = 32, 128
_NAMES = {
    ".attention.attn.q.": ".attention.self.query.",
    ".attention.attn.k.": ".attention.self.key.",
    ".attention.attn.v.": ".attention.self.value.",
    ".attention.attn.o.": ".attention.output.dense.",
    ".attention.LayerNorm.": ".attention.output.LayerNorm.",
}
"""The names of the same tensors in BERT."""


def read(folder: Path, config: Json) -> Checkpoint:
    """Read a sentence encoder."""
    form = read_transformer({"hidden_act": "gelu", "layer_norm_eps": 1e-12} | config, folder)
    positions = config["max_position_embeddings"] - _PAD - 1
    weights = read_weights(folder, _renamed)
    return sentences(folder, weights, lambda pooling: MpNet(form, positions, pooling, _PAD), _PAD)


def _renamed(name: str) -> str:
    name = name.removeprefix("mpnet.")
    for own, berts in _NAMES.items():
        name = name.replace(own, berts)
    return name


@dataclass(frozen=True)
class MpNet(Roberta):
    """A sentence encoder whose layers share one bias by head and distance."""

    def scores(self, layers: Layers, weights: Weights, length: str) -> str | None:
        """Return the bias of two tokens, (1, heads, length, length)."""
        graph, op = layers.graph, layers.graph.op
        max_distance = padded_length(self.positions)
        buckets = relative_buckets(np.arange(1 - max_distance, max_distance))
        table = weights["encoder.relative_attention_bias.weight"][buckets].T
        start = graph.constant(np.array(max_distance - 1, np.float32), "nearest")
        place = op("Add", distances(layers, length, self.positions), start, scope="distance")
        place = op("Cast", place, scope="distance", to=int(TensorProto.INT32))
        bias = op("Gather", layers.weight(table, "distances"), place, scope="distance", axis=1)
        return op("Unsqueeze", bias, graph.ints(0), scope="distance")


def relative_buckets(distance: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bucket of each distance, as T5 (Raffel et al., 2020) has them.

    Args:
        distance: How many positions the key comes after the query.

    Returns:
        Numbers from 0 to 31: half of them for keys that come later; near ones alone, farther ones in ranges that
        grow, up to 128.
    """
    half = _BUCKETS // 2
    exact = half // 2
    away = np.abs(distance)
    with np.errstate(divide="ignore"):
        growth = np.log(away.astype(np.float32) / np.float32(exact)) / np.float32(math.log(_FARTHEST / exact))
    far = exact + np.where(away < exact, 0, growth * np.float32(half - exact)).astype(np.int64)
    return np.where(distance > 0, half, 0) + np.where(away < exact, away, np.minimum(far, half - 1))
