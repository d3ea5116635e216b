"""A small writer of ONNX graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from vlmsearch.errors import BackendError
from vlmsearch.models.mapped import ALIGNMENT

OPSET = 17
"""LayerNormalization came with 17, and TensorRT 8.6 reads nothing newer."""
IR_VERSION = 8
_MICROSOFT = "com.microsoft"

Attribute = int | float | str | Sequence[int] | onnx.GraphProto


class OnnxGraph:
    """Collects nodes, and writes constants at once; `finish` writes the rest of the ONNX model, checked.

    Values are named by strings, as in ONNX itself. Nodes are named after the scope they belong to, so that a layer
    can be found again in a profile or an engine.

    Args:
        name: The name of the graph.
        file: An empty file that can be written and sought in; None to have the model in memory, for `to_bytes`. No
            constant stays in memory once it is written.
    """

    def __init__(self, name: str, file: BinaryIO | None = None) -> None:
        self._name = name
        self._file = BytesIO() if file is None else file
        self._file.write(_GRAPH + _length(0))
        self._nodes: list[onnx.NodeProto] = []
        self._constants: set[str] = set()
        self._small: list[onnx.TensorProto] = []
        self._large: list[onnx.ValueInfoProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._uses_contrib = False

    def input(self, name: str, dtype: int, shape: Sequence[int | str]) -> str:
        """Declare an input; dimensions given by name are dynamic."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, value: str, name: str, dtype: int, shape: Sequence[int | str]) -> None:
        """Declare ``value`` an output under ``name``."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"{name}/identity"))
        self._outputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))

    def constant(self, array: NDArray[np.generic], name: str) -> str:
        """Return a constant; the same name twice is the same constant."""
        if name not in self._constants:
            self._constants.add(name)
            self._write(array, name)
        return name

    def _write(self, array: NDArray[np.generic], name: str) -> None:
        """Write a constant; a large one begins at a multiple of `ALIGNMENT`, for `vlmsearch.models.mapped`."""
        array = np.ascontiguousarray(array).reshape(array.shape)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        head = onnx.TensorProto(name=name, data_type=kind, dims=array.shape).SerializeToString()
        if array.size > _SMALL:
            self._large.append(helper.make_tensor_value_info(name, kind, array.shape))
            before = self._file.tell() + 2 * _LENGTH_BYTES + 2 + len(head)
            filler = (-before - 2) % ALIGNMENT
            head += _COMMENT + bytes([filler]) + b" " * filler
        else:
            self._small.append(numpy_helper.from_array(array, name))
        head += _RAW + _length(array.nbytes)
        self._file.write(_INITIALIZER + _length(len(head) + array.nbytes) + head)
        self._file.write(array.reshape(-1).view(np.uint8).data)

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
        self._uses_contrib |= bool(domain)
        node = helper.make_node(kind, list(inputs), names, name=name, domain=domain)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._nodes.append(node)
        return names

    def choice(self, condition: str, then: Callable[[], str], other: Callable[[], str], *, scope: str) -> str:
        """Add a node that runs one of two branches, and return its float output's name.

        ``condition`` is a bool of one element. What ``then`` and ``other`` add and return is the branch; it may read
        all that was added before.
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

    def finish(self) -> None:
        """Write what is left. BackendError where the model is beyond the 2 GB that such a file can have."""
        opsets = [helper.make_opsetid("", OPSET)]
        if self._uses_contrib:
            opsets.append(helper.make_opsetid(_MICROSOFT, 1))
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs)
        head = helper.make_model(
            onnx.GraphProto(), opset_imports=opsets, ir_version=IR_VERSION, producer_name="vlmsearch"
        )
        self._check(head, graph)
        head.ClearField("graph")
        file = self._file
        file.write(graph.SerializeToString())
        size = file.tell()
        file.write(head.SerializeToString())
        if file.tell() > _MAX_BYTES:
            raise BackendError(f"the {self._name} tower has {size:,} bytes; one ONNX file holds {_MAX_BYTES:,}")
        file.seek(len(_GRAPH))
        file.write(_length(size - len(_GRAPH) - _LENGTH_BYTES))
        file.seek(0, 2)

    def to_bytes(self) -> bytes:
        """Return the finished model that was written in memory."""
        self.finish()
        if not isinstance(self._file, BytesIO):
            raise TypeError("the model is in a file")
        return self._file.getvalue()

    def _check(self, head: onnx.ModelProto, graph: onnx.GraphProto) -> None:
        """Have ONNX check the graph; large constants stand among the inputs, to spare copying them."""
        model = onnx.ModelProto()
        model.CopyFrom(head)
        model.graph.CopyFrom(graph)
        model.graph.input.extend(self._large)
        model.graph.initializer.extend(self._small)
        onnx.checker.check_model(model)


def _length(value: int) -> bytes:
    """Return a length as protocol buffers write it, always in as many bytes: it may be known only later."""
    groups = [value >> 7 * place & 0x7F | 0x80 for place in range(_LENGTH_BYTES)]
    return bytes([*groups[:-1], groups[-1] & 0x7F])


_LENGTH_BYTES = 5
# The tags of protocol buffers: field number and "length-delimited".
_GRAPH = bytes([7 << 3 | 2])
"""Of ModelProto.graph."""
_INITIALIZER = bytes([5 << 3 | 2])
"""Of GraphProto.initializer."""
_RAW, _COMMENT = bytes([9 << 3 | 2]), bytes([12 << 3 | 2])
"""Of TensorProto.raw_data and doc_string."""
_MAX_BYTES = 2**31 - 1
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
