"""A Ray cluster of this machine, and the fixtures that these tests share with others."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.every_store import any_store
from tests.support.mongo_servers import mongo_address
from tests.support.object_storage import storage
from tests.support.postgres_servers import postgres_url
from tests.support.ray_cluster import SMALL
from tests.support.servers import chroma_address
from tests.support.service import running_service

__all__ = ["any_store", "chroma_address", "mongo_address", "postgres_url", "running_service", "storage"]


@pytest.fixture(scope="session")
def cluster(storage: None) -> Iterator[None]:
    """A cluster of two CPUs that this process is connected to, whose processes know the storage."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init("local", num_cpus=2, logging_level="ERROR", **SMALL)
    try:
        yield
    finally:
        ray.shutdown()
