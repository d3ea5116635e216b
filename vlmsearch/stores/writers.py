"""The writes of this process, and whether the process that another write names is still there.

No clock is asked. A process knows its own writes, and whether another process of its machine is running. Of other
machines nothing is known.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

Life = Literal["alive", "gone", "unknown"]
_TOKEN = secrets.token_hex(4)
_under_way: set[str] = set()
_changing = threading.Lock()


def new_version() -> str:
    """Return a version that no other write has, 16 characters."""
    return secrets.token_hex(8)


@contextmanager
def at_work(version: str) -> Iterator[None]:
    """Count ``version`` as under way in this process meanwhile."""
    with _changing:
        _under_way.add(version)
    try:
        yield
    finally:
        with _changing:
            _under_way.discard(version)


def is_under_way(version: str) -> bool:
    """Return whether the write of ``version`` is under way in this process."""
    with _changing:
        return version in _under_way


def this_process() -> str:
    """Name this process: its machine, its number, which a fork changes, and what no later one of that number has."""
    return f"{_machine()}:{os.getpid()}:{_TOKEN}"


def life_of(owner: str, version: str) -> Life:
    """Return whether the process that ``this_process`` named ``owner`` can still be at the write of ``version``."""
    if owner == this_process():
        return "alive" if is_under_way(version) else "gone"
    machine, number, _ = owner.rsplit(":", 2)
    if machine != _machine() or os.name != "posix":
        return "unknown"
    return "alive" if int(number) != os.getpid() and _runs(int(number)) else "gone"


@cache
def _machine() -> str:
    """Return where processes have numbers of their own: a host, or a container, which may have the name of its host."""
    try:
        return f"{socket.gethostname()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
