"""What transactions see of an index, one beside the other."""

from pathlib import Path

import numpy as np
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from vlmsearch.stores.sqlite.database import Database
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.stores.sqlite.tables import Tables
from vlmsearch.stores.sqlite.view import View, Views
from vlmsearch.types import Manifest

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
