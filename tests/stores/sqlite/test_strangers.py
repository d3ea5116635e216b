"""A file that somebody else made or changed: what it says is refused in one line, and nothing of it is run."""

import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.cli import assert_one_line, run
from vlmsearch import BackendError, ConfigError
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import OperationCancelledError
from vlmsearch.stores.sqlite.checksums import checksum
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.stores.terms import LANGUAGES

RECORDS = make_records(20, (IMAGE, TEXT))
LONG = "(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 2e6) SELECT count(*) FROM c)"
DEEP = '{"a":' + "[" * 60_000 + "1" + "]" * 60_000 + "}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS)
    return tmp_path / "index"


def seal(db: sqlite3.Connection) -> None:
    """Give the rows that were changed the checksums that they should have, as whoever means to can."""
    db.create_function("checksum", -1, checksum)
    with suppress(sqlite3.OperationalError):  # what should be a table is a view
        db.execute("UPDATE documents_1 SET crc = checksum(row, id, digest, source, fields, image, metadata, text)")
    db.execute("UPDATE slots SET crc = checksum(slot, row)")
    db.commit()


CHANGES = {
    "a view in the place of a table": (
        f"""
        ALTER TABLE documents_1 RENAME TO documents_7;
        CREATE VIEW documents_1 AS SELECT row, id, digest, source, fields, image, metadata, {LONG} AS text
        FROM documents_7
        """,
        "has the (table 'documents_7'|view 'documents_1'), which vlmsearch does not make so",
    ),
    "a trigger": (
        "CREATE TRIGGER changed AFTER INSERT ON documents_1 BEGIN UPDATE documents_1 SET text = 'owned'; END",
        "has the trigger 'changed', which",
    ),
    "a table more": ('CREATE TABLE "more\x1b[31m" (x)', r"has the table 'more\\x1b\[31m', which"),
    "a table that is another one": (
        "DROP TABLE deaths_1; CREATE TABLE deaths_1 (number, row)",
        "table 'deaths_1', which",
    ),
    "an index more": ("CREATE INDEX ids_1 ON documents_1 (text)", "has the index 'ids_1', which"),
    "a computed column": (
        "DROP TABLE deaths_1; CREATE TABLE deaths_1 (number INTEGER PRIMARY KEY, row INTEGER NOT NULL AS (abs(-1)))",
        "table 'deaths_1', which",
    ),
    "words of an earlier version": (
        "DROP TABLE words_1; CREATE VIRTUAL TABLE words_1 USING fts5(body, content='slots')",
        "has the table 'words_1', which",
    ),
    "deep metadata": (f"UPDATE documents_1 SET metadata = '{DEEP}'", "damaged: JSON is nested deeper than 64 levels"),
    "metadata in a list": ("UPDATE documents_1 SET metadata = '[1]'", "damaged: metadata that are no JSON object"),
    "metadata with lists": ("UPDATE documents_1 SET metadata = '{\"a\": [1]}'", "damaged: metadata that are no JSON"),
    "a deep manifest": (f"UPDATE slots SET row = '{DEEP}'", "damaged: JSON is nested deeper than 64 levels"),
    "a manifest in a list": ("UPDATE slots SET row = '[]'", "damaged: its slot 'index' holds no JSON object"),
    "a manifest of numbers": (
        "UPDATE slots SET row = json_set(row, '$.spaces', 7)",
        "the manifest of sqlite:.* is damaged: 'int' object is not iterable",
    ),
    "a space without length": (
        "UPDATE slots SET row = json_set(row, '$.spaces[0][1]', 0)",
        "the manifest of sqlite:.* is damaged: no space of vectors: ",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_another_program_put_into_a_file_is_refused_in_one_line(path: Path, what: str) -> None:
    statements, message = CHANGES[what]
    with closing(sqlite3.connect(path)) as db:
        db.executescript(statements)
        seal(db)
    with SqliteStore(str(path)) as store, pytest.raises((BackendError, ConfigError), match=message):
        store.check()
    for command in (["search", "text", "--encoder", "mock:"], ["check"]):
        done = run(*command, "--store", f"sqlite:{path}")
        assert_one_line(done, "")
        assert "\x1b" not in done.stderr


@pytest.mark.parametrize("language", [*LANGUAGES, "auto", "none"])
def test_what_is_made_here_is_known_here(tmp_path: Path, language: str) -> None:
    with SqliteStore(str(tmp_path / "index"), language=language) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:2])
        if language == "en":
            for number in range(12):  # generations of two digits
                built = store.beside(f"other {number}", SPACES)
                built.upsert(RECORDS[:2])
                store.freeze(built)
                store.switch(built)
            assert store.generation == "13"
    with SqliteStore(str(tmp_path / "index")) as store:
        assert len(store) == 2
        assert store.check().clean


def test_a_call_that_was_given_up_ends_in_the_middle_of_a_statement(path: Path) -> None:
    token = CancelToken()
    with SqliteStore(str(path)) as store, running_under(token):
        with store._database.reading("look") as db:
            timer = threading.Timer(0.3, token.cancel)
            timer.start()
            with pytest.raises(sqlite3.OperationalError, match="interrupted"):
                db.execute(f"SELECT {LONG.replace('2e6', '1e9')}").fetchone()
            timer.join()
        with pytest.raises(OperationCancelledError):
            len(store)
    with SqliteStore(str(path)) as store:
        assert len(store) == 20
