"""A Ray cluster of this machine, and the fixtures that these tests share with others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from tests.support.mongo_servers import mongo_address
from tests.support.object_storage import storage
from tests.support.postgres_servers import postgres_url
from tests.support.ray_cluster import SMALL
from tests.support.servers import chroma_address
from tests.support.service import running_service
from tests.support.shards import png
from vlmsearch import Store
from vlmsearch.registry import open_store

__all__ = ["chroma_address", "mongo_address", "postgres_url", "running_service", "storage"]


class Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closes)


@pytest.fixture
def opened() -> Iterator[Callable[[C], C]]:
    """A function that returns what it is given, which is closed after the test."""
    with ExitStack() as stack:

        def closed_later(opened: C) -> C:
            stack.callback(opened.close)
            return opened

        yield closed_later


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of an index that is not there."""
    return f"sqlite:{tmp_path / 'index'}"


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files of seven scenes."""
    folder = tmp_path_factory.mktemp("scenes")
    for seed in range(7):
        (folder / f"{seed}.png").write_bytes(png(seed))
    return [str(folder / f"{seed}.png") for seed in range(7)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store: the contract of the stores proves that all others do the same."""
    with open_store(f"sqlite:{tmp_path / 'index'}") as opened:
        yield opened


@pytest.fixture(scope="session")
def cluster(storage: None) -> Iterator[str]:
    """The address of a cluster of two CPUs that this process is connected to, whose processes know the storage."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init("local", num_cpus=2, logging_level="ERROR", **SMALL)
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()
