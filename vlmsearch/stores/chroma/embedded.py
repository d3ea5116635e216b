"""An embedded Chroma database: one folder, one process at a time, and nothing lost in a crash or a power cut.

Chroma keeps rows in SQLite and vectors in HNSW files beside it. It rewrites those files in place and does not flush
them. A killed process or a power cut leaves files that Chroma cannot load, that crash it or that lack vectors
(chroma-core/chroma#7238, #7678). SQLite also has every vector in Chroma's own log, ``embeddings_queue``,
which Chroma trims after each rewrite. Here the log is kept instead, so the files are only a cache:

* The lock file tells whether they can be relied on (see `FolderLock`). Where they cannot, the next process removes
  them, and Chroma builds them again from the log, in about half a millisecond a vector.
* So it does where deleted vectors, which HNSW keeps as points of its graph, outnumber the others.
* Two processes would overwrite each other's files, and none sees what another has written, so one holds the lock.
* When the database is closed, what was replaced or deleted leaves the log, and a file that is mostly unused becomes
  smaller. A collection's log and files go when it is dropped.

Other programs may have collections in the same database. Those stay as they are: their rows, their log and their
files. What they share is one setting of Chroma's, that the log of collections that are written to is kept.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from chromadb.api import ServerAPI
from chromadb.config import System
from chromadb.errors import InternalError

from vlmsearch._util.files import sync
from vlmsearch._util.locks import FolderLock, LockedError
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, VlmsearchError
from vlmsearch.stores.chroma.connection import EXPECTED, ChromaConnection, chroma_settings, is_damage, translate
from vlmsearch.stores.chroma.log import (
    DATABASE,
    PREFIX,
    Dropped,
    collection_parts,
    disk_use,
    drop_graphs,
    heavy_graphs,
    keep_log,
    logged_vectors,
    remove_parts,
    shrink,
    sync_files,
    trim_log,
)
from vlmsearch.types import Vectors

T = TypeVar("T")
_LOCK = "vlmsearch.lock"
_LOOK_AFTER = 1000
"""Deleted rows after which the graphs are looked at."""
_log = logging.getLogger(__name__)


class EmbeddedChroma(ChromaConnection):
    """The database in ``folder``; connections of one process to one folder share it."""

    prefix = PREFIX

    def __init__(self, folder: Path) -> None:
        self.name = f"chroma:{folder}"
        self._path = Path(folder.absolute())
        self._guard = threading.Lock()
        self._open: _OpenFolder | None = None
        self._release: weakref.finalize[..., EmbeddedChroma] | None = None

    def exists(self) -> bool:
        """Return whether the folder has a database; BackendError where nobody may look."""
        try:
            return (self._path / DATABASE).is_file()
        except OSError as exc:
            raise BackendError(f"{self.name} cannot be opened: {exc.strerror}: {str(exc.filename)!r}") from exc

    def prepare(self) -> None:
        """Make the folder; ConfigError where there is a file or a folder with other things in it."""
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            others = sorted(path.name for path in self._path.iterdir() if not path.name.startswith("."))
        except OSError as exc:
            raise ConfigError(f"{self.name} cannot be made: {exc.strerror}: {str(exc.filename)!r}") from exc
        if others and DATABASE not in others and others != [_LOCK]:
            raise ConfigError(
                f"{self.name} would put an index among other files ({', '.join(others[:3])}); name a folder of its own"
            )

    def attempt(self, operation: str, call: Callable[[ServerAPI], T], *, writes: bool, collection: str) -> T:
        """Call the database; one that does not load is repaired once and called again."""
        return self._folder().run(operation, call, writes=writes, collection=collection)

    def _folder(self) -> _OpenFolder:
        _check_process(self.name)
        with self._guard:
            if self._open is None:
                self._open = _acquire(self._path.resolve(), self.name)
                self._release = weakref.finalize(self, _release, self._open)
            return self._open

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold off other writers, which are all of this process; at the end, all is on the disk."""
        folder = self._folder()
        with folder.turn:
            yield
            folder.settle()

    def dropping(self, collection: str) -> AbstractContextManager[None]:
        """Remove the log and the HNSW files of a collection that is dropped meanwhile: Chroma leaves them there."""
        return self._folder().dropping(collection)

    def places(self) -> tuple[Path, ...]:
        """Return the folder."""
        return (self._path,)

    def disk_use(self) -> tuple[int, int]:
        """Return how many bytes the folder takes, and how many are left on its disk and within its files."""
        try:
            return disk_use(self._folder().path)
        except (OSError, sqlite3.Error) as exc:
            raise BackendError(f"{self.name} could not be measured: {exc}") from exc

    def note_garbage(self, rows: int) -> None:
        """Note that rows were replaced or deleted: on closing, they leave the log too."""
        if self._open is not None:
            self._open.note_garbage(rows)

    def logged(self, collection: str) -> Iterator[tuple[list[str], Vectors]]:
        """Return the rows of a collection with their vectors, from Chroma's log."""
        return logged_vectors(self._folder().path, collection)

    def renew(self) -> bool:
        """Have the graphs of all vectors made again; False where not all can be."""
        return not self._folder().renew().kept

    def close(self) -> None:
        """Let go of the folder; the last connection of a process closes the database and gives the lock back."""
        with self._guard:
            self._open, release, self._release = None, self._release, None
        if release is not None:
            release()


class _Gate:
    """A lock for calls that run side by side, and for work that needs the database alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls = 0
        self._is_alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone)
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone)
            self._is_alone = True
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._calls)
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()


class _OpenFolder:
    """An open folder, which all connections of this process to it share."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.process = os.getpid()
        self.users = 0
        self.turn = threading.RLock()
        self._name = name
        self._gate = _Gate()
        self._generation = 0
        self._deleted = 0
        self._has_garbage = self._is_mended = self._is_closed = False
        self._loaded: set[str] = set()
        self._system: System | None = None
        self._lock = _locked(path, name)
        try:
            with self._chroma_errors("open its database"):
                self._check_graphs()
                self._start()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _chroma_errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except BaseException as exc:
            if not _is_chromas(exc):
                raise
            raise translate(exc, self._name, operation) from exc

    def _check_graphs(self) -> None:
        """Have graphs made again that cannot be relied on, or that are mostly deleted points."""
        if not (self.path / DATABASE).is_file():
            return
        if not self._lock.is_intact:
            why = "it is not known whether all of its vectors are in its files, so these are made again"
            _log.warning("%s: %s", self._name, why)
            self._drop()
            self._lock.mended()
        elif heavy := heavy_graphs(self.path):
            self._drop(heavy)

    def _drop(self, only: Sequence[str] | None = None) -> Dropped:
        with self._lock.writing(broken_by=(Exception,)):
            dropped = drop_graphs(self.path, only)
        if dropped.kept:
            why = "vector files cannot be made again, for Chroma's log lacks vectors: check it with `vlmsearch check`"
            _log.warning("%s: %d of its %s", self._name, dropped.kept, why)
        return dropped

    def _start(self) -> None:
        settings = chroma_settings(
            chroma_api_impl="chromadb.api.rust.RustBindingsAPI",
            is_persistent=True,
            persist_directory=str(self.path),
        )
        system = System(settings)
        server = system.instance(ServerAPI)  # type: ignore[type-abstract]
        system.start()
        try:
            keep_log(self.path)
        except BaseException:
            system.stop()
            raise
        self._system, self._server = system, server

    def _stop(self) -> None:
        system, self._system = self._system, None
        if system is not None:
            system.stop()

    def run(self, operation: str, call: Callable[[ServerAPI], T], *, writes: bool, collection: str) -> T:
        """Call the database. Loading a collection may rewrite its files, so that counts as a write."""
        while True:
            cause = None
            with self._gate.shared():
                generation = self._generation
                if self._system is not None:
                    try:
                        if not (writes or (collection and collection not in self._loaded)):
                            return call(self._server)
                        with self._lock.writing(broken_by=(InternalError,)):
                            return self._load(collection, call(self._server))
                    except VlmsearchError:
                        raise
                    except BaseException as exc:
                        if not _is_chromas(exc):
                            raise
                        if self._is_mended or not is_damage(exc):
                            raise translate(exc, self._name, operation) from exc
                        cause = exc
            self._restart(generation, operation, cause)

    def _load(self, collection: str, answer: T) -> T:
        self._loaded.add(collection)
        return answer

    def _restart(self, generation: int, operation: str, cause: BaseException | None) -> None:
        """Have vector files that do not load made again, and open a database that could not be opened again."""
        with self._gate.alone():
            if self._is_closed:
                raise BackendError(f"{self._name} was closed before it could {operation}")
            if cause is not None and generation == self._generation:
                self._is_mended = True
                _log.warning("%s: its vector files do not load, so they are made again: %s", self._name, cause)
                if not self._make_again().graphs:
                    raise translate(cause, self._name, operation) from cause
            elif self._system is None:
                with self._chroma_errors("open its database"):
                    self._start()

    def _make_again(self, only: Sequence[str] | None = None) -> Dropped:
        with self._chroma_errors("make its vector files again"):
            self._stop()
            self._generation += 1
            self._loaded.clear()
            dropped = self._drop(only)
            self._lock.mended()
            self._start()
            return dropped

    def renew(self) -> Dropped:
        """Have all graphs made again."""
        with self._gate.alone():
            return self._make_again()

    @contextmanager
    def dropping(self, collection: str) -> Iterator[None]:
        with self._chroma_errors(f"drop {collection}"):
            parts = collection_parts(self.path, collection)
        yield
        remove_parts(self.path, parts)
        self._has_garbage = True

    def note_garbage(self, rows: int) -> None:
        """Note that rows have been replaced or deleted."""
        self._has_garbage = True
        self._deleted += rows

    def settle(self) -> None:
        """Put what was written on the disk, and have graphs made again that have become mostly deleted points."""
        with self._chroma_errors("put what it wrote on the disk"):
            sync(self.path)  # SQLite has done so but for the removal of its journal, which ends a transaction
            heavy = heavy_graphs(self.path) if self._deleted >= _LOOK_AFTER else ()
        if self._deleted >= _LOOK_AFTER:
            self._deleted = 0
        if heavy:
            with self._gate.alone():
                if not self._is_closed:
                    self._make_again(heavy)

    def close(self) -> None:
        self._is_closed = True
        try:
            self._stop()
            if self._has_garbage:
                trim_log(self.path)
                shrink(self.path)
            if not self._lock.is_clean:
                sync_files(self.path)
                self._lock.settled()
        except OSError as exc:
            _log.warning("%s: its vector files are made again when it is opened next: %s", self._name, exc)
        finally:
            self._lock.close()


def _locked(path: Path, name: str) -> FolderLock:
    try:
        return FolderLock(path / _LOCK)
    except LockedError as exc:
        raise BackendUnavailableError(
            f"{name} is in use by {f'process {exc.process}' if exc.process else 'another process'}. An embedded Chroma "
            "is used by one process at a time, for searching too; for several, run "
            f"`chroma run --path {path}` and open chroma://localhost:8000/{PREFIX}"
        ) from exc
    except OSError as exc:
        raise BackendError(
            f"{name} cannot be opened: {exc.strerror}: {str(exc.filename or path)!r}; an embedded Chroma is used in a "
            "folder that can be written to, for searching too"
        ) from exc


_folders: dict[Path, _OpenFolder] = {}
_registry = threading.RLock()  # a connection that is collected is released in whatever thread, even within `_acquire`
_processes: set[int] = set()
"""Processes that have used Chroma: this one, and after a fork those before it."""


def _check_process(name: str) -> None:
    """Raise ConfigError in a process that was forked after Chroma was used: it would wait for ever for its threads."""
    if before := _processes - {os.getpid()}:
        raise ConfigError(
            f"{name} cannot be used here: this process was forked from process {max(before)} after that had used an "
            "embedded Chroma; fork earlier, start processes by spawn, or use a Chroma server"
        )


def _acquire(path: Path, name: str) -> _OpenFolder:
    with _registry:
        _processes.add(os.getpid())
        folder = _folders.get(path)
        if folder is None:
            folder = _folders[path] = _OpenFolder(path, name)
        folder.users += 1
        return folder


def _release(folder: _OpenFolder) -> None:
    if folder.process != os.getpid():
        return  # it is open in the process that this one was forked from
    with _registry:
        folder.users -= 1
        if not folder.users:
            del _folders[folder.path]
            folder.close()


def _is_chromas(exc: BaseException) -> bool:
    """Return whether Chroma raised this; its Rust part reports a panic by an error that is not an Exception."""
    return isinstance(exc, (*EXPECTED, sqlite3.Error)) or type(exc).__name__ == "PanicException"
