"""CLIP and BERT as graphs, written from a checkpoint's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from onnx import TensorProto

from vlmsearch.export.graph import OnnxGraph
from vlmsearch.export.layers import Activation, Array, Layers, Linear, Mask, Norm
from vlmsearch.models.bundle import padded_length

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


Pooling = Literal["mean", "cls", "max"]


@dataclass(frozen=True)
class ClipImage:
    """The image tower of a CLIP checkpoint; mean and deviation are those of its preprocessing, per channel."""

    transformer: Transformer
    size: int
    patch: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def tokens(self) -> int:
        """How many tokens the transformer sees: the patches and the class token."""
        return (self.size // self.patch) ** 2 + 1


@dataclass(frozen=True)
class ClipText:
    """The text tower of a CLIP checkpoint; ``end`` is the id of the pooled token, None for the largest id."""

    transformer: Transformer
    positions: int
    end: int | None


@dataclass(frozen=True)
class Bert:
    """A BERT sentence encoder."""

    transformer: Transformer
    positions: int
    pooling: Pooling


@dataclass(frozen=True)
class CrossEncoder:
    """A BERT that reads two texts together and gives one number."""

    transformer: Transformer
    positions: int


def write_clip_image(layers: Layers, config: ClipImage, weights: Weights) -> None:
    """Write ``pixels`` uint8 (n, size, size, 3) to ``embedding`` float32 (n, dim), unit rows."""
    graph, form = layers.graph, config.transformer
    pixels = graph.input("pixels", TensorProto.UINT8, ["batch", config.size, config.size, 3])
    x = _patches(layers, pixels, config, weights)
    x = layers.norm(x, norm_weights(weights, "vision_model.pre_layrnorm", form))
    blocks = [clip_block(weights, f"vision_model.encoder.layers.{i}.", f"image/{i}", form) for i in range(form.layers)]
    x = pre_norm(
        layers, x, blocks, norm_weights(weights, "vision_model.post_layernorm", form), form, None, _first_token(graph)
    )
    _project(layers, x, weights["visual_projection.weight"])


def write_clip_text(layers: Layers, config: ClipText, weights: Weights) -> None:
    """Write ``input_ids`` and ``attention_mask`` int32 (n, length) to ``embedding`` float32 (n, dim), unit rows."""
    graph, op, form = layers.graph, layers.graph.op, config.transformer
    ids, padding = _text_inputs(layers)
    prefix = "text_model.embeddings."
    length = _length(layers, ids)
    x = layers.lookup(weights[f"{prefix}token_embedding.weight"], ids)
    x = op("Add", x, _first_rows(layers, weights[f"{prefix}position_embedding.weight"], length), scope="embed")
    order = graph.op(
        "Slice",
        graph.constant(np.arange(padded_length(config.positions), dtype=np.float32), "order"),
        graph.ints(0), length, graph.ints(0), scope="embed",
    )  # fmt: skip
    pool = _end_token(layers, ids, order, config)
    blocks = [clip_block(weights, f"text_model.encoder.layers.{i}.", f"text/{i}", form) for i in range(form.layers)]
    final = norm_weights(weights, "text_model.final_layer_norm", form)
    x = pre_norm(layers, x, blocks, final, form, Mask(padding, order), pool)
    _project(layers, x, weights["text_projection.weight"])


def write_bert(layers: Layers, config: Bert, weights: Weights) -> None:
    """Write ``input_ids`` and ``attention_mask`` int32 (n, length) to ``embedding`` float32 (n, dim), unit rows."""
    ids, padding = _text_inputs(layers)
    places = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    x = layers.lookup(weights["embeddings.word_embeddings.weight"], ids)
    x = layers.graph.op("Add", x, _first_rows(layers, places, _length(layers, ids)), scope="embed")
    x = _bert_layers(layers, config.transformer, weights, x, padding, first=config.pooling == "cls")
    unit(layers, _pool_tokens(layers, x, padding, config.pooling), config.transformer.width)


def write_cross_encoder(layers: Layers, config: CrossEncoder, weights: Weights) -> None:
    """Write ``input_ids``, ``token_type_ids`` and ``attention_mask`` int32 (n, length) to ``logit`` float32 (n, 1)."""
    graph, op, form = layers.graph, layers.graph.op, config.transformer
    ids, padding = _text_inputs(layers)
    types = graph.input("token_type_ids", TensorProto.INT32, ["batch", "length"])
    x = layers.lookup(weights["embeddings.word_embeddings.weight"], ids)
    places = _first_rows(layers, weights["embeddings.position_embeddings.weight"], _length(layers, ids))
    x = op("Add", x, places, scope="embed")
    x = op("Add", x, layers.lookup(weights["embeddings.token_type_embeddings.weight"], types, "types"), scope="embed")
    x = _bert_layers(layers, form, weights, x, padding, first=True)
    pooled = op("Tanh", layers.linear(x, _dense(weights, "pooler.dense")), scope="pooler")
    logit = op("Squeeze", layers.linear(pooled, _dense(weights, "classifier")), graph.ints(1), scope="classifier")
    logit = op("Cast", logit, scope="classifier", to=int(TensorProto.FLOAT))
    graph.output(logit, "logit", TensorProto.FLOAT, ["batch", 1])


def _dense(weights: Weights, name: str) -> Linear:
    """A Linear of the head, which stays in high precision: it is a thousandth of the work and decides the number."""
    return Linear(name, weights[f"{name}.weight"].T, weights[f"{name}.bias"], quantisable=False)


def _bert_layers(layers: Layers, form: Transformer, weights: Weights, x: str, padding: str, *, first: bool) -> str:
    """BERT on what its embeddings add up to: all tokens, or only the ``first``, (n, 1, width)."""
    x = layers.norm(x, norm_weights(weights, "embeddings.LayerNorm", form))
    mask = Mask(padding)
    for i in range(form.layers):
        block = bert_block(weights, f"encoder.layer.{i}.", f"text/{i}", form)
        pool = _first_token(layers.graph) if first and i == form.layers - 1 else None
        attended = attention(layers, block, form, x, mask, pool)
        _, x = layers.add_norm(attended, pool(x) if pool else x, block.norm1)
        _, x = layers.add_norm(mlp(layers, block, form, x), x, block.norm2)
    return x


def _pool_tokens(layers: Layers, x: str, padding: str, pooling: Pooling) -> str:
    """One vector per text, (n, 1, width)."""
    graph, op = layers.graph, layers.graph.op
    if pooling == "cls":
        return x
    seen = layers.cast(padding, "pool")
    if pooling == "max":
        hidden = op("Mul", op("Sub", seen, layers.scalar(1.0), scope="pool"), layers.scalar(1e4), scope="pool")
        x = op("Add", x, op("Unsqueeze", hidden, graph.ints(2), scope="pool"), scope="pool")
        return op("ReduceMax", x, scope="pool", axes=(1,), keepdims=1)
    count = op("Max", op("ReduceSum", seen, graph.ints(1), scope="pool", keepdims=1), layers.scalar(1.0), scope="pool")
    share = op("Unsqueeze", op("Div", seen, count, scope="pool"), graph.ints(1), scope="pool")
    return op("MatMul", share, x, scope="pool")


def _text_inputs(layers: Layers) -> tuple[str, str]:
    shape = ["batch", "length"]
    ids = layers.graph.input("input_ids", TensorProto.INT32, shape)
    return ids, layers.graph.input("attention_mask", TensorProto.INT32, shape)


def _length(layers: Layers, ids: str) -> str:
    graph = layers.graph
    shape = graph.op("Shape", ids, scope="length")
    return graph.op("Slice", shape, graph.ints(1), graph.ints(2), graph.ints(0), scope="length")


def _first_rows(layers: Layers, table: Array, length: str) -> str:
    """A row for each column of the ids, of zeros for those that can only be padding."""
    graph = layers.graph
    whole = np.pad(table, ((0, padded_length(len(table)) - len(table)), (0, 0)))
    return graph.op("Slice", layers.weight(whole, "positions"), graph.ints(0), length, graph.ints(0), scope="embed")


def _first_token(graph: OnnxGraph) -> Pool:
    """The class token."""
    return lambda y: graph.op("Slice", y, graph.ints(0), graph.ints(1), graph.ints(1), scope="pool")


def _end_token(layers: Layers, ids: str, order: str, config: ClipText) -> Pool:
    """The first end token of each text: found by position, so that ties need no rule of the runtime."""
    graph, op = layers.graph, layers.graph.op
    numbers = op("Cast", ids, scope="end", to=int(TensorProto.FLOAT))
    if config.end is None:
        end = op("ReduceMax", numbers, scope="end", axes=(1,), keepdims=1)
    else:
        end = graph.constant(np.array([[config.end]], np.float32), "end_id")
    other = op("Cast", op("Not", op("Equal", numbers, end, scope="end"), scope="end"), scope="end", to=1)
    far = op("Mul", other, graph.constant(np.array(1e6, np.float32), "far"), scope="end")
    place = op("ReduceMin", op("Add", order, far, scope="end"), scope="end", axes=(1,), keepdims=1)
    chosen = op("Unsqueeze", layers.cast(op("Equal", order, place, scope="end"), "end"), graph.ints(1), scope="end")
    return lambda y: op("MatMul", chosen, y, scope="pool")


def _patches(layers: Layers, pixels: str, config: ClipImage, weights: Weights) -> str:
    """Class token and patch embeddings plus positions; the convolution is a MatMul over flattened patches.

    Pixels enter as -1 to 1; kernel and bias take up how the checkpoint's own mean and deviation differ from that. The
    bias and the class token are part of the positions.
    """
    graph, op, prefix = layers.graph, layers.graph.op, "vision_model.embeddings."
    grid, patch, width = config.size // config.patch, config.patch, config.transformer.width
    x = op("Mul", layers.cast(pixels, "pixels"), layers.scalar(1 / 127.5), scope="pixels")
    x = op("Sub", x, layers.scalar(1.0), scope="pixels")
    x = op("Reshape", x, graph.ints(-1, grid, patch, grid, patch, 3), scope="patches")
    x = op("Transpose", x, scope="patches", perm=(0, 1, 3, 2, 4, 5))
    x = op("Reshape", x, graph.ints(-1, grid * grid, patch * patch * 3), scope="patches")
    kernel = weights[f"{prefix}patch_embedding.weight"].astype(np.float64).transpose(2, 3, 1, 0)
    mean, std = (np.array(values, np.float64)[None, None, :, None] for values in (config.mean, config.std))
    bias = (kernel * (0.5 - mean) / std).sum(axis=(0, 1, 2))
    flat = (kernel * 0.5 / std).reshape(-1, width).astype(np.float32)
    x = layers.linear(x, Linear("image/patches", flat, quantisable=False))
    x = op("Pad", x, graph.ints(0, 1, 0, 0, 0, 0), scope="patches")
    positions = weights[f"{prefix}position_embedding.weight"].astype(np.float64)
    positions[0] += weights[f"{prefix}class_embedding"]
    positions[1:] += bias
    return op("Add", x, layers.weight(positions[None].astype(np.float32), "positions"), scope="patches")


def _project(layers: Layers, x: str, projection: Array) -> None:
    """Project the pooled token and give it out."""
    unit(layers, layers.linear(x, Linear("projection", projection.T, quantisable=False)), projection.shape[0])
