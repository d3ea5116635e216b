"""GPT-2 as a graph for ONNX Runtime, beside a checkpoint of transformers.

The weights are the checkpoint's own.

``python engines/gpt2_graph.py FOLDER`` makes the GPT-2 checkpoint in a folder a bundle for ``onnx:/folder``.
The layout follows Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), with the parameter
names of the transformers library. The graph reads ``model.safetensors`` where it lies, so that a folder is both a
checkpoint and a bundle, and no weight is there twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from vlmsearch.building.graph import OnnxGraph
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.generator import DESCRIPTION, FORMAT, GRAPH, TOKENIZER, WEIGHTS

_TYPES = {"F32": TensorProto.FLOAT, "F16": TensorProto.FLOAT16, "BF16": TensorProto.BFLOAT16}
HIDDEN = -1e9
"""Added to the scores of later positions."""


@dataclass(frozen=True)
class Gpt2Sizes:
    """The sizes of a GPT-2, and the tokens that end its texts."""

    layers: int
    heads: int
    width: int
    context: int
    epsilon: float
    ends: tuple[int, ...]

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
        end = config["eos_token_id"]
        return cls(
            layers=config["n_layer"],
            heads=config["n_head"],
            width=config["n_embd"],
            context=config["n_positions"],
            epsilon=config["layer_norm_epsilon"],
            ends=tuple(end) if isinstance(end, list) else (end,),
        )


def add_graph(folder: Path) -> None:
    """Write the graph and ``generator.json`` beside the GPT-2 checkpoint of a folder."""
    sizes = Gpt2Sizes.read(folder)
    (folder / GRAPH).write_bytes(write_graph(folder, sizes))
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (GRAPH, WEIGHTS, TOKENIZER)}
    description = {
        "format": FORMAT,
        "layers": sizes.layers,
        "heads": sizes.heads,
        "size": sizes.width // sizes.heads,
        "context": sizes.context,
        "ends": list(sizes.ends),
        "files": files,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def write_graph(folder: Path, sizes: Gpt2Sizes) -> bytes:
    """Return the graph of a checkpoint.

    Inputs are ``input_ids`` int64 (batch, length) after ``past.N.key`` and ``past.N.value`` float32 (batch, heads,
    past, size). Outputs are ``logits`` float32 (batch, vocabulary) of the next token, ``present.N.key`` and
    ``present.N.value``.
    """
    graph = OnnxGraph("gpt2")
    weights = StoredWeights(graph, folder)
    ids = graph.input("input_ids", TensorProto.INT64, ["batch", "length"])
    _Writer(graph, weights, sizes).write(ids)
    return weights.refer(graph.to_bytes())


@dataclass(frozen=True)
class _Entry:
    """One tensor of a safetensors file, as its header has it."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class StoredWeights:
    """The tensors of a safetensors file, as float32 values of a graph: inputs at first, then references to the file."""

    def __init__(self, graph: OnnxGraph, folder: Path) -> None:
        try:
            with (folder / WEIGHTS).open("rb") as file:
                self._start = 8 + int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(self._start - 8))
        except (OSError, ValueError) as exc:
            raise ModelUnavailableError(f"{folder / WEIGHTS} cannot be read: {exc}") from exc
        header.pop("__metadata__", None)
        self._entries = {name: _Entry(**entry) for name, entry in header.items()}
        self._prefix = "transformer." if "transformer.wte.weight" in self._entries else ""
        self._graph = graph
        self._made: dict[str, str] = {}
        self._tensors: list[onnx.TensorProto] = []

    def __call__(self, name: str) -> str:
        """Return the value of a tensor."""
        if name not in self._made:
            entry = self._entries[self._prefix + name]
            kind, shape, (first, last) = entry.dtype, entry.shape, entry.data_offsets
            if kind not in _TYPES:
                raise ConfigError(f"{name} is of type {kind}; a graph is written for {', '.join(_TYPES)}")
            tensor = onnx.TensorProto(
                name=name, data_type=int(_TYPES[kind]), dims=shape, data_location=TensorProto.EXTERNAL
            )
            place = {"location": WEIGHTS, "offset": self._start + first, "length": last - first}
            for key, given in place.items():
                tensor.external_data.add(key=key, value=str(given))
            self._tensors.append(tensor)
            value = self._graph.input(name, tensor.data_type, shape)
            self._made[name] = self._graph.op("Cast", value, scope="weights", to=int(TensorProto.FLOAT))
        return self._made[name]

    def refer(self, data: bytes) -> bytes:
        """Return the graph's file.

        Its weights are read from the safetensors file, not given as inputs.
        """
        model = onnx.load_model_from_string(data)
        names = {tensor.name for tensor in self._tensors}
        inputs = [value for value in model.graph.input if value.name not in names]
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.graph.initializer.extend(self._tensors)
        return bytes(model.SerializeToString())


class _Writer:
    def __init__(self, graph: OnnxGraph, weights: StoredWeights, sizes: Gpt2Sizes) -> None:
        self._graph = graph
        self._weights = weights
        self._sizes = sizes
        self._shape = ("batch", sizes.heads, "past", sizes.width // sizes.heads)

    def write(self, ids: str) -> None:
        graph, op, w = self._graph, self._graph.op, self._weights
        past = [
            [graph.input(f"past.{layer}.{kind}", TensorProto.FLOAT, self._shape) for kind in ("key", "value")]
            for layer in range(self._sizes.layers)
        ]
        read = op("Squeeze", op("Shape", past[0][0], scope="place", start=2, end=3), graph.ints(0), scope="place")
        more = op("Squeeze", op("Shape", ids, scope="place", start=1, end=2), graph.ints(0), scope="place")
        total = op("Add", read, more, scope="place")
        zero, unit = (op("Squeeze", graph.ints(number), scope="place") for number in (0, 1))
        places = op("Range", read, total, unit, scope="place")
        keys = op("Range", zero, total, unit, scope="place")
        later = op("Greater", keys, op("Unsqueeze", places, graph.ints(1), scope="mask"), scope="mask")
        bias = op("Mul", op("Cast", later, scope="mask", to=1), self._scalar(HIDDEN), scope="mask")
        words = op("Gather", w("wte.weight"), ids, scope="embed")
        x = op("Add", words, op("Gather", w("wpe.weight"), places, scope="embed"), scope="embed")
        for layer in range(self._sizes.layers):
            x = self._layer(x, layer, past[layer], bias)
        last = op("Squeeze", op("Gather", x, graph.ints(-1), scope="head", axis=1), graph.ints(1), scope="head")
        last = self._norm(last, "ln_f")
        logits = op("MatMul", last, op("Transpose", w("wte.weight"), scope="head", perm=(1, 0)), scope="head")
        graph.output(logits, "logits", TensorProto.FLOAT, ["batch", "vocabulary"])

    def _layer(self, x: str, layer: int, past: list[str], bias: str) -> str:
        op, scope = self._graph.op, f"h.{layer}"
        attended = self._attention(self._norm(x, f"{scope}.ln_1"), layer, past, bias)
        x = op("Add", x, self._linear(attended, f"{scope}.attn.c_proj"), scope=scope)
        hidden = self._gelu(self._linear(self._norm(x, f"{scope}.ln_2"), f"{scope}.mlp.c_fc"), scope)
        return op("Add", x, self._linear(hidden, f"{scope}.mlp.c_proj"), scope=scope)

    def _attention(self, x: str, layer: int, past: list[str], bias: str) -> str:
        graph, op, scope = self._graph, self._graph.op, f"h.{layer}.attn"
        width, heads = self._sizes.width, self._sizes.heads
        size = width // heads
        fused = self._linear(x, f"{scope}.c_attn")
        shape = graph.ints(0, 0, heads, size)
        parts = graph.op_many("Split", 3, fused, graph.ints(width, width, width), scope=scope, axis=-1)
        q, k, v = (
            op("Transpose", op("Reshape", part, shape, scope=scope), scope=scope, perm=(0, 2, 1, 3)) for part in parts
        )
        k, v = (op("Concat", old, new, scope=scope, axis=2) for old, new in zip(past, (k, v)))
        for kind, value in (("key", k), ("value", v)):
            graph.output(value, f"present.{layer}.{kind}", TensorProto.FLOAT, ["batch", heads, "total", size])
        scores = op("MatMul", q, op("Transpose", k, scope=scope, perm=(0, 1, 3, 2)), scope=scope)
        scores = op("Add", op("Mul", scores, self._scalar(size**-0.5), scope=scope), bias, scope=scope)
        out = op("MatMul", op("Softmax", scores, scope=scope, axis=-1), v, scope=scope)
        return op("Reshape", op("Transpose", out, scope=scope, perm=(0, 2, 1, 3)), graph.ints(0, 0, width), scope=scope)

    def _linear(self, x: str, name: str) -> str:
        y = self._graph.op("MatMul", x, self._weights(f"{name}.weight"), scope=name)
        return self._graph.op("Add", y, self._weights(f"{name}.bias"), scope=name)

    def _norm(self, x: str, name: str) -> str:
        scale, bias = self._weights(f"{name}.weight"), self._weights(f"{name}.bias")
        return self._graph.op("LayerNormalization", x, scale, bias, scope=name, axis=-1, epsilon=self._sizes.epsilon)

    def _gelu(self, x: str, scope: str) -> str:
        """GELU by its tanh approximation (Hendrycks and Gimpel, 2016)."""
        op = self._graph.op
        cube = op("Mul", op("Mul", x, x, scope=scope), x, scope=scope)
        inner = op("Add", x, op("Mul", cube, self._scalar(0.044715), scope=scope), scope=scope)
        gate = op("Tanh", op("Mul", inner, self._scalar(math.sqrt(2 / math.pi)), scope=scope), scope=scope)
        half = op("Mul", x, self._scalar(0.5), scope=scope)
        return op("Mul", half, op("Add", gate, self._scalar(1.0), scope=scope), scope=scope)

    def _scalar(self, value: float) -> str:
        return self._graph.constant(np.array(value, np.float32), f"scalar_{value}")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        add_graph(Path(argument))
