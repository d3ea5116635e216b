"""Stores that have schemas run what a schema says: each opens an index only where all tables are as it made them."""

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import psycopg
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records, unit_vectors

from tests.support.every_store import store_url
from vlmsearch import ConfigError
from vlmsearch.registry import open_store

RECORDS = make_records(3, (IMAGE, TEXT))
KINDS = ("sqlite", "postgresql")
PLANTED = {
    "a trigger": {
        "sqlite": 'CREATE TRIGGER t AFTER INSERT ON "{table}" BEGIN SELECT 1; END',
        "postgresql": "CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; "
        'CREATE TRIGGER t AFTER INSERT ON "{table}" FOR EACH ROW EXECUTE FUNCTION f()',
    },
    "a view": dict.fromkeys(
        KINDS, 'ALTER TABLE "{table}" RENAME TO "{table}x"; CREATE VIEW "{table}" AS SELECT * FROM "{table}x"'
    ),
    "a column": dict.fromkeys(KINDS, 'ALTER TABLE "{table}" ADD own text'),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", PLANTED)
def test_nothing_is_read_or_written_through_a_changed_table(
    what: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tables = [""]
    for number in count():
        url = store_url(kind, tmp_path, request)
        with open_store(url) as store:
            store.bind("e", SPACES)
            store.upsert(RECORDS)
        if number == 0:
            tables = _tables(url)
            assert len(tables) > 4
        if number == len(tables):
            break
        _run(url, PLANTED[what][kind].replace("{table}", _tables(url)[number]))
        with open_store(url) as store:
            for door in (
                store.manifest,
                lambda: store.search(IMAGE, unit_vectors(1), limit=1),
                lambda: store.bind("e", SPACES),
                lambda: store.upsert(RECORDS),
            ):
                with pytest.raises(ConfigError, match=r"which vlmsearch does not make so|not one of vlmsearch"):
                    door()


def _tables(url: str) -> list[str]:
    """The tables of an index, in an order that does not depend on its name."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as db:
            return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    place, _, name = url.partition("?table=")
    with psycopg.connect(place) as session:
        query = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ^@ %s ORDER BY oid"
        return [table for (table,) in session.execute(query, (name,))]


def _run(url: str, sql: str) -> None:
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as db:
            db.executescript(sql)
    else:
        with psycopg.connect(url.partition("?")[0], autocommit=True) as session:
            session.execute(sql)
