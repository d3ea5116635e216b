"""Trying again what failed for a moment."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from vlmsearch.errors import BackendError, BackendUnavailableError

T = TypeVar("T")
_FIRST, _LONGEST = 0.1, 5.0


def pauses(retries: int) -> Iterator[float]:
    """How many seconds to wait before each further attempt: twice as long every time, give or take a half."""
    for attempt in range(retries):
        yield min(_LONGEST, _FIRST * 2**attempt) * random.uniform(0.5, 1.5)


def retrying(call: Callable[[], T], retries: int, passes: Callable[[BackendError], bool] = lambda _: False) -> T:
    """What ``call`` returns, called up to ``retries`` times more where a back end is unavailable.

    ``passes`` says which other errors are of the moment only.
    """
    for pause in pauses(retries):
        try:
            return call()
        except BackendError as exc:
            if not isinstance(exc, BackendUnavailableError) and not passes(exc):
                raise
            time.sleep(pause)
    return call()
