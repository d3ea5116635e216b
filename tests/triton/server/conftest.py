"""Scenes that clients send, and the encoder that gives their vectors in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.triton_scenes import SEED, picture
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder

if TYPE_CHECKING:
    from tests.support.triton_server import Running
    from vlmsearch.triton.server.commands import Binary


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


@pytest.fixture(scope="session")
def prompted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence encoder with prompts, as a bundle."""
    from tests.support.prompted import prompted_minilm

    return prompted_minilm(tmp_path_factory.mktemp("models") / "prompted")


@pytest.fixture(scope="session")
def texts_server(binary: Binary, prompted: Path) -> Iterator[Running]:
    """The server of an encoder with prompts, a re-ranker, and models with the tensors of TensorRT-LLM's."""
    from tests.support.sighted_models import write_sighted
    from tests.support.token_models import write_token_models
    from tests.support.triton_server import started
    from vlmsearch.triton.repository.options import RepoOptions
    from vlmsearch.triton.repository.writer import write_repository

    repository = prompted.parent / "repository"
    write_repository(str(prompted), repository, RepoOptions(reranker="demo-reranker", max_text_bytes=4096))
    write_sighted(repository)
    write_token_models(repository)
    with started(binary, repository) as running:
        yield running
