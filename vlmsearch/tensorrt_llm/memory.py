"""Memory of a vision model on a GPU: weights, cached keys and values, and pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vlmsearch.tensorrt_llm.recipe import LlmRecipe, Vision

_BYTES = 2
"""Bytes of a weight, an activation and a cached value, in float16 and bfloat16."""
_CACHE_SHARE = 0.9
"""The share of free memory that TensorRT-LLM takes for the KV cache by default.

It is what weights and activations leave.
"""


@dataclass(frozen=True)
class PlannedPictures:
    """The pictures of a request: how many, and the pixels of a side of each, which is taken to be square."""

    count: int = 4
    side: int = 1024


PICTURES = PlannedPictures()
"""Pictures of a request, unless others are named."""


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes on each GPU. The KV cache is that of a full batch; ``activations`` is an estimate.

    The decoder and the cache are split between the GPUs. The vision tower is taken to be on each of them.
    """

    decoder: int
    tower: int
    cache: int
    activations: int

    @property
    def total(self) -> int:
        """Return the bytes that a GPU must have, with what TensorRT-LLM leaves free beside the cache."""
        return self.decoder + self.tower + self.activations + math.ceil(self.cache / _CACHE_SHARE)


def plan_memory(recipe: LlmRecipe, vision: Vision, pictures: PlannedPictures, ranks: int) -> MemoryPlan:
    """Return what a recipe needs on each of ``ranks`` GPUs.

    It is for its limits and the pictures of one request.
    """
    cache = recipe.limits.batch * recipe.limits.sequence * token_bytes(recipe)
    patches = pictures.count * vision.tokens(pictures.side) * vision.merge**2
    # a layer's input, its queries, keys and values, and both halves of a gated feed-forward layer
    activations = patches * (4 * vision.hidden + 2 * vision.ffn) * _BYTES
    decoder = recipe.architecture.parameters * _BYTES
    return MemoryPlan(decoder // ranks, vision.parameters * _BYTES, cache // ranks, activations)


def token_bytes(recipe: LlmRecipe) -> int:
    """Return the bytes of a token's keys and values in all layers."""
    shape = recipe.architecture
    return 2 * shape.layers * shape.kv_heads * (shape.hidden // shape.heads) * _BYTES
