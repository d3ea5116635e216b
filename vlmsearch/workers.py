"""Threads of something that can be closed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from vlmsearch.errors import BackendError

P = ParamSpec("P")
T = TypeVar("T")


class Workers(ThreadPoolExecutor):
    """``count`` threads of ``owner``; BackendError says that it is closed, also of work that had not begun by then.

    Where the system has no thread left, the BackendError says that.
    """

    def __init__(self, count: int, *, name: str, owner: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        self._owner = owner
        self._closed = False

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have work done; see `concurrent.futures.Executor.submit`."""
        try:
            return super().submit(self._unless_closed, partial(work, *args, **kwargs))
        except RuntimeError as exc:
            raise self._error() if self._closed else BackendError(f"{self._owner} can do no work: {exc}") from exc

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
