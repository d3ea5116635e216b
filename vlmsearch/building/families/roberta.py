"""RoBERTa (Liu et al., 2019) and XLM-RoBERTa (Conneau et al., 2020): BERT with other positions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto

from vlmsearch.building.checkpoint import Checkpoint, read_transformer
from vlmsearch.building.families.bert import (
    Bert,
    check_one_label,
    encoder,
    give_logit,
    pairs,
    position_rows,
    sentences,
)
from vlmsearch.building.layers import Layers, Mask
from vlmsearch.building.transformer import Transformer, distances, first_token, text_inputs, text_length
from vlmsearch.building.weights import Json, Weights, read_weights
from vlmsearch.errors import ConfigError

_HEADS = ("RobertaForSequenceClassification", "XLMRobertaForSequenceClassification")


def read(folder: Path, config: Json) -> Checkpoint:
    """Read a sentence encoder."""
    form, positions, pad, weights = _parts(folder, config)
    return sentences(folder, weights, lambda pooling: Roberta(form, positions, pooling, pad), pad)


def read_cross_encoder(folder: Path, config: Json) -> Checkpoint:
    """Read a model of two texts that gives one number."""
    check_one_label(folder, config, _HEADS)
    form, positions, pad, weights = _parts(folder, config)
    return pairs(folder, weights, RobertaCrossEncoder(form, positions, "cls", pad), pad)


def _parts(folder: Path, config: Json) -> tuple[Transformer, int, int, Weights]:
    """Return the sizes of a RoBERTa, how many positions it has, its padding and its tensors."""
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ConfigError(f"{folder}: only absolute positions can be exported")
    form = read_transformer({"hidden_act": "gelu", "layer_norm_eps": 1e-5} | config, folder)
    pad = config.get("pad_token_id", 1)
    weights = read_weights(folder, lambda name: name.removeprefix("roberta."))
    return form, config["max_position_embeddings"] - pad - 1, pad, weights


@dataclass(frozen=True)
class Roberta(Bert):
    """A sentence encoder whose positions are counted from ``pad`` + 1.

    A token that is ``pad`` has the position ``pad`` and is not counted, whether it fills a text up or stands in it:
    "<pad>" written out in a text is that token, though attention sees it.
    """

    pad: int

    def places(self, layers: Layers, weights: Weights, ids: str, length: str) -> str:
        """Return the rows of the table of positions, (n, length, width)."""
        graph, op = layers.graph, layers.graph.op
        number = int(TensorProto.FLOAT)
        after = distances(layers, length, self.positions)
        # 1 where the second position is the first or comes after it
        zero, ones = (graph.constant(np.array(value, np.float32), f"number_{value}") for value in (0, 1))
        later = op("Cast", op("Less", after, zero, scope="embed"), scope="embed", to=number)
        counted = op("Sub", ones, later, scope="embed")
        padding = op("Equal", ids, graph.constant(np.array(self.pad, np.int32), "pad"), scope="embed")
        own = op("Cast", op("Not", padding, scope="embed"), scope="embed", to=number)
        count = op("Mul", op("MatMul", own, counted, scope="embed"), own, scope="embed")
        first = graph.constant(np.array(self.pad, np.float32), "before_first")
        place = op("Cast", op("Add", count, first, scope="embed"), scope="embed", to=int(TensorProto.INT32))
        return op("Gather", layers.weight(position_rows(weights), "positions"), place, scope="embed")


@dataclass(frozen=True)
class RobertaCrossEncoder(Roberta):
    """A RoBERTa that reads two texts together and gives one number."""

    def write(self, layers: Layers, weights: Weights) -> None:
        """Write ``input_ids``, ``token_type_ids``, ``attention_mask`` int32 (n, length) to ``logit`` float32 (n, 1).

        The model has no types: what they are makes no difference.
        """
        graph = layers.graph
        ids, padding = text_inputs(layers)
        graph.input("token_type_ids", TensorProto.INT32, ["batch", "length"])
        x = layers.lookup(weights["embeddings.word_embeddings.weight"], ids)
        x = graph.op("Add", x, self.places(layers, weights, ids, text_length(layers, ids)), scope="embed")
        x = encoder(layers, self.transformer, weights, x, Mask(padding), first_token(graph))
        give_logit(layers, weights, x, "classifier.dense", "classifier.out_proj")
