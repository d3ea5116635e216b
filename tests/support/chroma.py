"""Records whose content is known from their stamps, and processes that die while they write them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb import Collection
from chromadb.api.rust import RustBindingsAPI
from chromadb.api.shared_system_client import SharedSystemClient

from vlmsearch import (
    Document,
    Field,
    Record,
    Space,
    Stamp,
)
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.filters import parse_filter

IMAGE = Field("clip", "image")


TEXT = Field("minilm", "text")


SPACES = (Space("clip", 16, frozenset({"image"})), Space("minilm", 16, frozenset({"text"})))


def record(number: int, turn: int = 0, *, fields: Sequence[Field] = (IMAGE, TEXT)) -> Record:
    """A record whose content is known from its stamp."""
    rows = np.random.default_rng([number, turn]).normal(size=(2, 16)).astype(np.float32)
    vectors = dict(zip((IMAGE, TEXT), rows / np.linalg.norm(rows, axis=1, keepdims=True)))
    document = Document(f"id-{number}", text=f"text {number} {turn}", metadata={"turn": turn, "number": number})
    return Record(document, {field: vectors[field] for field in fields}, Stamp(f"{number} {turn}"))


def check_whole(store: ChromaStore) -> dict[str, str]:
    """Check that all there is fits together; returns the digests by id."""
    digests = {id: stamp.digest for id, stamp in store.stamps(list(store.ids())).items()}
    assert len(digests) == len(store) == len(list(store.ids()))
    expected = {id: record(*map(int, digest.split())) for id, digest in digests.items()}
    assert {document.id: document.text for document in store.get(list(digests))} == {
        id: one.document.text for id, one in expected.items()
    }
    query = record(10**6).vectors[IMAGE]
    for field in (IMAGE, TEXT):
        for where in (None, parse_filter({"number": {"$gte": 0}})):
            hits = store.search(field, query[None], limit=len(store) + 10, where=where)[0]
            assert len(hits) == len(digests)
            for hit in hits[:: max(1, len(hits) // 40)]:
                assert hit.score == pytest.approx(float(expected[hit.id].vectors[field] @ query), abs=1e-4)
    return digests


@contextmanager
def chroma_client(folder: Path) -> Iterator[Any]:
    """Chroma's own client, as other programs use it."""
    client: Any = chromadb.PersistentClient(str(folder))
    yield client
    client._system.stop()
    SharedSystemClient.clear_system_cache()


class Died(BaseException):
    """Stands for the end of the process."""


@contextmanager
def dying_at(number: int) -> Iterator[None]:
    """The process ends, as far as the store can tell, instead of Chroma's write ``number``, counted from 0."""
    left = [number]

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Died
            return write(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for cls, name in ((Collection, "upsert"), (Collection, "delete"), (RustBindingsAPI, "create_collection")):
            patch.setattr(cls, name, counted(getattr(cls, name)))
        yield


PROCESSES = multiprocessing.get_context("forkserver")


def write_and_wait(location: str, turn: int, count: int, pipe: Connection[str, str]) -> None:
    """Write ``count`` records that are not there, then keep the store open until the other end is closed."""
    with ChromaStore(location) as store:
        store.bind("encoder", SPACES)
        pipe.send("ready")
        for start in range(0, count, 50):
            records = [record(i, turn) for i in range(start, start + 50)]
            known = store.stamps([one.document.id for one in records])
            store.upsert([one for one in records if known.get(one.document.id) != one.stamp])
            store.delete([f"id-{start}"])
        pipe.send("done")
        with suppress(EOFError):
            pipe.recv()


@contextmanager
def writing(location: Path, turn: int, count: int) -> Iterator[tuple[ForkServerProcess, Connection[str, str]]]:
    """Another process that writes; it is over at the end."""
    pipe, other = PROCESSES.Pipe()
    process = PROCESSES.Process(target=write_and_wait, args=(str(location), turn, count, other))
    process.start()
    other.close()
    assert pipe.recv() == "ready"
    try:
        yield process, pipe
    finally:
        pipe.close()
        process.join()


def vector_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/*") if path.name in ("header.bin", "index_metadata.pickle"))


LOCK = "vlmsearch.lock"


MANY = 1100
"""Chroma writes the files of a collection after 1,000 changes."""


def write(folder: Path, numbers: Sequence[int], turn: int = 0) -> None:
    with ChromaStore(str(folder)) as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i, turn) for i in numbers])
