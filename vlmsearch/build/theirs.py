"""A repository's own ONNX export, as optimum and transformers.js lay it out, behind the inputs that a bundle's has.

Only what is around the graph is written here: pixels to what its image processor gives, 32-bit token ids to 64-bit
ones, pooling where it gives tokens, unit length. Its own nodes and weights are taken as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, compose, helper, numpy_helper

from vlmsearch.build.checkpoint import Checkpoint, ImageTower
from vlmsearch.errors import ConfigError, one_line
from vlmsearch.models.bundle import Precision, Tower

FOLDER = "onnx"
_STEMS: dict[Tower, tuple[str, ...]] = {"image": ("vision_model",), "text": ("text_model", "model")}
_QUANTISED = ("_quantized", "_int8", "_qint8_avx512_vnni", "_quint8_avx2")
_POOLED: dict[Tower, tuple[str, ...]] = {
    "image": ("image_embeds", "pooler_output"),
    "text": ("text_embeds", "sentence_embedding"),
}
_TOKENS = ("last_hidden_state", "token_embeddings")
THEIR_FILES = tuple(
    f"{FOLDER}/{stem}{suffix}.onnx{data}"
    for stem in ("model", "text_model", "vision_model")
    for suffix in ("", *_QUANTISED)
    for data in ("", "_data*", ".data")
)
"""The patterns of what may be downloaded of an export."""
_THEIR = "theirs/"


def find_export(folder: Path, tower: Tower, precision: Precision, *, images: bool) -> Path | None:
    """Return the file of one tower in ``fp32`` or ``int8``; None where the repository has none."""
    stems = _STEMS[tower] if tower == "image" or not images else _STEMS[tower][:1]
    suffixes = {"fp32": ("",), "int8": _QUANTISED}.get(precision, ())
    paths = (folder / FOLDER / f"{stem}{suffix}.onnx" for stem in stems for suffix in suffixes)
    return next((path for path in paths if path.is_file()), None)


def wrap_export(checkpoint: Checkpoint, tower: Tower, precision: Precision) -> bytes | None:
    """Return one tower of the export with a bundle's inputs and output, None where there is no such file.

    Weights that lie in files beside it are taken in.

    Raises:
        ConfigError: The file is damaged, asks for what a bundle does not give, or gives nothing that is known.
    """
    path = find_export(checkpoint.folder, tower, precision, images=checkpoint.image is not None)
    if path is None:
        return None
    try:
        model = compose.add_prefix(onnx.load(path), _THEIR)
    except Exception as exc:  # whatever protobuf and onnx raise for a damaged file
        raise ConfigError(f"{path} is damaged: {one_line(exc)}") from exc
    graph = model.graph
    writer = _Writer()
    given = [value for value in graph.input if value.name not in {each.name for each in graph.initializer}]
    types = {value.name.removeprefix(_THEIR): value.type.tensor_type.elem_type for value in given}
    before, inputs = _image_inputs(writer, checkpoint, types, path) if tower == "image" else _text_inputs(writer, types)
    unknown = set(types) - {node.output[0].removeprefix(_THEIR) for node in before}
    if unknown:
        raise ConfigError(f"{path} asks for {', '.join(sorted(unknown))}, which is not given to a {tower} tower")
    vectors, after = _vectors(writer, checkpoint, tower, {value.name for value in graph.output}, path)
    after += writer.unit(vectors)
    nodes = [*before, *graph.node, *after]
    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", checkpoint.dim])
    made = helper.make_graph(nodes, tower, inputs, [output], [*graph.initializer, *writer.constants])
    made.sparse_initializer.extend(graph.sparse_initializer)
    graph.CopyFrom(made)
    try:
        whole: bytes = model.SerializeToString()
    except ValueError as exc:  # protobuf's limit
        raise ConfigError(f"{path} has more than 2 GB of weights, which no bundle can hold in one file") from exc
    return whole


class _Writer:
    """Nodes around a graph, of operators that are the same in every version that exports are made in."""

    def __init__(self) -> None:
        self.constants: list[TensorProto] = []

    def constant(self, values: object, dtype: type[np.generic], name: str) -> str:
        self.constants.append(numpy_helper.from_array(np.array(values, dtype), f"ours/{name}"))
        return f"ours/{name}"

    def node(self, kind: str, inputs: list[str], output: str, **settings: int | Sequence[int]) -> NodeProto:
        node = helper.make_node(kind, inputs, [output], f"ours/{output.rpartition('/')[2]}")
        node.attribute.extend(helper.make_attribute(name, value) for name, value in settings.items())
        return node

    def unit(self, vectors: str) -> list[NodeProto]:
        return [
            self.node("Cast", [vectors], "ours/float", to=TensorProto.FLOAT),
            self.node("LpNormalization", ["ours/float"], "embedding", axis=-1, p=2),
        ]


def _image_inputs(
    writer: _Writer, checkpoint: Checkpoint, types: dict[str, int], path: Path
) -> tuple[list[NodeProto], list[onnx.ValueInfoProto]]:
    """Pixels as the image processor gives them: (value / 255 - mean) / deviation, channels first."""
    image = checkpoint.image
    if not isinstance(image, ImageTower):
        raise ConfigError(f"{path} encodes images, and {checkpoint.folder} has no image tower")
    mean, std = (np.array(values, np.float64) for values in (image.mean, image.std))
    scale = writer.constant(1 / (255 * std), np.float32, "scale")
    shift = writer.constant(mean / std, np.float32, "shift")
    nodes = [
        writer.node("Cast", ["pixels"], "ours/values", to=TensorProto.FLOAT),
        writer.node("Mul", ["ours/values", scale], "ours/scaled"),
        writer.node("Sub", ["ours/scaled", shift], "ours/normalised"),
        writer.node("Transpose", ["ours/normalised"], "ours/channels", perm=(0, 3, 1, 2)),
        writer.node(
            "Cast", ["ours/channels"], f"{_THEIR}pixel_values", to=types.get("pixel_values", TensorProto.FLOAT)
        ),
    ]
    shape: list[str | int | None] = ["batch", image.size, image.size, 3]
    return nodes, [helper.make_tensor_value_info("pixels", TensorProto.UINT8, shape)]


def _text_inputs(writer: _Writer, types: dict[str, int]) -> tuple[list[NodeProto], list[onnx.ValueInfoProto]]:
    """Token ids and their mask in the types that the graph asks for; all tokens are of type 0."""
    nodes = [
        writer.node("Cast", [name], f"{_THEIR}{name}", to=types[name])
        for name in ("input_ids", "attention_mask")
        if name in types
    ]
    if "token_type_ids" in types:
        nodes.append(writer.node("Cast", ["input_ids"], "ours/ids", to=types["token_type_ids"]))
        nodes.append(writer.node("Sub", ["ours/ids", "ours/ids"], f"{_THEIR}token_type_ids"))
    shape = ["batch", "length"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, shape) for name in ("input_ids", "attention_mask")]
    return nodes, inputs


def _vectors(
    writer: _Writer, checkpoint: Checkpoint, tower: Tower, outputs: set[str], path: Path
) -> tuple[str, list[NodeProto]]:
    """Return which output is the vector, or how one is made of the tokens."""
    pooled = (*_POOLED[tower], *(("pooler_output",) if checkpoint.image else ()))
    for name in pooled:
        if _THEIR + name in outputs:
            return _THEIR + name, []
    tokens = next((_THEIR + name for name in _TOKENS if _THEIR + name in outputs), None)
    pooling = getattr(checkpoint.text, "pooling", None)
    if tokens is None or checkpoint.image or pooling not in ("mean", "cls"):
        found = ", ".join(sorted(name.removeprefix(_THEIR) for name in outputs))
        raise ConfigError(
            f"{path} gives {found}; one of {', '.join(pooled)} can be taken, or tokens with mean or cls pooling"
        )
    if pooling == "cls":
        first = writer.constant(0, np.int64, "first")
        return "ours/pooled", [writer.node("Gather", [tokens, first], "ours/pooled", axis=1)]
    spread, flat = writer.constant([0, 1, -1], np.int64, "spread"), writer.constant([0, -1], np.int64, "flat")
    return "ours/pooled", [
        writer.node("Cast", ["attention_mask"], "ours/mask", to=TensorProto.FLOAT),
        writer.node("LpNormalization", ["ours/mask"], "ours/share", axis=-1, p=1),
        writer.node("Reshape", ["ours/share", spread], "ours/row"),
        writer.node("Cast", [tokens], "ours/tokens", to=TensorProto.FLOAT),
        writer.node("MatMul", ["ours/row", "ours/tokens"], "ours/summed"),
        writer.node("Reshape", ["ours/summed", flat], "ours/pooled"),
    ]
