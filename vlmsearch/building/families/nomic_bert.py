"""Nomic's BERT (Nussbaum et al., Nomic Embed, 2024): BERT with rotary positions, gated MLPs and few biases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vlmsearch.building.checkpoint import Checkpoint, TextTower, read_transformer
from vlmsearch.building.families.bert import sentences
from vlmsearch.building.layers import Array, Layers, Linear, Mask
from vlmsearch.building.transformer import (
    Block,
    Pooling,
    Transformer,
    linear,
    norm_weights,
    one_token,
    pool_tokens,
    post_norm,
    rotary_positions,
    scaled,
    text_inputs,
    text_length,
    unit,
)
from vlmsearch.building.weights import Json, Weights, read_weights
from vlmsearch.errors import ConfigError

_SETTINGS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}
"""The settings of Nomic's own program, and their names in transformers."""
_FULL_ROTARY = 1.0
_THETA = 1000.0


def read(folder: Path, config: Json) -> Checkpoint:
    """Read a sentence encoder, with the settings of transformers or of Nomic's own program."""
    given = config | {new: config[old] for old, new in _SETTINGS.items() if old in config}
    biased = [name for name in ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias") if given.get(name)]
    parted = given.get("rotary_emb_fraction", _FULL_ROTARY) != _FULL_ROTARY or given.get("rotary_emb_interleaved")
    rope = given.get("rope_parameters") or {}
    if biased or parted or given.get("prenorm") or rope.get("rope_type", "default") != "default":
        raise ConfigError(
            f"{folder}: Nomic's BERT can be exported without biases, normalised after each part, with whole plain "
            "rotary positions, as in nomic-embed-text"
        )
    form = read_transformer(given | {"hidden_act": "silu"}, folder)
    # Longer texts would need scaled positions, which Nomic's own program has and transformers has not.
    positions = min(given.get("max_position_embeddings") or 2048, given.get("max_trained_positions") or 2048)
    base = float(rope.get("rope_theta") or given.get("rope_theta") or _THETA)
    weights = read_weights(folder, lambda name: name)
    return sentences(
        folder, weights, lambda pooling: NomicBert(form, positions, pooling, base), given.get("pad_token_id") or 0
    )


@dataclass(frozen=True)
class NomicBert(TextTower):
    """A sentence encoder; ``base`` is that of its rotary positions."""

    pooling: Pooling
    base: float

    def write(self, layers: Layers, weights: Weights) -> None:
        """See `TextTower.write`."""
        form = self.transformer
        ids, padding = text_inputs(layers)
        length = text_length(layers, ids)
        rotary = rotary_positions("positions/rotary", self.positions, form.width // form.heads, self.base, length)
        table = weights["embeddings.word_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
        x = layers.norm(layers.lookup(table, ids), norm_weights(weights, "emb_ln", form))
        blocks = [replace(_block(weights, i, form), rotary=rotary) for i in range(form.layers)]
        pool = one_token(layers.graph, self.pooling)
        x = post_norm(layers, x, blocks, form, Mask(padding), pool)
        unit(layers, pool_tokens(layers, x, padding, self.pooling), form.width)


def _block(weights: Weights, number: int, form: Transformer) -> Block:
    """Return a layer; transformers saves it under the names of Nomic's own program."""
    prefix, name = f"encoder.layers.{number}.", f"text/{number}"
    parts: list[Array] = np.split(weights[f"{prefix}attn.Wqkv.weight"].T, 3, axis=1)
    query, key, value = (Linear(f"{name}/{role}", part) for role, part in zip("qkv", parts))
    gate, other = (weights[f"{prefix}mlp.{part}.weight"].T for part in ("fc12", "fc11"))
    return Block(
        name,
        query=scaled(query, form),
        key=key,
        value=value,
        out=linear(weights, f"{prefix}attn.out_proj", f"{name}/out", bias=False),
        fc1=Linear(f"{name}/fc1", np.concatenate([gate, other], axis=1)),
        fc2=linear(weights, f"{prefix}mlp.fc2", f"{name}/fc2", bias=False),
        norm1=norm_weights(weights, f"{prefix}norm1", form),
        norm2=norm_weights(weights, f"{prefix}norm2", form),
        gated=True,
    )
