"""Memory that the server's Python models keep: pages are not asked for again and again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from vlmsearch.triton.backend.memory import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
source = bytes(80_000)
def batch():
    return [bytearray(source) for _ in range(64)] + [bytearray(5_000_000)]
batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_batches_after_the_first_need_no_new_pages() -> None:
    assert faults("keep") * 10 < faults("not")
