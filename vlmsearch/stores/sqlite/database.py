"""One SQLite file in WAL mode, for many processes and threads: opening, transactions, and what its errors mean."""

from __future__ import annotations

import functools
import os
import shlex
import sqlite3
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vlmsearch._util.cancellation import check_cancelled, on_cancel, pause
from vlmsearch._util.files import make_folder
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, OperationCancelledError
from vlmsearch.stores.sqlite.schema import SCHEMA, VERSION, Schema, run, stranger

_APPLICATION_ID = 0x766C6D73
"""The application id of databases of vlmsearch: "vlms"."""
_PAGE_BYTES = 8192
"""Three vectors of 512 numbers fit into a page."""
_PAGE_HEAD, _ROW_HEAD = 8, 12
"""Bytes of a page and of a row beside the values: https://www.sqlite.org/fileformat2.html#b_tree_pages."""
_PAGES = ("page_count", "freelist_count", "page_size")
_CHECKPOINT_PAGES = 4096
_VACUUMED_PAGES = 2048
_LOG_BYTES = 2**26
"""Bytes to which the log is cut after a large transaction.

Above them, writers wait for readers.
"""
_LOG_STEP = 2**24
"""Bytes by which the log grows before writers wait again for the same readers."""
_LOG_SECONDS, _LOG_LOOK = 5.0, 0.02
"""Seconds that a writer waits for readers that hold the log, and between looks.

Such readers keep the log from being emptied.
"""
_SPARSE_SHARE, _SPARSE_PAGES = 4, 512
"""The share and the number of unused pages from which a file is shrunk.

The share is one page in so many.
"""
_TURN, _PAUSE = 0.5, 0.11
"""After so many seconds of writing, a long operation lets others write for a moment: SQLite tries every 0.1 s."""
_MAX_CURSORS = 64
"""Cursors of a connection from which on those that are gone are forgotten."""
_NETWORK = frozenset(
    "afs ceph cifs fuse.glusterfs fuse.s3fs fuse.sshfs gpfs lustre ncpfs nfs nfs4 smb3 smbfs".split()  # noqa: SIM905
)
"""File systems that processes of several machines may use at once, without memory that they share."""


_INCOMPLETE = (
    "; its log (-wal) may be missing: the files of an index that is in use belong together, so copy it again with all "
    "of them, or with `vlmsearch copy`"
)


class LargeLogWarning(UserWarning):
    """Readers keep the log of an index from being emptied, so it grows."""


class BlankError(Exception):
    """There is a file and nothing in it. A process that was killed leaves one."""


class _Connection(sqlite3.Connection):
    """A connection. ``look`` is the state of a file that was opened as one that nobody writes to, else None."""

    look: tuple[int, ...] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors: list[weakref.ref[sqlite3.Cursor]] = []
        """Cursors that may be open, by references without callbacks: an interrupt that comes in a callback is lost."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """See `sqlite3.Connection.execute`."""
        cursor = super().execute(sql, parameters)
        if len(self._cursors) >= _MAX_CURSORS:
            self._cursors = [known for known in self._cursors if known() is not None]
        self._cursors.append(weakref.ref(cursor))
        return cursor

    def end_statements(self) -> None:
        """End statements that were not read to their end: the next transaction would go on seeing what they see."""
        for known in self._cursors:
            if (cursor := known()) is not None:
                cursor.close()
        self._cursors = []


class Database:
    """A file that is opened at the first call that needs it. May be used from several threads, not after a fork.

    ``timeout`` is the time that a writer waits for others, in seconds.
    """

    def __init__(self, path: Path, *, timeout: float) -> None:
        self.path = path.absolute()
        self.name = f"sqlite:{path}"
        self._timeout = timeout
        self._idle: list[_Connection] = []
        self._taken = 0
        self._log_allowed = _LOG_BYTES
        self._file: tuple[int, int] | None = None
        """The file that was opened first."""
        self._guard = threading.Lock()
        self.pid = os.getpid()
        _close_before_forks()
        _opened.add(self)

    def exists(self) -> bool:
        """Return whether there is a file with anything in it."""
        with self._translated("look for the index"), suppress(FileNotFoundError, NotADirectoryError):
            return self.path.is_dir() or self.path.stat().st_size > 0
        return False

    @contextmanager
    def reading(self, operation: str) -> Iterator[sqlite3.Connection]:
        """Give a connection that sees the database as it is now within the block.

        ``operation`` is for messages, such as ``read documents``.
        """
        with self._transaction("DEFERRED", operation, self._timeout) as connection:
            yield connection

    @contextmanager
    def writing(self, operation: str, *, waits: bool = True) -> Iterator[sqlite3.Connection]:
        """Give a connection to write with: all that the block does is done at its end, or nothing. Others wait.

        BackendUnavailableError where another writer is at work for longer than the timeout, or without ``waits`` now.
        """
        if waits and self._log_size() > self._log_allowed:
            self._empty_log(operation)
        with self._transaction("IMMEDIATE", operation, self._timeout if waits else 0) as connection:
            if connection.look is not None:
                raise sqlite3.OperationalError("attempt to write a readonly database")
            yield connection

    @contextmanager
    def _transaction(self, kind: str, operation: str, timeout: float) -> Iterator[_Connection]:
        with self._translated(operation):
            check_cancelled()
            connection = self._take()
            try:
                with on_cancel(connection.interrupt):
                    connection.execute(f"PRAGMA busy_timeout = {int(timeout * 1000)}")
                    connection.execute(f"BEGIN {kind}")
                    yield connection
                    connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # which may have ended it by itself, as where the disk is full
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._give_back(connection)

    def create(self) -> None:
        """Make the file and its folder, unless they are there."""
        self._refuse_network()
        with self._translated("make the database"):
            make_folder(self.path.parent)
            connection = self._connect("mode=rwc")
            try:
                if not connection.execute("PRAGMA user_version").fetchone()[0]:
                    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
                    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                with suppress(BlankError):
                    self._check(connection)
                self._log_ahead(connection)
                self._upgrade(connection)
            finally:
                connection.close()

    def shrink(self) -> None:
        """Give unused pages back to the file system, some at a time: others write between."""
        with self._translated("shrink the file"), self._connection() as connection:
            turns = Turns()
            while (unused := connection.execute("PRAGMA freelist_count").fetchone()[0]) > 0:
                # `execute` takes one step of a statement without columns, which is one page
                connection.executescript(f"PRAGMA incremental_vacuum({_VACUUMED_PAGES})")
                if connection.execute("PRAGMA freelist_count").fetchone()[0] >= unused:
                    break  # another process uses them up
                turns.pause()
            _write_back(connection)

    def write_back(self) -> None:
        """Bring what the log has into the file. Readers that need the file as it is, and a full disk, limit that."""
        with suppress(BackendError), self._translated("write the log back"), self._connection() as connection:
            _write_back(connection)

    def _empty_log(self, operation: str) -> None:
        """Wait for readers that the log grows for. Where they stay, say so and let it grow by a step.

        SQLite begins the log anew when no reader needs any of it. A process that reads for long thus makes it grow
        with all that is written meanwhile. Nobody is kept from reading or writing while this waits.
        """
        until = time.monotonic() + min(_LOG_SECONDS, self._timeout)
        with self._translated(operation), self._connection() as connection:
            try:
                connection.execute("PRAGMA busy_timeout = 0")
                while True:
                    is_busy, pages, written_back = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    if not is_busy:
                        self._log_allowed = _LOG_BYTES
                        return
                    check_cancelled()
                    if time.monotonic() >= until:
                        break
                    time.sleep(_LOG_LOOK)
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(self._timeout * 1000)}")
        size = self._log_size()
        if self._log_allowed == _LOG_BYTES and written_back < pages:
            warnings.warn(
                f"the log of {self.name} has {size / 2**20:.0f} MiB ({self._log.name}) and grows: a process or thread "
                "that has been reading the index for long keeps it from being emptied. Nothing is lost; end the "
                "reader, or see that the disk has room",
                LargeLogWarning,
                stacklevel=2,
            )
        self._log_allowed = size + _LOG_STEP

    @property
    def _log(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _log_size(self) -> int:
        with suppress(OSError):
            return self._log.stat().st_size
        return 0

    def close(self) -> None:
        """Close all connections; the next call opens others."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # ---- connections

    @contextmanager
    def _connection(self) -> Iterator[_Connection]:
        """Give a connection without a transaction."""
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _take(self) -> _Connection:
        if os.getpid() != self.pid:
            raise ConfigError(f"{self.name} was opened in process {self.pid}: open another after a fork")
        if self._file and self._file != self._identity():
            raise BackendError(f"{self.name} was removed or replaced since it was opened: open it again")
        with self._guard:
            self._taken += 1
        try:
            while True:
                with self._guard:
                    if not self._idle:
                        break
                    connection = self._idle.pop()
                if connection.look is None or connection.look == self._look():
                    return connection
                connection.close()
            return self._open()
        except BaseException:
            with self._guard:
                self._taken -= 1
            raise

    def _give_back(self, connection: _Connection) -> None:
        connection.end_statements()
        with self._guard:
            self._taken -= 1
            if not connection.in_transaction:
                self._idle.append(connection)
                return
        connection.close()  # it was interrupted while it rolled back

    def _open(self) -> _Connection:
        if self.path.is_dir():
            raise ConfigError(self._why_a_folder())
        self._refuse_network()
        try:
            connection = self._connect("mode=rw")
        except sqlite3.OperationalError:  # its memory for readers cannot be made where nothing may be written
            look = self._look()
            if os.access(self.path.parent, os.W_OK) or look[-1]:
                raise
            connection = self._connect("mode=ro&immutable=1")
            connection.look = look
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        self._file = self._file or self._identity()
        return connection

    def _connect(self, how: str) -> _Connection:
        if self._identity() in _left_open:
            raise ConfigError(
                f"{self.name} was being used when this process was forked from process {os.getppid()}, whose locks it "
                "would undo: start the process before the index is used, or by spawn instead of fork"
            )
        uri = f"{self.path.as_uri()}?{how}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False, factory=_Connection
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _look(self) -> tuple[int, ...]:
        """Return values that differ after every write: of the file, and the length of its log."""
        status = self.path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns, self._log_size()

    def _identity(self) -> tuple[int, int] | None:
        with suppress(OSError):
            status = self.path.stat()
            return status.st_dev, status.st_ino
        return None

    def _check(self, connection: sqlite3.Connection) -> None:
        """Raise ConfigError unless this is a database of vlmsearch, of a version that is known here."""
        owner, version, tables = connection.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
            "FROM pragma_application_id, pragma_user_version"
        ).fetchone()  # in one statement: another process may be making it
        if owner != _APPLICATION_ID:
            if not tables:
                raise BlankError
            raise ConfigError(f"{self.path} is a database of another program: give the index another name")
        if not tables:
            raise BackendError(f"{self.name} lacks its tables{_INCOMPLETE}")
        if version > VERSION:
            raise ConfigError(
                f"{self.name} was written by a newer vlmsearch (schema {version}; this one knows {VERSION}): "
                "upgrade vlmsearch"
            )
        if version < VERSION:
            self._upgrade(connection)
        self._refuse_strangers(connection, SCHEMA)

    def _refuse_strangers(self, connection: sqlite3.Connection, schema: Schema) -> None:
        if what := stranger(connection, schema):
            raise ConfigError(
                f"{self.name} has the {what}, which vlmsearch does not make so: if another program changed the file, "
                "restore a copy; if it came from elsewhere, do not use it"
            )

    def _log_ahead(self, connection: sqlite3.Connection) -> None:
        until = time.monotonic() + self._timeout
        while True:
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as exc:  # SQLite does not wait here for others that do the same
                if "locked" not in str(exc) or time.monotonic() > until:
                    raise
            pause(_LOG_LOOK)
        if mode != "wal":
            raise ConfigError(f"{self.name} cannot have a write-ahead log here: put the index on a local disk")

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Take the steps that the schema lacks, all or none: ConfigError where the file may not be written."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if not version:
                run(connection, SCHEMA.shared)
            elif version < VERSION:
                from vlmsearch.stores.sqlite.upgrade import EARLIER, upgrade

                self._refuse_strangers(connection, EARLIER[version])
                upgrade(connection, version)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {max(version, VERSION)}")
            connection.execute("COMMIT")
        except BaseException as exc:
            with suppress(sqlite3.Error):  # which may have ended it by itself, as where the disk is full
                connection.execute("ROLLBACK")
            if isinstance(exc, sqlite3.OperationalError) and "readonly" in str(exc):
                raise ConfigError(
                    f"{self.name} was written by an older vlmsearch, and may only be read here: run "
                    f"`vlmsearch check --store {self.name}` as a user who may write to it, which renews it"
                ) from exc
            raise
        if 0 < version < VERSION:
            with suppress(BackendError):  # others may be writing: what is written next takes the room
                self.shrink()

    # ---- what goes wrong

    def _why_a_folder(self) -> str:
        if (self.path / "chroma.sqlite3").exists():
            path = shlex.quote(str(self.path))
            return (
                f"{self.path} is a folder of Chroma: start `chroma run --path {path}` and copy its index with "
                f"`vlmsearch copy --from chroma://localhost:8000/vlmsearch --to sqlite:{path}.db`"
            )
        return f"{self.path} is a folder; an index of sqlite: is a file: name one, such as sqlite:{self.path / 'index'}"

    def _refuse_network(self) -> None:
        kind = network_file_system(self.path)
        if kind:
            raise ConfigError(
                f"{self.name} is on a network file system ({kind}), where processes cannot share the memory that a "
                "write-ahead log needs: put the index on a local disk, or in a store on a server"
            )

    @contextmanager
    def _translated(self, operation: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise self._error(str(exc), operation) from exc
        except UnicodeDecodeError as exc:  # from what SQLite says of a damaged schema
            raise self._error(f"malformed: {exc}", operation) from exc
        except OSError as exc:
            raise BackendError(f"{self.name} failed to {operation}: {exc.filename}: {exc.strerror}") from exc

    def _error(self, said: str, operation: str) -> BackendError | ConfigError | OperationCancelledError:
        if said == "interrupted":
            return OperationCancelledError(f"{self.name}: it was cancelled before it could {operation}")
        if "not a database" in said:
            return ConfigError(f"{self.path} is not a database: give the index another name")
        if "locked" in said or "busy" in said:
            return BackendUnavailableError(
                f"{self.name} could not {operation}: another process has been writing for {self._timeout:g} s"
            )
        damaged = "; the file is damaged: restore a copy of it, or index again under another name"
        advice = {
            "full": "; nothing of it was done: make room on the disk, and do it again",
            "disk I/O error": "; nothing of it was done: see whether the disk or a quota is full, or the disk fails",
            "no such table": _INCOMPLETE,
            "readonly": "; it may be read here, and not written to",
            "unable to open": "; the file or its folder may not be opened by this user, or its log (-wal) has to be "
            "read by a process that may write to the folder first",
            **dict.fromkeys(
                ("malformed", "Could not decode", "fts5", "vtable", "no such column", "constraint"), damaged
            ),
        }
        said = " ".join(said.partition(" with text ")[0].split())
        hint = next((text for key, text in advice.items() if key in said), "")
        return BackendError(f"{self.name} failed to {operation}: {said}{hint}")


class Turns:
    """The turns that a long operation leaves to other writers, between its transactions."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def pause(self) -> None:
        """Let others write, where this operation has been writing for long."""
        if time.monotonic() - self._begun > _TURN:
            time.sleep(_PAUSE)
            self._begun = time.monotonic()


def _write_back(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def is_sparse(db: sqlite3.Connection) -> bool:
    """Return whether enough pages of the file are unused to make it smaller."""
    pages, unused = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in _PAGES[:2])
    return bool(unused >= _SPARSE_PAGES and unused * _SPARSE_SHARE > pages)


def page_bytes(db: sqlite3.Connection) -> tuple[int, int]:
    """Return how many bytes of the file are in use, and how many are not."""
    pages, unused, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in _PAGES)
    return (pages - unused) * size, unused * size


def bytes_in_page(length: int) -> int:
    """Estimate how many bytes of the file a row takes: those beside it in a page leave a rest."""
    beside = (_PAGE_BYTES - _PAGE_HEAD) // (length + _ROW_HEAD)
    return _PAGE_BYTES // beside if beside else length + _PAGE_BYTES // 2


def network_file_system(path: Path) -> str:
    """Return the kind of network file system that a path is on: "" for a local or an unknown one."""
    if sys.platform != "linux":
        return ""
    with suppress(OSError):
        place = os.path.realpath(path)
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
        containing = [(m[4], m[m.index("-") + 1]) for m in mounts if f"{place}/".startswith(f"{m[4].rstrip('/')}/")]
        kind = max(containing, key=lambda mount: len(mount[0]), default=("", ""))[1]
        return kind if kind in _NETWORK else ""
    return ""


_opened: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[sqlite3.Connection] = []
"""Connections of a parent process, kept so that nothing closes them: that would end its locks."""
_left_open = set[tuple[int, int] | None]()
"""The files that a parent process had open when this one was forked.

SQLite counts a process's locks in its memory, which a fork copies, and the locks themselves are not inherited: here it
would take locks for held that nobody holds.
"""


@functools.cache
def _close_before_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_close_idle, after_in_child=_disown)


def _close_idle() -> None:
    for database in list(_opened):
        database.close()


def _disown() -> None:
    for database in list(_opened):
        if database._taken or database._idle:  # noqa: SLF001 - of this module
            _left_open.add(database._identity())  # noqa: SLF001
        _inherited.extend(database._idle)  # noqa: SLF001
        database._idle, database._guard = [], threading.Lock()  # noqa: SLF001
    _left_open.discard(None)
