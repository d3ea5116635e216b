"""Keep a Triton server on this host at full load for a long time, and watch errors and memory."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from benchmarks.memory import family, resident
from vlmsearch.bench.triton import TritonLoad
from vlmsearch.cli.bench.data import read_images
from vlmsearch.cli.common import SECONDS
from vlmsearch.errors import ConfigError

_LISTEN = "0A"
_SETTLING = 0.2
"""The share of the time after which memory should not grow any more."""


@click.command()
@click.argument("url", default="triton://127.0.0.1:8001/vlm", metavar="[URL]")
@click.option("--images", type=click.Path(path_type=Path), metavar="DIR",
              help="A folder of JPEGs.  [default: drawn scenes]")  # fmt: skip
@click.option("--count", default=256, show_default=True, type=click.IntRange(1), help="How many different images.")
@click.option("--concurrency", default=16, show_default=True, type=click.IntRange(1), help="Requests at a time.")
@click.option("--seconds", default=600.0, show_default=True, type=SECONDS)
def main(url: str, images: Path | None, count: int, concurrency: int, seconds: float) -> None:
    """Send images to the ensemble at URL without a pause; print how much the memory of both sides grew."""
    server = listening_process(int(url.partition("//")[2].partition("/")[0].rpartition(":")[2]))
    samples: list[tuple[float, float]] = []

    def note(requests: int, errors: int) -> None:
        samples.append((sum(map(resident, family(server))), resident(os.getpid())))
        if len(samples) % 10 == 0:
            memory = "server {:.0f} MiB, client {:.0f} MiB".format(*samples[-1])
            click.echo(f"{len(samples):5} s  {requests:8} requests  {errors} errors  {memory}", err=True)

    with TritonLoad(url.removeprefix("triton:"), "images", read_images(images, count)) as load:
        level = load.run(concurrency, seconds, on_second=note)
    server_growth, client_growth = (grown(each) for each in zip(*samples))
    click.echo(
        f"{level.requests} requests, {level.failed} errors, {level.items_per_second:.1f} items/s; "
        f"memory since it settled: server {server_growth:+.1%}, client {client_growth:+.1%}"
    )


def grown(memory: Sequence[float]) -> float:
    """Return the share by which memory grew, from the first to the last fifth of the settled time."""
    settled = memory[int(len(memory) * _SETTLING) :]
    fifth = max(len(settled) // 5, 1)
    return statistics.median(settled[-fifth:]) / statistics.median(settled[:fifth]) - 1


def listening_process(port: int) -> int:
    """Return the process that listens on a port of this host; ConfigError if it is not to be seen."""
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


if __name__ == "__main__":
    main()
