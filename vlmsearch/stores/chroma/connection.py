"""Connections to Chroma, embedded or served, and the translation of its errors."""

from __future__ import annotations

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from chromadb.api import ServerAPI
from chromadb.api.fastapi import FastAPI
from chromadb.config import Settings, System
from chromadb.errors import AuthorizationError, ChromaAuthError, ChromaError, InternalError, RateLimitError

from vlmsearch._util.address import parse_address
from vlmsearch._util.credentials import check_unencrypted, redact
from vlmsearch._util.files import expand_home
from vlmsearch._util.retry import retrying
from vlmsearch._util.tracing import trace_headers
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, VlmsearchError
from vlmsearch.types import Vectors

T = TypeVar("T")
TOKEN_VARIABLE = "VLMSEARCH_CHROMA_TOKEN"  # noqa: S105 - the name of a variable, not its value
DEFAULT_PORT = 8000
EXPECTED = (ChromaError, httpx.HTTPError, OSError, ValueError)
"""Errors that a call to Chroma may raise; any other error is a bug."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_TRY_AGAIN = frozenset({429, 502, 503, 504})
_REFUSED = frozenset({401, 403})
_RACES = 3
"""Times, at least, that a search is repeated that met with a write."""
_DAMAGE = re.compile(r"(?i)hnsw|finding id|compactor|log chunk")


def chroma_settings(**values: Any) -> Settings:
    """Chroma's settings, without telemetry, and without those of a file ``.env`` that lies in the current folder."""
    return Settings(**{"_env_file": None, "anonymized_telemetry": False, **values})


@dataclass(frozen=True)
class Address:
    """A Chroma server and the name of an index on it."""

    host: str
    port: int
    name: str


def parse_location(location: str) -> Address | Path:
    """Return ``//host:8000/name`` as an Address, anything else as a folder."""
    if not location.strip():
        raise ConfigError("a Chroma store needs a folder (chroma:./index) or a server (chroma://host:8000/name)")
    if not location.startswith("//") or location.startswith("///"):
        return expand_home(location[2:] if location.startswith("///") else location)
    server, _, path = location[2:].partition("/")
    if "@" in server:
        raise ConfigError(f"a Chroma URL takes no user and password; a token goes into {TOKEN_VARIABLE}")
    address, name = parse_address(server), path.strip("/")
    if address is None or not _NAME.fullmatch(name):
        raise ConfigError(
            f"chroma:{location} is not an address of an index on a Chroma server; that is chroma://host:8000/name, "
            "with a name of up to 128 letters, digits, _ and -"
        )
    host, port = address
    return Address(host, port or DEFAULT_PORT, name)


class ChromaConnection(ABC):
    """One Chroma database, opened at the first call that needs it. May be used from several threads."""

    name: str
    """The database, for messages."""
    prefix: str
    """The beginning of the names of this index's collections."""
    retries: int = 0
    """Further attempts where the database was not reached."""
    most_bytes: int = 0
    """Bytes of a request that one row may take; 0 for any number."""
    is_shared: bool = False
    """Whether other processes may write at the same time."""

    def exists(self) -> bool:
        """Return whether there is a database to read from; looking creates nothing."""
        return True

    def prepare(self) -> None:  # noqa: B027 - a server needs nothing
        """Make sure that a database can be written here; ConfigError where it would land among other files."""

    def run(self, operation: str, call: Callable[[ServerAPI], T], *, writes: bool = False, collection: str = "") -> T:
        """Call Chroma, again after errors of the moment.

        Args:
            operation: What the call does, for messages.
            call: Takes the client.
            writes: Whether the call changes anything.
            collection: The collection whose rows the call needs, if any.

        Returns:
            What ``call`` returns.

        Raises:
            BackendError: It failed; the cause is Chroma's own error.
        """

        def attempt() -> T:
            return self.attempt(operation, call, writes=writes, collection=collection)

        def reach() -> T:
            return retrying(attempt, self.retries, lambda exc: isinstance(exc, BackendUnavailableError))

        return retrying(reach, max(self.retries, _RACES), _has_raced)

    @abstractmethod
    def attempt(self, operation: str, call: Callable[[ServerAPI], T], *, writes: bool, collection: str) -> T:
        """Call Chroma once; see `run`."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[None]:
        """Hold off other writers of this process meanwhile, and those of other processes unless `is_shared`."""

    def dropping(self, collection: str) -> AbstractContextManager[None]:
        """Remove what Chroma leaves on the disk of a collection that is dropped meanwhile."""
        return nullcontext()

    def note_garbage(self, rows: int) -> None:  # noqa: B027 - a server looks after its own files
        """Note that so many rows have been replaced or deleted: what they held may be forgotten."""

    def disk_use(self) -> tuple[int, int] | None:
        """Return how many bytes the database takes, and how many are left for it; None where nobody says."""
        return None

    def places(self) -> tuple[Path, ...]:
        """Return the folders of this machine that hold the database."""
        return ()

    def logged(self, collection: str) -> Iterator[tuple[list[str], Vectors]]:
        """Yield the rows of a collection with the vectors that were written, where these are kept beside the graph."""
        yield from ()

    def renew(self) -> bool:
        """Have the graphs of all vectors made again; False where not all can be."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Let go of the database; the next call opens it again."""


class ServedChroma(ChromaConnection):
    """A database on a Chroma server; ``timeout`` is in seconds, for each attempt."""

    is_shared = True
    most_bytes = 36 * 2**20  # a server takes requests of 40 MiB unless it is told otherwise

    def __init__(self, address: Address, *, ssl: bool, timeout: float, retries: int) -> None:
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.name = f"chroma://{host}:{address.port}/{address.name}"
        self.prefix = address.name
        self._host = host
        self._port = address.port
        self._ssl = ssl
        self._token = _token()
        if self._token and not ssl:
            advice = "add ssl=true to the URL, or in mongodb+chroma: write https://"
            check_unencrypted(TOKEN_VARIABLE, address.host, advice)
        self._timeout = timeout
        self.retries = retries
        self._opening = threading.Lock()
        self._writing = threading.Lock()
        self._system: System | None = None

    def attempt(self, operation: str, call: Callable[[ServerAPI], T], *, writes: bool, collection: str) -> T:
        """Call the server once; BackendUnavailableError where it does not answer in time."""
        try:
            return call(self._server())
        except VlmsearchError:
            raise
        except Exception as exc:
            if isinstance(exc, EXPECTED) or type(exc) is Exception:  # chromadb raises plain ones for odd HTTP answers
                raise translate(exc, self.name, operation, secret=self._token) from exc
            raise

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold off other writers of this process; those of other processes are not held off."""
        with self._writing:
            yield

    def close(self) -> None:
        """Close the connections."""
        with self._opening:
            system, self._system = self._system, None
        if system is not None:
            system.instance(_PatientServer).disconnect()
            system.stop()

    def _server(self) -> ServerAPI:
        with self._opening:
            self._system = self._system or self._connect()
            return self._system.instance(_PatientServer)

    def _connect(self) -> System:
        settings = chroma_settings(
            chroma_server_host=f"{'https' if self._ssl else 'http'}://{self._host}:{self._port}",
            chroma_server_http_port=self._port,
            chroma_server_ssl_enabled=self._ssl,
            chroma_server_headers=_token_headers(self._token),
        )
        system = System(settings)
        system.instance(_PatientServer).wait_at_most(self._timeout)
        system.start()
        return system


class _PatientServer(FastAPI):
    """Chroma's HTTP client, which has no time-out by itself."""

    def wait_at_most(self, seconds: float) -> None:
        self._session.timeout = httpx.Timeout(seconds)
        self._session.event_hooks["request"].append(lambda request: request.headers.update(trace_headers()))

    def disconnect(self) -> None:
        self._session.close()


def _token() -> str:
    """Return the token for servers; ConfigError for one that no header can hold."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(f"{TOKEN_VARIABLE} is not a token: it has characters that cannot be sent")
    return token


def _token_headers(token: str) -> dict[str, str]:
    """Return the token in the two headers that Chroma's servers and the proxies before them look at."""
    return {"Authorization": f"Bearer {token}", "X-Chroma-Token": token} if token else {}


def translate(exc: BaseException, name: str, operation: str, *, secret: str = "") -> BackendError:
    """Return the BackendError for an error of a call to Chroma.

    ``name`` is the database. ``secret`` is not repeated.
    """
    status = getattr(getattr(exc.__context__, "response", None), "status_code", None)
    said = redact(str(exc), [secret], max_chars=300) or type(exc).__name__
    if isinstance(exc, (AuthorizationError, ChromaAuthError)) or status in _REFUSED:
        return BackendError(f"{name} refused to {operation}: put its token into {TOKEN_VARIABLE}")
    if isinstance(exc, httpx.TimeoutException):
        return BackendUnavailableError(f"{name} did not answer in time to {operation}: {type(exc).__name__}")
    if isinstance(exc, (httpx.TransportError, RateLimitError)) or status in _TRY_AGAIN:
        return BackendUnavailableError(f"{name} could not be reached to {operation}: {said}")
    if is_damage(exc):
        said += ". Its vector files are damaged, as after a crash of the server: index again under another name"
    return BackendError(f"{name} failed to {operation}: {said}")


def _has_raced(exc: BackendError) -> bool:
    """Return whether a row was removed while the server searched, which looks like damage to it."""
    return exc.__cause__ is not None and is_damage(exc.__cause__)


def is_damage(exc: BaseException) -> bool:
    """Return whether Chroma could not load its vector files."""
    return isinstance(exc, InternalError) and _DAMAGE.search(str(exc)) is not None
