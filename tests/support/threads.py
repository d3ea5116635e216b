"""Which threads a block of a test leaves behind, and a sleep that is replaced in one thread only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def no_thread_left(prefix: str) -> Iterator[None]:
    """Assert that all threads of this name which the block starts have ended with it."""
    before = set(threading.enumerate())
    yield
    assert not [each for each in threading.enumerate() if each.name.startswith(prefix) and each not in before]


def in_this_thread(function: Callable[[float], None]) -> Callable[[float], None]:
    """Return what stands for `time.sleep`: a function in this thread, and sleep itself in all others.

    Threads of other tests and libraries sleep, too: `subprocess` does while it waits for a process with a time limit.
    """
    sleep, thread = time.sleep, threading.get_ident()
    return lambda seconds: function(seconds) if threading.get_ident() == thread else sleep(seconds)
