"""A Ray cluster of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.ray_cluster import SMALL


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
