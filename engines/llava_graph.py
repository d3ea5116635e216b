"""LLaVA as graphs for ONNX Runtime, beside a checkpoint of transformers.

The weights are the checkpoint's own.

``python engines/llava_graph.py FOLDER`` makes the LLaVA checkpoint in a folder a bundle for ``onnx:/folder``. The
tower is that of CLIP (Radford et al., 2021), and the language model is Llama (Touvron et al., 2023). Liu et al.,
"Visual Instruction Tuning" (2023), describe how they are joined. ``vision.onnx`` makes embeddings of pictures, and
``model.onnx`` continues tokens among which they stand. Both read ``model.safetensors`` where it lies.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gpt2_graph import HIDDEN, StoredWeights
from onnx import TensorProto

from vlmsearch.building.graph import OnnxGraph
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.generator import DESCRIPTION, FORMAT, GRAPH, TOKENIZER, VISION_GRAPH, WEIGHTS

MAX_PICTURES = 4


@dataclass(frozen=True)
class LlavaSizes:
    """The sizes of a LLaVA, how it reads pixels, and the tokens that end its texts."""

    text: dict[str, Any]
    vision: dict[str, Any]
    image_token: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def read(cls, folder: Path) -> LlavaSizes:
        """Return the sizes of a checkpoint.

        ConfigError unless it is a LLaVA of CLIP and Llama of the usual form.
        """
        try:
            config, images = (
                json.loads((folder / name).read_text(encoding="utf-8"))
                for name in ("config.json", "preprocessor_config.json")
            )
        except (OSError, ValueError) as exc:
            raise ModelUnavailableError(f"{folder} is not a LLaVA checkpoint of transformers: {exc}") from exc
        text, vision = config.get("text_config", {}), config.get("vision_config", {})
        checks = {
            "model_type": (config.get("model_type"), "llava"),
            "text_config.model_type": (text.get("model_type"), "llama"),
            "text_config.hidden_act": (text.get("hidden_act"), "silu"),
            "text_config.num_key_value_heads": (text.get("num_key_value_heads"), text.get("num_attention_heads")),
            "tie_word_embeddings": (config.get("tie_word_embeddings"), True),
            "vision_config.model_type": (vision.get("model_type"), "clip_vision_model"),
            "vision_config.hidden_act": (vision.get("hidden_act"), "quick_gelu"),
            "vision_feature_layer": (config.get("vision_feature_layer"), -1),
            "vision_feature_select_strategy": (config.get("vision_feature_select_strategy"), "default"),
            "projector_hidden_act": (config.get("projector_hidden_act"), "gelu"),
        }
        for name, (given, expected) in checks.items():
            if given != expected:
                raise ConfigError(f"{folder}: {name} is {given!r}; a graph is written where it is {expected!r}")
        return cls(
            text=text,
            vision=vision,
            image_token=config["image_token_index"],
            mean=tuple(images["image_mean"]),
            deviation=tuple(images["image_std"]),
        )

    @property
    def picture_tokens(self) -> int:
        """Return the number of tokens of a picture."""
        side: int = self.vision["image_size"] // self.vision["patch_size"]
        return side * side

    @property
    def ends(self) -> list[int]:
        """Return the tokens that end texts."""
        end = self.text["eos_token_id"]
        return list(end) if isinstance(end, list) else [end]


def add_graphs(folder: Path) -> None:
    """Write the graphs and ``generator.json`` beside the LLaVA checkpoint of a folder."""
    sizes = LlavaSizes.read(folder)
    (folder / GRAPH).write_bytes(write_language(folder, sizes))
    (folder / VISION_GRAPH).write_bytes(write_vision(folder, sizes))
    names = (GRAPH, VISION_GRAPH, WEIGHTS, TOKENIZER)
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    description = {
        "format": FORMAT,
        "layers": sizes.text["num_hidden_layers"],
        "heads": sizes.text["num_attention_heads"],
        "size": sizes.text["hidden_size"] // sizes.text["num_attention_heads"],
        "context": sizes.text["max_position_embeddings"],
        "ends": sizes.ends,
        "pictures": {
            "max_count": MAX_PICTURES,
            "side": sizes.vision["image_size"],
            "tokens": sizes.picture_tokens,
            "token": sizes.image_token,
        },
        "files": files,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def write_vision(folder: Path, sizes: LlavaSizes) -> bytes:
    """Return the graph of the tower and the projector.

    ``pixels`` uint8 (pictures, side, side, 3) give ``embeddings`` float32 (pictures, tokens, width).
    """
    side = sizes.vision["image_size"]
    writer = _Writer("llava-vision", folder)
    pixels = writer.graph.input("pixels", TensorProto.UINT8, ["pictures", side, side, 3])
    _write_tower(writer, sizes, pixels)
    return writer.finish()


def write_language(folder: Path, sizes: LlavaSizes) -> bytes:
    """Return the graph of the language model.

    ``input_ids`` int64 (batch, length) come after ``past.N.key`` and ``past.N.value`` float32 (batch, heads, past,
    size). Embeddings ``pictures`` float32 (count, width) take the places of the first ``count`` image tokens of each
    row. The graph gives ``logits`` float32 (batch, vocabulary) of the next token, and ``present.N.key`` and ``.value``.
    """
    writer = _Writer("llava-language", folder)
    ids = writer.graph.input("input_ids", TensorProto.INT64, ["batch", "length"])
    pictures = writer.graph.input("pictures", TensorProto.FLOAT, ["count", sizes.text["hidden_size"]])
    _write_language(writer, sizes, ids, pictures)
    return writer.finish()


class _Writer:
    """A graph, and the operations that both graphs need."""

    def __init__(self, name: str, folder: Path) -> None:
        self.graph = OnnxGraph(name)
        self.weights = StoredWeights(self.graph, folder)
        self.op = self.graph.op

    def finish(self) -> bytes:
        return self.weights.refer(self.graph.to_bytes())

    def linear(self, x: str, name: str, *, has_bias: bool) -> str:
        weight = self.op("Transpose", self.weights(f"{name}.weight"), scope=name, perm=(1, 0))
        y = self.op("MatMul", x, weight, scope=name)
        return self.op("Add", y, self.weights(f"{name}.bias"), scope=name) if has_bias else y

    def layer_norm(self, x: str, name: str, epsilon: float) -> str:
        scale, bias = self.weights(f"{name}.weight"), self.weights(f"{name}.bias")
        return self.op("LayerNormalization", x, scale, bias, scope=name, axis=-1, epsilon=epsilon)

    def rms_norm(self, x: str, name: str, epsilon: float) -> str:
        """Divide by the root of the mean square (Zhang and Sennrich, 2019)."""
        mean = self.op("ReduceMean", self.op("Mul", x, x, scope=name), scope=name, axes=(-1,))
        root = self.op("Sqrt", self.op("Add", mean, self.scalar(epsilon), scope=name), scope=name)
        return self.op("Mul", self.op("Div", x, root, scope=name), self.weights(f"{name}.weight"), scope=name)

    def heads(self, x: str, count: int, size: int, scope: str) -> str:
        split = self.op("Reshape", x, self.graph.ints(0, 0, count, size), scope=scope)
        return self.op("Transpose", split, scope=scope, perm=(0, 2, 1, 3))

    def attention(self, q: str, k: str, v: str, bias: str | None, size: int, width: int, scope: str) -> str:
        scores = self.op("MatMul", q, self.op("Transpose", k, scope=scope, perm=(0, 1, 3, 2)), scope=scope)
        scores = self.op("Mul", scores, self.scalar(size**-0.5), scope=scope)
        if bias:
            scores = self.op("Add", scores, bias, scope=scope)
        out = self.op("MatMul", self.op("Softmax", scores, scope=scope, axis=-1), v, scope=scope)
        joined = self.op("Transpose", out, scope=scope, perm=(0, 2, 1, 3))
        return self.op("Reshape", joined, self.graph.ints(0, 0, width), scope=scope)

    def scalar(self, value: float) -> str:
        return self.graph.constant(np.array(value, np.float32), f"scalar_{value}")


def _write_tower(writer: _Writer, sizes: LlavaSizes, pixels: str) -> None:
    graph, op, w, vision = writer.graph, writer.op, writer.weights, sizes.vision
    width, heads, patch = vision["hidden_size"], vision["num_attention_heads"], vision["patch_size"]
    epsilon = vision["layer_norm_eps"]
    scale = graph.constant(np.array([1 / (255 * value) for value in sizes.deviation], np.float32), "pixel_scale")
    shift = np.array([-mean / value for mean, value in zip(sizes.mean, sizes.deviation)], np.float32)
    scaled = op("Mul", op("Cast", pixels, scope="pixels", to=int(TensorProto.FLOAT)), scale, scope="pixels")
    shifted = op("Add", scaled, graph.constant(shift, "pixel_shift"), scope="pixels")
    channels = op("Transpose", shifted, scope="pixels", perm=(0, 3, 1, 2))
    tower = "vision_tower"
    kernel = w(f"{tower}.embeddings.patch_embedding.weight")
    patches = op("Conv", channels, kernel, scope="patches", kernel_shape=(patch, patch), strides=(patch, patch))
    patches = op("Reshape", patches, graph.ints(0, width, -1), scope="patches")
    patches = op("Transpose", patches, scope="patches", perm=(0, 2, 1))
    count = op("Shape", pixels, scope="patches", start=0, end=1)
    shape = op("Concat", count, graph.ints(1, width), scope="patches", axis=0)
    first = op("Expand", w(f"{tower}.embeddings.class_embedding"), shape, scope="patches")
    x = op("Concat", first, patches, scope="patches", axis=1)
    x = op("Add", x, w(f"{tower}.embeddings.position_embedding.weight"), scope="patches")
    x = writer.layer_norm(x, f"{tower}.pre_layrnorm", epsilon)
    for layer in range(vision["num_hidden_layers"]):
        scope = f"{tower}.encoder.layers.{layer}"
        normed = writer.layer_norm(x, f"{scope}.layer_norm1", epsilon)
        q, k, v = (
            writer.heads(writer.linear(normed, f"{scope}.self_attn.{part}_proj", has_bias=True), heads, width // heads,
                         scope)
            for part in ("q", "k", "v")
        )  # fmt: skip
        attended = writer.attention(q, k, v, None, width // heads, width, scope)
        x = op("Add", x, writer.linear(attended, f"{scope}.self_attn.out_proj", has_bias=True), scope=scope)
        hidden = writer.linear(writer.layer_norm(x, f"{scope}.layer_norm2", epsilon), f"{scope}.mlp.fc1", has_bias=True)
        gate = op("Sigmoid", op("Mul", hidden, writer.scalar(1.702), scope=scope), scope=scope)
        hidden = op("Mul", hidden, gate, scope=scope)
        x = op("Add", x, writer.linear(hidden, f"{scope}.mlp.fc2", has_bias=True), scope=scope)
    x = op("Slice", x, graph.ints(1), graph.ints(sizes.picture_tokens + 1), graph.ints(1), scope="projector")
    x = writer.linear(x, "multi_modal_projector.linear_1", has_bias=True)
    erf = op("Erf", op("Mul", x, writer.scalar(math.sqrt(0.5)), scope="projector"), scope="projector")
    half = op("Mul", x, writer.scalar(0.5), scope="projector")
    x = op("Mul", half, op("Add", erf, writer.scalar(1.0), scope="projector"), scope="projector")
    x = writer.linear(x, "multi_modal_projector.linear_2", has_bias=True)
    shown = ["pictures", sizes.picture_tokens, sizes.text["hidden_size"]]
    graph.output(x, "embeddings", TensorProto.FLOAT, shown)


def _write_language(writer: _Writer, sizes: LlavaSizes, ids: str, pictures: str) -> None:
    graph, op, w, text = writer.graph, writer.op, writer.weights, sizes.text
    width, heads, epsilon = text["hidden_size"], text["num_attention_heads"], text["rms_norm_eps"]
    size = width // heads
    model = "language_model.model"
    past = [
        [graph.input(f"past.{layer}.{kind}", TensorProto.FLOAT, ("batch", heads, "past", size))
         for kind in ("key", "value")]
        for layer in range(text["num_hidden_layers"])
    ]  # fmt: skip
    read = op("Squeeze", op("Shape", past[0][0], scope="place", start=2, end=3), graph.ints(0), scope="place")
    more = op("Squeeze", op("Shape", ids, scope="place", start=1, end=2), graph.ints(0), scope="place")
    total = op("Add", read, more, scope="place")
    zero, unit = (op("Squeeze", graph.ints(number), scope="place") for number in (0, 1))
    places = op("Range", read, total, unit, scope="place")
    keys = op("Range", zero, total, unit, scope="place")
    later = op("Greater", keys, op("Unsqueeze", places, graph.ints(1), scope="mask"), scope="mask")
    bias = op("Mul", op("Cast", later, scope="mask", to=int(TensorProto.FLOAT)), writer.scalar(HIDDEN), scope="mask")
    turned = _rotations(writer, places, text, size)
    x = _embed(writer, sizes, ids, pictures)
    for layer in range(text["num_hidden_layers"]):
        scope = f"{model}.layers.{layer}"
        normed = writer.rms_norm(x, f"{scope}.input_layernorm", epsilon)
        q, k, v = (
            writer.heads(writer.linear(normed, f"{scope}.self_attn.{part}_proj", has_bias=False), heads, size, scope)
            for part in ("q", "k", "v")
        )
        q, k = (_turn(writer, part, turned, size, scope) for part in (q, k))
        k, v = (op("Concat", old, new, scope=scope, axis=2) for old, new in zip(past[layer], (k, v)))
        for kind, value in (("key", k), ("value", v)):
            graph.output(value, f"present.{layer}.{kind}", TensorProto.FLOAT, ["batch", heads, "total", size])
        attended = writer.attention(q, k, v, bias, size, width, scope)
        x = op("Add", x, writer.linear(attended, f"{scope}.self_attn.o_proj", has_bias=False), scope=scope)
        normed = writer.rms_norm(x, f"{scope}.post_attention_layernorm", epsilon)
        gate = writer.linear(normed, f"{scope}.mlp.gate_proj", has_bias=False)
        gate = op("Mul", gate, op("Sigmoid", gate, scope=scope), scope=scope)
        hidden = op("Mul", gate, writer.linear(normed, f"{scope}.mlp.up_proj", has_bias=False), scope=scope)
        x = op("Add", x, writer.linear(hidden, f"{scope}.mlp.down_proj", has_bias=False), scope=scope)
    last = op("Squeeze", op("Gather", x, graph.ints(-1), scope="head", axis=1), graph.ints(1), scope="head")
    last = writer.rms_norm(last, f"{model}.norm", epsilon)
    words = op("Transpose", w(f"{model}.embed_tokens.weight"), scope="head", perm=(1, 0))
    graph.output(op("MatMul", last, words, scope="head"), "logits", TensorProto.FLOAT, ["batch", "vocabulary"])


def _embed(writer: _Writer, sizes: LlavaSizes, ids: str, pictures: str) -> str:
    """Return embeddings of tokens and pictures.

    Those of pictures stand in the places of image tokens, as long as there are any.
    """
    graph, op, scope = writer.graph, writer.op, "embed"
    table = writer.weights("language_model.model.embed_tokens.weight")
    image = graph.ints(sizes.image_token)
    is_image = op("Equal", ids, image, scope=scope)
    axis = op("Squeeze", graph.ints(1), scope=scope)
    integers = op("Cast", is_image, scope=scope, to=int(TensorProto.INT64))
    ranks = op("Sub", op("CumSum", integers, axis, scope=scope), graph.ints(1), scope=scope)
    available = op("Shape", pictures, scope=scope, start=0, end=1)
    ranks = op("Min", ranks, available, scope=scope)  # the last row is that of the image token itself
    rows = op("Concat", pictures, op("Gather", table, image, scope=scope), scope=scope, axis=0)
    shown = op("Gather", rows, ranks, scope=scope)
    is_image = op("Unsqueeze", is_image, graph.ints(2), scope=scope)
    return op("Where", is_image, shown, op("Gather", table, ids, scope=scope), scope=scope)


def _rotations(writer: _Writer, places: str, text: dict[str, Any], size: int) -> tuple[str, str]:
    """Return cosines and sines of rotary positions (Su et al., 2021), each (length, size)."""
    graph, op, scope = writer.graph, writer.op, "rotations"
    base = (text.get("rope_parameters") or text).get("rope_theta", 10_000.0)
    speeds = base ** (-np.arange(0, size, 2, dtype=np.float32) / size)
    both = np.concatenate([speeds, speeds]).astype(np.float32)
    floats = op("Cast", places, scope=scope, to=int(TensorProto.FLOAT))
    column = op("Unsqueeze", floats, graph.ints(1), scope=scope)
    angles = op("Mul", column, graph.constant(both, "speeds"), scope=scope)
    return op("Cos", angles, scope=scope), op("Sin", angles, scope=scope)


def _turn(writer: _Writer, x: str, turned: tuple[str, str], size: int, scope: str) -> str:
    """Rotate queries or keys (batch, heads, length, size) by their positions."""
    graph, op = writer.graph, writer.op
    first, second = graph.op_many("Split", 2, x, graph.ints(size // 2, size // 2), scope=scope, axis=-1)
    crossed = op("Concat", op("Neg", second, scope=scope), first, scope=scope, axis=-1)
    cosines, sines = turned
    return op("Add", op("Mul", x, cosines, scope=scope), op("Mul", crossed, sines, scope=scope), scope=scope)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        add_graphs(Path(argument))
