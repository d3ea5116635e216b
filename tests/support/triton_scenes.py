"""Scenes as a client sends them to Triton, and the encoder that gives the same here."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder

SEED = 23_000_000


def picture(number: int, size: int = 96, form: str = "JPEG") -> bytes:
    out = io.BytesIO()
    make_scene(SEED + number).draw(size).save(out, form)
    return out.getvalue()


@pytest.fixture(scope="module")
def pictures() -> list[bytes]:
    return [picture(i) for i in range(300)]


@pytest.fixture(scope="module")
def captions() -> list[str]:
    return [make_scene(SEED + i).caption() for i in range(300)]


@pytest.fixture(scope="module")
def local() -> Iterator[OnnxEncoder]:
    with OnnxEncoder("demo") as encoder:
        yield encoder
