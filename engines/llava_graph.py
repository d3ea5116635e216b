"""LLaVA as graphs for ONNX Runtime, beside a checkpoint of transformers.

The weights are the checkpoint's own.

``python engines/llava_graph.py FOLDER`` makes the LLaVA checkpoint in a folder a bundle for ``onnx:/folder``. The
tower is that of CLIP (Radford et al., 2021), and the language model is Llama (Touvron et al., 2023). Liu et al.,
"Visual Instruction Tuning" (2023), describe how they are joined. ``vision.onnx`` makes embeddings of pictures, and
``model.onnx`` continues tokens among which they stand. Both read ``model.safetensors`` where it lies.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from generator_graph import DecoderSizes, DecoderWriter, GraphWriter, write_bundle
from onnx import TensorProto

from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.generator import GRAPH, VISION_GRAPH

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
    def decoder(self) -> DecoderSizes:
        """Return the sizes of the language model."""
        return DecoderSizes(
            layers=self.text["num_hidden_layers"],
            heads=self.text["num_attention_heads"],
            width=self.text["hidden_size"],
            context=self.text["max_position_embeddings"],
            ends=self.text["eos_token_id"],
        )


def add_graphs(folder: Path) -> None:
    """Write the graphs and ``generator.json`` beside the LLaVA checkpoint of a folder."""
    sizes = LlavaSizes.read(folder)
    pictures = {
        "max_count": MAX_PICTURES,
        "side": sizes.vision["image_size"],
        "tokens": sizes.picture_tokens,
        "token": sizes.image_token,
    }
    graphs = {GRAPH: write_language(folder, sizes), VISION_GRAPH: write_vision(folder, sizes)}
    write_bundle(folder, sizes.decoder, graphs, pictures=pictures)


def write_vision(folder: Path, sizes: LlavaSizes) -> bytes:
    """Return the graph of the tower and the projector.

    ``pixels`` uint8 (pictures, side, side, 3) give ``embeddings`` float32 (pictures, tokens, width).
    """
    writer = GraphWriter("llava-vision", folder)
    _write_tower(writer, sizes)
    return writer.finish()


def write_language(folder: Path, sizes: LlavaSizes) -> bytes:
    """Return the graph of the language model.

    ``input_ids`` int64 (batch, length) come after ``past.N.key`` and ``past.N.value`` float32 (batch, heads, past,
    size). Embeddings ``pictures`` float32 (count, width) take the places of the first ``count`` image tokens of each
    row. The graph gives ``logits`` float32 (batch, vocabulary) of the next token, and ``present.N.key`` and ``.value``.
    """
    pictures = ("pictures", int(TensorProto.FLOAT), ["count", sizes.text["hidden_size"]])
    return _write_language(DecoderWriter("llava-language", folder, sizes.decoder, pictures), sizes)


def _linear(writer: GraphWriter, x: str, name: str, *, has_bias: bool) -> str:
    op, scope = writer.op, name
    weight = op("Transpose", writer.weights(f"{name}.weight"), scope=scope, perm=(1, 0))
    y = op("MatMul", x, weight, scope=scope)
    return op("Add", y, writer.weights(f"{name}.bias"), scope=scope) if has_bias else y


def _rms_norm(writer: GraphWriter, x: str, name: str, epsilon: float) -> str:
    """Divide by the root of the mean square (Zhang and Sennrich, 2019)."""
    op = writer.op
    mean = op("ReduceMean", op("Mul", x, x, scope=name), scope=name, axes=(-1,))
    root = op("Sqrt", op("Add", mean, writer.scalar(epsilon), scope=name), scope=name)
    return op("Mul", op("Div", x, root, scope=name), writer.weights(f"{name}.weight"), scope=name)


def _write_tower(writer: GraphWriter, sizes: LlavaSizes) -> None:
    graph, op, w, vision = writer.graph, writer.op, writer.weights, sizes.vision
    side = vision["image_size"]
    pixels = graph.input("pixels", TensorProto.UINT8, ["pictures", side, side, 3])
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
        parts = (_linear(writer, normed, f"{scope}.self_attn.{part}_proj", has_bias=True) for part in ("q", "k", "v"))
        q, k, v = (writer.heads(part, heads, width // heads, scope) for part in parts)
        attended = writer.attention(q, k, v, None, width // heads, width, scope)
        x = op("Add", x, _linear(writer, attended, f"{scope}.self_attn.out_proj", has_bias=True), scope=scope)
        hidden = _linear(
            writer, writer.layer_norm(x, f"{scope}.layer_norm2", epsilon), f"{scope}.mlp.fc1", has_bias=True
        )
        gate = op("Sigmoid", op("Mul", hidden, writer.scalar(1.702), scope=scope), scope=scope)
        hidden = op("Mul", hidden, gate, scope=scope)
        x = op("Add", x, _linear(writer, hidden, f"{scope}.mlp.fc2", has_bias=True), scope=scope)
    x = op("Slice", x, graph.ints(1), graph.ints(sizes.picture_tokens + 1), graph.ints(1), scope="projector")
    x = _linear(writer, x, "multi_modal_projector.linear_1", has_bias=True)
    erf = op("Erf", op("Mul", x, writer.scalar(math.sqrt(0.5)), scope="projector"), scope="projector")
    half = op("Mul", x, writer.scalar(0.5), scope="projector")
    x = op("Mul", half, op("Add", erf, writer.scalar(1.0), scope="projector"), scope="projector")
    x = _linear(writer, x, "multi_modal_projector.linear_2", has_bias=True)
    shown = ["pictures", sizes.picture_tokens, sizes.text["hidden_size"]]
    graph.output(x, "embeddings", TensorProto.FLOAT, shown)


def _write_language(writer: DecoderWriter, sizes: LlavaSizes) -> bytes:
    op, text, heads, size = writer.op, sizes.text, writer.sizes.heads, writer.sizes.size
    epsilon = text["rms_norm_eps"]
    model = "language_model.model"
    turned = _rotations(writer, text)
    x = _embed(writer, sizes)
    for layer in range(writer.sizes.layers):
        scope = f"{model}.layers.{layer}"
        normed = _rms_norm(writer, x, f"{scope}.input_layernorm", epsilon)
        parts = (_linear(writer, normed, f"{scope}.self_attn.{part}_proj", has_bias=False) for part in ("q", "k", "v"))
        q, k, v = (writer.heads(part, heads, size, scope) for part in parts)
        q, k = (_turn(writer, part, turned, scope) for part in (q, k))
        attended = writer.attend(layer, q, k, v, scope)
        x = op("Add", x, _linear(writer, attended, f"{scope}.self_attn.o_proj", has_bias=False), scope=scope)
        normed = _rms_norm(writer, x, f"{scope}.post_attention_layernorm", epsilon)
        gate = _linear(writer, normed, f"{scope}.mlp.gate_proj", has_bias=False)
        gate = op("Mul", gate, op("Sigmoid", gate, scope=scope), scope=scope)
        hidden = op("Mul", gate, _linear(writer, normed, f"{scope}.mlp.up_proj", has_bias=False), scope=scope)
        x = op("Add", x, _linear(writer, hidden, f"{scope}.mlp.down_proj", has_bias=False), scope=scope)
    last = _rms_norm(writer, writer.last_token(x), f"{model}.norm", epsilon)
    return writer.give_logits(last, f"{model}.embed_tokens.weight")


def _embed(writer: DecoderWriter, sizes: LlavaSizes) -> str:
    """Return embeddings of tokens and pictures.

    Those of pictures stand in the places of image tokens, as long as there are any.
    """
    graph, op, scope = writer.graph, writer.op, "embed"
    ids, (pictures,) = writer.ids, writer.inputs
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


def _rotations(writer: DecoderWriter, text: dict[str, Any]) -> tuple[str, str]:
    """Return cosines and sines of rotary positions (Su et al., 2021), each (length, size)."""
    graph, op, scope = writer.graph, writer.op, "rotations"
    size = writer.sizes.size
    base = (text.get("rope_parameters") or text).get("rope_theta", 10_000.0)
    speeds = base ** (-np.arange(0, size, 2, dtype=np.float32) / size)
    both = np.concatenate([speeds, speeds]).astype(np.float32)
    floats = op("Cast", writer.places, scope=scope, to=int(TensorProto.FLOAT))
    column = op("Unsqueeze", floats, graph.ints(1), scope=scope)
    angles = op("Mul", column, graph.constant(both, "speeds"), scope=scope)
    return op("Cos", angles, scope=scope), op("Sin", angles, scope=scope)


def _turn(writer: DecoderWriter, x: str, turned: tuple[str, str], scope: str) -> str:
    """Rotate queries or keys (batch, heads, length, size) by their positions."""
    graph, op, size = writer.graph, writer.op, writer.sizes.size
    first, second = graph.op_many("Split", 2, x, graph.ints(size // 2, size // 2), scope=scope, axis=-1)
    crossed = op("Concat", op("Neg", second, scope=scope), first, scope=scope, axis=-1)
    cosines, sines = turned
    return op("Add", op("Mul", x, cosines, scope=scope), op("Mul", crossed, sines, scope=scope), scope=scope)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        add_graphs(Path(argument))
