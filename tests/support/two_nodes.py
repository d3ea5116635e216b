"""Index on a cluster of two nodes of this machine, one of which is killed meanwhile; prints a line of JSON.

python -m tests.support.two_nodes STORE PATH...
"""

import json
import sys
import threading
import time

import ray

from benchmarks.ray_index import local_cluster
from tests.support.ray_cluster import processes
from vlmsearch.integrations.ray import RayOptions, index


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
