"""Threads that work for the tasks of an event loop. A task that is cancelled gives its call up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch._util.threads import Workers
from vlmsearch.errors import BackendError, OverloadedError

T = TypeVar("T")
_RETRY_SECONDS = 1.0


class AsyncThreads:
    """Threads that work for tasks, with a bounded number of calls that wait. ``owner`` is for messages."""

    def __init__(self, threads: int, queue: int, *, owner: str) -> None:
        self._owner = owner
        self._pool = Workers(threads, name="vlmsearch-async", owner=owner)
        self._max_busy, self._max_calls = threads, threads + queue
        self._calls = 0
        self._counting = threading.Lock()
        self._closed = False

    @property
    def in_use(self) -> tuple[int, int]:
        """Return how many threads work, and how many calls wait for one."""
        busy = min(self._calls, self._max_busy)
        return busy, self._calls - busy

    async def run(
        self,
        work: Callable[[], T],
        token: CancelToken | None = None,
        *,
        unwanted: Callable[[T], object] | None = None,
    ) -> T:
        """Call a function in a thread. Where the task is cancelled, so is the call, through its token.

        ``unwanted`` takes the result of a call that nobody waits for any more.
        """
        token = token or CancelToken()
        future = self._submit(partial(_under, token, work))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            token.cancel()
            if unwanted is not None:
                future.add_done_callback(partial(_discard, unwanted))
            raise

    def finish(self, work: Callable[[], object]) -> None:
        """Have something done that ends a call, soon; nobody waits for it."""
        with suppress(BackendError):  # all is closed, and what is open with it
            self._pool.submit(work)

    def close(self, *, wait: bool = True) -> None:
        """Take no more calls; those that were accepted are finished."""
        self._closed = True
        self._pool.shutdown(wait)

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        if self._closed:
            raise BackendError(f"{self._owner} is closed")
        with self._counting:
            if self._calls >= self._max_calls:
                said = f"{self._calls} calls are under way or waiting, and no more are accepted"
                raise OverloadedError(
                    f"{self._owner} is overloaded: {said}; try again in {_RETRY_SECONDS:g} s",
                    retry_after=_RETRY_SECONDS,
                )
            self._calls += 1
        try:
            future = self._pool.submit(work)
        except BackendError:
            self._count_down(None)
            raise
        future.add_done_callback(self._count_down)
        return future

    def _count_down(self, _: object) -> None:
        with self._counting:
            self._calls -= 1


class ThreadReading(Generic[T]):
    """An iterator that is read in threads, some items at a time, in one context throughout."""

    def __init__(self, threads: AsyncThreads, begin: Callable[[], Iterator[T]], max_items: int) -> None:
        self._threads, self._begin, self._max_items = threads, begin, max_items
        self._token, self._context = CancelToken(), copy_context()
        self._items: Iterator[T] | None = None
        self._turn = threading.Lock()
        self._stopped = False

    async def next(self) -> list[T]:
        """Return the next items; none at the end, and after `stop`."""
        if self._token.cancelled:
            return []
        try:
            return await self._threads.run(self._read, self._token)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End what is being read, and close the iterator when that has ended."""
        if not self._stopped:  # the token may have been cancelled with the task that read
            self._stopped = True
            self._token.cancel()
            self._threads.finish(self._close)

    def _read(self) -> list[T]:
        with self._turn:
            return self._context.run(_under, self._token, self._read_some)

    def _read_some(self) -> list[T]:
        if self._items is None:
            self._items = self._begin()
        return list(islice(self._items, self._max_items))

    def _close(self) -> None:
        with self._turn:
            close = getattr(self._items, "close", None)
            if close:
                self._context.run(close)


def _under(token: CancelToken, work: Callable[[], T]) -> T:
    with running_under(token):
        token.check()
        return work()


def _discard(unwanted: Callable[[T], object], future: Future[T]) -> None:
    """Hand the result of a call over in another thread than the event loop's."""
    if not future.cancelled() and future.exception() is None:
        threading.Thread(target=unwanted, args=(future.result(),), name="vlmsearch-discard").start()
