"""CLIP (Radford et al., 2021), as transformers keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto

from vlmsearch.building.checkpoint import (
    Checkpoint,
    ImageTower,
    TextTower,
    image_settings,
    read_logits,
    read_transformer,
    shorter_edge,
    whole_image,
)
from vlmsearch.building.layers import Layers, Mask
from vlmsearch.building.patches import embed_patches
from vlmsearch.building.transformer import (
    Pool,
    encoder_blocks,
    first_rows,
    first_token,
    norm_weights,
    positions_order,
    pre_norm,
    project,
    text_inputs,
    text_length,
)
from vlmsearch.building.weights import Json, Weights, read_weights

_CLIP_DEFAULTS: Json = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "num_hidden_layers": 12}
_VISION_DEFAULTS: Json = {"hidden_size": 768, "num_attention_heads": 12, "image_size": 224, "patch_size": 32}
_TEXT_DEFAULTS: Json = {
    "hidden_size": 512,
    "num_attention_heads": 8,
    "eos_token_id": 49407,
    "pad_token_id": 1,
    "max_position_embeddings": 77,
}


def read(folder: Path, config: Json) -> Checkpoint:
    """Read a CLIP checkpoint."""
    return assemble(folder, config, image_settings(folder), read_weights(folder, lambda name: name))


def assemble(folder: Path, config: Json, prep: Json, weights: Weights) -> Checkpoint:
    """Return the checkpoint of a configuration, image settings and weights by transformers' names."""
    vision = _tower_config(config, "vision_config", _CLIP_DEFAULTS | _VISION_DEFAULTS)
    text = _tower_config(config, "text_config", _CLIP_DEFAULTS | _TEXT_DEFAULTS)
    image = ClipImage(
        read_transformer(vision, folder),
        size=vision["image_size"],
        patch=vision["patch_size"],
        mean=tuple(prep["image_mean"]),
        std=tuple(prep["image_std"]),
    )
    # Configurations of before 2023 carry the wrong end token, 2, and mean "the largest id".
    end, positions = text["eos_token_id"], text["max_position_embeddings"]
    tower = ClipText(read_transformer(text, folder), positions, None if end == 2 else end)
    dim = weights["text_projection.weight"].shape[0]
    resize = whole_image if prep.get("do_center_crop") is False else shorter_edge
    return Checkpoint(
        folder, weights, dim, image, tower, resize(prep, folder), positions, text["pad_token_id"],
        logits=read_logits(weights),
    )  # fmt: skip


def _tower_config(config: Json, name: str, defaults: Json) -> Json:
    """Return one tower's settings: what older configurations keep under ``*_dict`` replaces everything else."""
    old = config.get(f"{name}_dict")
    return defaults | (config.get(name) or {}) | (defaults | old if old else {})


@dataclass(frozen=True)
class ClipImage(ImageTower):
    """CLIP's vision transformer, with a class token."""

    @property
    def tokens(self) -> int:
        """Return the patches and the class token."""
        return (self.size // self.patch) ** 2 + 1

    def write(self, layers: Layers, weights: Weights) -> None:
        """See `ImageTower.write`."""
        graph, form = layers.graph, self.transformer
        pixels = graph.input("pixels", TensorProto.UINT8, ["batch", self.size, self.size, 3])
        x = _tokens(layers, pixels, self, weights)
        x = layers.norm(x, norm_weights(weights, "vision_model.pre_layrnorm", form))
        blocks = encoder_blocks(weights, "vision_model.", "image", form)
        final = norm_weights(weights, "vision_model.post_layernorm", form)
        x = pre_norm(layers, x, blocks, final, form, None, first_token(graph))
        project(layers, x, weights["visual_projection.weight"])


@dataclass(frozen=True)
class ClipText(TextTower):
    """CLIP's text transformer; ``end`` is the id of the pooled token, None for the largest id."""

    end: int | None

    def write(self, layers: Layers, weights: Weights) -> None:
        """See `TextTower.write`."""
        op, form = layers.graph.op, self.transformer
        ids, padding = text_inputs(layers)
        prefix = "text_model.embeddings."
        length = text_length(layers, ids)
        x = layers.lookup(weights[f"{prefix}token_embedding.weight"], ids)
        x = op("Add", x, first_rows(layers, weights[f"{prefix}position_embedding.weight"], length), scope="embed")
        order = positions_order(layers, length, self.positions)
        pool = _end_token(layers, ids, order, self)
        blocks = encoder_blocks(weights, "text_model.", "text", form)
        final = norm_weights(weights, "text_model.final_layer_norm", form)
        x = pre_norm(layers, x, blocks, final, form, Mask(padding, order), pool)
        project(layers, x, weights["text_projection.weight"])


def _end_token(layers: Layers, ids: str, order: str, config: ClipText) -> Pool:
    """Return the first end token of each text: found by position, so that ties need no rule of the runtime."""
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


def _tokens(layers: Layers, pixels: str, tower: ClipImage, weights: Weights) -> str:
    """Return the class token and the patches, with their positions.

    The class token is part of the positions.
    """
    graph, op, prefix = layers.graph, layers.graph.op, "vision_model.embeddings."
    x, bias = embed_patches(layers, pixels, tower, weights[f"{prefix}patch_embedding.weight"])
    x = op("Pad", x, graph.ints(0, 1, 0, 0, 0, 0), scope="patches")
    positions = weights[f"{prefix}position_embedding.weight"].astype(np.float64)
    positions[0] += weights[f"{prefix}class_embedding"]
    positions[1:] += bias
    return op("Add", x, layers.weight(positions[None].astype(np.float32), "positions"), scope="patches")
