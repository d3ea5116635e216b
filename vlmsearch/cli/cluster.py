"""The options of commands that can run on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import click

from vlmsearch.cli.common import option


def _address(text: str) -> str:
    scheme, _, address = text.partition(":")
    if scheme != "ray":
        raise click.BadParameter(f"{text!r} is neither ray nor ray:ADDRESS")
    return address


def cluster_options(function: Callable[..., object]) -> Callable[..., object]:
    """Return where and on how much of a cluster to run: the function gets RayOptions or None as ``cluster``."""

    @option("--on", type=_address, metavar="ray[:ADDRESS]", help="Run on a Ray cluster: that at ADDRESS, or one here.")
    @option("--workers", type=click.IntRange(1), help="How many encoders, with --on.  [default: one a GPU or machine]")
    @option("--worker-cpus", type=click.FloatRange(0), default=0.0, show_default=True, help="Ray's CPUs for each.")
    @option("--worker-gpus", type=click.FloatRange(0), default=0.0, show_default=True, help="Ray's GPUs for each.")
    @option("--writers", type=click.IntRange(1), default=4, show_default=True, help="How many write to the servers.")
    @wraps(function)
    def wrapper(
        *args: object,
        on: str | None,
        workers: int | None,
        worker_cpus: float,
        worker_gpus: float,
        writers: int,
        **kwargs: object,
    ) -> object:
        if on is None:
            return function(*args, cluster=None, **kwargs)
        from vlmsearch.integrations.ray import RayOptions

        cluster = RayOptions(on or None, workers, worker_cpus, worker_gpus, writers)
        return function(*args, cluster=cluster, **kwargs)

    return wrapper
