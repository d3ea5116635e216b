"""What a process that is killed leaves of a SQLite index: its database and log as they are at any instant."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from vlmsearch.stores.sqlite.database import Database

_TINY_CACHE = "PRAGMA cache_size = 2"
"""So few pages that a transaction writes to the log all the time, not at its end alone."""


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


@dataclass(frozen=True)
class Image:
    """The contents of the database and of its log; b"" for a file that is not there."""

    database: bytes
    log: bytes

    @classmethod
    def of(cls, path: Path) -> Image:
        return cls(*(each.read_bytes() if each.exists() else b"" for each in (path, log_of(path))))

    def put(self, path: Path) -> None:
        """Write the files at another path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.database)
        log_of(path).write_bytes(self.log)


@dataclass
class Images:
    """The images before and after every statement, each once, in their order."""

    path: Path
    statements: int = 0
    found: dict[Image, None] = field(default_factory=dict)

    def take(self) -> None:
        self.found[Image.of(self.path)] = None

    def all(self, seed: int = 0) -> Iterator[Image]:
        """The images, and between two of them what is left where the log was being written."""
        rng, last = random.Random(seed), 0
        for image in self.found:
            if len(image.log) > last:
                yield Image(image.database, image.log[: rng.randrange(last, len(image.log))])
            last = len(image.log)
            yield image


@contextmanager
def images_of(path: Path) -> Iterator[Images]:
    """Take images of an index while the block changes it, with caches so small that each change reaches the files."""
    images, connect = Images(path), Database._connect

    def note(_: str) -> None:
        images.statements += 1
        images.take()

    def connected(database: Database, how: str) -> sqlite3.Connection:
        connection = connect(database, how)
        connection.execute(_TINY_CACHE)
        connection.set_trace_callback(note)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "_connect", connected)
        yield images
    images.take()
