"""The machine that this process runs on."""

from __future__ import annotations

import os


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
