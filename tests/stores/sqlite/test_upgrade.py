"""A file that an earlier version wrote is one of this version once it is opened, and says all that it said."""

import gzip
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, make_records

from tests.support.cli import assert_one_line, run
from tests.support.forks import as_nobody
from tests.support.sqlite_images import log_of
from vlmsearch import BackendError, ConfigError, Document
from vlmsearch.indexing.reindex import reindex
from vlmsearch.registry import open_encoder
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.generations import EarlierWordsWarning
from vlmsearch.stores.sqlite import schema
from vlmsearch.stores.sqlite.checksums import checksum
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.stores.terms import rules_of

FIRST = gzip.decompress((Path(__file__).parent / "data" / "version-1.gz").read_bytes())
"""See make_version_1.py beside it."""
SECOND = gzip.decompress((Path(__file__).parent / "data" / "version-2.gz").read_bytes())
"""See make_version_2.py beside it."""
EARLIER_WORDS = gzip.decompress((Path(__file__).parent / "data" / "earlier-words.gz").read_bytes())
"""See make_earlier_words.py beside it."""
NEW_TERMS = {"C++": "languages", "2.10.3": "release", "AB4711": "valve", "77312205": "valve"}
DOCUMENTS = 28


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "index").write_bytes(FIRST)
    return tmp_path / "index"


def test_everything_that_an_older_file_has_is_there(path: Path, tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(FIRST)
    with closing(sqlite3.connect(tmp_path / "before")) as db:
        rows = db.execute("SELECT id, digest, source, image, metadata, text FROM documents_2").fetchall()
        vectors = dict(db.execute("SELECT id, vector FROM vectors_2_0 JOIN documents_2 USING (row)").fetchall())
    assert len(rows) == len(vectors) == DOCUMENTS
    with SqliteStore(str(path)) as store:
        manifest = store.manifest()
        assert manifest is not None
        assert (manifest.fingerprint, manifest.language, dict(manifest.tuning)) == ("second", "de", {"words": 0.5})
        found = {record.document.id: record for record in store.records([row[0] for row in rows])}
        for id, digest, source, image, metadata, text in rows:
            document, stamp = found[id].document, found[id].stamp
            assert (str(document.image), dict(document.metadata), document.text) == (image, json.loads(metadata), text)
            assert (stamp.digest, stamp.source) == (digest, source)
            assert found[id].vectors[IMAGE].astype("<f4").tobytes() == vectors[id]
        hits = store.search(IMAGE, np.frombuffer(vectors["id-9"], "<f4")[None], limit=DOCUMENTS)[0]
        assert (hits[0].id, len(hits)) == ("id-9", DOCUMENTS)
        assert {hit.id for hit in store.search_words("Bücher", limit=99).hits} == {
            "id-2",
            "id-8",
            "id-14",
            "id-20",
            "id-26",
        }
        where = parse_filter({"is even": True, "number": {"$gt": 20}})
        assert len(store.search(IMAGE, make_records(1)[0].vectors[IMAGE][None], limit=99, where=where)[0]) == 4
        assert [reject.id for reject in store.rejects()] == ["bad.png"]
        assert store.drop_old()


def test_what_is_not_known_of_an_older_file_is_told_and_made_again(path: Path) -> None:
    with SqliteStore(str(path)) as store:
        report = store.check()
        assert report.unindexed == ()
        assert len(report.orphans) == 1, "the tables of the trial that was killed"
        assert (report.unfinished, report.missing, report.damaged) == ((), (), ())
        assert store.check(repair=True).repaired
        assert store.check().clean
    assert len(path.read_bytes()) < len(FIRST), "nothing is left of the trial and the tables of version 1"


def test_the_words_of_fts5_become_postings(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(SECOND)
    with SqliteStore(str(tmp_path / "index")) as store:
        hits = store.search_words("Bücher", limit=99).hits
        assert {hit.id for hit in hits} == {"id-2", "id-8", "id-14", "id-20", "id-26"}
        assert store.check().clean
        assert store.drop_old()
    with closing(sqlite3.connect(tmp_path / "index")) as db:
        assert not db.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%fts5%'").fetchall()


def test_parts_of_words_become_the_language_of_each_document(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(SECOND)
    with closing(sqlite3.connect(tmp_path / "index")) as db:
        for slot, text in db.execute("SELECT slot, row FROM slots").fetchall():
            row = json.dumps({**json.loads(text), "language": "parts"})
            db.execute("UPDATE slots SET row = ?, crc = ? WHERE slot = ?", [row, checksum(slot, row), slot])
        db.commit()
    with SqliteStore(str(tmp_path / "index")) as store:
        manifest = store.manifest()
        assert manifest is not None
        assert manifest.language == "auto"
        assert len(store.search_words("laufende", limit=99).hits) == DOCUMENTS - 6
        assert store.check().clean


def test_an_upgrade_is_one_transaction(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()

    def fail_at_the_end(db: sqlite3.Connection, statements: str) -> None:
        schema.run(db, statements)
        calls.append(statements)
        if len(calls) == 9:
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("vlmsearch.stores.sqlite.upgrade.run", fail_at_the_end)
    with SqliteStore(str(path)) as store, pytest.raises(BackendError, match="disk I/O error"):
        len(store)
    monkeypatch.undo()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert not db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'was_%'").fetchall()
    with SqliteStore(str(path)) as store:
        assert len(store) == DOCUMENTS


def count(path: Path) -> int:
    with SqliteStore(str(path)) as store:
        return len(store)


def test_of_several_processes_that_open_it_at_once_one_does_it(path: Path) -> None:
    with get_context("spawn").Pool(3) as pool:
        assert pool.map(count, [path] * 6) == [DOCUMENTS] * 6


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everyone may look into."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        (Path(made) / "index").write_bytes(FIRST)
        yield Path(made)
        Path(made).chmod(0o755)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_an_older_file_that_may_only_be_read_is_refused_with_what_to_run(folder: Path, what: str) -> None:
    (folder / "index").chmod(0o444)
    folder.chmod(0o777 if what == "file" else 0o555)
    said = as_nobody(lambda: count(folder / "index"))
    assert said.startswith(
        f"ConfigError: sqlite:{folder / 'index'} was written by an older vlmsearch, and may only be "
    )
    assert f"run `vlmsearch check --store sqlite:{folder / 'index'}` as a user who may write to it" in said
    (folder / "index").chmod(0o644)
    folder.chmod(0o755)
    assert run("check", "--store", f"sqlite:{folder / 'index'}").returncode == 1, "it tells what is to be repaired"
    (folder / "index").chmod(0o444)
    folder.chmod(0o777 if what == "file" else 0o555)
    assert as_nobody(lambda: count(folder / "index")) == str(DOCUMENTS)


def test_what_another_program_put_into_an_older_file_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TRIGGER changed AFTER INSERT ON documents_2 BEGIN DELETE FROM slots; END")
    with (
        SqliteStore(str(path)) as store,
        pytest.raises(ConfigError, match="has the trigger 'changed', which vlmsearch"),
    ):
        len(store)
    assert_one_line(run("info", "--store", f"sqlite:{path}"), "trigger")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)


def test_an_older_file_with_two_documents_of_one_id_keeps_the_later_one(path: Path) -> None:
    content = bytearray(FIRST)
    key = b"id-12"
    places = [at for at in range(len(content)) if content.startswith(key, at)]
    with closing(sqlite3.connect(path)) as db:  # damage the index of ids alone, and write the document again
        (root,) = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_documents_2_1'"
        ).fetchone()
    (place,) = [at for at in places if at // 8192 == root - 1]
    content[place + 4] = ord(":")
    path.write_bytes(content)
    log_of(path).unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA quick_check").fetchone() == ("ok",)
        db.execute(
            "INSERT INTO documents_2 SELECT 1000, id, 'later', source, fields, image, metadata, text "
            "FROM documents_2 NOT INDEXED WHERE id = 'id-12'"
        )
        db.commit()
    with SqliteStore(str(path)) as store:
        assert store.stamps(["id-12"])["id-12"].digest == "later"
        assert not store.check().clean
        assert store.check(repair=True).repaired
        assert store.check().clean
        assert len(list(store.ids())) == len(store) == DOCUMENTS


@pytest.mark.parametrize("renewal", [("reindex",), ("check", "--repair")])
def test_words_of_earlier_rules_are_told_by_a_search_and_renewed(renewal: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(EARLIER_WORDS)
    store = ("--store", f"sqlite:{tmp_path / 'index'}")
    asked = run("search", "C++", *store)
    said = f"sqlite:{tmp_path / 'index'} has words made by snowballstemmer 3.1.1, and here is {rules_of('auto')}"
    assert said in asked.stderr
    assert "searches may miss some until you run `vlmsearch reindex --store URL`, which renews them" in asked.stderr
    assert asked.stdout == "", "another version made no such term"
    assert "made by snowballstemmer 3.1.1" in run("info", *store).stdout
    done = run(*renewal, *store)
    assert done.returncode == 0, done.stderr
    for query, id in NEW_TERMS.items():
        after = run("search", query, *store)
        assert [line.split("\t")[1] for line in after.stdout.splitlines()] == [id]
        assert "words" not in after.stderr
    assert "made by" not in run("info", *store).stdout
    assert run("check", *store).returncode == 0


def test_a_renewal_of_words_encodes_nothing_and_keeps_everything(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(EARLIER_WORDS)

    def content(store: SqliteStore) -> list[tuple[Document, dict[str, bytes]]]:
        records = sorted(store.records(sorted(store.ids())), key=lambda record: record.document.id)
        return [(r.document, {str(field): r.vectors[field].tobytes() for field in r.vectors}) for r in records]

    with SqliteStore(str(tmp_path / "index")) as store, pytest.warns(EarlierWordsWarning):
        before = content(store)
    with open_encoder("onnx:demo") as encoder, SqliteStore(str(tmp_path / "index")) as store:
        done = reindex(store, encoder)
        assert (done.documents, done.encoded, done.switched) == (5, 0, True)
        assert content(store) == before
        assert not reindex(store, encoder).switched, "there is nothing to renew"
