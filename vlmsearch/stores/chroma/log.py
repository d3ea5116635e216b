"""Chroma's own log in its SQLite file: kept, trimmed, and used to have its HNSW files made again.

SQLite flushes each transaction before it ends: a rollback journal with ``synchronous = FULL``. So after a power cut,
the log has everything that Chroma's table ``max_seq_id`` says is in the HNSW files.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vlmsearch._util.files import sync
from vlmsearch.types import Vectors

DATABASE = "chroma.sqlite3"
PREFIX = "vlmsearch"
_WAIT_SECONDS = 30.0
_OURS = {"name": f"{PREFIX}.*"}
_COLLECTIONS = """
    SELECT id FROM collections WHERE name GLOB :name AND database_id IN
    (SELECT id FROM databases WHERE name = 'default_database' AND tenant_id = 'default_tenant')
"""
_VECTOR_SEGMENTS = f"""
    SELECT collection, id FROM segments WHERE scope = 'VECTOR' AND collection IN ({_COLLECTIONS})
"""  # noqa: S608 - constants alone
_ROWS = """
    SELECT count(*) FROM embeddings WHERE segment_id IN (SELECT id FROM segments WHERE collection = :collection)
"""
_NOT_IN_LOG = """
    SELECT 1 FROM embeddings WHERE segment_id IN (SELECT id FROM segments WHERE collection = :collection)
    AND embedding_id NOT IN (SELECT id FROM embeddings_queue WHERE substr(topic, -36) = :collection) LIMIT 1
"""
_LATEST = f"""
    SELECT max(seq_id) FROM embeddings_queue WHERE substr(topic, -36) IN ({_COLLECTIONS}) GROUP BY id
"""  # noqa: S608
_VECTORS = """
    SELECT id, vector FROM embeddings_queue WHERE vector NOT NULL AND seq_id IN (SELECT value FROM json_each(:some))
"""
_TRIM = f"""
    DELETE FROM embeddings_queue WHERE substr(topic, -36) IN ({_COLLECTIONS})
    AND seq_id NOT IN (SELECT max(seq_id) FROM embeddings_queue GROUP BY topic, id)
"""  # noqa: S608
_SEGMENT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEADER = struct.Struct("=iQQQ")
"""The beginning of ``header.bin``: a version, the offset of level 0, the maximum and the number of points."""
_MOST_DEAD = 1000
_PAGE = 500
_log = logging.getLogger(__name__)


class Dropped(NamedTuple):
    """The number of graphs that are made again, and of those that cannot be: Chroma's log lacks their vectors."""

    graphs: int = 0
    kept: int = 0


def keep_log(folder: Path) -> None:
    """Have Chroma keep in its log what it has written to its HNSW files."""
    with _database(folder) as db:
        row = db.execute("SELECT config_json_str FROM embeddings_queue_config").fetchone()
        settings = json.loads(row[0]) if row else {"_type": "EmbeddingsQueueConfigurationInternal"}
        if settings.get("automatically_purge", True):
            settings["automatically_purge"] = False
            db.execute("INSERT OR REPLACE INTO embeddings_queue_config VALUES (1, ?)", [json.dumps(settings)])


def heavy_graphs(folder: Path) -> list[str]:
    """Return the segments whose graphs have more deleted points, which slow down reading and writing, than others."""
    with _database(folder) as db:
        return [
            segment
            for collection, segment in db.execute(_VECTOR_SEGMENTS, _OURS).fetchall()
            if (place := _place(folder, segment))
            for (rows,) in db.execute(_ROWS, {"collection": collection})
            if _points(place) - rows > max(rows, _MOST_DEAD)
        ]


def drop_graphs(folder: Path, only: Sequence[str] | None = None) -> Dropped:
    """Have Chroma make the HNSW files of this index, or of these segments, again, unless its log lacks a vector."""
    trim_log(folder)
    places, kept = [], 0
    with _database(folder) as db:
        for collection, segment in db.execute(_VECTOR_SEGMENTS, _OURS).fetchall():
            if only is not None and segment not in only:
                continue
            if db.execute(_NOT_IN_LOG, {"collection": collection}).fetchone():
                kept += 1
            elif place := _place(folder, segment):
                places.append(place)
        db.executemany("DELETE FROM max_seq_id WHERE segment_id = ?", [[place.name] for place in places])
    for place in places:
        if place.exists():
            shutil.rmtree(place)
    return Dropped(len(places), kept)


def _place(folder: Path, segment: object) -> Path | None:
    """Return the folder of the HNSW files of a segment; None where the name is no segment's, or leads elsewhere."""
    place = folder / segment if isinstance(segment, str) and _SEGMENT.fullmatch(segment) else None
    return None if place is None or place.is_symlink() else place


def _points(place: Path) -> int:
    """Return how many points a graph had when it was last written, deleted ones among them."""
    with suppress(OSError, struct.error), (place / "header.bin").open("rb") as file:
        points: int = _HEADER.unpack(file.read(_HEADER.size))[3]
        return points
    return 0


def trim_log(folder: Path) -> None:
    """Take out of the log of this index what a later entry for the same row supersedes."""
    with suppress(sqlite3.Error), _database(folder) as db:
        db.execute(_TRIM, _OURS)


def shrink(folder: Path) -> None:
    """Give the room in the SQLite file that nobody uses back, where it is a quarter of the file."""
    with suppress(sqlite3.Error), _database(folder) as db:
        unused, pages = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count"))
        if 4 * unused > pages:
            db.execute("VACUUM")


def collection_parts(folder: Path, name: str) -> list[tuple[str, str]]:
    """Return the ids of a collection of this index and of its vector segment; none where it is not there."""
    with _database(folder) as db:
        return db.execute(_VECTOR_SEGMENTS, {"name": name}).fetchall()


def remove_parts(folder: Path, parts: Sequence[tuple[str, str]]) -> None:
    """Remove the log and the HNSW files of a collection that is gone, given its `collection_parts`."""
    for collection, segment in parts:
        with suppress(sqlite3.Error), _database(folder) as db:
            db.execute("DELETE FROM embeddings_queue WHERE substr(topic, -36) = ?", [collection])
        if place := _place(folder, segment):
            shutil.rmtree(place, ignore_errors=True)


def disk_use(folder: Path) -> tuple[int, int]:
    """Return how many bytes the files take, and how many are left on their disk and in pages that nobody uses."""
    with _database(folder) as db:
        unused, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
    files = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return files - unused * size, shutil.disk_usage(folder).free + unused * size


def sync_files(folder: Path) -> None:
    """Flush all HNSW files: Chroma does not."""
    for path in folder.iterdir():
        if (place := _place(folder, path.name)) and place.is_dir():
            for file in place.iterdir():
                sync(file)
            sync(place)
    sync(folder)


def logged_vectors(folder: Path, collection: str) -> Iterator[tuple[list[str], Vectors]]:
    """Yield the rows of a collection with the vectors that were written, as far as the log has them."""
    with _database(folder) as db:
        latest = [entry for (entry,) in db.execute(_LATEST, {"name": collection})]
    for start in range(0, len(latest), _PAGE):
        with _database(folder) as db:  # not open while a page is looked at: Chroma could not write meanwhile
            page = db.execute(_VECTORS, {"some": json.dumps(latest[start : start + _PAGE])}).fetchall()
        if page:
            yield [id for id, _ in page], np.stack([np.frombuffer(vector, np.float32) for _, vector in page])


@contextmanager
def _database(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / DATABASE, timeout=_WAIT_SECONDS)) as db, db:
        yield db
