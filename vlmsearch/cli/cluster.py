"""The options of commands that can run on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from vlmsearch.cli.common import NumberRange, option


def _address(text: str) -> str:
    scheme, _, address = text.partition(":")
    if scheme != "ray":
        raise click.BadParameter(f"{text!r} is neither ray nor ray:ADDRESS")
    return address


def cluster_options(function: Callable[..., object]) -> Callable[..., object]:
    """Add the options of a Ray cluster. The function gets RayOptions or None as ``cluster``."""

    @option("--on", type=_address, metavar="ray[:ADDRESS]", help="Run on the Ray cluster at ADDRESS, or a local one.")
    @option("--workers", type=click.IntRange(1), help="Number of encoders.  [default: one for each GPU or machine]")
    @option("--worker-cpus", type=NumberRange(0), default=0.0, show_default=True, help="Ray CPUs of an encoder.")
    @option("--worker-gpus", type=NumberRange(0), default=0.0, show_default=True, help="Ray GPUs of an encoder.")
    @option("--writers", type=click.IntRange(1), default=4, show_default=True, help="Number of writers to the stores.")
    @wraps(function)
    def wrapper(*args: object, on: str | None, **kwargs: Any) -> object:
        resources = {name: kwargs.pop(name) for name in ("workers", "worker_cpus", "worker_gpus", "writers")}
        if on is None:
            return function(*args, cluster=None, **kwargs)
        from vlmsearch.integrations.ray import RayOptions

        return function(*args, cluster=RayOptions(on or None, **resources), **kwargs)

    return wrapper
