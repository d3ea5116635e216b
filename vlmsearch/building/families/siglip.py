"""SigLIP and SigLIP 2 of one resolution, as transformers keeps them.

See Zhai et al., 2023, and Tschannen et al., 2025.
"""

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
    lowers,
    read_logits,
    read_transformer,
    whole_image,
)
from vlmsearch.building.layers import Layers, Linear
from vlmsearch.building.patches import embed_patches
from vlmsearch.building.transformer import (
    Transformer,
    encoder_blocks,
    first_rows,
    last_column,
    norm_weights,
    pre_norm,
    text_inputs,
    text_length,
    unit,
)
from vlmsearch.building.weights import Json, Weights, read_json, read_weights
from vlmsearch.errors import ConfigError
from vlmsearch.models.tokenizers import read_tokenizer

_DEFAULTS: Json = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}
_VISION_DEFAULTS: Json = {"image_size": 224, "patch_size": 16, "vision_use_head": True}
_TEXT_DEFAULTS: Json = {"max_position_embeddings": 64, "pad_token_id": 1}


def read(folder: Path, config: Json) -> Checkpoint:
    """Read a SigLIP checkpoint."""
    vision = _DEFAULTS | _VISION_DEFAULTS | (config.get("vision_config") or {})
    text = _DEFAULTS | _TEXT_DEFAULTS | (config.get("text_config") or {})
    if not vision["vision_use_head"]:
        raise ConfigError(f"{folder} has no pooling head (vision_use_head is false), so that it gives no vectors")
    prep = image_settings(folder)
    image = SiglipImage(
        read_transformer(vision, folder),
        size=vision["image_size"],
        patch=vision["patch_size"],
        mean=tuple(prep["image_mean"]),
        std=tuple(prep["image_std"]),
    )
    positions = text["max_position_embeddings"]
    weights = read_weights(folder, lambda name: name)
    dim = weights["text_model.head.weight"].shape[0]
    return Checkpoint(
        folder, weights, dim, image, SiglipText(read_transformer(text, folder), positions), whole_image(prep, folder),
        positions, _pad(folder, text["pad_token_id"]), fill=positions, lower=_lower(folder),
        logits=read_logits(weights),
    )  # fmt: skip


def read_flexible(folder: Path, _config: Json) -> Checkpoint:
    """Refuse SigLIP 2 of any resolution."""
    raise ConfigError(
        f"{folder} is SigLIP 2 NaFlex, whose number of patches differs from image to image: it cannot be exported; "
        "SigLIP 2 of one resolution can (google/siglip2-base-patch16-224 and others without naflex in their names)"
    )


def _pad(folder: Path, usual: int) -> int:
    """Return the id of the token that texts are padded with.

    That of the tokenizer, which the configuration may not know.
    """
    settings = folder / "tokenizer_config.json"
    named = read_json(settings).get("pad_token") if settings.is_file() else None
    name = named.get("content") if isinstance(named, dict) else named
    if name is None:
        return usual
    token = read_tokenizer((folder / "tokenizer.json").read_bytes(), str(folder)).token_to_id(str(name))
    if token is None:
        raise ConfigError(f"{settings}: texts are padded with {name!r}, which tokenizer.json does not have")
    return int(token)


def _lower(folder: Path) -> bool:
    """Return whether the checkpoint says to lower-case texts and its tokenizer.json does not.

    SigLIP 2 was trained on lower-cased texts. Its checkpoints say so in tokenizer_config.json alone, which Gemma's
    tokenizer does not heed; transformers' Siglip2Tokenizer does.
    """
    settings = folder / "tokenizer_config.json"
    return settings.is_file() and bool(read_json(settings).get("do_lower_case")) and not lowers(folder)


@dataclass(frozen=True)
class SiglipImage(ImageTower):
    """SigLIP's vision transformer: no class token, and a head that pools by attention."""

    @property
    def tokens(self) -> int:
        """Return the patches."""
        return (self.size // self.patch) ** 2

    def write(self, layers: Layers, weights: Weights) -> None:
        """See `ImageTower.write`."""
        graph, form, prefix = layers.graph, self.transformer, "vision_model."
        pixels = graph.input("pixels", TensorProto.UINT8, ["batch", self.size, self.size, 3])
        x, bias = embed_patches(layers, pixels, self, weights[f"{prefix}embeddings.patch_embedding.weight"])
        places = weights[f"{prefix}embeddings.position_embedding.weight"] + bias
        places += weights[f"{prefix}embeddings.patch_embedding.bias"]
        x = graph.op("Add", x, layers.weight(places[None].astype(np.float32), "positions"), scope="patches")
        blocks = encoder_blocks(weights, prefix, "image", form)
        x = pre_norm(layers, x, blocks, norm_weights(weights, f"{prefix}post_layernorm", form), form, None, None)
        unit(layers, _attention_head(layers, x, weights, form), form.width)


@dataclass(frozen=True)
class SiglipText(TextTower):
    """SigLIP's text transformer: texts are padded to one length, without a mask, and the last token is pooled."""

    def write(self, layers: Layers, weights: Weights) -> None:
        """See `TextTower.write`; the mask is an input like that of other families, and not used."""
        form, prefix = self.transformer, "text_model."
        ids, _ = text_inputs(layers)
        x = layers.lookup(weights[f"{prefix}embeddings.token_embedding.weight"], ids)
        places = weights[f"{prefix}embeddings.position_embedding.weight"]
        x = layers.graph.op("Add", x, first_rows(layers, places, text_length(layers, ids)), scope="embed")
        blocks = encoder_blocks(weights, prefix, "text", form)
        final = norm_weights(weights, f"{prefix}final_layer_norm", form)
        x = pre_norm(layers, x, blocks, final, form, None, last_column(layers.graph))
        head = weights[f"{prefix}head.weight"]
        x = layers.linear(x, Linear("head", head.T, weights[f"{prefix}head.bias"], quantisable=False))
        unit(layers, x, head.shape[0])


def _attention_head(layers: Layers, x: str, weights: Weights, form: Transformer) -> str:
    """Pool (n, tokens, width) to (n, 1, width) by attention of a learned probe.

    An MLP with a residual follows.

    The probe's query is the same for every image, so that the keys' projection shrinks to one column a head: query
    times weight. Its bias shifts all scores of a head alike, which softmax takes out. The tokens are averaged before
    they are projected to values. What is left is little work, so all of it stays in high precision.
    """
    graph, op, scope, prefix = layers.graph, layers.graph.op, "image/head", "vision_model.head."
    heads, width, size = form.heads, form.width, form.width // form.heads
    stacked = weights[f"{prefix}attention.in_proj_weight"].astype(np.float64)
    (to_query, to_key, to_value), biases = np.split(stacked, 3), np.split(weights[f"{prefix}attention.in_proj_bias"], 3)
    query = (to_query @ weights[f"{prefix}probe"].reshape(width) + biases[0]) * size**-0.5
    keys = np.einsum("hs,hsw->wh", query.reshape(heads, size), to_key.reshape(heads, size, width))
    scores = layers.linear(x, Linear(f"{scope}/scores", keys.astype(np.float32), quantisable=False))
    shares = op("Softmax", op("Transpose", scores, scope=scope, perm=(0, 2, 1)), scope=scope, axis=-1)
    mixed = op("Transpose", op("MatMul", shares, x, scope=scope), scope=scope, perm=(1, 0, 2))  # one product a head
    values = to_value.reshape(heads, size, width).transpose(0, 2, 1).astype(np.float32)
    pooled = op("MatMul", mixed, layers.weight(values, f"{scope}/values.weight"), scope=scope)
    pooled = op("Transpose", pooled, scope=scope, perm=(1, 0, 2))
    pooled = op("Reshape", pooled, graph.ints(0, 1, width), scope=scope)
    pooled = op("Add", pooled, layers.weight(biases[2], f"{scope}/values.bias"), scope=scope)
    pooled = layers.linear(pooled, _precise(weights, f"{prefix}attention.out_proj"))
    hidden = layers.norm(pooled, norm_weights(weights, f"{prefix}layernorm", form))
    hidden = layers.activation(layers.linear(hidden, _precise(weights, f"{prefix}mlp.fc1")), form.activation, scope)
    return op("Add", pooled, layers.linear(hidden, _precise(weights, f"{prefix}mlp.fc2")), scope=scope)


def _precise(weights: Weights, name: str) -> Linear:
    return Linear(name, weights[f"{name}.weight"].T, weights[f"{name}.bias"], quantisable=False)
