"""Chroma's own log in its SQLite file: kept, trimmed, and used to have its HNSW files made again."""

from __future__ import annotations

import json
import logging
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from vlmsearch.errors import BackendUnavailableError

DATABASE = "chroma.sqlite3"
PREFIX = "vlmsearch"
_OURS = {"ours": f"{PREFIX}.*"}
_VECTOR_SEGMENTS = """
    SELECT collection, id FROM segments WHERE scope = 'VECTOR'
    AND collection IN (SELECT id FROM collections WHERE name GLOB :ours)
"""
_NOT_IN_LOG = """
    SELECT 1 FROM embeddings WHERE segment_id IN (SELECT id FROM segments WHERE collection = :collection)
    AND embedding_id NOT IN (SELECT id FROM embeddings_queue WHERE substr(topic, -36) = :collection) LIMIT 1
"""
_TRIM_DROPPED = """
    DELETE FROM embeddings_queue WHERE substr(topic, -36) NOT IN (SELECT id FROM collections)
"""
_TRIM = """
    DELETE FROM embeddings_queue WHERE substr(topic, -36) IN (SELECT id FROM collections WHERE name GLOB :ours)
    AND seq_id NOT IN (SELECT max(seq_id) FROM embeddings_queue GROUP BY topic, id)
"""
_SEGMENT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_log = logging.getLogger(__name__)


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
    """Take out of the log what a later entry for the same row supersedes, and collections that are gone."""
    with suppress(sqlite3.Error), _database(folder) as db:
        db.execute(_TRIM_DROPPED)
        db.execute(_TRIM, _OURS)


def drop_files(folder: Path) -> None:
    """Remove the HNSW files of collections that are gone, which Chroma leaves there."""
    with suppress(sqlite3.Error), _database(folder) as db:
        used = {segment for (segment,) in db.execute("SELECT id FROM segments")}
        for place in folder.iterdir():
            if place.is_dir() and _SEGMENT.fullmatch(place.name) and place.name not in used:
                shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _database(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / DATABASE, timeout=30)) as db, db:
        yield db


def copy_of(path: Path, name: str, why: str) -> tempfile.TemporaryDirectory[str]:
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
