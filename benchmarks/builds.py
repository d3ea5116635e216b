"""Builds of vlmsearch that are measured beside each other, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import build_process
from benchmarks.build_process import Cost


class Contender(NamedTuple):
    """Something that answers calls.

    Attributes:
        ask: Makes a call by its name, and returns the cost and the answer.
        can: The names of the calls.
        prefix: The beginning of the names of its tables.
    """

    ask: Callable[..., tuple[Cost, Any]]
    can: Sequence[str]
    prefix: str = ""


@contextmanager
def build(folder: Path, url: str, dim: int, prefix: str = "") -> Iterator[Contender]:
    """Start the process of the build in a folder, with an index at a URL."""
    near, far = Pipe()
    command = [sys.executable, build_process.__file__, str(far.fileno()), url, str(dim)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with subprocess.Popen(command, env=environment, pass_fds=[far.fileno()]), near:  # noqa: S603
        far.close()
        near.recv()  # its index is there

        def ask(*request: object) -> tuple[Cost, Any]:
            near.send(request)
            cost, answer = near.recv()
            return Cost(*cost), answer

        yield Contender(ask, ("write", "finish", "words", "search", "nearest"), prefix)
