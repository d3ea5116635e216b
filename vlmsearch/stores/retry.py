"""Trying again what failed for a moment."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from vlmsearch.errors import BackendUnavailableError

T = TypeVar("T")
_FIRST, _LONGEST = 0.1, 5.0


def pauses(retries: int) -> Iterator[float]:
    """How many seconds to wait before each further attempt: twice as long every time, give or take a half."""
    for attempt in range(retries):
        yield min(_LONGEST, _FIRST * 2**attempt) * random.uniform(0.5, 1.5)


def retrying(call: Callable[[], T], retries: int) -> T:
    """What ``call`` returns; where a back end is unavailable, it is called up to ``retries`` times more."""
    for pause in pauses(retries):
        try:
            return call()
        except BackendUnavailableError:
            time.sleep(pause)
    return call()
