"""Index on a cluster of two nodes of this machine, one of which is killed meanwhile; prints a line of JSON.

python -m tests.support.two_nodes STORE PATH...
"""

import json
import os
import sys
import threading
import time

import ray
from ray.cluster_utils import Cluster

from tests.support.ray_cluster import processes
from vlmsearch.integrations.ray import RayOptions, index

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def main(store: str, *paths: str) -> None:
    """Run."""
    node = {"num_cpus": 2, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    second = cluster.add_node(**{**node, "num_cpus": 3})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    found: dict[str, object] = {"nodes": len(ray.nodes())}

    def kill() -> None:
        while len(processes("MapWorker")) < 2:
            time.sleep(0.1)
        cluster.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    started = time.monotonic()
    report = index(paths, encoder="mock:", store=store, options=RayOptions(workers=2))
    found["seconds"] = time.monotonic() - started
    killer.join()
    while sum(node["Alive"] for node in ray.nodes()) == 2:
        time.sleep(0.5)
    sys.stdout.write(json.dumps({**found, "done": report.added + report.unchanged}) + "\n")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
