"""GPT-2 as a graph for ONNX Runtime, beside a checkpoint of transformers.

``python engines/gpt2_graph.py FOLDER`` makes the GPT-2 checkpoint in a folder a bundle for ``onnx:/folder``.
The layout follows Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), with the parameter
names of the transformers library.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

from generator_graph import DecoderSizes, DecoderWriter, write_bundle

from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.generator import GRAPH


@dataclass(frozen=True)
class Gpt2Sizes(DecoderSizes):
    """The sizes of a GPT-2, and the tokens that end its texts."""

    epsilon: float

    @classmethod
    def read(cls, folder: Path) -> Gpt2Sizes:
        """Return the sizes of a checkpoint.

        ConfigError unless it is a GPT-2 of the usual form.
        """
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise ModelUnavailableError(f"{folder} is not a checkpoint of transformers: config.json: {exc}") from exc
        form = (config.get("model_type"), config.get("activation_function", "gelu_new"))
        if form != ("gpt2", "gelu_new") or config.get("scale_attn_by_inverse_layer_idx"):
            raise ConfigError(f"{folder} is a {form[0]} with {form[1]}; a graph is written for GPT-2 with gelu_new")
        return cls(
            layers=config["n_layer"],
            heads=config["n_head"],
            width=config["n_embd"],
            context=config["n_positions"],
            ends=config["eos_token_id"],
            epsilon=config["layer_norm_epsilon"],
        )


def add_graph(folder: Path) -> None:
    """Write the graph and ``generator.json`` beside the GPT-2 checkpoint of a folder."""
    sizes = Gpt2Sizes.read(folder)
    write_bundle(folder, sizes, {GRAPH: _Writer(folder, sizes).write()})


class _Writer(DecoderWriter):
    """The graph of a checkpoint.

    Inputs are ``input_ids`` int64 (batch, length) after ``past.N.key`` and ``past.N.value`` float32 (batch, heads,
    past, size). Outputs are ``logits`` float32 (batch, vocabulary) of the next token, ``present.N.key`` and
    ``present.N.value``.
    """

    def __init__(self, folder: Path, sizes: Gpt2Sizes) -> None:
        super().__init__("gpt2", folder, sizes)
        self._epsilon = sizes.epsilon

    def write(self) -> bytes:
        op, w = self.op, self.weights
        words = op("Gather", w("wte.weight"), self.ids, scope="embed")
        x = op("Add", words, op("Gather", w("wpe.weight"), self.places, scope="embed"), scope="embed")
        for layer in range(self.sizes.layers):
            x = self._layer(x, layer)
        return self.give_logits(self._norm(self.last_token(x), "ln_f"), "wte.weight")

    def _layer(self, x: str, layer: int) -> str:
        op, scope = self.op, f"h.{layer}"
        attended = self._attention(self._norm(x, f"{scope}.ln_1"), layer)
        x = op("Add", x, self._linear(attended, f"{scope}.attn.c_proj"), scope=scope)
        hidden = self._gelu(self._linear(self._norm(x, f"{scope}.ln_2"), f"{scope}.mlp.c_fc"), scope)
        return op("Add", x, self._linear(hidden, f"{scope}.mlp.c_proj"), scope=scope)

    def _attention(self, x: str, layer: int) -> str:
        sizes, scope = self.sizes, f"h.{layer}.attn"
        fused = self._linear(x, f"{scope}.c_attn")
        widths = self.graph.ints(sizes.width, sizes.width, sizes.width)
        parts = self.graph.op_many("Split", 3, fused, widths, scope=scope, axis=-1)
        q, k, v = (self.heads(part, sizes.heads, sizes.size, scope) for part in parts)
        return self.attend(layer, q, k, v, scope)

    def _linear(self, x: str, name: str) -> str:
        y = self.op("MatMul", x, self.weights(f"{name}.weight"), scope=name)
        return self.op("Add", y, self.weights(f"{name}.bias"), scope=name)

    def _norm(self, x: str, name: str) -> str:
        return self.layer_norm(x, name, self._epsilon)

    def _gelu(self, x: str, scope: str) -> str:
        """GELU by its tanh approximation (Hendrycks and Gimpel, 2016)."""
        op = self.op
        cube = op("Mul", op("Mul", x, x, scope=scope), x, scope=scope)
        inner = op("Add", x, op("Mul", cube, self.scalar(0.044715), scope=scope), scope=scope)
        gate = op("Tanh", op("Mul", inner, self.scalar(math.sqrt(2 / math.pi)), scope=scope), scope=scope)
        half = op("Mul", x, self.scalar(0.5), scope=scope)
        return op("Mul", half, op("Add", gate, self.scalar(1.0), scope=scope), scope=scope)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        add_graph(Path(argument))
