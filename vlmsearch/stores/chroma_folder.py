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

import json
import logging
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from chromadb.api import ServerAPI
from chromadb.config import System
from chromadb.errors import InternalError

from vlmsearch.errors import BackendUnavailableError, ConfigError, VlmsearchError
from vlmsearch.stores.chroma_connection import EXPECTED, ChromaConnection, chroma_settings, is_damage, translate
from vlmsearch.stores.folder_lock import FolderLock, LockedError

T = TypeVar("T")
DATABASE = "chroma.sqlite3"
PREFIX = "vlmsearch"
_LOCK = "vlmsearch.lock"
_OURS = {"ours": f"{PREFIX}.*"}
_VECTOR_SEGMENTS = """
    SELECT collection, id FROM segments WHERE scope = 'VECTOR'
    AND collection IN (SELECT id FROM collections WHERE name GLOB :ours)
"""
_NOT_IN_LOG = """
    SELECT 1 FROM embeddings WHERE segment_id IN (SELECT id FROM segments WHERE collection = :collection)
    AND embedding_id NOT IN (SELECT id FROM embeddings_queue WHERE substr(topic, -36) = :collection) LIMIT 1
"""
_TRIM = """
    DELETE FROM embeddings_queue WHERE substr(topic, -36) IN (SELECT id FROM collections WHERE name GLOB :ours)
    AND seq_id NOT IN (SELECT max(seq_id) FROM embeddings_queue GROUP BY topic, id)
"""
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
        """Whether the folder has a database."""
        return (self._path / DATABASE).is_file()

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
        with self._joining:
            if self._open is None:
                self._open = _join(self._path.resolve(), self.name)
                self._leave = weakref.finalize(self, _leave, self._open)
            folder = self._open
        return folder.run(operation, call, writes=writes, collection=collection)

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
        self.users = 0
        self.has_garbage = False
        self._name = name
        self._changing = threading.RLock()
        self._generation = 0
        self._loaded: set[str] = set()
        self._lock: FolderLock | None = None
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._lock = FolderLock(path / _LOCK)
            if self._lock.torn and drop_index(path):
                _log.warning("%s: a write was cut off, so its vectors are indexed again", name)
                self._lock.mended()
        except (LockedError, OSError) as exc:
            self._why = f"process {exc.process} has it open" if isinstance(exc, LockedError) else str(exc)
            self._copy = _copy_of(path, name, self._why)
            _log.warning("%s: %s, so a copy of it is searched, as it is now", name, self._why)
        self._start()

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
            raise BackendUnavailableError(
                f"{self._name} cannot {operation}: {self._why}. An embedded Chroma is written by one process at a "
                "time; for several, run `chroma run --path FOLDER` and open chroma://localhost:8000/vlmsearch"
            )
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
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
        if self._copy is not None:
            self._copy.cleanup()


_folders: dict[Path, _OpenFolder] = {}
_registry = threading.RLock()  # a connection that is collected leaves in whatever thread, even within `_join`


def _join(path: Path, name: str) -> _OpenFolder:
    with _registry:
        folder = _folders.get(path)
        if folder is None:
            folder = _folders[path] = _OpenFolder(path, name)
        folder.users += 1
        return folder


def _leave(folder: _OpenFolder) -> None:
    with _registry:
        folder.users -= 1
        if not folder.users:
            del _folders[folder.path]
            folder.close()


def _is_chromas(exc: BaseException) -> bool:
    """Whether Chroma raised this; its Rust part reports a panic by an error that is no Exception."""
    return isinstance(exc, EXPECTED) or type(exc).__name__ == "PanicException"


def keep_log(folder: Path) -> None:
    """Have Chroma keep in its log what it has written to its HNSW files."""
    with suppress(sqlite3.Error), _database(folder) as db:
        row = db.execute("SELECT config_json_str FROM embeddings_queue_config").fetchone()
        settings = json.loads(row[0]) if row else {"_type": "EmbeddingsQueueConfigurationInternal"}
        if settings.get("automatically_purge", True):
            settings["automatically_purge"] = False
            db.execute("INSERT OR REPLACE INTO embeddings_queue_config VALUES (1, ?)", [json.dumps(settings)])


def drop_index(folder: Path) -> bool:
    """Have Chroma make the HNSW files of this index again; False, and no change, where its log lacks a vector."""
    trim_log(folder)
    try:
        with _database(folder) as db:
            segments = []
            for collection, segment in db.execute(_VECTOR_SEGMENTS, _OURS).fetchall():
                if db.execute(_NOT_IN_LOG, {"collection": collection}).fetchone():
                    return False
                segments.append(segment)
            db.executemany("DELETE FROM max_seq_id WHERE segment_id = ?", [[segment] for segment in segments])
    except sqlite3.Error as exc:
        _log.warning("%s: the log of Chroma cannot be used: %s", folder, exc)
        return False
    for segment in segments:
        shutil.rmtree(folder / segment, ignore_errors=True)
    return True


def trim_log(folder: Path) -> None:
    """Take out of the log what a later entry for the same row supersedes."""
    with suppress(sqlite3.Error), _database(folder) as db:
        db.execute(_TRIM, _OURS)


@contextmanager
def _database(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / DATABASE, timeout=30)) as db, db:
        yield db


def _copy_of(path: Path, name: str, why: str) -> tempfile.TemporaryDirectory[str]:
    """A copy of the database as of now, to be searched only."""
    copy = tempfile.TemporaryDirectory(prefix="vlmsearch-")
    try:
        source = sqlite3.connect(f"{(path / DATABASE).as_uri()}?mode=ro", uri=True, timeout=30)
        with closing(source), closing(sqlite3.connect(Path(copy.name) / DATABASE)) as target:
            source.backup(target)
        usable = drop_index(Path(copy.name))
    except sqlite3.Error as exc:
        copy.cleanup()
        raise BackendUnavailableError(f"{name} cannot be opened: {why}, and it cannot be copied: {exc}") from exc
    if not usable:
        copy.cleanup()
        raise BackendUnavailableError(f"{name} cannot be opened: {why}")
    return copy
