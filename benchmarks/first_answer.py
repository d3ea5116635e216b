"""A new process that opens an embedded store and searches, and what that takes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from benchmarks.common import in_turns
from benchmarks.contenders import open_contender
from benchmarks.corpus import Corpus
from vlmsearch._util.credentials import child_environment
from vlmsearch.errors import BackendError

FIGURES = {
    "from its start to the first answer": "s",
    "CPU time to the first answer": "s",
    "peak memory": "MiB",
    "search p50": "ms",
}
"""The figures of a new process, and their units."""
_SEARCHES = 20
_QUERIES = "queries.npy"


def first_answer(name: str, folder: Path, corpus: Corpus) -> Mapping[str, float]:
    """Start a process that opens a contender and searches; return the values of `FIGURES`."""
    np.save(folder / _QUERIES, corpus.queries(1 + _SEARCHES))
    command = [sys.executable, "-m", __name__, name, str(folder), str(corpus.dim), str(time.monotonic())]
    done = subprocess.run(command, capture_output=True, env=child_environment(), text=True, check=False)  # noqa: S603
    if done.returncode:
        raise BackendError(f"a process with {name} ended: {done.stderr.strip()[-400:]}")
    values: dict[str, float] = json.loads(done.stdout)
    return values


def _main(name: str, folder: str, dim: str, started: str) -> None:
    query, *others = np.load(Path(folder, _QUERIES))
    contender = open_contender(name, Path(folder), int(dim))
    contender.page(query)
    seconds, cpu = time.monotonic() - float(started), time.process_time()
    searches, _ = in_turns({name: contender.search}, others)
    contender.close()
    values = (seconds, cpu, _peak(), 1000 * statistics.median(searches[name]))
    sys.stdout.write(json.dumps(dict(zip(FIGURES, values, strict=True))))


def _peak() -> float:
    """Return the largest resident memory so far in MiB; 0 where the system does not say."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    _main(*sys.argv[1:])
