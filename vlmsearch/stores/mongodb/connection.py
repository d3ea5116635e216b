"""Connections to MongoDB, writing of rows, and the translation of its errors."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from bson.errors import BSONError
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DuplicateKeyError,
    ExecutionTimeout,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)

from vlmsearch._util.address import is_loopback, parse_address
from vlmsearch._util.cancellation import run_apart
from vlmsearch._util.credentials import check_unencrypted, redact
from vlmsearch._util.retry import AttemptOptions, retrying
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, VlmsearchError

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = Collection[Row]
AuthMechanism = Literal[
    "SCRAM-SHA-256", "SCRAM-SHA-1", "MONGODB-X509", "MONGODB-AWS", "MONGODB-OIDC", "GSSAPI", "PLAIN"
]
USER_VARIABLE = "VLMSEARCH_MONGO_USER"
PASSWORD_VARIABLE = "VLMSEARCH_MONGO_PASSWORD"  # noqa: S105 - the name of a variable, not its value
DUPLICATE_KEY = 11000
_DATABASE = re.compile(r"[A-Za-z0-9_-]{1,38}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_RESERVED = frozenset({"admin", "config", "local"})
_REFUSED = frozenset({13, 18, 8000})
_TRANSIENT = (ConnectionFailure, ExecutionTimeout, WTimeoutError)
_TRANSIENT_LABELS = ("RetryableWriteError", "TransientTransactionError", "RetryableError")
_EXPECTED = (PyMongoError, BSONError, OSError)
LIVE: Row = {"version": {"$ne": None}}
"""The filter for documents; other rows are of deleted documents whose vectors are not gone yet."""


@dataclass(frozen=True)
class MongoAddress:
    """The servers of a deployment and a database on them."""

    hosts: tuple[str, ...]
    database: str

    @classmethod
    def parse(cls, location: str) -> MongoAddress:
        """Take ``//host:27017,other/database`` apart; ConfigError never repeats a password."""
        if "@" in location:
            raise ConfigError(
                f"a MongoDB URL takes no user and password; they go into {USER_VARIABLE} and {PASSWORD_VARIABLE}"
            )
        hosts, _, database = location.removeprefix("//").partition("/")
        parts = tuple(hosts.split(","))
        if not location.startswith("//") or not all(map(parse_address, parts)):
            raise ConfigError(f"the address of a database is mongodb://host:27017/database, not mongodb:{location}")
        if not _DATABASE.fullmatch(database) or database.lower() in _RESERVED:
            raise ConfigError(
                f"{database!r} is not a name for a database: it has up to 38 letters, digits, _ and -, "
                f"and is none of {', '.join(sorted(_RESERVED))}"
            )
        return cls(parts, database)


@dataclass(frozen=True)
class MongoOptions(AttemptOptions):
    """Options of a connection to the servers. In a URL, each is one of ``mongodb:`` and ``mongodb+chroma:``.

    Attributes:
        timeout: Seconds that one attempt may take, from 0.001 to 1,000,000; of the pair, also with Chroma. A scan of
            all vectors may take ten times as long.
        retries: Further attempts, from 0 to 20; of the pair, also with Chroma.
        srv: Whether the host is a name whose SRV record lists the servers (``mongodb+srv``).
        replica_set: The replica set's name, where it is to be checked.
        tls: Whether connections are encrypted.
        tls_ca_file: The certificates of authorities to trust, PEM; the system's by default.
        tls_certificate_key_file: The client's certificate and key, PEM.
        auth_source: The database that knows the user; by default what the mechanism or the server says.
        auth_mechanism: The way to log in; by default, with VLMSEARCH_MONGO_USER and VLMSEARCH_MONGO_PASSWORD where
            they are set.
        direct_connection: Whether to ask the one server of the address, and not those that it names: behind a forwarded
            port, these names lead nowhere.
        tls_allow_invalid_hostnames: Whether the certificate may be for another name, at a forwarded port of this
            machine.
        app_name: The name in the server's log.
        compressors: The compression of what is sent, where the server has it.
        retry_writes: Whether the driver repeats a write; servers that are only like MongoDB may not take that.
        retry_reads: Whether the driver repeats a read.
    """

    srv: bool = False
    replica_set: str = ""
    tls: bool = False
    tls_ca_file: Path | None = None
    tls_certificate_key_file: Path | None = None
    auth_source: str = ""
    auth_mechanism: AuthMechanism | None = None
    direct_connection: bool = False
    tls_allow_invalid_hostnames: bool | None = None
    app_name: str = "vlmsearch"
    compressors: Literal["zlib", "zstd", "snappy"] | None = None
    retry_writes: bool = True
    retry_reads: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tls and (self.tls_ca_file or self.tls_certificate_key_file or self.tls_allow_invalid_hostnames):
            raise ConfigError("tls_ca_file, tls_certificate_key_file and tls_allow_invalid_hostnames are for tls=true")
        for path in (self.tls_ca_file, self.tls_certificate_key_file):
            if path is not None and not os.path.isfile(path):
                raise ConfigError(f"there is no file {str(path)!r} for TLS")


DEFAULT_OPTIONS = MongoOptions()
_WRITES = "a write counts when a majority of the servers has it on disk"
PINNED: Mapping[str, tuple[str, str]] = {
    "w": ("majority", _WRITES),
    "journal": ("true", _WRITES),
    "readpreference": ("primary", "what is read is what was written last"),
}
"""Options of the driver's own URLs that have one value here, and why."""


def check_name(name: str) -> None:
    """Raise ConfigError unless ``name`` can begin the names of an index's collections."""
    if not _NAME.fullmatch(name) or name.lower().startswith("system"):
        raise ConfigError(f"the name of an index has up to 64 letters, digits, _ and -, a letter first, not {name!r}")


@dataclass
class MongoConnection:
    """One database, connected to at the first call. May be used from several threads.

    ``make_client`` gives the driver's client; writes are acknowledged when a majority of the servers has them on disk.
    """

    name: str
    database: str
    make_client: Callable[[], MongoClient[Row]]
    retries: int = 3
    secrets: tuple[str, ...] = field(default=(), repr=False)
    _client: MongoClient[Row] | None = field(default=None, repr=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def run(self, collection: str, operation: str, call: Callable[[Rows], T]) -> T:
        """Call a function with a collection. It is called again after errors of the moment, and must bear that.

        BackendUnavailableError, naming servers and operation, where it keeps failing; BackendError for other failures.
        """

        def attempt() -> T:
            return self._call(collection, operation, call)

        return retrying(attempt, self.retries, lambda exc: isinstance(exc, BackendUnavailableError))

    def _call(self, collection: str, operation: str, call: Callable[[Rows], T]) -> T:
        try:
            concern = WriteConcern(w="majority", j=True)
            return run_apart(
                lambda: call(self._connected()[self.database].get_collection(collection, write_concern=concern))
            )
        except VlmsearchError:
            raise
        except _EXPECTED as exc:
            raise self._translate(exc, operation) from exc

    def _connected(self) -> MongoClient[Row]:
        with self._opening:
            if self._client is None:
                try:
                    self._client = self.make_client()
                except ValueError as exc:
                    raise ConfigurationError(str(exc)) from exc
            return self._client

    def _translate(self, exc: Exception, operation: str) -> VlmsearchError:
        said = redact(_message(exc), self.secrets, max_chars=300) or type(exc).__name__
        if isinstance(exc, (ConfigurationError, InvalidURI)):
            return ConfigError(f"{self.name} cannot be opened: {said}")
        if isinstance(exc, OperationFailure) and exc.code in _REFUSED:
            return BackendError(
                f"{self.name} refused to {operation}: {said}; the user goes into {USER_VARIABLE}, "
                f"the password into {PASSWORD_VARIABLE}"
            )
        if is_transient(exc):
            return BackendUnavailableError(f"{self.name} could not be reached to {operation}: {said}")
        return BackendError(f"{self.name} failed to {operation}: {said}")

    def close(self) -> None:
        """Let go of the connections; the next call opens them again."""
        with self._opening:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def connect(address: MongoAddress, options: MongoOptions) -> MongoConnection:
    """Return the database at ``address``, with the user and password that the environment gives.

    Nothing is opened yet.
    """
    user, password = os.environ.get(USER_VARIABLE, ""), os.environ.get(PASSWORD_VARIABLE, "")
    if bool(user) != bool(password) and options.auth_mechanism in (None, "SCRAM-SHA-1", "SCRAM-SHA-256", "PLAIN"):
        raise ConfigError(f"{USER_VARIABLE} and {PASSWORD_VARIABLE} belong together: set both or none")
    names = [(parse_address(host) or (host,))[0] for host in address.hosts]
    if options.auth_mechanism == "PLAIN" and not options.tls:
        for name in names:
            check_unencrypted(PASSWORD_VARIABLE, name, "add tls=true to the URL")
    if options.tls_allow_invalid_hostnames and not (options.direct_connection and all(map(is_loopback, names))):
        raise ConfigError(
            "tls_allow_invalid_hostnames is for a forwarded port of this machine, such as localhost:27017, with "
            f"direct_connection=true, and not for {', '.join(address.hosts)}"
        )
    milliseconds = round(options.timeout * 1000)
    own = ("timeout", "retries", "srv")
    settings: dict[str, Any] = {
        "serverSelectionTimeoutMS": milliseconds,
        "connectTimeoutMS": milliseconds,
        "timeoutMS": milliseconds,  # of an operation with all its repetitions, and of it on the server
        "username": user,
        "password": password,
        **{name.replace("_", ""): value for name, value in vars(options).items() if name not in own},
    }
    texts = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
    given: dict[str, Any] = {key: value for key, value in texts.items() if value not in ("", None)}
    scheme = "mongodb+srv" if options.srv else "mongodb"
    hosts = ",".join(address.hosts)

    def make_client() -> MongoClient[Row]:
        client: MongoClient[Row] = MongoClient(f"{scheme}://{hosts}/", connect=False, **given)  # it checks its options
        if not options.srv:
            _check_reachable(address.hosts, options.timeout)
        return client

    return MongoConnection(
        name=f"mongodb://{hosts}/{address.database}",
        database=address.database,
        make_client=make_client,
        retries=options.retries,
        secrets=(password,) if password else (),
    )


def _check_reachable(hosts: Sequence[str], timeout: float) -> None:
    """Raise ConnectionError where no server takes a connection: the driver would go on asking until the timeout."""
    for host in hosts:
        name, port = parse_address(host) or (host, None)
        with suppress(OSError), socket.create_connection((name, port or 27017), timeout):
            return
    raise ConnectionError(
        f"{', '.join(hosts)} refused a connection, or was silent: start MongoDB, or check the address"
    )


def is_transient(exc: BaseException) -> bool:
    """Return whether trying again may help."""
    if isinstance(exc, BulkWriteError):
        return False
    labels = isinstance(exc, PyMongoError) and any(map(exc.has_error_label, _TRANSIENT_LABELS))
    return labels or isinstance(exc, (*_TRANSIENT, OSError))


def is_duplicate(exc: BulkWriteError) -> bool:
    """Return whether only upserts failed, of rows that someone else inserted at the same time."""
    details: Mapping[str, Any] = exc.details or {}
    errors = details.get("writeErrors", [])
    return bool(errors) and not details.get("writeConcernErrors") and all(e["code"] == DUPLICATE_KEY for e in errors)


def _message(exc: Exception) -> str:
    """Return the driver's message, without the documents that it was about."""
    if isinstance(exc, BulkWriteError):
        errors = (exc.details or {}).get("writeErrors") or (exc.details or {}).get("writeConcernErrors") or [{}]
        return f"{len(errors)} writes failed, the first with code {errors[0].get('code')}"
    return str(exc)


def bulk(rows: Rows, writes: Sequence[Any]) -> int:
    """Do all writes, in any order, and return how many rows were there or are now.

    Upserts of rows that someone else inserted meanwhile count as not done.
    """
    try:
        done = rows.bulk_write(list(writes), ordered=False)
    except BulkWriteError as exc:
        if not is_duplicate(exc):
            raise
        details = exc.details or {}
        return int(details["nMatched"]) + int(details["nUpserted"])
    return done.matched_count + done.upserted_count


def insert_once(rows: Rows, row: Row) -> None:
    """Add a row unless there is one with its id."""
    try:
        rows.insert_one(row)
    except DuplicateKeyError:
        return
