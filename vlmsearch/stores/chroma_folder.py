"""An embedded Chroma database: one folder, one process at a time, and nothing lost when that process is killed.

Chroma keeps rows in SQLite and vectors in HNSW files beside it. Those files are rewritten in place, and a process that
is killed while this happens leaves files that Chroma cannot load, or that crash it (chroma-core/chroma#7238, #7678).
SQLite also has every vector in Chroma's own log, ``embeddings_queue``, which Chroma trims after each rewrite. Here the
log is kept instead, so that the files are only a cache:

* a byte in the lock file says that a write is under way; where the next process finds it set, it removes the HNSW files
  and Chroma builds them again from the log (about half a millisecond a vector);
* two processes that write would overwrite each other's files, so one holds the lock; any other gets a copy of the
  database, made when it opens it, which it can search but not change;
* what has been replaced or deleted is removed from the log when the database is closed.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from chromadb.api import ServerAPI
from chromadb.config import System
from chromadb.errors import InternalError

from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, VlmsearchError
from vlmsearch.stores.chroma_connection import EXPECTED, ChromaConnection, chroma_settings, is_damage, translate
from vlmsearch.stores.chroma_log import DATABASE, PREFIX, copy_of, drop_files, drop_index, keep_log, trim_log
from vlmsearch.stores.folder_lock import FolderLock, LockedError

T = TypeVar("T")
_LOCK = "vlmsearch.lock"
_SEVERAL = (
    ". An embedded Chroma is written by one process at a time; for several, run `chroma run --path FOLDER` and open "
    "chroma://localhost:8000/vlmsearch"
)
_log = logging.getLogger(__name__)


class EmbeddedChroma(ChromaConnection):
    """The database in ``folder``; connections of one process to one folder share it."""

    prefix = PREFIX

    def __init__(self, folder: Path) -> None:
        self.name = f"chroma:{folder}"
        self._path = Path(folder.absolute())
        self._joining = threading.Lock()
        self._open: _OpenFolder | None = None
        self._leave: weakref.finalize[..., EmbeddedChroma] | None = None

    def exists(self) -> bool:
        """Whether the folder has a database; BackendError where nobody may look."""
        try:
            return (self._path / DATABASE).is_file()
        except OSError as exc:
            raise BackendError(f"{self.name} cannot be opened: {exc.strerror}: {str(exc.filename)!r}") from exc

    def prepare(self) -> None:
        """Make the folder; ConfigError where there is a file or a folder with other things in it."""
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            others = sorted(each.name for each in self._path.iterdir() if not each.name.startswith("."))
        except OSError as exc:
            raise ConfigError(f"{self.name} cannot be made: {exc.strerror}: {str(exc.filename)!r}") from exc
        if others and DATABASE not in others and others != [_LOCK]:
            raise ConfigError(
                f"{self.name} would put an index among other files ({', '.join(others[:3])}); name a folder of its own"
            )

    def run(self, operation: str, call: Callable[[ServerAPI], T], *, writes: bool = False, collection: str = "") -> T:
        """What ``call`` returns; a database that does not load is mended once and asked again."""
        return self._joined().run(operation, call, writes=writes, collection=collection)

    def _joined(self) -> _OpenFolder:
        _check_process(self.name)
        with self._joining:
            if self._open is None:
                self._open = _join(self._path.resolve(), self.name)
                self._leave = weakref.finalize(self, _leave, self._open)
            return self._open

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """Others of this process wait meanwhile, and there are no others, unless this is a copy."""
        folder = self._joined()
        with folder.turn:
            yield not folder.is_copy

    def note_garbage(self) -> None:
        """On closing, rows that have been replaced or deleted leave the log too."""
        if self._open is not None:
            self._open.has_garbage = True

    def close(self) -> None:
        """Let go of the folder; the last connection of a process closes the database and gives the lock back."""
        with self._joining:
            self._open, leave, self._leave = None, self._leave, None
        if leave is not None:
            leave()


class _OpenFolder:
    """What the connections of this process to one folder share."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.process = os.getpid()
        self.users = 0
        self.has_garbage = False
        self.turn = threading.RLock()
        self._name = name
        self._changing = threading.RLock()
        self._generation = 0
        self._loaded: set[str] = set()
        self._lock: FolderLock | None = None
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._advice = ""
        try:
            self._lock = FolderLock(path / _LOCK)
            if self._lock.torn and drop_index(path):
                _log.warning("%s: a write was cut off, so its vectors are indexed again", name)
                self._lock.mended()
        except (LockedError, OSError) as exc:
            self._why = str(exc)
            if isinstance(exc, LockedError):
                self._why, self._advice = f"process {exc.process} has it open", _SEVERAL
                if not (path / DATABASE).is_file():
                    raise BackendUnavailableError(f"{name}: {self._why}, and is just making it{_SEVERAL}") from exc
            self._copy = copy_of(path, name, self._why)
            _log.warning("%s: %s, so a copy of it is searched, as it is now", name, self._why)
        self._start()

    @property
    def is_copy(self) -> bool:
        """Whether another process has the folder, and this is what was in it."""
        return self._copy is not None

    def _start(self) -> None:
        folder = Path(self._copy.name) if self._copy else self.path
        try:
            settings = chroma_settings(
                chroma_api_impl="chromadb.api.rust.RustBindingsAPI",
                is_persistent=True,
                persist_directory=str(folder),
            )
            self._system = System(settings)
            self._server = self._system.instance(ServerAPI)  # type: ignore[type-abstract]
            self._system.start()
            keep_log(folder)
        except BaseException as exc:
            self._release()
            if not _is_chromas(exc):
                raise
            raise translate(exc, self._name, "open its database") from exc

    def run(self, operation: str, call: Callable[[ServerAPI], T], *, writes: bool, collection: str) -> T:
        """What ``call`` returns. Loading a collection may rewrite its files, so that counts as a write."""
        if writes and self._copy is not None:
            raise BackendUnavailableError(f"{self._name} cannot {operation}: {self._why}{self._advice}")
        while True:
            generation, server = self._generation, self._server
            try:
                if self._lock is None or not (writes or (collection and collection not in self._loaded)):
                    return call(server)
                with self._lock.writing(broken_by=(InternalError,)):
                    return self._load(collection, call(server))
            except VlmsearchError:
                raise
            except BaseException as exc:
                if not _is_chromas(exc):
                    raise
                if not self._mend(generation, exc):
                    raise translate(exc, self._name, operation) from exc

    def _load(self, collection: str, answer: T) -> T:
        self._loaded.add(collection)
        return answer

    def _mend(self, generation: int, exc: BaseException) -> bool:
        """Whether the call may be tried again: the database did not load, and its files have been dropped since."""
        with self._changing:
            if generation != self._generation:
                return True
            if generation or self._lock is None or not is_damage(exc):
                return False
            _log.warning("%s: its vector files do not load, so they are made again: %s", self._name, exc)
            self._system.stop()
            mended = drop_index(self.path)
            self._generation += 1
            self._loaded.clear()
            self._start()
            if mended:
                self._lock.mended()
            return mended

    def close(self) -> None:
        self._system.stop()
        if self.has_garbage and self._lock is not None:
            trim_log(self.path)
            drop_files(self.path)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
        if self._copy is not None:
            self._copy.cleanup()


_folders: dict[Path, _OpenFolder] = {}
_registry = threading.RLock()  # a connection that is collected leaves in whatever thread, even within `_join`
_processes: set[int] = set()
"""Those that have used Chroma: this one, and after a fork those before it."""


def _check_process(name: str) -> None:
    """Raise ConfigError in a process that was forked after Chroma was used: it would wait for ever for its threads."""
    if before := _processes - {os.getpid()}:
        raise ConfigError(
            f"{name} cannot be used here: this process was forked from process {max(before)} after that had used an "
            "embedded Chroma; fork earlier, start processes by spawn, or use a Chroma server"
        )


def _join(path: Path, name: str) -> _OpenFolder:
    with _registry:
        _processes.add(os.getpid())
        folder = _folders.get(path)
        if folder is None:
            folder = _folders[path] = _OpenFolder(path, name)
        folder.users += 1
        return folder


def _leave(folder: _OpenFolder) -> None:
    if folder.process != os.getpid():
        return  # it is open in the process that this one was forked from
    with _registry:
        folder.users -= 1
        if not folder.users:
            del _folders[folder.path]
            folder.close()


def _is_chromas(exc: BaseException) -> bool:
    """Whether Chroma raised this; its Rust part reports a panic by an error that is no Exception."""
    return isinstance(exc, EXPECTED) or type(exc).__name__ == "PanicException"
