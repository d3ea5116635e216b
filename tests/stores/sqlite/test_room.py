"""What an index takes of the disk: space that is given back, a log that stays small, and files that come alone."""

import resource
import shutil
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.threads import in_this_thread
from vlmsearch import BackendError, Document, Record
from vlmsearch.stores.sqlite import database
from vlmsearch.stores.sqlite.database import Database, LargeLogWarning
from vlmsearch.stores.sqlite.store import SqliteStore

RECORDS = make_records(3000, (IMAGE, TEXT))
IDS = [record.document.id for record in RECORDS]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(str(tmp_path / "index")) as opened:
        opened.bind("e", SPACES)
        yield opened


def pages_of(store: SqliteStore) -> int:
    with store._database.reading("count the pages") as db:
        return int(db.execute("PRAGMA page_count").fetchone()[0])


# ---- deleting


def test_deleting_most_documents_makes_the_file_smaller(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_SPARSE_PAGES", 16)
    store.upsert(RECORDS)
    store.close()
    before = (tmp_path / "index").stat().st_size
    with SqliteStore(str(tmp_path / "index")) as again:
        assert again.delete(IDS[10:]) == len(IDS) - 10
        assert (tmp_path / "index").stat().st_size < before / 3, "also while the index is open"
        assert sorted(again.ids()) == sorted(IDS[:10])
        assert again.check().clean


def test_deleting_little_does_not_move_the_pages_of_a_file(store: SqliteStore) -> None:
    store.upsert(RECORDS)
    before = pages_of(store)
    store.delete(IDS[:300])
    assert pages_of(store) >= before


def test_deleting_succeeds_where_the_file_cannot_be_made_smaller(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Database) -> None:
        raise BackendError("the disk is full")

    monkeypatch.setattr(database, "_SPARSE_PAGES", 16)
    monkeypatch.setattr(Database, "shrink", full)
    store.upsert(RECORDS)
    assert store.delete(IDS) == len(IDS)


def test_others_write_while_many_documents_are_deleted(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.upsert(RECORDS)
    left: list[int] = []
    with SqliteStore(str(tmp_path / "index"), timeout=0) as other:
        other.bind("e", SPACES)

        def write(_: float) -> None:
            left.append(len(other))
            other.upsert([Record(Document(f"new-{len(left)}", "a text"), RECORDS[0].vectors)])

        monkeypatch.setattr(database, "_TURN", -1)
        monkeypatch.setattr(time, "sleep", in_this_thread(write))
        assert store.delete(IDS) == len(IDS)
    assert left[:3] == [2000, 1001, 2]
    assert all(id.startswith("new-") for id in store.ids())
    assert store.check().clean


def test_a_delete_that_ends_half_way_is_finished_by_the_next(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.upsert(RECORDS)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(database, "_TURN", -1)
        patch.setattr(time, "sleep", in_this_thread(interrupt))
        with pytest.raises(KeyboardInterrupt):
            store.delete(IDS)
    assert sorted(store.ids()) == sorted(IDS[1000:])
    assert store.check().clean
    assert store.delete(IDS) == 2000
    assert len(store) == 0


# ---- the log


@contextmanager
def reader(path: Path) -> Iterator[None]:
    """Another program that reads the index as it is now, as long as the block lasts."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM documents_1").fetchone()
        yield


def log_of(tmp_path: Path) -> int:
    return (tmp_path / "index-wal").stat().st_size


@pytest.fixture
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LOG_BYTES", 2**19)
    monkeypatch.setattr(database, "_LOG_STEP", 2**18)


@pytest.mark.usefixtures("small_log")
def test_a_writer_waits_for_a_reader_that_the_log_grows_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = threading.Event()
    sleep = time.sleep

    def look(seconds: float) -> None:
        waited.set()
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", look)
    with SqliteStore(str(tmp_path / "index")) as store, warnings.catch_warnings():
        warnings.simplefilter("error", LargeLogWarning)
        store.bind("e", SPACES)
        store.upsert(RECORDS[:10])
        with reader(tmp_path / "index"):
            store.upsert(RECORDS[:1000])
            assert log_of(tmp_path) > 2**19
            writer = threading.Thread(target=store.upsert, args=(RECORDS[:20],))
            writer.start()
            waited.wait(30)
            assert log_of(tmp_path) > 2**19
        writer.join()
        assert log_of(tmp_path) < 2**19
        assert len(store) == 1000
        assert store.check().clean


@pytest.mark.usefixtures("small_log")
def test_a_reader_that_stays_is_told_of_once_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_LOG_SECONDS", 0.05)
    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:10])
        with reader(tmp_path / "index"), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", LargeLogWarning)
            for start in range(0, 3000, 200):
                store.upsert(RECORDS[start : start + 200])
        (said,) = [str(each.message) for each in told]
        assert said.startswith(f"the log of {store.name} has ")
        assert "index-wal" in said
        store.upsert(RECORDS[:1])
        assert log_of(tmp_path) < 2**19
        assert len(store) == 3000
        assert store.check().clean


# ---- a file without its log


def alone(tmp_path: Path) -> SqliteStore:
    """A copy of the file without its log, as of an index whose process was killed."""
    shutil.copy(tmp_path / "index", tmp_path / "copy")
    return SqliteStore(str(tmp_path / "copy"))


def test_the_file_alone_is_an_index_from_the_beginning(tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("e", SPACES)
        with alone(tmp_path) as copy:
            assert copy.manifest() == store.manifest()
            assert len(copy) == 0
        store.upsert(RECORDS[:10])
        with alone(tmp_path) as copy:
            assert sorted(copy.ids()) == sorted(IDS[:10])
            assert copy.check().clean


def test_a_file_without_its_tables_says_what_is_missing(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "index")) as db:
        db.execute(f"PRAGMA application_id = {database._APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
    with SqliteStore(str(tmp_path / "index")) as store:
        for act in (store.manifest, lambda: store.bind("e", SPACES)):
            with pytest.raises(BackendError, match=r"lacks its tables; its log \(-wal\) may be missing"):
                act()


def test_a_file_that_lacks_a_table_says_what_may_be_missing(tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:10])
    with closing(sqlite3.connect(tmp_path / "index")) as db:
        db.execute("DROP TABLE documents_1")
    message = r"no such table: .*; its log \(-wal\) may be missing"
    with SqliteStore(str(tmp_path / "index")) as store, pytest.raises(BackendError, match=message):
        store.get(["id-1"])


# ---- creating on a full disk


@pytest.mark.parametrize("size", range(2**12, 120_000, 2**13 - 2**9))
def test_creating_where_files_may_not_grow_says_so(tmp_path: Path, size: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with SqliteStore(str(tmp_path / "index")) as store, pytest.raises(BackendError) as caught:
            store.bind("e", SPACES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "nothing of it was done: see whether the disk or a quota is full" in str(caught.value)
    assert "\n" not in str(caught.value)
    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:10])
        assert store.check().clean
