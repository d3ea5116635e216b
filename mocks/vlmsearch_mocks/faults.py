"""Faults of a server, on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from vlmsearch.errors import ConfigError

T = TypeVar("T")
Server = Literal["mongo", "chroma"]
FaultKind = Literal["unreachable", "timeout", "refused", "lost reply", "partial write"]
OPERATIONS: Mapping[Server, tuple[str, ...]] = {
    "mongo": (
        "aggregate", "bulk_write", "count_documents", "create_index", "delete_many", "delete_one", "drop",
        "estimated_document_count", "find", "find_one", "find_raw_batches",
        "index_information", "insert_one", "replace_one", "update_one",
    ),
    "chroma": (
        "add", "count", "delete", "delete_collection", "get", "get_collection", "get_or_create_collection", "query",
        "update", "upsert",
    ),
}  # fmt: skip
"""Operations that can fail: of MongoDB as pymongo names them, of Chroma as its server does."""


@dataclass
class _Fault:
    server: Server
    operation: str
    kind: FaultKind
    skip: int
    times: int

    def hits(self, server: Server, operation: str) -> bool:
        """Return whether this call fails; counts it."""
        if server != self.server or self.operation not in ("", operation) or not self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class Faults:
    """Faults that the mock servers have been told to have.

    ``calls`` are the calls that they got, such as ``mongo.find``.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._faults: list[_Fault] = []
        self._lock = threading.RLock()
        self._polls = 0
        self._stale: dict[Server, int] = {}
        self._past: dict[Server, Any] = {}
        self._servers: dict[Server, Callable[[], Any]] = {}

    def fail(
        self, server: Server, operation: str = "", *, kind: FaultKind = "unreachable", nth: int = 1, times: int = 1
    ) -> None:
        """Have the ``nth`` such call from now on fail, and ``times`` - 1 more.

        By default it is any operation.

        ``operation`` is one of `OPERATIONS`; ConfigError where it, the server or the kind is none that there is.
        ``unreachable``, ``timeout`` and ``refused`` do nothing; ``lost reply`` does all and then fails; ``partial
        write`` writes the first half of a batch and then fails.
        """
        if nth < 1 or times < 1:
            raise ConfigError(f"nth and times are at least 1, not {nth} and {times}")
        for what, name, known in (
            ("server", server, tuple(OPERATIONS)),
            ("operation", operation, ("", *OPERATIONS.get(server, ()))),
            ("kind", kind, get_args(FaultKind)),
        ):
            if name not in known:
                raise ConfigError(f"no {what} {name!r} can fail; there are {', '.join(filter(None, known))}")
        with self._lock:
            self._faults.append(_Fault(server, operation, kind, nth - 1, times))

    def read_stale(self, server: Server, times: int) -> None:
        """Have the next ``times`` reads see everything as it is now, whatever is written meanwhile.

        ConfigError where no mock of that server has these faults.
        """
        if server not in self._servers:
            raise ConfigError(f"no mock of {server!r} has these faults; there are {', '.join(self._servers) or 'none'}")
        now = self._servers[server]()
        with self._lock:
            self._past[server], self._stale[server] = now, times

    def index_not_ready(self, polls: int) -> None:
        """Have MongoDB say so often that its vector index cannot be queried yet."""
        self._polls = polls

    def clear(self) -> None:
        """Forget all faults, and the calls."""
        with self._lock:
            self._faults.clear()
            self._stale.clear()
            self.calls.clear()
            self._polls = 0

    # ---- for the mock servers

    def watch(self, server: Server, copied: Callable[[], Any]) -> None:
        """Register a function that copies the data of a server."""
        self._servers[server] = copied

    def is_ready(self) -> bool:
        """Return whether the vector index can be queried; counts the poll."""
        with self._lock:
            self._polls -= self._polls > 0
            return not self._polls

    def past(self, server: Server) -> Any | None:
        """Return the data that a read has to see where it is a stale one."""
        with self._lock:
            if not self._stale.get(server):
                return None
            self._stale[server] -= 1
            return self._past[server]

    def around(
        self, server: Server, operation: str, do: Callable[[], T], half: Callable[[], object] | None = None
    ) -> T:
        """Call ``do``, unless the call has to fail; ``half`` does half of it."""
        with self._lock:
            self.calls.append(f"{server}.{operation}")
            kind = next(iter([fault.kind for fault in self._faults if fault.hits(server, operation)]), None)
        if kind == "partial write" and half is not None:
            half()
        if kind is None or kind == "lost reply":
            done = do()
            if kind is None:
                return done
        raise _error(server, kind, operation)


def _error(server: Server, kind: FaultKind | None, operation: str) -> Exception:
    """Return the error that the driver of a server raises."""
    if server == "mongo":
        from pymongo.errors import AutoReconnect, NetworkTimeout, OperationFailure

        if kind == "refused":
            return OperationFailure("not authorized", 13)
        return NetworkTimeout("timed out") if kind == "timeout" else AutoReconnect(f"connection closed in {operation}")
    import httpx
    from chromadb.errors import AuthorizationError

    if kind == "refused":
        return AuthorizationError("Unauthorized")
    return httpx.ReadTimeout("timed out") if kind == "timeout" else httpx.ConnectError("connection refused")
