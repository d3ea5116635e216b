"""A server in the foreground: signals are handed on, and what dies is started again."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from vlmsearch.errors import BackendError
from vlmsearch.triton.server.commands import Endpoints
from vlmsearch.triton.server.server import Server

_POLL = 0.5
_MAX_STARTS, _STARTS_SECONDS = 5, 120.0
"""So many starts in so many seconds are not for want of luck."""
_SICK_SECONDS = 5.0
"""Seconds that a server that lost a model's process may take to stop."""


@dataclass(frozen=True)
class SupervisedCommand:
    """A server's command and environment, its addresses, and the time to load its models."""

    command: Sequence[str]
    environment: Mapping[str, str]
    endpoints: Endpoints
    seconds: float


def supervise(
    service: SupervisedCommand, *, restart: bool, show: Callable[[str], None] | None, say: Callable[[str], None]
) -> None:
    """Run a server until SIGINT or SIGTERM.

    With ``restart`` it is started again when it, or the process of a Python model, dies. BackendError if its models
    cannot be loaded, it dies too often, or it dies and is not to be restarted.
    """
    stop = _Stop()
    starts: deque[float] = deque(maxlen=_MAX_STARTS)
    while not stop.is_set():
        starts.append(time.monotonic())
        ends = service.endpoints
        server = Server(service.command, ends, environment=service.environment, show=show)
        with server, _forwarding(server, stop):
            server.start()
            stop.hand_on(server)
            models = _wait_ready(server, stop, service.seconds)
            if models:
                say(f"ready: {', '.join(models)}")
                say(f"gRPC {ends.host}:{ends.grpc}, HTTP {ends.host}:{ends.http}, metrics {ends.host}:{ends.metrics}")
            why = _wait_end(server, stop)
        if why and (not restart or (len(starts) == _MAX_STARTS and time.monotonic() - starts[0] < _STARTS_SECONDS)):
            raise BackendError(why)
        if why:
            say(f"{why}; starting again")


class _Stop(threading.Event):
    """A request to stop.

    Every process of a server is told once, also while it is being started.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: set[int] = set()

    def hand_on(self, server: Server) -> None:
        """Tell the server, if it is to stop and runs and does not know."""
        if self.is_set() and server.is_running and server.pid not in self._told:
            self._told.add(server.pid)
            server.signal(signal.SIGTERM)


def _wait_ready(server: Server, stop: _Stop, seconds: float) -> list[str]:
    try:
        return server.wait_ready(seconds=seconds)
    except BackendError:
        if stop.is_set():
            return []
        raise


def _wait_end(server: Server, stop: _Stop) -> str:
    """Wait for the end; what happened, or "" if it was told to."""
    sick: set[int] = set()
    while server.poll() is None:
        stop.hand_on(server)
        server.protect()  # models may be loaded at any time
        time.sleep(_POLL)
        lost = set() if stop.is_set() else server.lost()
        if lost & sick:  # dead, and not just ending
            server.stop(seconds=_SICK_SECONDS)
            return "a model's process has died"
        sick = lost
    return "" if stop.is_set() else f"the server has died ({server.ending()}): {server.tail()}"


@contextmanager
def _forwarding(server: Server, stop: _Stop) -> Iterator[None]:
    """SIGINT and SIGTERM stop the server gracefully; a second one does so at once.

    SIGINT stays ignored where it was, as it is in the background of a script: Ctrl-C is then for something else.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            server.signal(signal.SIGKILL)
        stop.set()
        stop.hand_on(server)

    heeded = [signal.SIGTERM] if signal.getsignal(signal.SIGINT) == signal.SIG_IGN else [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
