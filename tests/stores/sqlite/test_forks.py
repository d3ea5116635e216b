"""What a fork does to a store, and to the process that it was forked from."""

import os
import time
from pathlib import Path

import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.forks import forked, in_a_child
from vlmsearch.stores.sqlite import codes
from vlmsearch.stores.sqlite.store import SqliteStore

RECORDS = make_records(30, (IMAGE, TEXT))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:10])
    return tmp_path / "index"


def test_a_store_of_the_parent_is_refused_in_a_child_and_works_on_in_the_parent(path: Path) -> None:
    with SqliteStore(str(path)) as store:
        assert len(store) == 10
        for act in (lambda: store.get(["id-1"]), lambda: store.delete(["id-1"])):
            said = in_a_child(act)
            assert said == f"ConfigError: sqlite:{path} was opened in process {os.getpid()}: open another after a fork"
        assert in_a_child(store.close) == "None"
        store.upsert(RECORDS[10:20])
        assert len(store) == 20
    with SqliteStore(str(path)) as store:
        assert len(store) == 20
        assert store.check().clean


def test_what_a_child_writes_with_a_store_of_its_own_outlives_the_parents(path: Path) -> None:
    store = SqliteStore(str(path))
    assert len(store) == 10
    may_go_on, closed = os.pipe()

    def write() -> int:
        own = SqliteStore(str(path))
        own.bind("e", SPACES)
        own.upsert(RECORDS[10:20])
        os.read(may_go_on, 1)
        own.upsert(RECORDS[20:])
        return len(own)

    end = forked(write)
    deadline = time.monotonic() + 60
    while len(store) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    store.close()
    os.write(closed, b".")
    assert end() == "30"
    with SqliteStore(str(path)) as again:
        assert len(again) == 30
        assert again.check().clean


def test_a_file_that_was_in_use_during_the_fork_is_refused_in_the_child(path: Path) -> None:
    with SqliteStore(str(path)) as store, store._database.reading("look") as db:
        db.execute("SELECT count(*) FROM slots").fetchone()
        said = in_a_child(lambda: len(SqliteStore(str(path))))
    assert said.startswith(f"ConfigError: sqlite:{path} was being used when this process was forked from process ")
    with SqliteStore(str(path)) as store:
        assert len(store) == 10


def test_a_child_compares_several_blocks_with_threads_of_its_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "BLOCK", 4)
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[10:20])
    (query,) = RECORDS[7].vectors[IMAGE][None]

    def search() -> str:
        with SqliteStore(str(path)) as own:
            return own.search(IMAGE, query[None], limit=1)[0][0].id

    assert search() == "id-7"
    assert in_a_child(search) == "id-7"


@pytest.mark.parametrize("id", ["id-1\0", "id-1\0x", "\0", "\ud800"])
def test_an_id_that_none_can_have_names_no_document(path: Path, id: str) -> None:
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        assert (store.get([id]), store.stamps([id]), store.fields([id]), store.records([id])) == ([], {}, {}, [])
        assert store.delete([id]) == 0
        assert len(store) == 10
