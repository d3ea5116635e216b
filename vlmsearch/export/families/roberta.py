"""RoBERTa (Liu et al., 2019) and XLM-RoBERTa (Conneau et al., 2020): BERT with other positions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto

from vlmsearch.errors import ConfigError
from vlmsearch.export.checkpoint import Checkpoint, read_transformer
from vlmsearch.export.families.bert import Bert, position_rows, sentences
from vlmsearch.export.layers import Layers
from vlmsearch.export.transformer import distances
from vlmsearch.export.weights import Json, Weights, read_weights


def read(folder: Path, config: Json) -> Checkpoint:
    """Read a sentence encoder."""
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ConfigError(f"{folder}: only absolute positions can be exported")
    form = read_transformer({"hidden_act": "gelu", "layer_norm_eps": 1e-5} | config, folder)
    pad = config.get("pad_token_id", 1)
    positions = config["max_position_embeddings"] - pad - 1
    weights = read_weights(folder, lambda name: name.removeprefix("roberta."))
    return sentences(folder, weights, lambda pooling: Roberta(form, positions, pooling, pad), pad)


@dataclass(frozen=True)
class Roberta(Bert):
    """A sentence encoder whose positions are counted from ``pad`` + 1.

    A token that is ``pad`` has the position ``pad`` and is not counted, whether it fills a text up or stands in it:
    "<pad>" written out in a text is that token, though attention sees it.
    """

    pad: int

    def places(self, layers: Layers, weights: Weights, ids: str, length: str) -> str:
        """The rows of the table of positions, (n, length, width)."""
        graph, op = layers.graph, layers.graph.op
        number = int(TensorProto.FLOAT)
        after = distances(layers, length, self.positions)
        # 1 where the second position is the first or comes after it
        zero, one = (graph.constant(np.array(value, np.float32), f"number_{value}") for value in (0, 1))
        later = op("Cast", op("Less", after, zero, scope="embed"), scope="embed", to=number)
        counted = op("Sub", one, later, scope="embed")
        padding = op("Equal", ids, graph.constant(np.array(self.pad, np.int32), "pad"), scope="embed")
        own = op("Cast", op("Not", padding, scope="embed"), scope="embed", to=number)
        count = op("Mul", op("MatMul", own, counted, scope="embed"), own, scope="embed")
        first = graph.constant(np.array(self.pad, np.float32), "before_first")
        place = op("Cast", op("Add", count, first, scope="embed"), scope="embed", to=int(TensorProto.INT32))
        return op("Gather", layers.weight(position_rows(weights), "positions"), place, scope="embed")
