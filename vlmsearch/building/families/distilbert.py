"""DistilBERT (Sanh et al., 2019): BERT without types, under other names."""

from __future__ import annotations

from pathlib import Path

from vlmsearch.building.checkpoint import Checkpoint, read_transformer
from vlmsearch.building.families.bert import Bert, sentences
from vlmsearch.building.weights import Json, read_weights

_NAMES = {
    "transformer.layer.": "encoder.layer.",
    ".attention.q_lin.": ".attention.self.query.",
    ".attention.k_lin.": ".attention.self.key.",
    ".attention.v_lin.": ".attention.self.value.",
    ".attention.out_lin.": ".attention.output.dense.",
    ".sa_layer_norm.": ".attention.output.LayerNorm.",
    ".ffn.lin1.": ".intermediate.dense.",
    ".ffn.lin2.": ".output.dense.",
    ".output_layer_norm.": ".output.LayerNorm.",
}
"""The names of the same tensors in BERT."""


def read(folder: Path, config: Json) -> Checkpoint:
    """Read a sentence encoder."""
    sizes = {"hidden_size": config["dim"], "num_hidden_layers": config["n_layers"]}
    sizes |= {"num_attention_heads": config["n_heads"], "hidden_act": config.get("activation", "gelu")}
    form = read_transformer(sizes | {"layer_norm_eps": 1e-12}, folder)
    weights, positions = read_weights(folder, _renamed), config["max_position_embeddings"]
    pad = config.get("pad_token_id", 0)
    return sentences(folder, weights, lambda pooling: Bert(form, positions, pooling), pad)


def _renamed(name: str) -> str:
    name = name.removeprefix("distilbert.")
    for own, berts in _NAMES.items():
        name = name.replace(own, berts)
    return name
