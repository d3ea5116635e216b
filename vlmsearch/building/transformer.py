"""What the graphs of all families are made of: layers of a transformer, inputs, pooling and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from onnx import TensorProto

from vlmsearch.building.graph import OnnxGraph
from vlmsearch.building.layers import Activation, Array, Layers, Linear, Mask, Norm, Rotary
from vlmsearch.building.weights import Weights
from vlmsearch.models.bundle import padded_length


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
    """The weights of one layer.

    ``norm1`` comes first in the pre-norm order, after attention in the post-norm one.

    Where the MLP is ``gated``, the activation of the first half of what ``fc1`` gives is multiplied by the second half
    (Shazeer, GLU Variants, 2020). ``mask`` is the layer's own, where layers have different ones, and ``rotary`` its
    positions.
    """

    name: str
    query: Linear
    key: Linear
    value: Linear
    out: Linear
    fc1: Linear
    fc2: Linear
    norm1: Norm
    norm2: Norm
    gated: bool = False
    mask: Mask | None = None
    rotary: Rotary | None = None


Pool = Callable[[str], str]
"""Takes the one pooled token out of (n, tokens, width): gives (n, 1, width)."""


def pre_norm(
    layers: Layers,
    x: str,
    blocks: Sequence[Block],
    final: Norm,
    form: Transformer,
    mask: Mask | None,
    pool: Pool | None,
    *,
    normed: bool = False,
) -> str:
    """Return the layers with normalisation first, and the final normalisation.

    All tokens, or the one that ``pool`` takes.

    ``normed`` says that ``x`` is what the first layer's ``norm1`` gave.
    """
    following = [block.norm1 for block in blocks[1:]] + [final]
    h = x if normed else layers.norm(x, blocks[0].norm1)
    for block, norm in zip(blocks, following):
        last = pool if block is blocks[-1] else None
        attended = attention(layers, block, form, h, mask, last)
        x, h = layers.add_norm(attended, last(x) if last else x, block.norm2)
        x, h = layers.add_norm(mlp(layers, block, form, h), x, norm)
    return h


def post_norm(
    layers: Layers, x: str, blocks: Sequence[Block], form: Transformer, mask: Mask | None, pool: Pool | None
) -> str:
    """Return the layers with normalisation after attention and after the MLP.

    All tokens, or the one that ``pool`` takes.
    """
    for block in blocks:
        last = pool if block is blocks[-1] else None
        attended = attention(layers, block, form, x, mask, last)
        _, x = layers.add_norm(attended, last(x) if last else x, block.norm1)
        _, x = layers.add_norm(mlp(layers, block, form, x), x, block.norm2)
    return x


def attention(layers: Layers, block: Block, form: Transformer, x: str, mask: Mask | None, pool: Pool | None) -> str:
    """Self-attention with its projections, of every token or of the pooled one alone.

    Under a mask the scores are computed for every token: TensorRT 8.6 gives the mask of a single query to the first
    row of a batch alone.
    """
    scope, mask = f"{block.name}/attention", block.mask or mask
    if pool and mask is None:
        q = layers.linear(pool(x), block.query)
        k, v = layers.split(layers.linear(x, _fuse("kv", block, block.key, block.value)), 2, form.width, scope)
    else:
        fused = _fuse("qkv", block, block.query, block.key, block.value)
        q, k, v = layers.split(layers.linear(x, fused), 3, form.width, scope)
        if block.rotary:
            turn = partial(layers.rotate, rotary=block.rotary, heads=form.heads, width=form.width, scope=scope)
            q, k = turn(q), turn(k)
    attended = layers.attention(q, k, v, heads=form.heads, width=form.width, mask=mask, scope=scope)
    if pool and mask is not None:
        attended = pool(attended)
    return layers.linear(attended, block.out)


def mlp(layers: Layers, block: Block, form: Transformer, x: str) -> str:
    """Return the two Linears after attention, with the activation between them."""
    scope, hidden = f"{block.name}/mlp", layers.linear(x, block.fc1)
    if block.gated:
        activated, gate = layers.split(hidden, 2, block.fc1.weight.shape[1] // 2, scope)
        hidden = layers.graph.op("Mul", layers.activation(activated, form.activation, scope), gate, scope=scope)
    else:
        hidden = layers.activation(hidden, form.activation, scope)
    return layers.linear(hidden, block.fc2)


def encoder_blocks(weights: Weights, prefix: str, name: str, form: Transformer) -> list[Block]:
    """Return the layers of one of CLIP's or SigLIP's towers, by transformers' names."""
    return [_encoder_block(weights, f"{prefix}encoder.layers.{i}.", f"{name}/{i}", form) for i in range(form.layers)]


def _encoder_block(weights: Weights, prefix: str, name: str, form: Transformer) -> Block:
    attention = f"{prefix}self_attn."
    return Block(
        name,
        query=scaled(linear(weights, f"{attention}q_proj", f"{name}/q"), form),
        key=linear(weights, f"{attention}k_proj", f"{name}/k"),
        value=linear(weights, f"{attention}v_proj", f"{name}/v"),
        out=linear(weights, f"{attention}out_proj", f"{name}/out"),
        fc1=linear(weights, f"{prefix}mlp.fc1", f"{name}/fc1"),
        fc2=linear(weights, f"{prefix}mlp.fc2", f"{name}/fc2"),
        norm1=norm_weights(weights, f"{prefix}layer_norm1", form),
        norm2=norm_weights(weights, f"{prefix}layer_norm2", form),
    )


def linear(weights: Weights, prefix: str, name: str, *, bias: bool = True) -> Linear:
    """Return the weights of one Linear, as PyTorch keeps them."""
    return Linear(name, weights[f"{prefix}.weight"].T, weights[f"{prefix}.bias"] if bias else None)


def scaled(query: Linear, form: Transformer) -> Linear:
    """Return the query's projection with attention's 1 / sqrt(head size) in it."""
    scale = np.float32((form.width // form.heads) ** -0.5)
    return Linear(query.name, query.weight * scale, None if query.bias is None else query.bias * scale)


def norm_weights(weights: Weights, prefix: str, form: Transformer, *, bias: bool = True) -> Norm:
    """Return the weights of one layer normalisation; without a bias it is zero."""
    scale = weights[f"{prefix}.weight"]
    return Norm(prefix, scale, weights[f"{prefix}.bias"] if bias else np.zeros_like(scale), form.epsilon)


def text_inputs(layers: Layers) -> tuple[str, str]:
    """Declare token ids and their mask."""
    shape = ["batch", "length"]
    ids = layers.graph.input("input_ids", TensorProto.INT32, shape)
    return ids, layers.graph.input("attention_mask", TensorProto.INT32, shape)


def text_length(layers: Layers, ids: str) -> str:
    """Return how many columns the ids have."""
    graph = layers.graph
    shape = graph.op("Shape", ids, scope="length")
    return graph.op("Slice", shape, graph.ints(1), graph.ints(2), graph.ints(0), scope="length")


def first_rows(layers: Layers, table: Array, length: str) -> str:
    """Return a row for each column of the ids, of zeros for padding alone."""
    graph = layers.graph
    whole = np.pad(table, ((0, padded_length(len(table)) - len(table)), (0, 0)))
    return graph.op("Slice", layers.weight(whole, "positions"), graph.ints(0), length, graph.ints(0), scope="embed")


def positions_order(layers: Layers, length: str, max_length: int) -> str:
    """Return the float vector 0, 1, 2, ..., as long as the texts.

    These have up to ``max_length`` tokens.
    """
    graph = layers.graph
    order = graph.constant(np.arange(padded_length(max_length), dtype=np.float32), "order")
    return graph.op("Slice", order, graph.ints(0), length, graph.ints(0), scope="embed")


def distances(layers: Layers, length: str, max_length: int) -> str:
    """Return how far the second of two positions comes after the first, as floats, (length, length)."""
    op, ints, order = layers.graph.op, layers.graph.ints, positions_order(layers, length, max_length)
    first, second = (op("Unsqueeze", order, ints(axis), scope="embed") for axis in (1, 0))
    return op("Sub", second, first, scope="embed")


def rotary_positions(name: str, max_length: int, size: int, base: float, length: str) -> Rotary:
    """Return the rotary positions of texts of up to ``max_length`` tokens, for heads of ``size``."""
    turns = base ** -(np.arange(0, size, 2, dtype=np.float32) / np.float32(size))
    angles = np.arange(padded_length(max_length), dtype=np.float32)[:, None] * turns.astype(np.float32)
    return Rotary(name, np.cos(angles), np.sin(angles), length)


def first_token(graph: OnnxGraph) -> Pool:
    """Return the class token."""
    return lambda y: graph.op("Slice", y, graph.ints(0), graph.ints(1), graph.ints(1), scope="pool")


def last_column(graph: OnnxGraph) -> Pool:
    """Return the last token of texts that all have one length."""
    return lambda y: graph.op("Slice", y, graph.ints(-1), graph.ints(2**31 - 1), graph.ints(1), scope="pool")


Pooling = Literal["mean", "cls"]


def one_token(graph: OnnxGraph, pooling: Pooling) -> Pool | None:
    """Return what takes the one token out that a pooling needs; None where it needs all."""
    return first_token(graph) if pooling == "cls" else None


def pool_tokens(layers: Layers, x: str, padding: str, pooling: Pooling) -> str:
    """Return one vector per text, (n, 1, width).

    ``x`` is the one token already where `one_token` took it.
    """
    if pooling == "cls":
        return x
    graph, op = layers.graph, layers.graph.op
    seen = layers.cast(padding, "pool")
    count = op("Max", op("ReduceSum", seen, graph.ints(1), scope="pool", keepdims=1), layers.scalar(1.0), scope="pool")
    share = op("Unsqueeze", op("Div", seen, count, scope="pool"), graph.ints(1), scope="pool")
    return op("MatMul", share, x, scope="pool")


def unit(layers: Layers, x: str, dim: int) -> None:
    """Give out the pooled token, scaled to length one in float32."""
    graph, op = layers.graph, layers.graph.op
    x = op("Cast", op("Squeeze", x, graph.ints(1), scope="unit"), scope="unit", to=int(TensorProto.FLOAT))
    length = op("ReduceL2", x, scope="unit", axes=(1,), keepdims=1)
    length = op("Max", length, graph.constant(np.array(1e-12, np.float32), "tiny"), scope="unit")
    graph.output(op("Div", x, length, scope="unit"), "embedding", TensorProto.FLOAT, ["batch", dim])


def project(layers: Layers, x: str, projection: Array) -> None:
    """Project the pooled token and give it out."""
    unit(layers, layers.linear(x, Linear("projection", projection.T, quantisable=False)), projection.shape[0])


def _fuse(role: str, block: Block, *parts: Linear) -> Linear:
    """Several Linears of one input as one."""
    weight = np.concatenate([part.weight for part in parts], axis=1)
    biases = [part.bias for part in parts if part.bias is not None]
    return Linear(f"{block.name}/{role}", weight, np.concatenate(biases) if biases else None)
