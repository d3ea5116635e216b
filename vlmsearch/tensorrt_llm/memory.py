"""How much memory a rank of an engine needs on its GPU: an estimate from the model's shape, not a measurement."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vlmsearch.tensorrt_llm.recipe import LlmRecipe

FORMULA = (
    "weights: ceil(layers / pp) x (matrices / tp x bytes + norms and biases x 2) + embedding x 2 + output / tp x 2; "
    "KV cache: 2 x ceil(layers / pp) x ceil(kv_heads / tp) x head_size x bytes a token; "
    "activations: max_num_tokens x (4 x hidden + 2 x ffn / tp) x 2 + batch x beams x vocab x 4; "
    "1 GiB for CUDA and the libraries"
)
"""The estimate in words; bytes are 2, 1 or 0.5 by the quantisation."""
_GIB = 2**30
_OVERHEAD = _GIB


@dataclass(frozen=True)
class Memory:
    """Bytes on the GPU of the largest rank.

    ``kv_one`` is the cache of one request of full length, ``kv_full`` that of a whole batch of them.
    """

    weights: int
    activations: int
    kv_one: int
    kv_full: int
    overhead: int = _OVERHEAD

    @property
    def least(self) -> int:
        """Enough to start, for one request of full length at a time."""
        return self.weights + self.activations + self.kv_one + self.overhead

    @property
    def full(self) -> int:
        """Enough for a whole batch of requests of full length."""
        return self.weights + self.activations + self.kv_full + self.overhead

    def to_json(self) -> dict[str, object]:
        """Return the parts and sums, in bytes, and how they were found."""
        return {**vars(self), "least": self.least, "full": self.full, "formula": FORMULA}


def estimate(recipe: LlmRecipe, tp: int, pp: int) -> Memory:
    """Return the memory of the largest of ``tp`` x ``pp`` ranks."""
    shape, limits, quantisation = recipe.architecture, recipe.limits, recipe.quantisation
    sizes = {"none": 2.0, "int8_wo": 1.0, "int8_sq": 1.0, "fp8": 1.0, "int4_wo": 0.5}
    size = sizes.get(quantisation.method, 0.5 + 2 / quantisation.block_size)
    layers = math.ceil(shape.layers / pp)
    embedding = 2 * shape.vocab * shape.hidden
    if shape.rope == "none":
        embedding += 2 * shape.context * shape.hidden
    output = 2 * math.ceil(shape.vocab / tp) * shape.hidden
    ends = embedding + output if pp == 1 else max(embedding, output)
    weights = layers * (shape.linear / tp * size + shape.small * 2) + ends
    token = 2 * layers * math.ceil(shape.kv_heads / tp) * shape.head_size
    token *= 2 if quantisation.kv_cache == "same" else 1
    tokens = min(limits.tokens, limits.batch * limits.sequence)
    activations = tokens * (4 * shape.hidden + 2 * math.ceil(shape.ffn / tp)) * 2
    activations += limits.batch * limits.beams * shape.vocab * 4
    one = token * limits.sequence * limits.beams
    return Memory(int(weights), activations, one, one * limits.batch)


def gib(size: int) -> str:
    """Return a size for people."""
    return f"{size / _GIB:.1f} GiB"
