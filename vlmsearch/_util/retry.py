"""Trying again what failed for a moment, and when to stop waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from vlmsearch._util.arguments import check_bounds
from vlmsearch._util.cancellation import pause
from vlmsearch._util.options import Options, bounded
from vlmsearch.errors import BackendError, BackendUnavailableError

T = TypeVar("T")
_FIRST_PAUSE, _MAX_PAUSE = 0.1, 5.0


def pauses(retries: int) -> Iterator[float]:
    """Yield how many seconds to wait before each further attempt: twice as long every time, give or take a half."""
    import random

    for attempt in range(retries):
        yield min(_MAX_PAUSE, _FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1.5)


def retrying(call: Callable[[], T], retries: int, passes: Callable[[BackendError], bool]) -> T:
    """Call a function, up to ``retries`` times more after errors that may pass, as ``passes`` says.

    A server that asks for a longer wait gets it.
    """
    for seconds in pauses(retries):
        try:
            return call()
        except BackendError as exc:
            if not passes(exc):
                raise
            pause(max(seconds, exc.retry_after if isinstance(exc, BackendUnavailableError) else 0.0))
    return call()


MIN_SECONDS, MAX_SECONDS = 0.001, 1e6
"""Seconds. Drivers count milliseconds, where 0 is no limit, in whole numbers of 32 bits."""


def check_seconds(**limits: float) -> None:
    """Raise ConfigError for a time that nobody can wait, by its option's name."""
    check_bounds(MIN_SECONDS, MAX_SECONDS, **limits)


def seconds(default: float | None) -> Any:
    """Declare an option that is a time to wait."""
    return bounded(default, minimum=MIN_SECONDS, maximum=MAX_SECONDS)


@dataclass(frozen=True)
class AttemptOptions(Options):
    """Options of back ends that wait for a server.

    Attributes:
        timeout: Seconds that one attempt may take, from 0.001 to 1,000,000.
        retries: Number of further attempts after errors of the moment, from 0 to 20.
    """

    timeout: float = seconds(30.0)
    retries: int = bounded(3, minimum=0, maximum=20)
