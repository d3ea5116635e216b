"""The walk-through of docs/howto/backup.md with real servers, and with an index that is lost in between."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import chromadb
import pytest
from pymongo import MongoClient

from tests.support.cli import ok
from vlmsearch import Document, Pipeline
from vlmsearch.indexing.copy import copy
from vlmsearch.registry import open_store
from vlmsearch.stores.base import reject_list_of

QUERIES = ("dog", "a red car", "snow 7", "cat in the rain")
COUNT = 120
Lose = Callable[[], None]


def documents(count: int = COUNT, turn: int = 0) -> Iterator[Document]:
    animals = ("dog", "cat", "red car")
    for n in range(count):
        text = f"a {animals[n % 3]} in the {'snow' if n % 2 else 'rain'} {n}" + (f", version {turn}" if turn else "")
        yield Document(f"{n:03}", text=text, metadata={"n": n})


def shown(url: str) -> list[list[tuple[str, float, str | None]]]:
    """What searches of an index show."""
    with Pipeline.open(encoder="mock:", store=url) as pipeline:
        found = pipeline.search_many(QUERIES, limit=20, min_score=0)
    return [[(m.document.id, round(m.score, 3), m.document.text) for m in matches] for matches in found]


@pytest.fixture
def pair(mongo_address: str, chroma_address: str) -> Iterator[tuple[str, Lose]]:
    """The URL of an index of the pair on real servers, and how to lose it."""
    url = f"mongodb+chroma://{mongo_address}/backup?chroma=http://{chroma_address}"
    host, _, port = chroma_address.partition(":")
    client = chromadb.HttpClient(host, int(port))

    def lose() -> None:
        with MongoClient[dict[str, object]](f"mongodb://{mongo_address}/") as mongo:
            mongo.drop_database("backup")
        for collection in client.list_collections():
            if collection.name.startswith("backup"):
                client.delete_collection(collection.name)

    lose()
    yield url, lose
    lose()


def test_an_index_of_mongodb_and_chroma_comes_back_from_its_backup(pair: tuple[str, Lose], tmp_path: Path) -> None:
    url, lose = pair
    backup = f"sqlite:{tmp_path}/backup"
    with Pipeline.open(encoder="mock:", store=url) as pipeline:
        report = pipeline.add([*documents(), Document("bad", image=b"no image")])
        assert len(report.rejects) == 1
        labelled = list(pipeline.label(["dog", "cat"], write=True, min_score=0.5))
        assert labelled
    before = shown(url)
    ok("copy", "--prune", "--from", url, "--to", backup)
    ok("check", "--store", backup)
    assert shown(backup) == before
    lose()
    assert shown(url) == [[] for _ in QUERIES]
    ok("copy", "--from", backup, "--to", url)
    ok("check", "--store", url)
    assert shown(url) == before
    with Pipeline.open(encoder="mock:", store=url) as pipeline:
        assert [reject.id for reject in reject_list_of(pipeline.store).rejects()] == ["bad"]
        again = pipeline.add(documents())
        assert (again.added, again.updated, again.unchanged) == (0, 0, COUNT), "nothing is encoded again"
        labels = [each.document.metadata.get("label") for each in labelled]
        assert [each.metadata.get("label") for each in pipeline.store.get([d.document.id for d in labelled])] == labels


def test_a_backup_that_is_made_again_takes_what_has_changed_and_drops_what_was_deleted(
    pair: tuple[str, Lose], tmp_path: Path
) -> None:
    url, _ = pair
    backup = f"sqlite:{tmp_path}/backup"
    with Pipeline.open(encoder="mock:", store=url) as pipeline, open_store(backup) as target:
        pipeline.add(documents())
        assert copy(pipeline.store, target, prune=True).copied == COUNT
        pipeline.delete(["000", "001"])
        pipeline.add(Document("002", text="a new dog"))
        second = copy(pipeline.store, target, prune=True)
        assert (second.copied, second.pruned, second.unchanged) == (1, 2, COUNT - 3)
    assert shown(backup) == shown(url)


def test_a_damaged_index_is_mended_from_its_backup(pair: tuple[str, Lose], tmp_path: Path) -> None:
    url, _ = pair
    backup = f"sqlite:{tmp_path}/backup"
    with Pipeline.open(encoder="mock:", store=url) as pipeline:
        pipeline.add(documents())
    before = shown(url)
    ok("copy", "--from", url, "--to", backup)
    with Pipeline.open(encoder="mock:", store=url) as pipeline:
        pipeline.delete([f"{n:03}" for n in range(50)])
    assert shown(url) != before
    with open_store(backup) as source, open_store(url) as target:
        done = copy(source, target)
    assert (done.copied, done.unchanged) == (50, COUNT - 50)
    assert shown(url) == before


def test_a_snapshot_of_sqlite_is_whole_while_others_write(tmp_path: Path) -> None:
    """Every snapshot is of one instant: documents are of one version, or of two in the middle of a slow run."""
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path}/index") as pipeline:
        pipeline.add(documents())
        stop, turns = threading.Event(), 0

        def write() -> None:
            nonlocal turns
            while not stop.is_set():
                turns += 1
                pipeline.add(documents(turn=turns))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(3):
                while turns < 2 * number + 1:
                    time.sleep(0.01)
                with closing(sqlite3.connect(tmp_path / "index")) as index:
                    index.execute(f"VACUUM INTO '{tmp_path}/snapshot-{number}'")
        finally:
            stop.set()
            writer.join()
    for number in range(3):
        snapshot = f"sqlite:{tmp_path}/snapshot-{number}"
        ok("check", "--store", snapshot)
        with Pipeline.open(encoder="mock:", store=snapshot) as restored:
            assert len(restored.store) == COUNT
            found = restored.store.get([f"{n:03}" for n in range(COUNT)])
            versions = {str(each.text).partition(", ")[2] for each in found}
            assert len(versions) <= 2
            restored.add(Document("new", text="a new dog"))
            assert "new" in [match.document.id for match in restored.search("new dog")]
