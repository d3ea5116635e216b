"""Connections to PostgreSQL: addresses, TLS, a pool, retries, and the translation of its errors.

Everything is done in transactions that rely on nothing of the session they are in: settings are made by ``SET LOCAL``,
locks end with the transaction, and no statement is prepared on the server. So the contract of the stores passes behind
pgbouncer with ``pool_mode = transaction`` and three connections to the server, as of pgbouncer 1.18.
"""

from __future__ import annotations

import math
import os
import re
import selectors
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from urllib.parse import quote, unquote

import psycopg
from pgvector.psycopg.vector import register_vector_info
from psycopg import capabilities, errors, generators, sql, waiting
from psycopg.conninfo import conninfo_attempts, conninfo_to_dict, make_conninfo, timeout_from_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types import TypeInfo

from vlmsearch._util.address import is_loopback, parse_address
from vlmsearch._util.cancellation import CancelToken, check_cancelled, run_apart, running_under
from vlmsearch._util.credentials import redact
from vlmsearch._util.options import bounded
from vlmsearch._util.retry import AttemptOptions, retrying
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, OperationCancelledError, VlmsearchError

T = TypeVar("T")
SessionRole = Literal["any", "read-write", "read-only", "primary", "standby", "prefer-standby"]
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_USER = re.compile(r"[A-Za-z0-9._~-]{1,63}")
_DATABASE = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_PASSWORD_VARIABLE = "PGPASSWORD"  # noqa: S105 - the name of a variable, not its value
_EXAMPLE = "postgresql://user:password@host:5432/database"
_ENCODED = "? # @ / in a password are %3F %23 %40 %2F"
_OWN_OPTIONS = "options of vlmsearch are behind the name: postgresql:env:NAME?table=photos"
_NO_CODE = re.compile("%(?:00|(?![0-9A-Fa-f]{2}))")
_PARAMETERS = (
    "application_name, channel_binding, connect_timeout, dbname, gssencmode, host, options, password, port, "
    "require_auth, sslcert, sslkey, sslmode, sslnegotiation, sslrootcert, target_session_attrs, user"
)
"""Parameters of libpq that the URL in a variable may have."""
_MAX_CONNECTIONS = 100
_STEP, _GRACE = 0.1, 0.3
"""Seconds: a wait looks at its deadline so often; a server may take so long to end a statement."""
_MAX_IDLE = 300.0
"""Seconds: firewalls forget a connection that has been idle for some longer time."""
_MIN_VERSION = (0, 8)
"""The version of pgvector that scans an index until a filtered page is full."""
_PINNED = {
    "client_encoding": "'UTF8'",
    "search_path": "pg_catalog, pg_temp",  # a fitting function in any other schema would run as this role
    "standard_conforming_strings": "on",
    "row_security": "off",  # rows that a policy hides are an error, not missing
    "TimeZone": "'UTC'",
    "lock_timeout": "0",  # `statement_timeout` ends that wait
    "client_min_messages": "warning",  # `_commit` reads warnings
    "gin_fuzzy_search_limit": "0",  # else an index of terms or metadata finds some rows, chosen at random
}
"""Settings of a session that change an answer, whatever role, database and variables say."""
_BEGIN = "".join(
    ("BEGIN ISOLATION LEVEL READ COMMITTED;", *(f"SET LOCAL {name} = {value};" for name, value in _PINNED.items()))
)
READING = "SET TRANSACTION READ ONLY;"
"""The setting of a transaction that only reads. The answer to its COMMIT is not waited for."""
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;"
"""The setting of a transaction whose queries all see one moment."""
_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_REFUSED = re.compile(
    r"authentication failed|no password supplied|does not exist|pg_hba\.conf|certificate|not support SSL", re.IGNORECASE
)
"""Parts of messages about a connection that no further attempt can make."""
_UNREAD = re.compile(r"invalid \S+ value|invalid integer value|bad value for|weak sslmode|require_auth method")
"""Parts of messages about a parameter that libpq does not take."""
_ADVICE = {
    'database ".*" does not exist': "make it with CREATE DATABASE, or name another one",
    'role ".*" does not exist': "make it with CREATE ROLE, or name another user in the URL or PGUSER",
    "not support SSL": "write tls=false, or sslmode=disable in the URL of a variable, for a trusted network",
    "certificate": "name a file of certificates with tls_ca_file, or with tls_certificate_file your own",
    "": f"the user goes into the URL or PGUSER, the password into {_PASSWORD_VARIABLE} or ~/.pgpass, or both into a "
    "variable: postgresql:env:DATABASE_URL",
}
"""Advice by what a message about a connection says."""
_NO_PGVECTOR = "{} has no pgvector: have an administrator of the database run CREATE EXTENSION vector"
_LASTING = (errors.QueryCanceled, errors.DiskFull, errors.ConfigurationLimitExceeded)
"""Errors of the operation class that the same statement would meet again at once."""
_OF_SERVER = (errors.ReadOnlySqlTransaction, errors.AdminShutdown, errors.CrashShutdown)
"""Errors after which other connections to the same server are of no use either."""


@dataclass(frozen=True)
class PostgresAddress:
    """The servers, the database on them, and the user.

    ``parameters`` are others of libpq, the password among them.
    """

    hosts: tuple[str, ...]
    database: str
    user: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, location: str) -> PostgresAddress:
        """Take apart ``//user@host:5432,other/database``, or ``env:NAME``, a variable with a URL.

        ConfigError never repeats a password.
        """
        if location.startswith("env:") and location[4:].isidentifier():
            return cls._in_variable(location[4:])
        refuse_password(location)
        before, at, after = _divided(location)
        hosts, _, database = after.partition("/")
        parts = tuple(unquote(host) for host in hosts.split(",") if host)
        is_valid = location.startswith("//") and (not before or _USER.fullmatch(before))
        # a port alone is that of libpq's own host
        if not is_valid or not all(host[0] == "/" or parse_address(re.sub("^:", "h:", host)) for host in parts):
            shown = f"//{after}" if at else location  # before the @ may be a password, in whatever form
            raise ConfigError(
                f"the address of a database is postgresql://user@host:5432/database, not postgresql:{shown}"
            )
        if not _DATABASE.fullmatch(database):
            raise ConfigError(f"{database!r} is not a name for a database: it has up to 63 letters, digits, _, . and -")
        return cls(parts, database, before)

    @classmethod
    def _in_variable(cls, name: str) -> PostgresAddress:
        """Take the URL in a variable apart."""
        value = os.environ.get(name, "").strip()
        if not value.startswith(("postgresql://", "postgres://")):
            state = "has another value" if value else "is not set"
            raise ConfigError(f"the environment variable {name!r} {state}: it holds a URL such as {_EXAMPLE}")
        given: dict[str, str] | None = None
        with suppress(psycopg.Error, ValueError):  # its message may have a part of a password
            given = {key: str(part) for key, part in conninfo_to_dict(value).items() if part}
        if fault := _fault_of(value.partition("://")[2], given):
            raise ConfigError(f"{name} is not like {_EXAMPLE}: {fault}")
        rest = dict(given or {})
        hosts, ports, database, user = (rest.pop(key, "") for key in ("host", "port", "dbname", "user"))
        return cls(_with_ports(hosts, ports.split(",")), database, user, rest)

    def __str__(self) -> str:
        user = f"{quote(self.user)}@" if self.user else ""
        return f"postgresql://{user}{','.join(quote(host, safe=':[]') for host in self.hosts)}/{self.database}"

    @property
    def is_local(self) -> bool:
        """Return whether every host is this machine. Without one, libpq takes them from variables."""
        named = [host for host, _ in map(_host_and_port, self.hosts) if host] or os.environ.get("PGHOST", "").split(",")
        hosts = filter(None, (*named, *os.environ.get("PGHOSTADDR", "").split(",")))
        return not os.environ.get("PGSERVICE") and all(host[0] in "/@" or is_loopback(host) for host in hosts)


@dataclass(frozen=True)
class PostgresOptions(AttemptOptions):
    """Options of the connections; in a URL, each is one of ``postgresql:``.

    Attributes:
        timeout: Seconds that one attempt may take, from 0.001 to 1,000,000: its waiting for a connection and all its
            statements. In a long one, every 500 vectors of a field and every query of many have as long.
        connections: Connections of the pool at most, from 1 to 100.
        host: Folder of the server's Unix socket, such as ``/var/run/postgresql``; or hosts in the place of the URL's.
        tls: Whether connections are encrypted and the server's certificate is checked. By default they are, to hosts
            other than this machine. Without it, the server has to take SCRAM-SHA-256, which sends no password.
        tls_ca_file: Certificates of authorities to trust, PEM; the system's by default.
        tls_certificate_file: The client's certificate, PEM.
        tls_key_file: Its key, PEM.
        target_session_attrs: The kind of server to connect to, where there are several hosts: libpq's parameter of
            that name, by default ``any``. ``read-write`` follows the primary server at a failover.
    """

    connections: int = bounded(8, minimum=1, maximum=_MAX_CONNECTIONS)
    host: str = ""
    tls: bool | None = None
    tls_ca_file: Path | None = None
    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None
    target_session_attrs: SessionRole | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        files = (self.tls_ca_file, self.tls_certificate_file, self.tls_key_file)
        if self.tls is False and any(files):
            raise ConfigError("tls_ca_file, tls_certificate_file and tls_key_file are for connections with TLS")
        for path in filter(None, files):
            if not os.path.isfile(path):
                raise ConfigError(f"there is no file {str(path)!r} for TLS")


DEFAULT_OPTIONS = PostgresOptions()


def check_name(option: str, name: str) -> None:
    """Raise ConfigError unless ``name`` can be a schema, or begin the names of an index's tables."""
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise ConfigError(
            f"{option} has up to 40 small letters, digits and _, a letter or _ first, and no pg_ there; not {name!r}"
        )


class _Deadline:
    """The end of all waits of an attempt: a moment after the limit of a statement on the server."""

    def __init__(self, timeout: float, grace: float = _GRACE) -> None:
        self._timeout, self._seconds = timeout, timeout + grace
        self.renew()

    def renew(self) -> None:
        """Begin to count anew, for a further part of a long transaction."""
        self.end = time.monotonic() + self._seconds

    def check(self, problem: str = "it has not answered for timeout=") -> None:
        """Raise TimeoutError once it is over, OperationCancelledError once the current call is given up."""
        check_cancelled()
        if time.monotonic() > self.end:
            raise TimeoutError(f"{problem}{self._timeout:g} seconds")

    def bound(self, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Go through the steps of psycopg's work, and check before the first and after each wait."""
        ready = None
        try:
            while True:
                self.check()
                ready = yield steps.send(ready)
        except StopIteration as end:
            return cast("T", end.value)


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection within a transaction. Whatever psycopg waits for ends at the deadline, or with the current call."""

    deadline: _Deadline
    proof: str = ""
    """The statements that proved which tables the transaction is on."""
    is_ending: bool = False
    """Whether the answer to a COMMIT is still to be read."""

    def end(self) -> None:
        """Commit, and leave the answer to the next `is_idle`."""
        self.pgconn.send_query(b"COMMIT")
        self.pgconn.flush()
        self.is_ending = True

    def is_idle(self) -> bool:
        """Return whether no transaction is open, and the server has not closed."""
        if self.is_ending:
            self.wait(generators.execute(self.pgconn))
            self.is_ending = False
        return self.pgconn.transaction_status == TransactionStatus.IDLE and not _has_answered(self)

    def wait(self, gen: Generator[Any, Any, T], *_: object, **__: object) -> T:
        """Wait. Past the deadline, the server has a moment to cancel the statement before the connection is shut."""
        try:
            return waiting.wait(self.deadline.bound(gen), self.pgconn.socket, _STEP)
        except (TimeoutError, OperationCancelledError, KeyboardInterrupt, SystemExit) as exc:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                with suppress(psycopg.Error, TimeoutError):
                    result = self._cancelled(gen)
                    if isinstance(exc, Exception):
                        return result
            raise

    def _cancelled(self, gen: Generator[Any, Any, T]) -> T:
        """Cancel a statement, and return the result of one that was faster."""
        try:
            with running_under(CancelToken()):  # this wait is not given up with the current call
                if capabilities.has_cancel_safe():  # the older way waits for ever
                    self.cancel_safe(timeout=_GRACE)
                return waiting.wait(_Deadline(0).bound(gen), self.pgconn.socket, _STEP)
        finally:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.close()


class _Pool:
    """Connections that are open and idle. Who needs another one opens it, and so meets its error at once.

    Args:
        connect: Opens a connection.
        max_size: Connections at most.
        parent: The pool of the process that this one was forked from. It is kept, since its sockets are that one's.
    """

    def __init__(self, connect: Callable[[_Deadline], Session], max_size: int, parent: _Pool | None = None) -> None:
        self.process = os.getpid()
        self._connect, self._max_size, self._parent = connect, max_size, parent
        self._places = threading.BoundedSemaphore(max_size)
        self._idle: deque[tuple[float, Session]] = deque()
        self._closings = 0

    @contextmanager
    def session(self, deadline: _Deadline) -> Iterator[Session]:
        """Lend a connection. One that is within a transaction at the end is closed, since its server may be gone."""
        while not self._places.acquire(timeout=_STEP):
            deadline.check(f"all {self._max_size} connections have been in use for ")
        try:
            closings, session = self._closings, self._taken(deadline) or self._connect(deadline)
            session.deadline = deadline
            try:
                yield session
            finally:
                is_idle = session.pgconn.transaction_status == TransactionStatus.IDLE
                if (is_idle or session.is_ending) and closings == self._closings and knows_vectors(session):
                    self._idle.append((time.monotonic(), session))
                else:
                    session.close()
        finally:
            self._places.release()

    def _taken(self, deadline: _Deadline) -> Session | None:
        while True:
            try:
                since, session = self._idle.pop()
            except IndexError:
                return None
            session.deadline, is_idle = deadline, False
            try:
                with suppress(psycopg.Error):
                    is_idle = time.monotonic() - since < _MAX_IDLE and session.is_idle()
            finally:
                if not is_idle:
                    session.close()
            if is_idle:
                return session

    def close(self) -> None:
        """Close the connections: idle ones now, others when they are given back."""
        self._closings += 1
        while self._idle:
            with suppress(IndexError):  # another thread took the last one
                self._idle.pop()[1].close()


def _has_answered(session: Session) -> bool:
    """Return whether there is something to read. That the server has closed counts."""
    with selectors.DefaultSelector() as selector:
        selector.register(session.fileno(), selectors.EVENT_READ)
        return bool(selector.select(0))


@dataclass
class PostgresConnection:
    """A pool of connections to one database, made at the first call. May be used from several threads."""

    name: str
    conninfo: str = field(repr=False)
    options: PostgresOptions = DEFAULT_OPTIONS
    secrets: tuple[str, ...] = field(default=(), repr=False)
    extension: str = ""
    """The schema that pgvector is installed in; "" where it is not known to be."""

    def __post_init__(self) -> None:
        self._pool = _Pool(self._connect, self.options.connections)

    def run(
        self, operation: str, call: Callable[[Session], T], *, settings: str = "", proof: str = "", timeout: float = 0
    ) -> T:
        """Call a function within a transaction. It is called again after errors of the moment, and must bear that.

        Args:
            operation: What it does, for messages.
            call: The function.
            settings: Statements ``SET LOCAL`` for the transaction.
            proof: Statements that end with a ``SELECT`` of whether the tables are those that are meant.
            timeout: Seconds that an attempt may take; with 0, those of the options.

        Raises:
            BackendUnavailableError: It keeps failing; the message names server and operation.
            BackendError: Other failures.
        """
        if self._pool.process != os.getpid():
            self._pool = _Pool(self._connect, self.options.connections, self._pool)

        def attempt() -> T:
            is_lost = True
            try:
                with self._pool.session(_Deadline(self.options.timeout)) as session:
                    try:
                        if timeout:
                            session.deadline = _Deadline(timeout)
                        begun = session.execute(f"{_begin(timeout or self.options.timeout)}{settings}{proof}")
                        if proof:
                            _check_proof(begun)
                        session.proof = proof
                        result = call(session)
                        session.end() if READING in settings else self._commit(session)
                    except Exception as exc:
                        is_lost = session.closed
                        if isinstance(exc, TimeoutError) and not is_lost:
                            raise errors.QueryCanceled("it was cancelled from here") from exc
                        with suppress(Exception):
                            session.execute("ROLLBACK")
                        raise
                    else:
                        return result
            except (psycopg.Error, OSError) as exc:
                if is_lost or isinstance(exc, _OF_SERVER):
                    self._pool.close()  # others are to the same server
                check_cancelled()
                raise self._translate(exc, operation, is_lost) from exc

        return retrying(attempt, self.options.retries, _may_pass)

    def _commit(self, session: Session) -> None:
        """Commit, and fail where the server warns: the commit is not on the standby servers that must have it.

        No ``statement_timeout`` ends the wait for them, only that the statement is cancelled.
        """
        warnings: list[str] = []

        def note(message: psycopg.errors.Diagnostic) -> None:
            if message.severity_nonlocalized == "WARNING":
                warnings.append(message.message_primary or "")

        session.add_notice_handler(note)
        try:
            session.execute("COMMIT")
        finally:
            session.remove_notice_handler(note)
        if warnings:
            raise BackendUnavailableError(
                f"{self.name} does not know whether what was written outlives this server: {'; '.join(warnings)}"
            )

    def _open(self, deadline: _Deadline) -> Session:
        """Connect to the first server that answers. Each address has its share of the time."""
        seconds = deadline.end - time.monotonic()
        addresses = run_apart(lambda: conninfo_attempts(conninfo_to_dict(self.conninfo)), seconds)
        problems: list[str] = []
        for index, address in enumerate(addresses):
            share = (deadline.end - time.monotonic()) / (len(addresses) - index)
            share = min(share, timeout_from_conninfo(address))
            limit = _Deadline(self.options.timeout, share - self.options.timeout)
            try:
                with closing(generators.connect(make_conninfo("", **address))) as steps:
                    return Session(waiting.wait_conn(limit.bound(steps), _STEP))
            except (psycopg.Error, TimeoutError) as exc:
                problems.append(
                    f"{address.get('host', 'server')}: {exc}" if isinstance(exc, TimeoutError) else str(exc)
                )
        raise psycopg.OperationalError("; ".join(dict.fromkeys(problems)))

    def _connect(self, deadline: _Deadline) -> Session:
        """Connect, and make the types of pgvector known to the connection where the database has it."""
        session = self._open(deadline)
        try:
            # no statement is prepared on a server: behind pgbouncer, the next transaction may be on another one
            session.deadline, session.autocommit, session.prepare_threshold = deadline, True, None
            self._check_encoding(session)
            session.execute(_begin(self.options.timeout))
            self.extension = self._installed(session)
            if self.extension:
                register_vector_info(session, TypeInfo.fetch(session, sql.Identifier(self.extension, "vector")))
            session.execute("COMMIT")
        except BaseException:
            session.close()
            raise
        return session

    def _check_encoding(self, session: Session) -> None:
        encoding = session.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise ConfigError(
                f"{self.name} is encoded in {encoding}, and texts need UTF8: make a database with "
                "CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
            )

    def _installed(self, session: Session) -> str:
        """Return the schema that pgvector is installed in; "" where it is not."""
        query = (
            "SELECT n.nspname, e.extversion FROM pg_extension e "
            "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
        )
        rows = all_rows(session, query)
        if not rows:
            return ""
        schema, number = rows[0]
        if "%" in schema:  # psycopg reads it as the sign of a placeholder
            raise ConfigError(
                f"{self.name} has pgvector in the schema {schema!r}: move it to one without a % in its name"
            )
        if tuple(map(int, number.split(".")[:2])) < _MIN_VERSION:
            raise ConfigError(
                f"{self.name} has pgvector {number}, and 0.8 or later is needed: run ALTER EXTENSION vector UPDATE"
            )
        return str(schema)

    def needed_extension(self) -> str:
        """Return the schema that pgvector is installed in; ConfigError where it is not."""
        if not self.extension:
            self.run("look for pgvector", lambda _: None)
        if not self.extension:
            raise ConfigError(_NO_PGVECTOR.format(self.name))
        return self.extension

    def install(self) -> None:
        """Install pgvector in the database unless it is there."""
        self.run("look for pgvector", lambda _: None)
        if self.extension:
            return

        def create(session: Session) -> None:
            session.execute("SELECT pg_advisory_xact_lock(hashtextextended('vlmsearch', 0))")
            session.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")

        try:
            self.run("install pgvector", create)
        except BackendError as exc:
            if isinstance(
                exc.__cause__,
                (
                    errors.InsufficientPrivilege,
                    errors.FeatureNotSupported,
                    errors.InvalidSchemaName,
                    errors.UndefinedFile,
                ),
            ):
                raise ConfigError(_NO_PGVECTOR.format(self.name)) from exc
            raise

    def _translate(self, exc: Exception, operation: str, is_lost: bool) -> VlmsearchError:
        said = redact(_message(exc), self.secrets, max_chars=300) or type(exc).__name__
        if isinstance(exc, errors.InsufficientPrivilege):
            return BackendError(f"{self.name} refused to {operation}: {said}")
        if isinstance(exc, errors.ReadOnlySqlTransaction):
            return BackendUnavailableError(
                f"{self.name} is a replica and cannot {operation}: name all hosts, and target_session_attrs=read-write"
            )
        if isinstance(exc, errors.DiskFull):
            is_undone = exc.diag.severity_nonlocalized == "ERROR"  # a server that ends at a commit does not say
            done = "; nothing of it was done" if is_undone else ""
            return BackendUnavailableError(f"{self.name} has no room left to {operation}: {said}{done}")
        if isinstance(exc, errors.QueryCanceled):
            return BackendUnavailableError(
                f"{self.name} took longer to {operation} than timeout={self.options.timeout:g} seconds: {said}"
            )
        if _is_refused(exc):
            advice = next(text for pattern, text in _ADVICE.items() if re.search(pattern, said))
            return BackendError(f"{self.name} refused the connection: {said}; {advice}")
        if isinstance(exc, psycopg.Error) and exc.sqlstate is None and _UNREAD.search(said):
            return ConfigError(f"{self.name} cannot be connected to: {said}")
        if is_lost or isinstance(exc, OSError) or (isinstance(exc, psycopg.OperationalError) and exc.sqlstate):
            return BackendUnavailableError(f"{self.name} could not be reached to {operation}: {said}")
        return BackendError(f"{self.name} failed to {operation}: {said}")

    def close(self) -> None:
        """Let go of the connections; the next call opens them again."""
        if self._pool.process == os.getpid():
            self._pool.close()


def connect(address: PostgresAddress, options: PostgresOptions) -> PostgresConnection:
    """Return the database at ``address``. Nothing is opened yet."""
    given = address.parameters
    parts = list(map(_host_and_port, address.hosts))
    if options.host:
        address = replace(address, hosts=_with_ports(options.host, [port for _, port in parts]))
        parts = list(map(_host_and_port, address.hosts))
    usual = given.get("sslmode") or ("prefer" if address.is_local else "verify-full")
    mode = {None: usual, True: "verify-full", False: "disable"}[options.tls]
    is_encrypted = mode == "verify-full"
    settings: dict[str, Any] = {
        "application_name": "vlmsearch",
        "tcp_user_timeout": math.ceil(options.timeout * 1000),  # a server that has vanished acknowledges nothing
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        # a password is proven and never sent where others could read it
        "require_auth": "" if is_encrypted or address.is_local else "scram-sha-256,none",
        **given,
        "dbname": address.database,
        "user": address.user,
        "host": ",".join(host.strip("[]") for host, _ in parts),
        "port": ",".join(str(port or "") for _, port in parts) if any(port for _, port in parts) else "",
        "target_session_attrs": options.target_session_attrs or given.get("target_session_attrs"),
        "sslmode": mode,
        "sslrootcert": options.tls_ca_file or given.get("sslrootcert") or (_authorities() if is_encrypted else ""),
        "sslcert": options.tls_certificate_file or given.get("sslcert"),
        "sslkey": options.tls_key_file or given.get("sslkey"),
    }
    texts = {key: str(value) for key, value in settings.items() if value not in ("", None)}
    if others := ", ".join(key for key, text in texts.items() if "\0" in text):
        raise ConfigError(f"a NUL character, which is %00 in a URL, cannot be in {others}")
    conninfo = make_conninfo(**texts)
    secrets = (given.get("password", ""), os.environ.get(_PASSWORD_VARIABLE, ""))
    return PostgresConnection(str(address), conninfo, options, secrets)


def refuse_password(location: str) -> None:
    """Raise ConfigError for a password in an argument, without repeating it."""
    if ":" in _divided(location)[0]:
        raise ConfigError(
            "a PostgreSQL URL takes no password here: put the URL into an environment variable and write "
            f"postgresql:env:DATABASE_URL, or the password into {_PASSWORD_VARIABLE} or ~/.pgpass"
        )


def _divided(location: str) -> tuple[str, str, str]:
    return location.removeprefix("//").replace(":@", "@", 1).rpartition("@")


def _fault_of(url: str, given: Mapping[str, str] | None) -> str:
    """Say what is wrong with the URL of a variable, without its values; "" where nothing is.

    Args:
        url: All behind ``postgresql://``.
        given: What libpq read in it; None where it could not.
    """
    authority, _, rest = url.partition("/")
    pairs = list(filter(None, f"{authority.rpartition('@')[2]}/{rest}".partition("?")[2].split("&")))
    read = given or {}
    names = {pair.partition("=")[0] for pair in pairs} if given is None else read.keys()
    others = ", ".join(sorted(names - set(_PARAMETERS.split(", "))))
    ports, hosts = read.get("port", "").split(","), read.get("host", "").split(",")
    database = read.get("dbname", "")
    faults = (
        (" " in url, "a space in it is %20"),  # libpq refuses one from version 17 on
        (given is None and _NO_CODE.search(url), "%00 and a % without two hexadecimal digits are no text: % is %25"),
        (others, f"it has {others}, and may have {_PARAMETERS}; {_OWN_OPTIONS}"),
        (
            given is None and any(pair.count("=") != 1 for pair in pairs),
            "behind the ? it has name=value&name=value, with %3D for an = in a value",
        ),
        (given is None or authority.count("@") > 1, _ENCODED),
        (not all(parse_address(f"h:{port}") for port in ports if port), "a port is a number from 1 to 65535"),
        (not all(map(_is_host, hosts)), "a host is a name, an address, or a folder with %2F for /"),
        (not database, "it names no database: write one behind the host, as in host:5432/database"),
        (not _DATABASE.fullmatch(database), "a name of a database has up to 63 letters, digits, _, . and -, and no /"),
    )
    fault = next((text for is_so, text in faults if is_so), "")
    return _ENCODED if fault and "@" in rest else fault


def _is_host(host: str) -> bool:
    return host[:1] in ("", "/", "@") or any(map(parse_address, (host, f"[{host}]")))


def _with_ports(hosts: str, ports: Sequence[str | int | None]) -> tuple[str, ...]:
    """Return hosts, with other ports unless they have their own: one for all, or one for each, as libpq does."""
    parts = [_host_and_port(host) for host in hosts.split(",")]
    if any(port for _, port in parts):
        ports = [port for _, port in parts]
    if len({*ports}) < 2:
        ports = [*ports, None][:1] * len(parts)
    if len(ports) != len(parts):
        raise ConfigError(f"{len(ports)} ports do not go with {len(parts)} hosts: give one for all, or one for each")
    names = (f"[{name}]" if parse_address(f"[{name}]") else name for name, _ in parts)
    return tuple(f"{name}:{port}" if port else name for name, port in zip(names, ports, strict=True))


def _host_and_port(host: str) -> tuple[str, str | int | None]:
    """Split the port off a host or the folder of a socket."""
    folder, _, port = host.rpartition(":")
    is_split = port.isdecimal() and folder[:1] in ("", "/", "@")
    return parse_address(host) or parse_address(f"[{host}]") or ((folder, port) if is_split else (host, None))


def _begin(timeout: float) -> str:
    return f"{_BEGIN}SET LOCAL statement_timeout = {math.ceil(timeout * 1000)};"


def _check_proof(cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
    """Raise UndefinedTable unless the last of several statements gave a true value."""
    while cursor.nextset():
        continue
    if cursor.fetchone() != (True,):
        raise errors.UndefinedTable("another table has the name of one of the index by now")


def _authorities() -> str:
    paths = (ssl.get_default_verify_paths().cafile, *_AUTHORITIES)
    return next((path for path in paths if path and Path(path).is_file()), "system")


def quoted(*names: str) -> str:
    """Return a name as SQL has it, behind its schema where two are given."""
    return sql.Identifier(*names).as_string(None)


def knows_vectors(session: Session) -> bool:
    """Return whether the types of pgvector are known to a connection: not where it was older than the extension."""
    return session.adapters.types.get("vector") is not None


def _may_pass(exc: BackendError) -> bool:
    return isinstance(exc, BackendUnavailableError) and not isinstance(exc.__cause__, _LASTING)


def _is_refused(exc: Exception) -> bool:
    """Return whether no further attempt to connect can help."""
    is_of_connecting = isinstance(exc, psycopg.OperationalError) and exc.sqlstate is None
    return isinstance(exc, errors.InvalidAuthorizationSpecification) or (
        is_of_connecting and _REFUSED.search(str(exc)) is not None
    )


def _message(exc: Exception) -> str:
    """Return the server's message, without the row that it was about."""
    primary = exc.diag.message_primary if isinstance(exc, psycopg.Error) else None
    return primary or str(exc)


def all_rows(session: Session, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Run a query, and return its rows."""
    return session.execute(query, values, binary=True).fetchall()
