"""Worker threads, and bounded queues between them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Generic, ParamSpec, TypeVar

from vlmsearch.errors import BackendError

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Workers(ThreadPoolExecutor):
    """``count`` threads of ``owner``, which work in the context of whoever submits.

    BackendError says that it is closed, also of work that had not begun by then.

    Where the system has no thread left, the BackendError says that.
    """

    def __init__(self, count: int, *, name: str, owner: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        self._owner = owner
        self._closed = False

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have work done, in the caller's context; see `concurrent.futures.Executor.submit`."""
        try:
            return super().submit(copy_context().run, self._unless_closed, partial(work, *args, **kwargs))
        except RuntimeError as exc:
            raise self._error() if self._closed else BackendError(f"{self._owner} can do no work: {exc}") from exc

    def results(self, items: Sequence[T], work: Callable[[T], R]) -> Iterator[R]:
        """Yield the results for items in order, with as many under way as there are threads.

        A single item needs no other thread.
        """
        if len(items) == 1:
            yield work(items[0])
            return
        futures = [self.submit(work, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Take no more work, and wait for none."""
        self._closed = True
        self.shutdown(wait=False)

    def check_open(self) -> None:
        """Raise BackendError once it is closed."""
        if self._closed:
            raise self._error()

    def _unless_closed(self, work: Callable[[], T]) -> T:
        self.check_open()
        return work()

    def _error(self) -> BackendError:
        return BackendError(f"{self._owner} is closed")


class StoppedError(Exception):
    """The other end of a queue is gone."""


class BoundedQueue(Generic[T]):
    """A bounded queue between two threads that either end can shut."""

    def __init__(self, size: int) -> None:
        self._items: deque[T] = deque()
        self._size = size
        self._closed = self._stopped = False
        self._changed = threading.Condition()

    def put(self, item: T) -> None:
        """Add an item, waiting for room; StoppedError once the queue was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._size or self._stopped)
            if self._stopped:
                raise StoppedError
            self._items.append(item)
            self._changed.notify_all()

    def close(self) -> None:
        """Note that no more items will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Make both ends give up."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        """Items until the queue is closed; StoppedError once it was stopped."""
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
