"""Damage to the file is told in one line, and what can be made again is made again."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.cli import run
from tests.support.sqlite_images import log_of
from vlmsearch import VlmsearchError
from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.sqlite import tables
from vlmsearch.stores.sqlite.store import SqliteStore

RECORDS = make_records(60, (IMAGE, TEXT))
IDS = [record.document.id for record in RECORDS]
WHERE = parse_filter({"number": {"$gte": 3}})
QUERY = RECORDS[3].vectors[IMAGE][None]
USES: dict[str, Callable[[SqliteStore], object]] = {
    "manifest": lambda store: store.manifest(),
    "check": lambda store: store.check(),
    "search": lambda store: store.search(IMAGE, QUERY, limit=60),
    "filter": lambda store: store.search(IMAGE, QUERY, limit=60, where=WHERE),
    "words": lambda store: store.search_words("text 3", limit=60).hits,
    "get": lambda store: store.get(IDS),
    "ids": lambda store: list(store.ids()),
    "stamps": lambda store: (store.stamps(IDS), store.fields(IDS)),
    "records": lambda store: store.records(IDS),
    "repair": lambda store: store.check(repair=True),
    "bind": lambda store: store.bind("e", SPACES),
    "upsert": lambda store: store.upsert(RECORDS[:5]),
    "delete": lambda store: store.delete(["id-7"]),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of an index."""
    path = tmp_path_factory.mktemp("whole") / "index"
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:40])
        store.upsert(RECORDS[20:])
        store.delete(["id-1"])
    return path.read_bytes()


def damaged(whole: bytes, seed: int) -> bytes:
    """The file with some bits turned, a page of zeros, or its end cut off."""
    rng, content = random.Random(seed), bytearray(whole)
    if seed % 10 == 0:
        return whole[: rng.randrange(len(whole))]
    if seed % 10 == 1:
        page = rng.randrange(len(whole) // 8192) * 8192
        content[page : page + 8192] = bytes(8192)
        return bytes(content)
    for _ in range(rng.choice([1, 1, 3, 20])):
        content[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
    return bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("count", [60, pytest.param(2500, marks=pytest.mark.exhaustive)])
def test_a_damaged_file_is_told_in_one_line_whatever_is_done(tmp_path: Path, whole: bytes, count: int) -> None:
    path, told = tmp_path / "index", 0
    for seed in range(count):
        path.write_bytes(damaged(whole, seed))
        log_of(path).unlink(missing_ok=True)
        with SqliteStore(str(path)) as store:
            for name, use in USES.items():
                try:
                    found = use(store)
                except VlmsearchError as exc:
                    told += 1
                    said = str(exc)
                    assert "\n" not in said, (seed, name, said)
                except Exception as exc:
                    raise AssertionError(f"file {seed}, {name}") from exc
                else:
                    told += isinstance(found, CheckReport) and not found.clean
    assert told > count


def test_fsck_says_one_line(tmp_path: Path, whole: bytes) -> None:
    content = bytearray(whole)
    content[5 * 8192 : 6 * 8192] = bytes(8192)
    (tmp_path / "index").write_bytes(content)
    done = run("fsck", "--store", f"sqlite:{tmp_path / 'index'}")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "is damaged" in done.stderr


REMOVED = {
    "codes": "DELETE FROM codes_1_0",
    "some codes": "DELETE FROM codes_1_2 WHERE last = (SELECT min(last) FROM codes_1_2)",
    "attributes": "DELETE FROM attributes_1 WHERE row % 3 = 0",
    "another attribute": "UPDATE attributes_1 SET value = value + 1.0 WHERE row = 44",
    "words": "DELETE FROM words_1_docsize WHERE id % 3 = 0",
    "count": "UPDATE state_1 SET documents = 7",
}


@pytest.mark.parametrize("what", REMOVED)
def test_what_follows_from_documents_and_vectors_is_made_again(tmp_path: Path, whole: bytes, what: str) -> None:
    path = tmp_path / "index"
    path.write_bytes(whole)
    with SqliteStore(str(path)) as store, SqliteStore(str(path)) as reader:
        before = look(store)
        assert look(reader) == before
        with store._database.writing("damage") as db:
            db.execute(REMOVED[what])
        report = store.check()
        assert report.unindexed
        assert not report.missing
        assert store.check(repair=True).repaired
        assert store.check().clean
        assert look(store) == before
        assert look(reader) == before, "who has it open sees it too"


@pytest.mark.parametrize("what", ["DELETE FROM vectors_1_0 WHERE row = 44", "a bit of a vector", "a bit of a code"])
def test_a_document_whose_vector_is_lost_or_damaged_counts_as_changed(tmp_path: Path, whole: bytes, what: str) -> None:
    path = tmp_path / "index"
    path.write_bytes(whole)
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        (id,) = [
            id for id in IDS if store.get([id]) and store.search(IMAGE, QUERY, limit=1) and row_of(store, id) == 44
        ]
        with store._database.writing("damage") as db:
            if what.startswith("DELETE"):
                db.execute(what)
            elif what == "a bit of a vector":
                (vector,) = db.execute("SELECT vector FROM vectors_1_0 WHERE row = 44").fetchone()
                db.execute("UPDATE vectors_1_0 SET vector = ? WHERE row = 44", [vector[:6] + b"\x3f\x3f" + vector[8:]])
            else:
                last, rows, codes = db.execute("SELECT last, rows, codes FROM codes_1_0 WHERE last > 43").fetchone()
                place = np.frombuffer(rows, "<i8").tolist().index(44) * 32
                code = bytes([codes[place] ^ 0x40])
                changed = codes[:place] + code + codes[place + 1 :]
                db.execute("UPDATE codes_1_0 SET codes = ? WHERE last = ?", [changed, last])
        assert store.check().missing == (f"clip/image of {id}",)
        assert store.check(repair=True).repaired
        assert store.stamps([id])[id].digest == ""
        assert store.check().clean
        store.upsert([RECORDS[int(id[3:])]])
        hits = store.search(IMAGE, RECORDS[int(id[3:])].vectors[IMAGE][None], limit=60)[0]
        assert hits[0].id == id
        assert len(hits) == len(store)
        assert store.check().clean


def row_of(store: SqliteStore, id: str) -> int:
    with store._database.reading("look") as db:
        return int(db.execute("SELECT row FROM documents_1 WHERE id = ?", [id]).fetchone()[0])


def look(store: SqliteStore) -> list[object]:
    """What searching finds, in every way."""
    text = RECORDS[3].vectors[TEXT][None]
    return [
        store.search(IMAGE, QUERY, limit=60),
        store.search(TEXT, text, limit=60),
        store.search(TEXT, text, limit=60, where=WHERE),
        store.search_words("text 44", limit=60).hits,
        store.get(IDS),
        store.stamps(IDS),
        len(store),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("turns", [100, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_updates_without_end_leave_the_file_small_and_searches_exact(
    tmp_path: Path, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_KEPT_DEATHS", 2000)
    path, rng, sizes = tmp_path / "index", np.random.default_rng(0), list[int]()
    records = make_records(500, (IMAGE, TEXT))
    with SqliteStore(str(path)) as store, SqliteStore(str(path)) as reader:
        store.bind("e", SPACES)
        store.upsert(records)
        for turn in range(turns):
            others = make_records(500, (IMAGE, TEXT), seed=turn + 10)
            for i in rng.choice(500, 100, replace=False):
                records[i] = others[i]
            store.upsert([records[i] for i in range(500) if records[i] is others[i]])
            if turn % 10 == 9:
                query = others[0].vectors[IMAGE]
                exact = sorted(range(500), key=lambda i: -float(records[i].vectors[IMAGE] @ query))[:20]
                assert [hit.id for hit in reader.search(IMAGE, query[None], limit=20)[0]] == [f"id-{i}" for i in exact]
                assert len(reader.search_words("text", limit=1000).hits) == 500
                assert len(reader._views._latest.rows) <= 500 + 500 + 2000 + 200 if reader._views else False
                sizes.append(path.stat().st_size + log_of(path).stat().st_size)
        assert store.check().clean
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA page_count").fetchone()[0] * 8192 < 2**22
    assert max(sizes) < 2**26
