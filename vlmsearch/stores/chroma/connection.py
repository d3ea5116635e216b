"""Connections to Chroma servers, and the translation of their errors."""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from chromadb.api import ServerAPI
from chromadb.api.fastapi import FastAPI
from chromadb.config import Settings, System
from chromadb.errors import AuthorizationError, ChromaAuthError, ChromaError, InternalError, RateLimitError

from vlmsearch._util.address import parse_address
from vlmsearch._util.cancellation import run_apart
from vlmsearch._util.credentials import check_unencrypted, redact
from vlmsearch._util.files import expand_home
from vlmsearch._util.retry import retrying
from vlmsearch._util.tracing import trace_headers
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, VlmsearchError

T = TypeVar("T")
TOKEN_VARIABLE = "VLMSEARCH_CHROMA_TOKEN"  # noqa: S105 - the name of a variable, not its value
DEFAULT_PORT = 8000
FOLDER_INDEX = "vlmsearch"
"""The name of the index in a folder, where earlier versions had Chroma without a server."""
EXPECTED = (ChromaError, httpx.HTTPError, OSError, ValueError)
"""Errors that a call to Chroma may raise; any other error is a bug."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_TRY_AGAIN = frozenset({429, 502, 503, 504})
_REFUSED = frozenset({401, 403})
_RACES = 3
"""Times, at least, that a search is repeated that met with a write."""
_DAMAGE = re.compile(r"(?i)hnsw|finding id|compactor|log chunk")


def chroma_settings(**values: Any) -> Settings:
    """Chroma's settings, without telemetry. Those of a file ``.env`` in the current folder are left out."""
    api = "chromadb.api.fastapi.FastAPI"  # the only one that the package chromadb-client has
    return Settings(**{"_env_file": None, "anonymized_telemetry": False, "chroma_api_impl": api, **values})


@dataclass(frozen=True)
class Address:
    """A Chroma server and the name of an index on it."""

    host: str
    port: int
    name: str


def parse_location(location: str) -> Address:
    """Read ``//host:8000/name``; ConfigError for anything else, which says how to leave a folder."""
    if not location.strip():
        raise ConfigError("a Chroma store needs a server and the name of an index: chroma://host:8000/name")
    if not location.startswith("//") or location.startswith("///"):
        folder = expand_home(location[2:] if location.startswith("///") else location)
        raise ConfigError(
            f"chroma:{location} is a folder, and Chroma is used on a server, chroma://host:8000/name; in a folder, use "
            f"sqlite:. To keep an index that is there already, start {run_command(folder)} and run `vlmsearch copy "
            f"--from chroma://localhost:{DEFAULT_PORT}/{FOLDER_INDEX} --to sqlite:./index`"
        )
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


def run_command(folder: Path) -> str:
    """Return the command that starts a server on a folder of Chroma, as messages have it."""
    return f"`chroma run --path {shlex.quote(str(folder))}`"


class ChromaConnection:
    """A Chroma server, connected at the first call. May be used from several threads.

    ``timeout`` is in seconds, for each attempt; ``retries`` are further attempts where the server was not reached.
    """

    name: str
    """The index, for messages."""
    prefix: str
    """The beginning of the names of this index's collections."""

    def __init__(self, address: Address, *, ssl: bool, timeout: float, retries: int) -> None:
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.name = f"chroma://{host}:{address.port}/{address.name}"
        self.prefix = address.name
        self._host = host
        self._port = address.port
        self._ssl = ssl
        self._token = _token()
        if self._token and not ssl:
            advice = "add ssl=true to the URL, or in an option chroma= write https://"
            check_unencrypted(TOKEN_VARIABLE, address.host, advice)
        self._timeout = timeout
        self.retries = retries
        self._opening = threading.Lock()
        self._writing = threading.Lock()
        self._system: System | None = None

    def run(self, operation: str, call: Callable[[ServerAPI], T]) -> T:
        """Call the server, again after errors of the moment.

        Args:
            operation: What the call does, for messages.
            call: Takes the client.

        Returns:
            What ``call`` returns.

        Raises:
            BackendError: It failed; the cause is Chroma's own error.
        """

        def reach() -> T:
            return retrying(
                lambda: self.attempt(operation, call),
                self.retries,
                lambda exc: isinstance(exc, BackendUnavailableError),
            )

        return retrying(reach, max(self.retries, _RACES), _has_raced)

    def attempt(self, operation: str, call: Callable[[ServerAPI], T]) -> T:
        """Call the server once; BackendUnavailableError where it does not answer in time."""
        try:
            return run_apart(lambda: call(self._server()))
        except VlmsearchError:
            raise
        except Exception as exc:
            if isinstance(exc, EXPECTED) or type(exc) is Exception:  # chromadb raises plain ones for odd HTTP answers
                raise translate(exc, self.name, operation, secret=self._token) from exc
            raise

    def writing(self) -> AbstractContextManager[object]:
        """Hold off other writers of this process meanwhile; those of other processes are not held off."""
        return self._writing

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
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
    """Return the token in two headers: Chroma's servers look at one, and proxies before them at the other."""
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
    if _is_damage(exc):
        said += ". Its vector files are damaged, as after a crash of the server: index again under another name"
    return BackendError(f"{name} failed to {operation}: {said}")


def _has_raced(exc: BackendError) -> bool:
    """Return whether a row was removed while the server searched, which looks like damage to it."""
    return exc.__cause__ is not None and _is_damage(exc.__cause__)


def _is_damage(exc: BaseException) -> bool:
    """Return whether Chroma could not load its vector files."""
    return isinstance(exc, InternalError) and _DAMAGE.search(str(exc)) is not None
