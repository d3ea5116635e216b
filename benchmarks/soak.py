"""Full load for a long time: errors, and the memory of the server and of this process."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.memory import family, resident
from vlmsearch.bench.triton import TritonLevel, TritonLoad
from vlmsearch.errors import ConfigError

_LISTEN = "0A"
_SETTLING = 0.2
"""The share of the time after which memory should not grow any more."""


@dataclass(frozen=True)
class Sample:
    """One moment: requests and errors so far, resident memory of server and client in MiB."""

    second: int
    requests: int
    errors: int
    server: float
    client: float


@dataclass(frozen=True)
class Soak:
    """What a long run showed."""

    level: TritonLevel
    samples: tuple[Sample, ...]

    @property
    def growth(self) -> tuple[float, float]:
        """By what share the memory of server and client grew, from the first to the last fifth of the settled time."""
        settled = self.samples[int(len(self.samples) * _SETTLING) :]
        fifth = max(len(settled) // 5, 1)
        return (
            _grown([one.server for one in settled[:fifth]], [one.server for one in settled[-fifth:]]),
            _grown([one.client for one in settled[:fifth]], [one.client for one in settled[-fifth:]]),
        )

    def to_json(self) -> dict[str, object]:
        """As JSON has it."""
        server, client = self.growth
        return {
            **self.level.to_json(),
            "seconds": self.samples[-1].second,
            "server_mib": self.samples[-1].server,
            "client_mib": self.samples[-1].client,
            "server_growth": round(server, 4),
            "client_growth": round(client, 4),
            "samples": [vars(one) for one in self.samples],
        }


def soak(
    load: TritonLoad, concurrency: int, seconds: float, *, port: int, on_sample: Callable[[Sample], None] | None = None
) -> Soak:
    """Run ``load`` for so long; the server is the process on this host that listens on ``port``."""
    server = listening_process(port)
    samples: list[Sample] = []

    def note(requests: int, errors: int) -> None:
        memory = sum(resident(pid) for pid in family(server))
        samples.append(Sample(len(samples) + 1, requests, errors, round(memory, 1), round(resident(os.getpid()), 1)))
        if on_sample:
            on_sample(samples[-1])

    level = load.run(concurrency, seconds, on_second=note)
    return Soak(level, tuple(samples))


def listening_process(port: int) -> int:
    """The process that listens on a port of this host; ConfigError if it is not to be seen."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                cells = line.split()
                if cells[3] == _LISTEN and int(cells[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{cells[9]}]")
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(place) in sockets:
                return int(place.parts[2])
    raise ConfigError(f"no process of this host is seen to listen on port {port}: a soak needs the server here")


def _grown(first: Sequence[float], last: Sequence[float]) -> float:
    return statistics.median(last) / max(statistics.median(first), 1e-9) - 1
