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
from vlmsearch.serving.server import Endpoints, Server

_POLL = 0.5
_MOST, _WITHIN = 5, 120.0
"""So many starts in so many seconds are not for want of luck."""
_SICK_SECONDS = 5.0
"""How long a server that lost a model's process may take to stop."""


@dataclass(frozen=True)
class Service:
    """What to run: a server's command and environment, where it listens, and how long its models may take to load."""

    command: Sequence[str]
    environment: Mapping[str, str]
    endpoints: Endpoints
    seconds: float


def supervise(
    service: Service, *, restart: bool, show: Callable[[str], None] | None, say: Callable[[str], None]
) -> None:
    """Run a server until SIGINT or SIGTERM.

    With ``restart`` it is started again when it, or the process of a Python model, dies. BackendError if its models
    cannot be loaded, it dies too often, or it dies and is not to be restarted.
    """
    stop = threading.Event()
    starts: deque[float] = deque(maxlen=_MOST)
    while not stop.is_set():
        starts.append(time.monotonic())
        ends = service.endpoints
        server = Server(service.command, ends, environment=service.environment, show=show)
        with server, _forwarding(server, stop):
            server.start()
            models = _wait_ready(server, stop, service.seconds)
            if models:
                say(f"ready: {', '.join(models)}")
                say(f"gRPC {ends.host}:{ends.grpc}, HTTP {ends.host}:{ends.http}, metrics {ends.host}:{ends.metrics}")
            why = _watch(server, stop)
        if why and (not restart or (len(starts) == _MOST and time.monotonic() - starts[0] < _WITHIN)):
            raise BackendError(why)
        if why:
            say(f"{why}; starting again")


def _wait_ready(server: Server, stop: threading.Event, seconds: float) -> list[str]:
    try:
        return server.wait_ready(seconds=seconds)
    except BackendError:
        if stop.is_set():
            return []
        raise


def _watch(server: Server, stop: threading.Event) -> str:
    """Wait for the end; what happened, or "" if it was told to."""
    sick: set[int] = set()
    while server.poll() is None:
        time.sleep(_POLL)
        lost = set() if stop.is_set() else server.lost()
        if lost & sick:  # dead, and not just ending
            server.stop(seconds=_SICK_SECONDS)
            return "a model's process has died"
        sick = lost
    return "" if stop.is_set() else f"the server has died ({server.ending()}): {server.tail()}"


@contextmanager
def _forwarding(server: Server, stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM stop the server gracefully; a second one does so at once."""

    def hand_on(_number: int, _frame: FrameType | None) -> None:
        server.signal(signal.SIGKILL if stop.is_set() else signal.SIGTERM)
        stop.set()

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
