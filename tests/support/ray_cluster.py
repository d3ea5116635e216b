"""A Ray cluster of this machine, and the processes in it."""

import os
from collections.abc import Iterator

import psutil
import pytest

from tests.support.object_storage import object_storage

SMALL = {"object_store_memory": 200 * 2**20, "include_dashboard": False, "log_to_driver": False}


@pytest.fixture(scope="session")
def storage() -> Iterator[None]:
    """The bucket ``photos`` of `tests.support.object_storage`."""
    with object_storage():
        yield


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


def processes(*names: str) -> list[psutil.Process]:
    """The processes of the clusters that this process started whose titles have one of these names in them."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if title.startswith("ray::") and any(name in title for name in names):
            found.append(process)
    return found
