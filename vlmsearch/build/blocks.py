"""The layers of a transformer, as CLIP and BERT arrange them, from a checkpoint's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from vlmsearch.build.layers import Activation, Array, Layers, Linear, Mask, Norm

Weights = Mapping[str, Array]


@dataclass(frozen=True)
class Transformer:
    """The sizes that all layers of one transformer share."""

    width: int
    layers: int
    heads: int
    activation: Activation
    epsilon: float


@dataclass(frozen=True)
class Block:
    """The weights of one layer; ``norm1`` comes first in the pre-norm order, after attention in the post-norm one."""

    name: str
    query: Linear
    key: Linear
    value: Linear
    out: Linear
    fc1: Linear
    fc2: Linear
    norm1: Norm
    norm2: Norm


Pool = Callable[[str], str]
"""Takes the one pooled token out of (n, tokens, width): gives (n, 1, width)."""


def pre_norm(
    layers: Layers, x: str, blocks: Sequence[Block], final: Norm, form: Transformer, mask: Mask | None, pool: Pool
) -> str:
    """The layers with normalisation first, and the final normalisation: the pooled token, (n, 1, width)."""
    following = [block.norm1 for block in blocks[1:]] + [final]
    h = layers.norm(x, blocks[0].norm1)
    for block, norm in zip(blocks, following):
        last = pool if block is blocks[-1] else None
        attended = attention(layers, block, form, h, mask, last)
        x, h = layers.add_norm(attended, last(x) if last else x, block.norm2)
        x, h = layers.add_norm(mlp(layers, block, form, h), x, norm)
    return h


def attention(layers: Layers, block: Block, form: Transformer, x: str, mask: Mask | None, pool: Pool | None) -> str:
    """Self-attention with its projections, of every token or of the pooled one alone.

    Under a mask the scores are computed for every token: TensorRT 8.6 gives the mask of a single query to the first
    row of a batch alone.
    """
    scope = f"{block.name}/attention"
    if pool and mask is None:
        q = layers.linear(pool(x), block.query)
        k, v = layers.split(layers.linear(x, _fuse("kv", block, block.key, block.value)), 2, form.width, scope)
    else:
        fused = _fuse("qkv", block, block.query, block.key, block.value)
        q, k, v = layers.split(layers.linear(x, fused), 3, form.width, scope)
    attended = layers.attention(q, k, v, heads=form.heads, width=form.width, mask=mask, scope=scope)
    if pool and mask is not None:
        attended = pool(attended)
    return layers.linear(attended, block.out)


def mlp(layers: Layers, block: Block, form: Transformer, x: str) -> str:
    """The two Linears after attention, with the activation between them."""
    hidden = layers.activation(layers.linear(x, block.fc1), form.activation, f"{block.name}/mlp")
    return layers.linear(hidden, block.fc2)


def unit(layers: Layers, x: str, dim: int) -> None:
    """Give out the pooled token, scaled to length one in float32."""
    graph, op = layers.graph, layers.graph.op
    x = op("Cast", op("Squeeze", x, graph.ints(1), scope="unit"), scope="unit", to=int(TensorProto.FLOAT))
    length = op("ReduceL2", x, scope="unit", axes=(1,), keepdims=1)
    length = op("Max", length, graph.constant(np.array(1e-12, np.float32), "tiny"), scope="unit")
    graph.output(op("Div", x, length, scope="unit"), "embedding", TensorProto.FLOAT, ["batch", dim])


def _fuse(role: str, block: Block, *parts: Linear) -> Linear:
    """Several Linears of one input as one."""
    weight = np.concatenate([part.weight for part in parts], axis=1)
    bias = np.concatenate([part.bias for part in parts if part.bias is not None])
    return Linear(f"{block.name}/{role}", weight, bias)


def clip_block(weights: Weights, prefix: str, name: str, form: Transformer) -> Block:
    """A layer of either CLIP tower."""
    attention = f"{prefix}self_attn."
    return Block(
        name,
        query=_scaled(_linear(weights, f"{attention}q_proj", f"{name}/q"), form),
        key=_linear(weights, f"{attention}k_proj", f"{name}/k"),
        value=_linear(weights, f"{attention}v_proj", f"{name}/v"),
        out=_linear(weights, f"{attention}out_proj", f"{name}/out"),
        fc1=_linear(weights, f"{prefix}mlp.fc1", f"{name}/fc1"),
        fc2=_linear(weights, f"{prefix}mlp.fc2", f"{name}/fc2"),
        norm1=norm_weights(weights, f"{prefix}layer_norm1", form),
        norm2=norm_weights(weights, f"{prefix}layer_norm2", form),
    )


def bert_block(weights: Weights, prefix: str, name: str, form: Transformer) -> Block:
    """A layer of BERT."""
    attention = f"{prefix}attention.self."
    return Block(
        name,
        query=_scaled(_linear(weights, f"{attention}query", f"{name}/q"), form),
        key=_linear(weights, f"{attention}key", f"{name}/k"),
        value=_linear(weights, f"{attention}value", f"{name}/v"),
        out=_linear(weights, f"{prefix}attention.output.dense", f"{name}/out"),
        fc1=_linear(weights, f"{prefix}intermediate.dense", f"{name}/fc1"),
        fc2=_linear(weights, f"{prefix}output.dense", f"{name}/fc2"),
        norm1=norm_weights(weights, f"{prefix}attention.output.LayerNorm", form),
        norm2=norm_weights(weights, f"{prefix}output.LayerNorm", form),
    )


def _linear(weights: Weights, prefix: str, name: str) -> Linear:
    return Linear(name, weights[f"{prefix}.weight"].T, weights[f"{prefix}.bias"])


def _scaled(query: Linear, form: Transformer) -> Linear:
    """The query's projection with attention's 1 / sqrt(head size) in it."""
    scale = np.float32((form.width // form.heads) ** -0.5)
    return Linear(query.name, query.weight * scale, None if query.bias is None else query.bias * scale)


def norm_weights(weights: Weights, prefix: str, form: Transformer) -> Norm:
    """The weights of one layer normalisation."""
    return Norm(prefix, weights[f"{prefix}.weight"], weights[f"{prefix}.bias"], form.epsilon)
