"""ModernBERT (Warner et al., 2024): rotary positions, gated MLPs, and layers that see a window of the text only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vlmsearch.building.checkpoint import Checkpoint, TextTower, read_transformer
from vlmsearch.building.families.bert import sentences
from vlmsearch.building.layers import Layers, Linear, Mask
from vlmsearch.building.transformer import (
    Block,
    Pooling,
    Transformer,
    distances,
    linear,
    norm_weights,
    one_token,
    pool_tokens,
    pre_norm,
    rotary_positions,
    scaled,
    text_inputs,
    text_length,
    unit,
)
from vlmsearch.building.weights import Json, Weights, read_weights
from vlmsearch.errors import ConfigError

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"


def read(folder: Path, config: Json) -> Checkpoint:
    """Read a sentence encoder."""
    sizes = {"hidden_act": config.get("hidden_activation", "gelu"), "layer_norm_eps": config.get("norm_eps", 1e-5)}
    form = read_transformer(config | sizes, folder)
    every = config.get("global_attn_every_n_layers", 3)
    kinds = config.get("layer_types") or [_LOCAL if i % every else _GLOBAL for i in range(form.layers)]
    biased = {name for name in ("attention_bias", "mlp_bias", "norm_bias") if config.get(name)}
    if biased:
        raise ConfigError(f"{folder}: ModernBERT without biases can be exported, not with {', '.join(sorted(biased))}")
    bases = [_base(folder, config, kind) for kind in (_GLOBAL, _LOCAL)]
    window, positions = config.get("local_attention", 128) // 2, config["max_position_embeddings"]
    weights = read_weights(folder, lambda name: name.removeprefix("model."))

    def tower(pooling: Pooling) -> ModernBert:
        return ModernBert(form, positions, pooling, tuple(kind == _LOCAL for kind in kinds), window, *bases)

    return sentences(folder, weights, tower, config.get("pad_token_id", 50283))


def _base(folder: Path, config: Json, kind: str) -> float:
    """Return the base of the rotary positions of a kind of layers.

    It has a new name and an old one.
    """
    new = (config.get("rope_parameters") or {}).get(kind) or {}
    scaling = config.get("rope_scaling") or {}
    if {new.get("rope_type", "default"), scaling.get("rope_type", "default")} != {"default"}:
        raise ConfigError(f"{folder}: rotary positions that are scaled cannot be exported")
    old, usual = ("global_rope_theta", 160_000.0) if kind == _GLOBAL else ("local_rope_theta", 10_000.0)
    return float(new.get("rope_theta") or config.get(old) or usual)


@dataclass(frozen=True)
class ModernBert(TextTower):
    """A sentence encoder of ModernBERT.

    Where ``local`` is true, a layer's tokens see those up to ``window`` before and after.
    """

    pooling: Pooling
    local: tuple[bool, ...]
    window: int
    global_base: float
    local_base: float

    def write(self, layers: Layers, weights: Weights) -> None:
        """See `TextTower.write`."""
        form = self.transformer
        ids, padding = text_inputs(layers)
        length = text_length(layers, ids)
        size = form.width // form.heads
        everywhere = rotary_positions("positions/global", self.positions, size, self.global_base, length)
        nearby = rotary_positions("positions/local", self.positions, size, self.local_base, length)
        near = Mask(padding, scores=self._window(layers, length))
        blocks = [
            replace(_block(weights, i, form), mask=near if local else None, rotary=nearby if local else everywhere)
            for i, local in enumerate(self.local)
        ]
        x = layers.lookup(weights["embeddings.tok_embeddings.weight"], ids)
        x = layers.norm(x, blocks[0].norm1)
        pool = one_token(layers.graph, self.pooling)
        final = norm_weights(weights, "final_norm", form, bias=False)
        x = pre_norm(layers, x, blocks, final, form, Mask(padding), pool, normed=True)
        unit(layers, pool_tokens(layers, x, padding, self.pooling), form.width)

    def _window(self, layers: Layers, length: str) -> str:
        """Return what hides the tokens outside the window, (1, 1, length, length)."""
        graph, op = layers.graph, layers.graph.op
        away = op("Abs", distances(layers, length, self.positions), scope="window")
        window = graph.constant(np.array(self.window, np.float32), "window")
        hidden = layers.cast(op("Greater", away, window, scope="window"), "window")
        bias = op("Mul", hidden, layers.scalar(-1e4), scope="window")
        return op("Unsqueeze", bias, graph.ints(0, 1), scope="window")


def _block(weights: Weights, number: int, form: Transformer) -> Block:
    """Return a layer; the first has no normalisation of its own, as the embeddings are normalised."""
    prefix, name = f"layers.{number}.", f"text/{number}"
    parts = np.split(weights[f"{prefix}attn.Wqkv.weight"].T, 3, axis=1)
    query, key, value = (Linear(f"{name}/{role}", part) for role, part in zip("qkv", parts))
    norm = f"{prefix}attn_norm" if number else "embeddings.norm"
    return Block(
        name,
        query=scaled(query, form),
        key=key,
        value=value,
        out=linear(weights, f"{prefix}attn.Wo", f"{name}/out", bias=False),
        fc1=linear(weights, f"{prefix}mlp.Wi", f"{name}/fc1", bias=False),
        fc2=linear(weights, f"{prefix}mlp.Wo", f"{name}/fc2", bias=False),
        norm1=norm_weights(weights, norm, form, bias=False),
        norm2=norm_weights(weights, f"{prefix}mlp_norm", form, bias=False),
        gated=True,
    )
