"""What a transformer is made of, in the dialects that different runtimes run best.

A model (`families`) is written once against `Layers`. `Layers` itself writes plain ai.onnx operators
in float32 or float16; `QdqLayers` puts QuantizeLinear and DequantizeLinear around the Linear layers, as TensorRT
reads INT8; `CpuInt8Layers` writes ONNX Runtime's own fused operators for INT8 on a CPU.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from vlmsearch.building.graph import OnnxGraph
from vlmsearch.models.bundle import UNPADDED

Array = NDArray[np.float32]
Arithmetic = type[np.float32 | np.float16]
Activation = Literal["gelu", "gelu_tanh", "quick_gelu", "silu"]
MAX_TABLE = 10**9
"""Bytes of a table in float32: SigLIP 2 L/16 has 256,000 tokens, which with its layers would not fit one ONNX file."""
_TANH_SLOPE = math.sqrt(2 / math.pi)
_MASKED = -1e4
"""Added to the scores of masked positions: small enough to vanish in softmax, large enough for float16."""


@dataclass(frozen=True)
class Linear:
    """The weights of ``x @ weight + bias``: weight of shape (in, out)."""

    name: str
    weight: Array
    bias: Array | None = None
    quantisable: bool = True


@dataclass(frozen=True)
class Norm:
    """The weights of a layer normalisation."""

    name: str
    weight: Array
    bias: Array
    epsilon: float


@dataclass(frozen=True)
class Mask:
    """Which positions attention may see: int32 (n, keys) of ones and zeros, and the order of the keys if only earlier.

    ``order`` is a float vector 0, 1, 2, ... as long as the keys. ``scores`` is what is added to the scores besides,
    (1, heads or 1, queries, keys).
    """

    padding: str
    order: str | None = None
    scores: str | None = None


@dataclass(frozen=True)
class Rotary:
    """Rotary positions (Su et al., 2021) of queries and keys: cosine and sine of each position's angles, (n, size / 2).

    A head's first half is rotated with its second half. ``length`` is how many positions there are, a vector of one.
    """

    name: str
    cosine: Array
    sine: Array
    length: str


@dataclass(frozen=True)
class Int8Scaling:
    """INT8 for one Linear.

    ``scale`` and ``zero`` map its input to integers; without a scale the range is measured at run time. ``smooth`` is
    what SmoothQuant (Xiao et al., 2022) divides the input by and multiplies the weight's rows by, per input channel.
    """

    scale: float | None = None
    zero: int = 0
    smooth: Array | None = None


class Layers:
    """Writes layers as plain ai.onnx operators, with weights and arithmetic in ``dtype``."""

    def __init__(self, graph: OnnxGraph, dtype: Arithmetic = np.float32) -> None:
        self.graph = graph
        self.dtype = dtype
        self.type = TensorProto.FLOAT if dtype is np.float32 else TensorProto.FLOAT16
        self._biases: dict[Mask, str] = {}
        self.linear_inputs: dict[str, str] = {}
        """The value that each Linear that may be quantised reads, by the Linear's name: what calibration looks at."""
        self.weight_peaks: dict[str, Array] = {}
        """The greatest absolute weight of each input channel of those Linears."""

    def weight(self, array: Array, name: str) -> str:
        """Return a constant in the arithmetic's type."""
        return self.graph.constant(array.astype(self.dtype, copy=False), name)

    def cast(self, x: str, scope: str) -> str:
        """``x`` in the arithmetic's type."""
        return self.graph.op("Cast", x, scope=scope, to=int(self.type))

    def linear(self, x: str, layer: Linear) -> str:
        """``x @ weight + bias``."""
        if layer.quantisable:
            self.linear_inputs[layer.name] = x
            self.weight_peaks[layer.name] = np.maximum(layer.weight.max(axis=1), -layer.weight.min(axis=1))
        y = self.graph.op("MatMul", x, self.weight(layer.weight, f"{layer.name}.weight"), scope=layer.name)
        return self._add_bias(y, layer)

    def _smooth(self, x: str, layer: Linear, how: Int8Scaling) -> tuple[str, Array]:
        """Return the input and the weight of a Linear, smoothed."""
        if how.smooth is None:
            return x, layer.weight
        x = self.graph.op("Mul", x, self.weight(np.float32(1) / how.smooth, f"{layer.name}.smooth"), scope=layer.name)
        return x, layer.weight * how.smooth[:, None]

    def _add_bias(self, y: str, layer: Linear) -> str:
        if layer.bias is None:
            return y
        return self.graph.op("Add", y, self.weight(layer.bias, f"{layer.name}.bias"), scope=layer.name)

    def lookup(self, table: Array, ids: str, name: str = "tokens") -> str:
        """Return the rows of a table, one for each id.

        A very large one is kept in float16, so that a file holds it.
        """
        if table.nbytes > MAX_TABLE:
            return self._half_lookup(table, ids, name)
        return self.graph.op("Gather", self.weight(table, name), ids, scope="embed")

    def _half_lookup(self, table: Array, ids: str, name: str) -> str:
        """Return the rows of a table that is kept in float16, at half the size."""
        rows = self.graph.op("Gather", self.graph.constant(table.astype(np.float16), name), ids, scope="embed")
        return self.cast(rows, "embed")

    def norm(self, x: str, layer: Norm) -> str:
        """Layer normalisation over the last axis."""
        scale, bias = self.weight(layer.weight, f"{layer.name}.weight"), self.weight(layer.bias, f"{layer.name}.bias")
        return self.graph.op("LayerNormalization", x, scale, bias, scope=layer.name, axis=-1, epsilon=layer.epsilon)

    def add_norm(self, x: str, residual: str, layer: Norm) -> tuple[str, str]:
        """Return the sum of ``x`` and ``residual``, and that sum normalised."""
        total = self.graph.op("Add", x, residual, scope=layer.name)
        return total, self.norm(total, layer)

    def activation(self, x: str, kind: Activation, scope: str) -> str:
        """Apply GELU or SiLU.

        GELU is computed by the error function, or approximated by a sigmoid or tanh. See Hendrycks and Gimpel, 2016.
        """
        op = self.graph.op
        if kind == "gelu_tanh":
            slope = op("Mul", op("Mul", x, x, scope=scope), self.scalar(_TANH_SLOPE * 0.044715), scope=scope)
            slope = op("Add", slope, self.scalar(_TANH_SLOPE), scope=scope)
            gate = op("Tanh", op("Mul", x, slope, scope=scope), scope=scope)
            gate = op("Add", gate, self.scalar(1.0), scope=scope)
            return op("Mul", op("Mul", x, gate, scope=scope), self.scalar(0.5), scope=scope)
        if kind == "silu":
            return op("Mul", x, op("Sigmoid", x, scope=scope), scope=scope)
        if kind == "quick_gelu":
            gate = op("Sigmoid", op("Mul", x, self.scalar(1.702), scope=scope), scope=scope)
            return op("Mul", x, gate, scope=scope)
        erf = op("Erf", op("Div", x, self.scalar(math.sqrt(2)), scope=scope), scope=scope)
        gate = op("Add", erf, self.scalar(1.0), scope=scope)
        return op("Mul", op("Mul", x, gate, scope=scope), self.scalar(0.5), scope=scope)

    def rotate(self, x: str, rotary: Rotary, *, heads: int, width: int, scope: str) -> str:
        """Queries or keys, (n, length, width), rotated by their positions."""
        op, ints, half = self.graph.op, self.graph.ints, width // heads // 2
        angles = []
        for name, table in (("cosine", rotary.cosine), ("sine", rotary.sine)):
            whole = self.weight(table[:, None, :], f"{rotary.name}.{name}")
            angles.append(op("Slice", whole, ints(0), rotary.length, ints(0), scope=rotary.name))
        cosine, sine = angles
        split = op("Reshape", x, ints(0, 0, heads, 2 * half), scope=scope)
        first, second = self.split(split, 2, half, scope)
        left = op("Sub", op("Mul", first, cosine, scope=scope), op("Mul", second, sine, scope=scope), scope=scope)
        right = op("Add", op("Mul", second, cosine, scope=scope), op("Mul", first, sine, scope=scope), scope=scope)
        return op("Reshape", op("Concat", left, right, scope=scope, axis=-1), ints(0, 0, width), scope=scope)

    def attention(
        self, query: str, key: str, value: str, *, heads: int, width: int, mask: Mask | None, scope: str
    ) -> str:
        """Softmax attention of (n, queries, width) over (n, keys, width); the query is scaled already."""
        op, size = self.graph.op, width // heads
        shape = self.graph.ints(0, 0, heads, size)
        q, k, v = (op("Reshape", x, shape, scope=scope) for x in (query, key, value))
        q, v = (op("Transpose", x, scope=scope, perm=(0, 2, 1, 3)) for x in (q, v))
        scores = op("MatMul", q, op("Transpose", k, scope=scope, perm=(0, 2, 3, 1)), scope=scope)
        if mask:
            scores = op("Add", scores, self._bias(mask), scope=scope)
        out = op("MatMul", op("Softmax", scores, scope=scope, axis=-1), v, scope=scope)
        out = op("Transpose", out, scope=scope, perm=(0, 2, 1, 3))
        return op("Reshape", out, self.graph.ints(0, 0, width), scope=scope)

    def split(self, x: str, parts: int, width: int, scope: str) -> list[str]:
        """``x`` cut into ``parts`` along the last axis, each ``width`` wide."""
        sizes = self.graph.ints(*[width] * parts)
        return self.graph.op_many("Split", parts, x, sizes, scope=scope, axis=-1)

    def _bias(self, mask: Mask) -> str:
        """Return the bias of the scores, (n, 1, queries or 1, keys).

        It is written once per mask.
        """
        if mask not in self._biases:
            op, ints = self.graph.op, self.graph.ints
            hidden = op("Sub", self.scalar(1.0), self.cast(mask.padding, "mask"), scope="mask")
            bias = op("Unsqueeze", hidden, ints(1, 2), scope="mask")
            if mask.order:
                keys, queries = (op("Unsqueeze", mask.order, ints(axis), scope="mask") for axis in (0, 1))
                later = self.cast(op("Greater", keys, queries, scope="mask"), "mask")
                bias = op("Add", bias, later, scope="mask")
            bias = op("Mul", bias, self.scalar(_MASKED), scope="mask")
            self._biases[mask] = op("Add", bias, mask.scores, scope="mask") if mask.scores else bias
        return self._biases[mask]

    def scalar(self, value: float) -> str:
        """Return a constant of the arithmetic's type."""
        return self.weight(np.array(value, np.float32), f"scalar_{value}")


class _QuantisedLayers(Layers, ABC):
    """Writes the Linears named in ``quantised`` in INT8, each as a subclass says."""

    def __init__(self, graph: OnnxGraph, quantised: Mapping[str, Int8Scaling]) -> None:
        super().__init__(graph)
        self._quantised = quantised

    def linear(self, x: str, layer: Linear) -> str:
        """``x @ weight + bias``, in INT8 where the Linear is quantised."""
        if layer.name not in self._quantised:
            return super().linear(x, layer)
        how = self._quantised[layer.name]
        smoothed, weight = self._smooth(x, layer, how)
        return self.linear_int8(smoothed, weight, layer, how)

    @abstractmethod
    def linear_int8(self, x: str, weight: Array, layer: Linear, how: Int8Scaling) -> str:
        """Write one of the Linears that are quantised."""


class QdqLayers(_QuantisedLayers):
    """Puts explicit, symmetric INT8 quantisation around the Linears named in ``quantised``.

    Weights are quantised per output channel, inputs per tensor; everything else stays as it is. This is what TensorRT
    calls explicit quantisation: QuantizeLinear and DequantizeLinear with zero points of 0.
    """

    def linear_int8(self, x: str, weight: Array, layer: Linear, how: Int8Scaling) -> str:
        """``x @ weight + bias`` with both factors through INT8."""
        op, constant, name = self.graph.op, self.graph.constant, layer.name
        scale = constant(np.array(how.scale, np.float32), f"{name}.input_scale")
        zero = constant(np.array(0, np.int8), "zero_point")
        x = op("DequantizeLinear", op("QuantizeLinear", x, scale, zero, scope=name), scale, zero, scope=name)
        integers, scales = quantise_weight(weight, 127)
        w = op(
            "DequantizeLinear",
            constant(integers, f"{name}.weight_int8"),
            constant(scales, f"{name}.weight_scale"),
            constant(np.zeros(len(scales), np.int8), f"zero_points_{len(scales)}"),
            scope=name,
            axis=1,
        )
        return self._add_bias(op("MatMul", x, w, scope=name), layer)


class CpuInt8Layers(_QuantisedLayers):
    """Writes ONNX Runtime's fused operators for a CPU: INT8 Linears, one-pass attention and activation.

    The Linears in ``quantised`` are in INT8, with weights symmetric per output channel. Weights use 7 of the 8 bits, so
    that all processors give the same result. x86 processors without VNNI add pairs of products in 16 bits, and with 7
    bits no such sum overflows. The table of tokens is kept in float16, at half the size.
    """

    def __init__(self, graph: OnnxGraph, quantised: Mapping[str, Int8Scaling]) -> None:
        super().__init__(graph, quantised)
        self._whole: dict[str, str] = {}

    def linear_int8(self, x: str, weight: Array, layer: Linear, how: Int8Scaling) -> str:
        """``x @ weight + bias`` in INT8 with INT32 sums, in and out float32."""
        op, constant, name = self.graph.op, self.graph.constant, layer.name
        integers, scales = quantise_weight(weight, 63)
        w, s = constant(integers, f"{name}.weight_int8"), constant(scales, f"{name}.weight_scale")
        zero = constant(np.zeros(len(scales), np.int8), f"zero_points_{len(scales)}")
        bias = "" if layer.bias is None else self.weight(layer.bias, f"{name}.bias")
        if how.scale is None:
            return op("DynamicQuantizeMatMul", x, w, s, zero, bias, scope=name)
        a_scale = constant(np.array(how.scale, np.float32), f"{name}.input_scale")
        a_zero = constant(np.array(how.zero, np.uint8), f"{name}.input_zero_point")
        quantised = op("QuantizeLinear", x, a_scale, a_zero, scope=name)
        return op("MatMulIntegerToFloat", quantised, w, a_scale, s, a_zero, zero, bias, scope=name)

    def lookup(self, table: Array, ids: str, name: str = "tokens") -> str:
        """Return the rows of a table, one for each id."""
        return self._half_lookup(table, ids, name)

    def add_norm(self, x: str, residual: str, layer: Norm) -> tuple[str, str]:
        """Return the sum of ``x`` and ``residual``, and that sum normalised.

        ONNX Runtime fuses Add with the normalisation into an operator that is several times slower than the two; it
        leaves Sum, which computes the same, alone.
        """
        total = self.graph.op("Sum", x, residual, scope=layer.name)
        return total, self.norm(total, layer)

    def activation(self, x: str, kind: Activation, scope: str) -> str:
        """GELU, one of its approximations or SiLU, in one pass."""
        if kind == "gelu_tanh":
            return self.graph.op("FastGelu", x, scope=scope)
        if kind in ("quick_gelu", "silu"):
            return self.graph.op("QuickGelu", x, scope=scope, alpha=1.702 if kind == "quick_gelu" else 1.0)
        return self.graph.op("Gelu", x, scope=scope)

    def rotate(self, x: str, rotary: Rotary, *, heads: int, width: int, scope: str) -> str:
        """Queries or keys rotated in one operator."""
        constant = self.graph.constant
        first = constant(np.zeros(1, np.int64), "first_position")
        cosine, sine = (
            self.weight(table, f"{rotary.name}.{name}")
            for name, table in (("cosine", rotary.cosine), ("sine", rotary.sine))
        )
        return self.graph.op("RotaryEmbedding", x, first, cosine, sine, scope=scope)

    def attention(
        self, query: str, key: str, value: str, *, heads: int, width: int, mask: Mask | None, scope: str
    ) -> str:
        """Softmax attention in one operator.

        From `UNPADDED` tokens on, texts that are not padded go without a mask: only that way does ONNX Runtime take its
        blockwise kernel, which keeps the scores in the cache (FlashAttention, Dao et al., 2022).
        """
        if mask is None or mask.order is not None or mask.scores is not None:
            return self._fused_attention(query, key, value, mask, heads, scope)
        return self.graph.choice(
            self._is_whole(mask.padding),
            lambda: self._fused_attention(query, key, value, None, heads, f"{scope}/whole"),
            lambda: self._fused_attention(query, key, value, mask, heads, f"{scope}/padded"),
            scope=scope,
        )

    def _fused_attention(self, query: str, key: str, value: str, mask: Mask | None, heads: int, scope: str) -> str:
        padding, causal, scores = (mask.padding, int(mask.order is not None), mask.scores) if mask else ("", 0, None)
        return self.graph.op(
            "MultiHeadAttention", query, key, value, "", padding, scores or "",
            scope=scope, num_heads=heads, scale=1.0, unidirectional=causal,
        )  # fmt: skip

    def _is_whole(self, padding: str) -> str:
        """Return whether texts are long and none is padded; written once per mask."""
        if padding not in self._whole:
            op, ints = self.graph.op, self.graph.ints
            minimum = op("ReduceMin", padding, scope="mask", keepdims=0)
            length = op("Gather", op("Shape", padding, scope="mask"), ints(1), scope="mask")
            is_long = op("GreaterOrEqual", length, ints(UNPADDED), scope="mask")
            whole = op("Cast", minimum, scope="mask", to=int(TensorProto.BOOL))
            self._whole[padding] = op("And", whole, is_long, scope="mask")
        return self._whole[padding]


def quantise_weight(weight: Array, largest: int) -> tuple[NDArray[np.int8], Array]:
    """Return symmetric INT8 integers, (in, out), up to ``largest``, and one scale per output channel."""
    scales = np.maximum(np.abs(weight).max(axis=0), 1e-12).astype(np.float32) / np.float32(largest)
    return np.clip(np.rint(weight / scales), -largest, largest).astype(np.int8), scales
