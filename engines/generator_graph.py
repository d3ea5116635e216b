"""What the graphs of language models share, beside a checkpoint of transformers.

The weights are the checkpoint's own. A graph reads ``model.safetensors`` where it lies, so that a folder is both a
checkpoint and a bundle, and no weight is there twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from vlmsearch.building.graph import OnnxGraph
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.generator import DESCRIPTION, FORMAT, TOKENIZER, WEIGHTS

_TYPES = {"F32": TensorProto.FLOAT, "F16": TensorProto.FLOAT16, "BF16": TensorProto.BFLOAT16}
_HIDDEN = -1e9
"""Added to the scores of later positions."""


@dataclass(frozen=True)
class DecoderSizes:
    """The sizes of a language model, and the tokens that end its texts."""

    layers: int
    heads: int
    width: int
    context: int
    ends: int | Sequence[int]

    @property
    def size(self) -> int:
        """Return the size of one attention head."""
        return self.width // self.heads


def write_bundle(folder: Path, sizes: DecoderSizes, graphs: Mapping[str, bytes], **others: object) -> None:
    """Write graphs and ``generator.json`` beside the checkpoint of a folder."""
    for name, data in graphs.items():
        (folder / name).write_bytes(data)
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (*graphs, WEIGHTS, TOKENIZER)}
    description = {
        "format": FORMAT,
        "layers": sizes.layers,
        "heads": sizes.heads,
        "size": sizes.size,
        "context": sizes.context,
        "ends": [sizes.ends] if isinstance(sizes.ends, int) else list(sizes.ends),
        **others,
        "files": files,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


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


class GraphWriter:
    """A graph, and the operations of transformers."""

    def __init__(self, name: str, folder: Path) -> None:
        self.graph = OnnxGraph(name)
        self.weights = StoredWeights(self.graph, folder)
        self.op = self.graph.op

    def finish(self) -> bytes:
        """Return the graph's file."""
        return self.weights.refer(self.graph.to_bytes())

    def scalar(self, value: float) -> str:
        """Return a number as a value of the graph."""
        return self.graph.constant(np.array(value, np.float32), f"scalar_{value}")

    def layer_norm(self, x: str, name: str, epsilon: float) -> str:
        """Normalise the last axis, with the scale and the bias of a name."""
        scale, bias = self.weights(f"{name}.weight"), self.weights(f"{name}.bias")
        return self.op("LayerNormalization", x, scale, bias, scope=name, axis=-1, epsilon=epsilon)

    def heads(self, x: str, count: int, size: int, scope: str) -> str:
        """Split the last axis into heads: (batch, heads, length, size)."""
        split = self.op("Reshape", x, self.graph.ints(0, 0, count, size), scope=scope)
        return self.op("Transpose", split, scope=scope, perm=(0, 2, 1, 3))

    def attention(self, q: str, k: str, v: str, bias: str | None, size: int, width: int, scope: str) -> str:
        """Return the attention of all heads side by side, (batch, length, width)."""
        scores = self.op("MatMul", q, self.op("Transpose", k, scope=scope, perm=(0, 1, 3, 2)), scope=scope)
        scores = self.op("Mul", scores, self.scalar(size**-0.5), scope=scope)
        if bias:
            scores = self.op("Add", scores, bias, scope=scope)
        out = self.op("MatMul", self.op("Softmax", scores, scope=scope, axis=-1), v, scope=scope)
        joined = self.op("Transpose", out, scope=scope, perm=(0, 2, 1, 3))
        return self.op("Reshape", joined, self.graph.ints(0, 0, width), scope=scope)


class DecoderWriter(GraphWriter):
    """A graph that continues ``ids`` (batch, length) after the keys and values of each layer.

    Attributes:
        places: Positions of the ids (length).
        bias: What hides later positions from earlier ones (length, total).
    """

    def __init__(self, name: str, folder: Path, sizes: DecoderSizes, *inputs: tuple[str, int, Sequence[Any]]) -> None:
        super().__init__(name, folder)
        graph, op = self.graph, self.op
        self.sizes = sizes
        self.ids = graph.input("input_ids", TensorProto.INT64, ["batch", "length"])
        self.inputs = [graph.input(*given) for given in inputs]
        shape = ("batch", sizes.heads, "past", sizes.size)
        self.past = [
            [graph.input(f"past.{layer}.{kind}", TensorProto.FLOAT, shape) for kind in ("key", "value")]
            for layer in range(sizes.layers)
        ]
        read = op("Squeeze", op("Shape", self.past[0][0], scope="place", start=2, end=3), graph.ints(0), scope="place")
        more = op("Squeeze", op("Shape", self.ids, scope="place", start=1, end=2), graph.ints(0), scope="place")
        total = op("Add", read, more, scope="place")
        zero, step = (op("Squeeze", graph.ints(number), scope="place") for number in (0, 1))
        self.places = op("Range", read, total, step, scope="place")
        keys = op("Range", zero, total, step, scope="place")
        later = op("Greater", keys, op("Unsqueeze", self.places, graph.ints(1), scope="mask"), scope="mask")
        floats = op("Cast", later, scope="mask", to=int(TensorProto.FLOAT))
        self.bias = op("Mul", floats, self.scalar(_HIDDEN), scope="mask")

    def attend(self, layer: int, q: str, k: str, v: str, scope: str) -> str:
        """Return the attention of a layer, and give out its keys and values.

        They come after the earlier ones.
        """
        op, sizes = self.op, self.sizes
        k, v = (op("Concat", old, new, scope=scope, axis=2) for old, new in zip(self.past[layer], (k, v)))
        shape = ("batch", sizes.heads, "total", sizes.size)
        for kind, value in (("key", k), ("value", v)):
            self.graph.output(value, f"present.{layer}.{kind}", TensorProto.FLOAT, shape)
        return self.attention(q, k, v, self.bias, sizes.size, sizes.width, scope)

    def last_token(self, x: str) -> str:
        """Return the last token of each text, (batch, width)."""
        last = self.op("Gather", x, self.graph.ints(-1), scope="head", axis=1)
        return self.op("Squeeze", last, self.graph.ints(1), scope="head")

    def give_logits(self, x: str, words: str) -> bytes:
        """Return the graph's file, whose logits are those of the words' embeddings (vocabulary, width)."""
        turned = self.op("Transpose", self.weights(words), scope="head", perm=(1, 0))
        logits = self.op("MatMul", x, turned, scope="head")
        self.graph.output(logits, "logits", TensorProto.FLOAT, ["batch", "vocabulary"])
        return self.finish()
