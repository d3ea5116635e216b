"""The writes under way: who writes, and whether the process of a write that was cut off is still there.

No clock of a client is asked. A process knows its own writes, and whether another process of its machine is running. Of
other machines nothing is known.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Literal

from vlmsearch.types import document_of

WriteKind = Literal["write", "change", "delete"]
PATIENCE_SECONDS = 600.0
"""Seconds by the server's clock after which a write of another process counts as cut off."""
IN_FLIGHT_SECONDS = 5.0
"""Seconds that a server may still be at what a killed writer had sent."""
_TOKEN = secrets.token_hex(4)
_under_way: set[str] = set()
_changing = threading.Lock()


def new_version() -> str:
    """Return a version that no other write has, 16 characters."""
    return secrets.token_hex(8)


@dataclass(frozen=True)
class WriteEntry:
    """A write of some documents, under way or cut off.

    Attributes:
        version: The version that it writes.
        owner: The process that writes, as `this_process` names it.
        kind: The kind of write.
        documents: The number of documents.
        ids: The documents and passages, where the journal keeps them.
        age: Seconds since the entry was made, by the server's clock; 0 if nobody asks for it.
    """

    version: str
    owner: str
    kind: WriteKind = "write"
    documents: int = 0
    ids: tuple[str, ...] = ()
    age: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} of {self.documents} documents, {self.version}"

    @property
    def is_gone(self) -> bool:
        """Tell whether its process is no longer at it, or has been for too long."""
        if self.owner == this_process():
            return not is_under_way(self.version)
        machine, number, _ = self.owner.rsplit(":", 2)
        if machine == _machine() and os.name == "posix" and (int(number) == os.getpid() or not _runs(int(number))):
            return True
        return abs(self.age) > PATIENCE_SECONDS


class WriteJournal(ABC):
    """The entries of the writes to an index, which its server keeps."""

    @contextmanager
    def writing(self, kind: WriteKind, ids: Collection[str]) -> Iterator[str]:
        """Note that these documents and passages are written meanwhile, under the new version that this gives.

        After an error the entry stays, for nobody knows what was written.
        """
        version = self.version_of(kind)
        with at_work(version):
            self.add(WriteEntry(version, this_process(), kind, len(set(map(document_of, ids))), tuple(ids)))
            yield version
            self.remove([version])

    def version_of(self, kind: WriteKind) -> str:
        """Return the version of a new write."""
        return new_version()

    @abstractmethod
    def add(self, entry: WriteEntry) -> None:
        """Make an entry."""

    @abstractmethod
    def remove(self, versions: Collection[str]) -> None:
        """Remove the entries of writes that ended."""

    @abstractmethod
    def entries(self) -> list[WriteEntry]:
        """Return all entries that there are."""


def wait_for_requests() -> None:
    """Wait until a server has carried out what writers that are gone had sent."""
    time.sleep(IN_FLIGHT_SECONDS)


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
