"""Bounded queues between the stages of a flow."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class StoppedError(Exception):
    """The other end of a channel is gone."""


class Channel(Generic[T]):
    """A bounded queue between two threads that either end can shut."""

    def __init__(self, size: int) -> None:
        self._items: deque[T] = deque()
        self._size = size
        self._closed = self._stopped = False
        self._changed = threading.Condition()

    def put(self, item: T) -> None:
        """Add an item, waiting for room; StoppedError once the channel was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._size or self._stopped)
            if self._stopped:
                raise StoppedError
            self._items.append(item)
            self._changed.notify_all()

    def close(self) -> None:
        """No more items will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing matters any more: both ends give up."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        """Items until the channel is closed; StoppedError once it was stopped."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._closed or self._stopped)
                if self._stopped:
                    raise StoppedError
                if not self._items:
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
