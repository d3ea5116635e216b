"""Scenes that clients send, and the encoder that gives their vectors in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.triton_scenes import SEED, picture
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder


@pytest.fixture(scope="session")
def pictures() -> list[bytes]:
    return [picture(i) for i in range(300)]


@pytest.fixture(scope="session")
def captions() -> list[str]:
    return [make_scene(SEED + i).caption() for i in range(300)]


@pytest.fixture(scope="session")
def local() -> Iterator[OnnxEncoder]:
    with OnnxEncoder("demo") as encoder:
        yield encoder
