"""Which threads a block of a test leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_thread_left(prefix: str) -> Iterator[None]:
    """Assert that all threads of this name which the block starts have ended with it."""
    before = set(threading.enumerate())
    yield
    assert not [each for each in threading.enumerate() if each.name.startswith(prefix) and each not in before]
