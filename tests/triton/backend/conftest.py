"""Language models on Triton servers, started when a test first asks for one and shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.triton_server import Running
    from vlmsearch.triton.server.commands import Binary


@pytest.fixture(scope="session")
def llm(llm_binary: Binary, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A language model as a decoupled ensemble."""
    from tests.support.llm_servers import write_llm_repository
    from tests.support.triton_server import started

    with started(llm_binary, write_llm_repository(tmp_path_factory.mktemp("llm"))) as running:
        yield running


@pytest.fixture(scope="session")
def unary(llm_binary: Binary, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The same without streaming, and a model with llmapi's tensors, as `llm serve` starts it."""
    from tests.support.llm_servers import write_unary_repository
    from tests.support.triton_server import started

    folder = write_unary_repository(tmp_path_factory.mktemp("unary"))
    with started(llm_binary, folder, "--disable-auto-complete-config") as running:
        yield running
