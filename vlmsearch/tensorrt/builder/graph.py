"""ONNX files of a bundle in the form that TensorRT gets.

INT8 is put around chosen Linears, with what the bundle's ``qdq`` file says of them. For TensorRT before strong typing
(8.6) the graph is spelled out as its compiler fuses best, which changes no result: three projections where one gives
query, key and value; normalisation in single steps, of values an eighth as large so that float16 cannot overflow;
patches in five dimensions, not six.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from vlmsearch.errors import ConfigError

_OPSET_OF_HALF_SCALES = 19
"""From here on, QuantizeLinear takes float16."""
_SCALE, _INTEGERS, _SCALES, _SMOOTH = ".input_scale", ".weight_int8", ".weight_scale", ".smooth"
_SMALLER = 0.125
Values = NDArray[Any]


@dataclass(frozen=True)
class Int8:
    """One Linear in INT8: its input's scale, its integers (in, out), one scale per output, and SmoothQuant's factor.

    The factor is what the input is multiplied by, per channel; the integers are those of the smoothed weight.
    """

    scale: float
    integers: Values
    scales: Values
    smooth: Values | None


def read_int8(qdq: bytes) -> dict[str, Int8]:
    """Return how every Linear of a ``qdq`` file is quantised, by the Linear's name."""
    values = {value.name: numpy_helper.to_array(value) for value in read_model(qdq).graph.initializer}
    return {
        name: Int8(
            float(values[f"{name}{_SCALE}"].ravel()[0]),
            values[f"{name}{_INTEGERS}"],
            values[f"{name}{_SCALES}"],
            values.get(f"{name}{_SMOOTH}"),
        )
        for name in (key.removesuffix(_SCALE) for key in values if key.endswith(_SCALE))
    }


def read_model(data: bytes) -> onnx.ModelProto:
    """Return a model that is all in one file.

    ConfigError for one that would read others from the current folder.
    """
    proto = onnx.load_from_string(data)
    if any(value.data_location == onnx.TensorProto.EXTERNAL for value in proto.graph.initializer):
        raise ConfigError("the model reads its weights from other files, which no bundle does: build it again")
    return proto


def engine_graph(model: bytes, int8: Mapping[str, Int8], names: Collection[str], *, spelled_out: bool) -> bytes:
    """Return what an engine is built from: a float32 or float16 file of a tower, with the Linears of ``names`` in INT8.

    ``spelled_out`` says that it is for TensorRT before strong typing. In a float16 graph the scales are float16 too,
    as strongly typed networks need. ConfigError where the file is of an older bundle.
    """
    writing = _Writing(read_model(model), int8, names)
    missing = set(names) - writing.linears
    if missing:
        raise ConfigError(f"these Linears are not in the graph: {', '.join(sorted(missing))}; build the bundle again")
    proto = writing.run(spelled_out=spelled_out)
    onnx.checker.check_model(proto)
    data: bytes = proto.SerializeToString()
    return data


class _Writing:
    """A graph being written again, node by node."""

    def __init__(self, proto: onnx.ModelProto, int8: Mapping[str, Int8], names: Collection[str]) -> None:
        self._proto = proto
        self._int8 = int8
        self._names = names
        self._old = list(proto.graph.node)
        self._users: dict[str, list[onnx.NodeProto]] = {}
        for node in self._old:
            for name in node.input:
                self._users.setdefault(name, []).append(node)
        self.constants = {value.name: numpy_helper.to_array(value) for value in proto.graph.initializer}
        self.nodes: list[onnx.NodeProto] = []
        self.linears = {name for node in self._old if (name := self._linear(node))}
        self._kind = self.constants[f"{min(self.linears)}.weight"].dtype

    def run(self, *, spelled_out: bool) -> onnx.ModelProto:
        """Return the finished graph."""
        skipped: set[str] = set()
        for node in self._old:
            if node.name in skipped:
                continue
            name = self._linear(node)
            fused = self._fused(node) if name and spelled_out else None
            if fused:
                skipped.update(self._projections(node, name, *fused))
            elif name:
                self._matmul(name, node.input[0], self.constants[node.input[1]], node.output[0], self._int8.get(name))
            elif spelled_out and node.op_type == "LayerNormalization":
                self._norm(node)
            elif spelled_out and node.op_type == "Pad":
                self._pad(node)
            elif spelled_out and node.op_type == "ReduceL2":
                self._length(node)
            else:
                self.nodes.append(self._flat(node) if spelled_out else node)
        return self._finish()

    def _linear(self, node: onnx.NodeProto) -> str:
        """Return the name of the Linear whose product a node is; nothing for other nodes."""
        is_product = node.op_type == "MatMul" and node.input[1] in self.constants and node.input[1].endswith(".weight")
        return node.input[1].removesuffix(".weight") if is_product else ""

    def _fused(self, node: onnx.NodeProto) -> tuple[onnx.NodeProto | None, onnx.NodeProto] | None:
        """Return the Add and the Split after a projection that gives several values at once.

        The Add is None if there is no bias.
        """
        users = self._users.get(node.output[0], [])
        add = users[0] if len(users) == 1 and users[0].op_type == "Add" else None
        splits = self._users.get(add.output[0], []) if add else users
        return (add, splits[0]) if len(splits) == 1 and splits[0].op_type == "Split" else None

    def _projections(
        self, node: onnx.NodeProto, name: str, add: onnx.NodeProto | None, split: onnx.NodeProto
    ) -> set[str]:
        """Return one projection for each part of a Split."""
        parts = len(split.output)
        weights = np.split(self.constants[node.input[1]], parts, axis=1)
        biases = np.split(self.constants[add.input[1]], parts) if add else []
        how = self._int8.get(name) if name in self._names else None
        for i in range(parts):
            part = None
            if how:
                integers, scales = (np.split(value, parts, axis=-1)[i] for value in (how.integers, how.scales))
                part = Int8(how.scale, integers, scales, how.smooth)
            product = f"{name}/{i}/product" if add else split.output[i]
            self._matmul(f"{name}/{i}", node.input[0], weights[i], product, part, chosen=part is not None)
            if add:
                bias = self.constant(f"{name}/{i}.bias", biases[i])
                self.op("Add", [product, bias], split.output[i], f"{name}/{i}/Add")
        return {*([add.name] if add else []), split.name}

    def _matmul(
        self, name: str, x: str, weight: Values, output: str, how: Int8 | None, *, chosen: bool | None = None
    ) -> None:
        """Add a product, through INT8 where the Linear is one of the chosen."""
        if how is None or not (name in self._names if chosen is None else chosen):
            self.op("MatMul", [x, self.constant(f"{name}.weight", weight)], output, f"{name}/MatMul")
            return
        constant = self.constant
        if how.smooth is not None:
            x = self.op("Mul", [x, constant(f"{name}{_SMOOTH}", how.smooth.astype(self._kind))], "", f"{name}/smooth")
        scale = constant(f"{name}{_SCALE}", np.array(how.scale, self._kind))
        zero = constant("zero_point", np.array(0, np.int8))
        scales = constant(f"{name}{_SCALES}", how.scales.astype(self._kind))
        zeros = constant(f"zero_points_{len(how.scales)}", np.zeros(len(how.scales), np.int8))
        x = self.op("QuantizeLinear", [x, scale, zero], "", f"{name}/quantise")
        x = self.op("DequantizeLinear", [x, scale, zero], "", f"{name}/dequantise")
        # In floating point, and quantised in the graph: TensorRT 8.6 takes no constants of INT8.
        weights = constant(f"{name}.weight_float", (how.integers * how.scales).astype(self._kind))
        weights = self.op("QuantizeLinear", [weights, scales, zeros], "", f"{name}/weights_quantised", axis=1)
        weights = self.op("DequantizeLinear", [weights, scales, zeros], "", f"{name}/weights", axis=1)
        self.op("MatMul", [x, weights], output, f"{name}/MatMul")

    def _norm(self, node: onnx.NodeProto) -> None:
        """Layer normalisation step by step, of a smaller value: it does not depend on the size."""
        x, scale, bias = node.input
        name = node.name
        epsilon = next(a.f for a in node.attribute if a.name == "epsilon")
        constant = self.constant
        x = self.op("Mul", [x, constant("smaller", np.array(_SMALLER, self._kind))], "", f"{name}/smaller")
        centred = self.op("Sub", [x, self._mean(x, f"{name}/mean")], "", f"{name}/centred")
        square = self.op("Mul", [centred, centred], "", f"{name}/square")
        minimum = constant(f"epsilon_{epsilon:g}", np.array(epsilon * _SMALLER**2, self._kind))
        spread = self.op("Add", [self._mean(square, f"{name}/variance"), minimum], "", f"{name}/spread")
        unit = self.op("Div", [centred, self.op("Sqrt", [spread], "", f"{name}/deviation")], "", f"{name}/unit")
        scaled = self.op("Mul", [unit, scale], "", f"{name}/scaled")
        self.op("Add", [scaled, bias], node.output[0], f"{name}/shifted")

    def _mean(self, x: str, name: str) -> str:
        return self.op("ReduceMean", [x], "", name, axes=[-1], keepdims=1)

    def _pad(self, node: onnx.NodeProto) -> None:
        """Add a row of zeros in front: part of one kernel, which padding is not."""
        name = node.name
        first, second, axis = (self.constant(f"int_{i}", np.array([i], np.int64)) for i in (0, 1, 1))
        row = self.op("Slice", [node.input[0], first, second, axis], "", f"{name}/row")
        zeros = self.op("Mul", [row, self.constant("nothing", np.array(0, self._kind))], "", f"{name}/zeros")
        self.op("Concat", [zeros, node.input[0]], node.output[0], f"{name}/Concat", axis=1)

    def _length(self, node: onnx.NodeProto) -> None:
        """Add the length of rows, with a name for every step: `tensorrt_network` keeps them in float32."""
        square = self.op("Mul", [node.input[0], node.input[0]], "", f"{node.name}/square")
        axes = self.constant("last_axis", np.array([-1], np.int64))
        total = self.op("ReduceSum", [square, axes], "", f"{node.name}/total", keepdims=1)
        self.op("Sqrt", [total], node.output[0], f"{node.name}/root")

    def _flat(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """Patches in one dimension less: colours stay beside their row of pixels."""
        if node.op_type == "Reshape" and node.input[1] in self.constants:
            shape = self.constants[node.input[1]]
            if len(shape) == 6:
                merged = np.array([*shape[:4], shape[4] * shape[5]], np.int64)
                inputs = [node.input[0], self.constant(f"{node.name}/shape", merged)]
                return helper.make_node("Reshape", inputs, list(node.output), name=node.name)
        if node.op_type == "Transpose" and list(node.attribute[0].ints) == [0, 1, 3, 2, 4, 5]:
            return helper.make_node(
                "Transpose", list(node.input), list(node.output), name=node.name, perm=[0, 1, 3, 2, 4]
            )
        return node

    def op(self, kind: str, inputs: list[str], output: str, name: str, **attributes: int | list[int]) -> str:
        """Add a node; its output is called like it, unless given."""
        node = helper.make_node(kind, inputs, [output or name], name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return output or name

    def constant(self, name: str, value: Values) -> str:
        """Return a constant; the same name twice is the same constant."""
        self.constants[name] = value
        return name

    def _finish(self) -> onnx.ModelProto:
        graph = self._proto.graph
        if self._names and self._kind == np.float16:
            for entry in self._proto.opset_import:
                if entry.domain == "":
                    entry.version = max(entry.version, _OPSET_OF_HALF_SCALES)
            self.nodes = [self._newer(node) for node in self.nodes]
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in self.nodes]
        del graph.node[:], graph.initializer[:]
        graph.node.extend(nodes)
        graph.initializer.extend(self._used(nodes))
        return self._proto

    def _newer(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """Return a node as opset 18 and later write it: axes are an input, where they were an attribute."""
        axes = next((a for a in node.attribute if a.name == "axes"), None)
        if axes is None:
            return node
        node.input.append(self.constant(f"{node.name}/axes", np.array(axes.ints, np.int64)))
        node.attribute.remove(axes)
        return node

    def _used(self, nodes: list[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
        used = {name for node in nodes for name in node.input}
        for name, value in self.constants.items():
            if name in used:
                yield numpy_helper.from_array(np.require(value, requirements="C"), name)
