"""Which writes are under way, so that one that was cut off can be told from one that is only slow.

An entry is made before anything is written and removed when everything is. Whoever finds that its entry has gone
meanwhile has been taken for dead, and writes once more.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from typing import Literal, Protocol, TypeVar

from vlmsearch.retry import PATIENCE
from vlmsearch.stores.mongo_connection import Row, Rows
from vlmsearch.stores.mongo_rows import new_version

T = TypeVar("T")
Kind = Literal["write", "delete"]
_TOKEN = secrets.token_hex(4)
_under_way: set[str] = set()
_changing = threading.Lock()


class RunOnRows(Protocol):
    """How a collection is called: `MongoConnection.run` on a collection."""

    def __call__(self, operation: str, call: Callable[[Rows], T], /) -> T:
        """What ``call`` returns."""


@dataclass(frozen=True)
class Entry:
    """A write or delete of some documents: its version, their ids, and whether somebody is still at it."""

    version: str
    kind: Kind
    ids: tuple[str, ...]
    is_alive: bool


class Journal:
    """The entries of one index."""

    def __init__(self, run: RunOnRows) -> None:
        self._run = run

    def open(self, kind: Kind, ids: Sequence[str]) -> str:
        """Note that these documents are about to be written or deleted; returns a new version."""
        version = new_version()
        entry = {"_id": version, "kind": kind, "ids": list(ids), "owner": _process(), "at": now()}
        with _changing:
            _under_way.add(version)
        try:
            self._run(f"begin a {kind}", lambda rows: rows.replace_one({"_id": version}, entry, upsert=True))
        except BaseException:
            self.give_up(version)
            raise
        return version

    def close(self, version: str) -> bool:
        """Note that all is done; False where the entry is no longer there."""
        try:
            done = self._run("end a write", lambda rows: rows.delete_one({"_id": version})).deleted_count
        finally:
            self.give_up(version)
        return done == 1

    def give_up(self, version: str) -> None:
        """Nobody is at this write any more."""
        with _changing:
            _under_way.discard(version)

    def entries(self) -> list[Entry]:
        """All entries that there are."""
        found = self._run("read the journal", lambda rows: list(rows.find({})))
        return [Entry(row["_id"], row["kind"], tuple(row["ids"]), is_alive(row)) for row in found]


def now() -> datetime:
    """The time, as it is kept."""
    return datetime.now(timezone.utc)


@contextmanager
def owner(version: str) -> Iterator[Row]:
    """This process, as it is named in the database, at work on ``version`` meanwhile."""
    with _changing:
        _under_way.add(version)
    try:
        yield {"owner": _process(), "at": now()}
    finally:
        with _changing:
            _under_way.discard(version)


def is_alive(row: Row) -> bool:
    """Whether the process that a row names is still at work on it."""
    machine, process, token = row["owner"].rsplit(":", 2)
    if (process, token) == (str(os.getpid()), _TOKEN):
        with _changing:
            return row["_id"] in _under_way
    at: datetime = row["at"]
    if now() - at.replace(tzinfo=timezone.utc) > PATIENCE:
        return False
    return machine != _machine() or os.name != "posix" or _runs(int(process))


def _process() -> str:
    """This process: its machine, its number, which a fork changes, and what no later one of that number has."""
    return f"{_machine()}:{os.getpid()}:{_TOKEN}"


@cache
def _machine() -> str:
    """Where processes have numbers of their own: a host, or a container, which may have the name of its host."""
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
