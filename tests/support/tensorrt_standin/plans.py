"""Pretend plans made by hand, for tests of what runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType, SimpleNamespace

from tests.support.tensorrt_standin.gpu import STATE
from tests.support.tensorrt_standin.runtime import PlanParts

Ranges = Mapping[str, Sequence[tuple[int, ...]]]
"""Per input the least, best and greatest shape."""


def make_plan(
    tensorrt: ModuleType | SimpleNamespace, model: bytes, profiles: Sequence[Ranges], *, shared: bool = True
) -> bytes:
    """A plan of an ONNX model with these optimization profiles."""
    header = {
        "tensorrt": tensorrt.__version__,
        "architecture": list(STATE.capability),
        "profiles": profiles,
        "shared": shared,
        "layers": [],
        "noise": 0.0,
    }
    return PlanParts(header, model).pack()


def image_ranges(size: int, least: int, best: int, most: int) -> Ranges:
    """The ranges of an image tower's input."""
    return {"pixels": [(rows, size, size, 3) for rows in (least, best, most)]}


def text_ranges(rows: tuple[int, int, int], lengths: tuple[int, int, int]) -> Ranges:
    """The ranges of a text tower's inputs."""
    return {name: list(zip(rows, lengths)) for name in ("input_ids", "attention_mask")}
