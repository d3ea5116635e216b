"""Giving up a call from another thread: a token that the calling code holds, and the called code looks at.

The caller runs a call in a context of its own, with `running_under` and its token; everything that the call does, also
in the threads that it hands work to, sees the token as the current one. Long work calls `check_cancelled` between its
steps; what waits for something registers what wakes it up, with `on_cancel`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from typing import TypeVar

from vlmsearch.errors import OperationCancelledError

T = TypeVar("T")
_current: ContextVar[CancelToken | None] = ContextVar("vlmsearch-cancel", default=None)


class CancelToken:
    """A mark that says whether a call was given up. May be used from any thread; it is never taken back."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callable[[], object]] = {}

    @property
    def cancelled(self) -> bool:
        """Return whether the call was given up."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Give the call up: call what was registered with `on_cancel`. The second time does nothing."""
        with self._lock:
            self._cancelled.set()
            callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            callback()

    def check(self) -> None:
        """Raise OperationCancelledError once the call was given up."""
        if self.cancelled:
            raise OperationCancelledError("it was cancelled")

    def wait(self, seconds: float) -> None:
        """Sleep; OperationCancelledError as soon as the call is given up."""
        self._cancelled.wait(seconds)
        self.check()

    @contextmanager
    def on_cancel(self, callback: Callable[[], object]) -> Iterator[None]:
        """Have a function called if the call is given up in the block or was before.

        The thread that cancels calls it.
        """
        key = object()
        with self._lock:
            late = self.cancelled
            if not late:
                self._callbacks[key] = callback
        if late:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.pop(key, None)


@contextmanager
def running_under(token: CancelToken) -> Iterator[None]:
    """Make a token the current one within the block."""
    before = _current.set(token)
    try:
        yield
    finally:
        _current.reset(before)


def check_cancelled() -> None:
    """Raise OperationCancelledError where the current call was given up."""
    if token := _current.get():
        token.check()


def on_cancel(callback: Callable[[], object]) -> AbstractContextManager[None]:
    """Have a function called where the current call is given up within the block; see `CancelToken.on_cancel`."""
    token = _current.get()
    return token.on_cancel(callback) if token else nullcontext()


def pause(seconds: float) -> None:
    """Sleep; OperationCancelledError as soon as the current call is given up."""
    if token := _current.get():
        token.wait(seconds)
    else:
        time.sleep(seconds)


def run_apart(call: Callable[[], T], seconds: float | None = None) -> T:
    """Run a call in a thread, and leave it there when it is given up.

    TimeoutError after ``seconds``. Where there is no limit and nobody can give the call up, it needs no thread.
    """
    check_cancelled()
    if seconds is None and _current.get() is None:
        return call()
    result: Future[T] = Future()
    context, is_over = copy_context(), threading.Event()

    def work() -> None:
        try:
            result.set_result(context.run(call))
        except BaseException as exc:  # noqa: BLE001 - it is raised where the result is read
            result.set_exception(exc)
        is_over.set()

    threading.Thread(target=work, daemon=True).start()
    with on_cancel(is_over.set):
        is_over.wait(seconds)
    if not result.done():
        check_cancelled()
        raise TimeoutError(f"nothing came for {seconds:.3g} seconds")
    return result.result()
