"""What processes of this machine take, from ``/proc``."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def family(pid: int) -> list[int]:
    """Return a process and those that it started."""
    found = [pid]
    for one in found:
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
    return found


def resident(pid: int) -> float:
    """Resident memory in MiB; 0 for a process that is gone."""
    with suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return 0.0


def proportional(pid: int) -> float:
    """Resident memory in MiB, of which what n processes share counts as an nth; 0 for a process that is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0
