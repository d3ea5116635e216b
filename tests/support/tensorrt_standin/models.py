"""Two towers as small as they can be, in the form of a bundle's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

SIZE, DIM, WORDS = 6, 8, 50
_rng = np.random.default_rng(5)


def image_tower() -> bytes:
    """``pixels`` uint8 (n, 6, 6, 3) to ``embedding`` float32 (n, 8), unit rows."""
    nodes = [
        helper.make_node("Cast", ["pixels"], ["values"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["values"], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "weight"], ["hidden"], name="projection"),
        helper.make_node("LpNormalization", ["hidden"], ["embedding"], axis=1, p=2),
    ]
    weight = _rng.standard_normal((SIZE * SIZE * 3, DIM)).astype(np.float32)
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", SIZE, SIZE, 3])
    return _model(nodes, [pixels], {"weight": weight})


def text_tower() -> bytes:
    """``input_ids`` and ``attention_mask`` int32 (n, length) to ``embedding``: the mean of the words that are seen."""
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["read"]),
        helper.make_node("Cast", ["attention_mask"], ["seen"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["seen", "last"], ["column"]),
        helper.make_node("Mul", ["read", "column"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "middle"], ["sum"], keepdims=0),
        helper.make_node("LpNormalization", ["sum"], ["embedding"], axis=1, p=2),
    ]
    values: dict[str, NDArray[Any]] = {
        "words": _rng.standard_normal((WORDS, DIM)).astype(np.float32),
        "last": np.array([2], np.int64),
        "middle": np.array([1], np.int64),
    }
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ["n", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    return _model(nodes, inputs, values)


def _model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], values: dict[str, NDArray[Any]]) -> bytes:
    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", DIM])
    initializers = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "tower", inputs, [output], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data
