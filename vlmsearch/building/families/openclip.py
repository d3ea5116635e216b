"""CLIP as OpenCLIP keeps it: ``open_clip_config.json`` and ``open_clip_model.safetensors``.

The settings and the tensors get the names that transformers has for them; what they mean is CLIP's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.families import clip
from vlmsearch.building.layers import Array
from vlmsearch.building.weights import Json, StoredWeights, Weights, read_weights
from vlmsearch.errors import ConfigError

CONFIG = "open_clip_config.json"
WEIGHTS = "open_clip_model.safetensors"
_VISION: Json = {"layers": 12, "width": 768, "head_width": 64, "mlp_ratio": 4.0, "patch_size": 16, "image_size": 224}
_TEXT: Json = {"layers": 12, "width": 512, "heads": 8, "mlp_ratio": 4.0, "context_length": 77, "vocab_size": 49408}
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_WITHOUT_EFFECT = {"custom_text", "init_logit_scale", "output_tokens", "patch_dropout", "pad_id", "eos_id"}
_USUAL = {"pool_type": ("tok", "argmax"), "proj_type": ("linear",), "fill_color": (0,), "mode": ("RGB",)}
_RESAMPLE = {"bicubic": 3, "bilinear": 2}


def read(folder: Path, config: Json) -> Checkpoint:
    """Read a CLIP checkpoint in OpenCLIP's layout."""
    return clip.assemble(folder, clip_settings(folder, config), image_settings(folder, config), _weights(folder))


def clip_settings(folder: Path, config: Json) -> Json:
    """Return what transformers' ``config.json`` would say; ConfigError names settings that cannot be exported."""
    model = config["model_cfg"]
    vision, text = _VISION | model["vision_cfg"], _TEXT | model["text_cfg"]
    _check(folder, "", model, {"embed_dim", "quick_gelu", "vision_cfg", "text_cfg"})
    _check(folder, "vision_cfg.", vision, set(_VISION))
    _check(folder, "text_cfg.", text, set(_TEXT))
    common = {"hidden_act": "quick_gelu" if model.get("quick_gelu") else "gelu", "projection_dim": model["embed_dim"]}
    return {
        "projection_dim": model["embed_dim"],
        "vision_config": {
            **common,
            **_sizes(vision),
            "num_attention_heads": vision["width"] // vision["head_width"],
            "image_size": vision["image_size"],
            "patch_size": vision["patch_size"],
        },
        "text_config": {
            **common,
            **_sizes(text),
            "num_attention_heads": text["heads"],
            "max_position_embeddings": text["context_length"],
            "vocab_size": text["vocab_size"],
            "bos_token_id": 0,
            "eos_token_id": 2,  # to transformers: pool the largest id, as OpenCLIP does
            "pad_token_id": 0,
        },
    }


def image_settings(folder: Path, config: Json) -> Json:
    """Return what transformers' ``preprocessor_config.json`` would say; ConfigError names what cannot be done."""
    size = config["model_cfg"]["vision_cfg"].get("image_size", _VISION["image_size"])
    given = config.get("preprocess_cfg") or {}
    _check(folder, "preprocess_cfg.", given, {"size", "mean", "std", "interpolation", "resize_mode"})
    way, mode = given.get("interpolation", "bicubic"), given.get("resize_mode", "shortest")
    if (
        given.get("size", size) not in (size, [size, size])
        or way not in _RESAMPLE
        or mode not in ("shortest", "squash")
    ):
        raise ConfigError(
            f"{folder}: images must be resized to {size} with {' or '.join(_RESAMPLE)}, by their shortest edge or "
            f"squashed, not as preprocess_cfg says: {given}"
        )
    squashed = mode == "squash"
    return {
        "do_center_crop": not squashed,
        "size": {"height": size, "width": size} if squashed else {"shortest_edge": size},
        "crop_size": {"height": size, "width": size},
        "resample": _RESAMPLE[way],
        "image_mean": list(given.get("mean", _MEAN)),
        "image_std": list(given.get("std", _STD)),
    }


def _sizes(tower: Json) -> Json:
    """Return what both towers' settings have."""
    inner = int(tower["width"] * tower["mlp_ratio"])
    return {"hidden_size": tower["width"], "num_hidden_layers": tower["layers"], "intermediate_size": inner}


def _check(folder: Path, where: str, settings: Json, read: set[str]) -> None:
    """ConfigError for a setting that is neither read nor without effect as it is."""
    for name, value in settings.items():
        usual = not value or value in _USUAL.get(name, ())
        if name not in read | _WITHOUT_EFFECT and not usual:
            raise ConfigError(
                f"{folder / CONFIG}: {where}{name} is {value!r}, which cannot be exported; CLIP's own vision and text "
                "transformers can, and models that transformers can load (a config.json with model.safetensors)"
            )


_NAMES = (
    (r"^text\.", ""),
    (r"^visual\.proj$", "visual_projection.weight"),
    (r"^text_projection$", "text_projection.weight"),
    (r"^visual\.conv1\.", "vision_model.embeddings.patch_embedding."),
    (r"^visual\.class_embedding$", "vision_model.embeddings.class_embedding"),
    (r"^visual\.positional_embedding$", "vision_model.embeddings.position_embedding.weight"),
    (r"^visual\.ln_pre\.", "vision_model.pre_layrnorm."),
    (r"^visual\.ln_post\.", "vision_model.post_layernorm."),
    (r"^visual\.transformer\.resblocks\.", "vision_model.encoder.layers."),
    (r"^token_embedding\.", "text_model.embeddings.token_embedding."),
    (r"^positional_embedding$", "text_model.embeddings.position_embedding.weight"),
    (r"^ln_final\.", "text_model.final_layer_norm."),
    (r"^transformer\.resblocks\.", "text_model.encoder.layers."),
    (r"\.ln_([12])\.", r".layer_norm\1."),
    (r"\.attn\.", ".self_attn."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
)
"""OpenCLIP's names as patterns, and transformers'; all are applied to each name in turn."""


def _rename(name: str) -> str:
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def _weights(folder: Path) -> Weights:
    """Return all tensors by transformers' names: projections turned, and query, key and value apart."""
    weights = read_weights(folder, _rename)
    readers: dict[str, Callable[[], Array]] = {}
    for name in weights:
        base, joined, kind = name.rpartition(".in_proj_")
        if joined:
            for number, role in enumerate("qkv"):
                readers[f"{base}.{role}_proj.{kind}"] = partial(_third, weights, name, number)
        elif name in ("visual_projection.weight", "text_projection.weight"):
            readers[name] = partial(_turned, weights, name)
        elif name != "attn_mask":
            readers[name] = partial(weights.__getitem__, name)
    return StoredWeights(folder, readers)


def _third(weights: Weights, name: str, number: int) -> Array:
    part: Array = np.split(weights[name], 3)[number]
    return part


def _turned(weights: Weights, name: str) -> Array:
    return np.ascontiguousarray(weights[name].T)
