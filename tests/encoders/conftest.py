"""A server whose answers the tests of the Triton encoder write down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.scripted_triton import Place, serve_script


@pytest.fixture
def place() -> Iterator[Place]:
    """A server whose answers a test writes down."""
    with serve_script() as found:
        yield found
