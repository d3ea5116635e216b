"""The machine that this process runs on."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_name() -> str:
    """Return the name of the processor, and how many of its cores this process may use."""
    name = ""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    return f"{name or 'CPU'}, {available_cores()} cores"


def available_memory() -> int | None:
    """Return the bytes that the system and the control group leave this process. None if unknown."""
    known = [value for value in (proc_bytes("meminfo", "MemAvailable"), _group_memory()) if value is not None]
    return min(known, default=None)


def proc_bytes(file: str, name: str) -> int | None:
    """Return a number of kilobytes in a file of ``/proc``, as bytes. None where the system does not say."""
    with suppress(OSError, ValueError), open(f"/proc/{file}", encoding="utf-8") as lines:
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
    return None


def _group_memory(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes that the limit of a control group leaves. Files in its cache can be given up.

    It knows versions 2 and 1.
    """
    for limit, used, cached, folder in (
        ("memory.max", "memory.current", "inactive_file", root),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", root / "memory"),
    ):
        with suppress(OSError, ValueError):
            total, taken = (int((folder / name).read_text(encoding="ascii")) for name in (limit, used))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
            return max(total - taken + int(stat.get(cached, 0)), 0)
    return None
