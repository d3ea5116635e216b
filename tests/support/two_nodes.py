"""Index on a cluster of two nodes of this machine, one of which is killed meanwhile; prints a line of JSON.

python -m tests.support.two_nodes STORE PATH...
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from tests.support.ray_cluster import processes
from vlmsearch.integrations.ray import RayOptions, index


@contextmanager
def local_cluster(cpus: Sequence[int]) -> Iterator[Cluster]:
    """Be connected to a cluster of nodes of this machine, and drop what Ray writes about each process that ends."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            for count in cpus:
                cluster.add_node(num_cpus=count, object_store_memory=200 * 2**20, include_dashboard=False)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def main(store: str, *paths: str) -> None:
    """Run."""
    with local_cluster([2, 3]) as cluster:
        found: dict[str, object] = {"nodes": len(ray.nodes())}

        def kill() -> None:
            while len(processes("MapWorker")) < 2:
                time.sleep(0.1)
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        started = time.monotonic()
        report = index(paths, encoder="mock:", store=store, options=RayOptions(workers=2))
        found["seconds"] = time.monotonic() - started
        killer.join()
        while sum(node["Alive"] for node in ray.nodes()) == 2:
            time.sleep(0.5)
    sys.stdout.write(json.dumps({**found, "done": report.added + report.unchanged}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
