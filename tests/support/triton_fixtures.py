"""Triton servers of each kind, started when a test first asks for one and shared by the whole session.

What a server needs is imported with it, so that other tests start without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.once import once

if TYPE_CHECKING:
    from tests.support.triton_server import Running
    from vlmsearch.triton.server.commands import Binary

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""For torch in other processes: with models this small, more threads only wait for each other."""


@pytest.fixture(scope="session")
def binary() -> Binary:
    """The server's program, installed as `vlmsearch triton install` does it."""
    from tests.support.triton_server import install_once

    return install_once()


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo models on ONNX Runtime in the Python backend."""
    return _write_demo(tmp_path_factory.mktemp("triton"))


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Running:
    """The server of `demo_server` for the whole session."""
    return once(demo_server, tmp_path_factory)


@contextmanager
def demo_server(folder: Path) -> Iterator[Running]:
    """A server of the demo models, started in a folder with another library of the same name."""
    from tests.support.triton_server import install_once, started

    repository = _write_demo(folder)
    (folder / "vlmsearch.py").write_text("raise ImportError('this is not the installed library')\n")
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            running = stack.enter_context(started(install_once(), repository))
        yield running


def _write_demo(folder: Path) -> Path:
    from vlmsearch.triton.repository.options import RepoOptions
    from vlmsearch.triton.repository.writer import write_repository

    repository = folder / "repository"
    write_repository("demo", repository, RepoOptions())
    return repository


@pytest.fixture(scope="session")
def llm_binary(binary: Binary) -> Binary:
    """The server's program, with torch and transformers for its Python models."""
    from tests.support.llm_servers import share_packages

    share_packages(binary)
    return replace(binary, environment={**binary.environment, **ONE_THREAD})
