"""Trying again what failed for a moment, and when to stop waiting."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from vlmsearch._util.cancellation import pause
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError

T = TypeVar("T")
MAX_RETRIES = 20
_FIRST_PAUSE, _MAX_PAUSE = 0.1, 5.0


def pauses(retries: int) -> Iterator[float]:
    """Yield how many seconds to wait before each further attempt: twice as long every time, give or take a half."""
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


_MAX_WAIT = 1e9
"""Seconds; with more than about 30 years, sockets and gRPC fail or time out at once."""


def check_seconds(**limits: float) -> None:
    """Raise ConfigError for a time that is too long to wait, by its option's name."""
    for name, seconds in limits.items():
        if not 0 < seconds <= _MAX_WAIT:
            raise ConfigError(f"{name} is above 0 and at most {_MAX_WAIT:.0f} seconds, not {seconds:g}")
