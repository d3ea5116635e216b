"""What transactions see of an index, one beside the other."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from vlmsearch.stores.sqlite.codes import CodeRows
from vlmsearch.stores.sqlite.database import Database
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.stores.sqlite.tables import Tables
from vlmsearch.stores.sqlite.view import View, Views
from vlmsearch.types import Field, Manifest

RECORDS = make_records(60, (IMAGE, TEXT))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:40])
    return tmp_path / "index"


def change(path: Path) -> None:
    """Replace ten documents, remove ten, and add twenty."""
    with SqliteStore(str(path)) as store:
        store.upsert(RECORDS[:10])
        store.delete([record.document.id for record in RECORDS[10:20]])
        store.upsert(RECORDS[40:])


def test_the_next_transaction_does_not_see_what_a_statement_saw_that_was_left_half_way(path: Path) -> None:
    database = Database(path, timeout=5)
    with database.reading("count") as first:
        left = first.execute("SELECT id FROM documents_1")
        next(left)
    change(path)
    with database.reading("count") as second:
        assert second is first
        assert second.execute("SELECT count(*) FROM documents_1").fetchone() == (50,)
    database.close()


def test_what_was_read_before_a_fork_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = RECORDS[3].vectors[IMAGE][None]
    with SqliteStore(str(path)) as store:
        expected = store.search(IMAGE, query, limit=5)
        store.preload()
    read: list[int] = []
    codes_after = Tables.codes_after

    def noted(self: Tables, db: sqlite3.Connection, field: Field, row: int) -> Iterator[CodeRows]:
        read.append(row)
        return codes_after(self, db, field, row)

    monkeypatch.setattr(Tables, "codes_after", noted)
    with SqliteStore(str(path)) as store:
        assert store.search(IMAGE, query, limit=5) == expected
        assert read == []
        change(path)
        [hits] = store.search(IMAGE, RECORDS[45].vectors[IMAGE][None], limit=1)
        assert (hits[0].id, read) == (RECORDS[45].document.id, [40])
    with SqliteStore(str(path)) as store:
        store.search(IMAGE, query, limit=5)
        assert read == [40, 0], "the next one begins anew: the view was another's"


def test_what_was_read_before_a_fork_is_not_taken_for_another_index_of_that_name(path: Path) -> None:
    with SqliteStore(str(path)) as store:
        store.preload()
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[10:])
        for record in RECORDS[10:]:
            [hits] = store.search(IMAGE, record.vectors[IMAGE][None], limit=1)
            assert hits[0].id == record.document.id


def test_a_transaction_that_sees_less_than_others_gets_a_view_of_its_own(path: Path) -> None:
    database, tables = Database(path, timeout=5), Tables(Manifest("e", SPACES, "", "en"), "1")
    views = Views(tables, Path("there-is-none"))
    with database.reading("see") as old:
        assert tables.state(old).documents == 40
        change(path)
        with database.reading("see") as new:
            for db in (new, old, new, old):
                view = views.now(db, [IMAGE])
                there = sorted(row for (row,) in db.execute("SELECT row FROM documents_1"))
                assert view.rows[view.alive].tolist() == there
                assert found(view) == set(there)
    database.close()


def found(view: View) -> set[int]:
    """The rows of all documents that a search can find."""
    query = np.asarray(RECORDS[0].vectors[IMAGE])
    return set(view.rows[view.codes[IMAGE][1].nearest(query, 100, view.passing(None))].tolist())
