"""A Ray cluster of this machine, and the processes in it."""

import psutil

SMALL = {"object_store_memory": 200 * 2**20, "include_dashboard": False, "log_to_driver": False}


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
