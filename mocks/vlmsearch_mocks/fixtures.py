"""Fixtures for tests of code that uses vlmsearch: ``pytest_plugins = ["vlmsearch_mocks.fixtures"]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from vlmsearch_mocks.encoder import MockEncoder
from vlmsearch_mocks.generator import MockGenerator
from vlmsearch_mocks.store import MemoryStore

if TYPE_CHECKING:
    from vlmsearch import Pipeline, Store
    from vlmsearch_mocks.faults import Faults
    from vlmsearch_mocks.pair import MockStore


@pytest.fixture
def vlmsearch_encoder() -> MockEncoder:
    """Return an encoder without a model; override it to plant neighbours."""
    return MockEncoder()


@pytest.fixture
def vlmsearch_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Yield an empty store in memory: a `MockStore` in a test that takes ``vlmsearch_faults``, else a `MemoryStore`."""
    with _store(has_faults="vlmsearch_faults" in request.fixturenames) as store:
        yield store


def _store(*, has_faults: bool) -> Store:
    if not has_faults:
        return MemoryStore()
    from vlmsearch_mocks import MockStore

    return MockStore()


@pytest.fixture
def vlmsearch_faults(vlmsearch_store: MockStore) -> Faults:
    """Return the faults of the servers of ``vlmsearch_store``: none, until you plant some."""
    return vlmsearch_store.faults


@pytest.fixture
def vlmsearch_generator() -> MockGenerator:
    """Return a generator with one reply; override it to script others."""
    return MockGenerator()


@pytest.fixture
def vlmsearch_pipeline(
    vlmsearch_encoder: MockEncoder, vlmsearch_store: Store, vlmsearch_generator: MockGenerator
) -> Iterator[Pipeline]:
    """Yield a pipeline of the encoder, the store and the generator."""
    from vlmsearch import Pipeline

    with Pipeline(vlmsearch_encoder, vlmsearch_store, vlmsearch_generator) as pipeline:
        yield pipeline
