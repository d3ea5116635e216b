"""A small writer of ONNX graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from vlmsearch.errors import BackendError

OPSET = 17
"""LayerNormalization came with 17, and TensorRT 8.6 reads nothing newer."""
IR_VERSION = 8
_MICROSOFT = "com.microsoft"

Attribute = int | float | str | Sequence[int] | onnx.GraphProto


class OnnxGraph:
    """Collects nodes and constants; `to_bytes` gives the finished, checked ONNX model.

    Values are named by strings, as in ONNX itself. Nodes are named after the scope they belong to, so that a layer
    can be found again in a profile or an engine.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, NDArray[np.generic]] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._used: set[str] = set()
        self._uses_contrib = False

    def input(self, name: str, dtype: int, shape: Sequence[int | str]) -> str:
        """Declare an input; dimensions given by name are dynamic."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, value: str, name: str, dtype: int, shape: Sequence[int | str]) -> None:
        """Declare ``value`` an output under ``name``."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"{name}/identity"))
        self._outputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))

    def probe(self, value: str) -> None:
        """Make an inner float value of three dimensions an output under its own name, for calibration."""
        self._outputs.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, [None] * 3))

    def constant(self, array: NDArray[np.generic], name: str) -> str:
        """Return a constant; the same name twice is the same constant."""
        self._constants.setdefault(name, array)
        return name

    def ints(self, *values: int) -> str:
        """Return a constant vector of int64, for shapes and axes."""
        return self.constant(np.array(values, np.int64), "ints_" + "_".join(map(str, values)).replace("-", "m"))

    def op(self, kind: str, *inputs: str, scope: str, **attributes: Attribute) -> str:
        """Add a node with one output and return the output's name. ``""`` stands for an absent input."""
        return self.op_many(kind, 1, *inputs, scope=scope, **attributes)[0]

    def op_many(self, kind: str, outputs: int, *inputs: str, scope: str, **attributes: Attribute) -> list[str]:
        """Add a node with several outputs and return their names."""
        name = f"{scope}/{kind}_{len(self._nodes)}"
        names = [f"{name}:{i}" if outputs > 1 else name for i in range(outputs)]
        domain = _MICROSOFT if kind in _CONTRIB else ""
        self._used.update(inputs)
        self._uses_contrib |= bool(domain)
        node = helper.make_node(kind, list(inputs), names, name=name, domain=domain)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._nodes.append(node)
        return names

    def choice(self, condition: str, then: Callable[[], str], other: Callable[[], str], *, scope: str) -> str:
        """Add a node that runs one of two branches, as a bool of one element says, and return its float output's name.

        What ``then`` and ``other`` add and return is the branch; it may read all that was added before.
        """
        branches = {
            "then_branch": self._branch(then, f"{scope}/then"),
            "else_branch": self._branch(other, f"{scope}/else"),
        }
        return self.op("If", condition, scope=scope, **branches)

    def _branch(self, add: Callable[[], str], name: str) -> onnx.GraphProto:
        outer, self._nodes = self._nodes, []
        try:
            output = helper.make_tensor_value_info(add(), TensorProto.FLOAT, None)
            return helper.make_graph(self._nodes, name, [], [output])
        finally:
            self._nodes = outer

    def to_bytes(self) -> bytes:
        """Return the finished model as its file. BackendError where it is beyond the 2 GB that such a file can have.

        Constants are written one after the other, so that no second copy of all of them is ever in memory.
        """
        constants = {name: array for name, array in self._constants.items() if name in self._used}
        opsets = [helper.make_opsetid("", OPSET)]
        if self._uses_contrib:
            opsets.append(helper.make_opsetid(_MICROSOFT, 1))
        settings = {"opset_imports": opsets, "ir_version": IR_VERSION, "producer_name": "vlmsearch"}
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs)
        _check(graph, constants, settings)
        body = BytesIO()
        body.write(graph.SerializeToString())
        for name, array in constants.items():
            tensor = numpy_helper.from_array(np.ascontiguousarray(array), name).SerializeToString()
            body.write(_INITIALIZER + _varint(len(tensor)))
            body.write(tensor)
        head = helper.make_model(onnx.GraphProto(), **settings)
        head.ClearField("graph")
        data = b"".join((head.SerializeToString(), _GRAPH, _varint(body.tell()), body.getbuffer()))
        if len(data) > _MOST_BYTES:
            raise BackendError(f"the {self._name} tower has {len(data):,} bytes; one ONNX file holds {_MOST_BYTES:,}")
        return data


def _check(graph: onnx.GraphProto, constants: Mapping[str, NDArray[np.generic]], settings: Mapping[str, Any]) -> None:
    """Have ONNX check a graph; large constants stand among the inputs, to spare copying them."""
    model = helper.make_model(graph, **settings)
    for name, array in constants.items():
        if array.size > _SMALL:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            model.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
        else:
            model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
    onnx.checker.check_model(model)


def _varint(value: int) -> bytes:
    """Return a whole number as protocol buffers write it."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


# The tags of protocol buffers for ModelProto.graph and GraphProto.initializer: field number and "length-delimited".
_GRAPH = bytes([7 << 3 | 2])
_INITIALIZER = bytes([5 << 3 | 2])
_MOST_BYTES = 2**31 - 1
_SMALL = 4096
_CONTRIB = frozenset(
    {
        "DynamicQuantizeMatMul",
        "FastGelu",
        "Gelu",
        "MatMulIntegerToFloat",
        "MultiHeadAttention",
        "QuickGelu",
        "RotaryEmbedding",
    }
)
"""The operators of ONNX Runtime's own domain that `layers.CpuInt8Layers` uses."""
