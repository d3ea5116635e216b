"""Damage to the file is told in one line, and what can be made again is made again."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from vlmsearch_mocks.contracts.passages import VECTORS, make_long
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.cli import run
from tests.support.sqlite_images import log_of
from vlmsearch import BackendError, Document, Reject, Stamp, VlmsearchError
from vlmsearch.stores import postings, terms
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


def test_a_search_of_damaged_deaths_is_told(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "index").write_bytes(whole)
    with closing(sqlite3.connect(tmp_path / "index")) as db, db:
        db.execute("UPDATE deaths_1 SET row = 'a'")
    with SqliteStore(str(tmp_path / "index")) as store, pytest.raises(BackendError, match="is damaged"):
        store.search(IMAGE, QUERY, limit=1)


def test_check_says_one_line(tmp_path: Path, whole: bytes) -> None:
    content = bytearray(whole)
    content[5 * 8192 : 6 * 8192] = bytes(8192)
    (tmp_path / "index").write_bytes(content)
    done = run("check", "--store", f"sqlite:{tmp_path / 'index'}")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "is damaged" in done.stderr


REMOVED = {
    "codes": "DELETE FROM codes_1_0",
    "some codes": "DELETE FROM codes_1_2 WHERE last = (SELECT min(last) FROM codes_1_2)",
    "attributes": "DELETE FROM attributes_1 WHERE row % 3 = 0",
    "another attribute": "UPDATE attributes_1 SET value = value + 1.0 WHERE row = 44",
    "words": "DELETE FROM words_1 WHERE last = (SELECT min(last) FROM words_1)",
    "a bit of a code": "UPDATE codes_1_0 SET codes = CAST(substr(codes, 1, 9) || x'41' || substr(codes, 11) AS BLOB)",
    "a small bit of a code": "UPDATE codes_1_0 SET signs = CAST(x'00' || substr(signs, 2) AS BLOB)",
    "a word": "UPDATE words_1 SET keys = CAST(x'07' || substr(keys, 2) AS BLOB)",
    "the length of a document": "UPDATE words_1 SET lengths = CAST(x'07' || substr(lengths, 2) AS BLOB)",
    "places of words": "UPDATE words_1 SET places = CAST(x'00' || substr(places, 2) AS BLOB)",
    "count": "UPDATE state_1 SET documents = 7",
    "the last row": "UPDATE state_1 SET last_row = last_row - 1",
    "a row far away": "UPDATE state_1 SET last_row = 1 << 40",
    "a death": "UPDATE deaths_1 SET row = 44 WHERE number = 1",
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


@pytest.mark.parametrize("what", ["DELETE FROM vectors_1_0 WHERE row = 44", "a bit of a vector", "its smallest bit"])
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
            else:
                (vector,) = db.execute("SELECT vector FROM vectors_1_0 WHERE row = 44").fetchone()
                turned = b"\x3f\x3f" if what == "a bit of a vector" else bytes([vector[6] ^ 1, vector[7]])
                db.execute("UPDATE vectors_1_0 SET vector = ? WHERE row = 44", [vector[:6] + turned + vector[8:]])
        assert store.check().missing == (f"clip/image of {id}",)
        assert store.check(repair=True).repaired
        assert store.stamps([id])[id].digest == ""
        assert store.check().clean
        store.upsert([RECORDS[int(id[3:])]])
        hits = store.search(IMAGE, RECORDS[int(id[3:])].vectors[IMAGE][None], limit=60)[0]
        assert hits[0].id == id
        assert len(hits) == len(store)
        assert store.check().clean


def damage(store: SqliteStore, statement: str) -> None:
    with store._database.writing("damage") as db:
        db.execute(statement)


DAMAGED = {
    "a letter": "UPDATE documents_1 SET text = 'tex7 45' WHERE id = 'id-45'",
    "no UTF-8": "UPDATE documents_1 SET text = CAST(x'74C3' AS TEXT) WHERE id = 'id-45'",
    "another type": "UPDATE documents_1 SET text = CAST(text || 'x' AS BLOB) WHERE id = 'id-45'",
    "a value": """UPDATE documents_1 SET metadata = '{"number": 44}' WHERE id = 'id-45'""",
    "broken metadata": """UPDATE documents_1 SET metadata = '{"number": 45' WHERE id = 'id-45'""",
    "deep metadata": f"UPDATE documents_1 SET metadata = '{'[' * 70000}' WHERE id = 'id-45'",
    "broken fields": "UPDATE documents_1 SET fields = '7' WHERE id = 'id-45'",
    "unknown fields": """UPDATE documents_1 SET fields = '["clip/imafe"]' WHERE id = 'id-45'""",
    "its stamp": "UPDATE documents_1 SET digest = digest || '!' WHERE id = 'id-45'",
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_document_is_never_shown_and_counts_as_changed_when_it_is_repaired(
    tmp_path: Path, whole: bytes, what: str
) -> None:
    path = tmp_path / "index"
    path.write_bytes(whole)
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        damage(store, DAMAGED[what])
        for use in (
            lambda: store.get(["id-45"]),
            lambda: store.records(["id-45"]),
            lambda: store.upsert(RECORDS[45:46]),
            lambda: store.delete(["id-45"]),
        ):
            with pytest.raises(
                BackendError, match=r"id-45' is damaged in the index: run `vlmsearch check --rep|damaged"
            ):
                use()
        assert store.get(["id-44"]) == [RECORDS[44].document], "others are as they were"
        report = store.check()
        assert report.damaged == ("id-45",)
        assert not report.clean
        assert store.check(repair=True).damaged == ("id-45",)
        assert store.check().clean
        assert store.stamps(["id-45"])["id-45"].digest == "", "it is indexed anew"
        assert store.get(["id-45"])[0].id == "id-45"
        assert len(store) == 59
        store.upsert(RECORDS[45:46])
        assert store.get(["id-45"]) == [RECORDS[45].document]
        assert store.search_words("45", limit=5).hits[0].id == "id-45"
        assert store.search(IMAGE, RECORDS[45].vectors[IMAGE][None], limit=1)[0][0].id == "id-45"
        assert store.check().clean


def test_a_document_of_which_nothing_is_left_is_gone_after_a_repair(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "index"
    path.write_bytes(whole)
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        damage(store, "UPDATE documents_1 SET id = '' WHERE id = 'id-45'")
        assert store.check(repair=True).damaged == ("",)
        assert store.check().clean
        assert (len(store), store.get(["id-45"])) == (58, [])
        store.upsert(RECORDS[45:46])
        assert store.get(["id-45"]) == [RECORDS[45].document]
        assert store.check().clean


def test_a_damaged_text_does_not_break_searches_for_its_words(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        store.upsert([replace(r, document=Document(r.document.id, f"uniq{r.document.id[3:]} thing")) for r in RECORDS])
    content = bytearray(path.read_bytes())
    assert content.count(b"uniq17 thing") == 1
    content[content.index(b"uniq17 thing") + 2] ^= 1
    path.write_bytes(content)
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        assert store.check().damaged == ("id-17",)
        with pytest.raises(BackendError, match="'id-17' is damaged"):
            store.delete(["id-17"])
        assert store.check(repair=True).damaged == ("id-17",)
        assert store.delete(["id-17"]) == 1
        assert store.check().clean
        for words in ("uniq17", "thing", "uniq3"):
            assert "id-17" not in [hit.id for hit in store.search_words(words, limit=99).hits]
        assert len(store.search_words("thing", limit=99).hits) == 59


@pytest.mark.parametrize("letter", [":", "a"])
def test_damage_in_the_index_of_ids_is_told_and_repaired(tmp_path: Path, whole: bytes, letter: str) -> None:
    path = tmp_path / "index"
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name LIKE 'sqlite_autoindex_doc%'").fetchone()
    content, page = bytearray(whole), (root - 1) * 8192
    at = content.index(b"id-9" if letter == "a" else b"id-12", page)
    content[at + 4 * (letter == ":")] = ord(letter)  # with an "a", the last id is before all others
    path.write_bytes(content)
    log_of(path).unlink(missing_ok=True)
    id = "id-9" if letter == "a" else "id-12"
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        assert any("missing from index" in said for said in store.check().unindexed)
        if letter == "a":
            with pytest.raises(BackendError, match="its ids are out of order"):
                list(store.ids())
        assert store.get([id]) == [], "it cannot be found"
        store.upsert(RECORDS[int(id[3:]) : int(id[3:]) + 1])
        assert not store.check().clean
        assert store.check(repair=True).repaired
        assert store.check().clean
        assert list(store.ids()) == sorted({*IDS} - {"id-1"})
        assert len(store) == 59
        assert store.get([id]) == [RECORDS[int(id[3:])].document]
        assert [hit.id for hit in store.search_words(id[3:], limit=9).hits] == [id]


def test_damage_on_the_reject_list_and_of_a_slot_is_told(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "index"
    path.write_bytes(whole)
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        store.reject([Reject(id, "corrupt", "no image", Stamp("d", "s")) for id in ("a.png", "b.png")])
        damage(store, "UPDATE rejects SET id = 'c.png' WHERE id = 'a.png'")
        with pytest.raises(BackendError, match=r"'c.png' on the reject list is damaged: run `vlmsearch check --rep"):
            store.rejects()
        assert store.check().damaged == ("c.png on the reject list",)
        assert store.check(repair=True).repaired
        assert [reject.id for reject in store.rejects()] == ["b.png"], "the other is tried again"
        assert store.check().clean
        damage(store, "UPDATE slots SET row = replace(row, '\"auto\"', '\"autp\"')")
    with SqliteStore(str(path)) as store, pytest.raises(BackendError, match="its slot 'index' is not what was written"):
        store.search_words("text", limit=1)


def test_tables_that_no_slot_names_are_told_and_removed(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "index"
    path.write_bytes(whole)
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        before = look(store)
        manifest = store.needed()
        with store._database.writing("leave tables") as db:
            tables.Tables(manifest, "7").create(db)
            tables.Tables(manifest, "1234567890").create(db)
        assert store.check().orphans == ("tables of generation 7", "tables of generation 1234567890")
        assert store.check(repair=True).repaired
        assert store.check().clean
        assert look(store) == before
    with closing(sqlite3.connect(path)) as db:
        assert not db.execute("SELECT name FROM sqlite_master WHERE name LIKE '%\\_7%' ESCAPE '\\'").fetchall()


def test_words_that_do_not_fit_together_are_refused(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "index"
    for statement in (
        "UPDATE words_1 SET places = CAST(x'ffff' || substr(places, 3) AS BLOB)",
        "UPDATE words_1 SET starts = CAST(x'ffffffff' || substr(starts, 5) AS BLOB)",
        "UPDATE words_1 SET times = CAST(substr(times, 2) AS BLOB)",
        "UPDATE words_1 SET rows = 'text'",
    ):
        path.write_bytes(whole)
        with SqliteStore(str(path)) as store:
            damage(store, statement)
            with pytest.raises(BackendError, match="damaged"):
                store.search_words("text", limit=3)
            assert store.check(repair=True).repaired
            assert store.search_words("text", limit=3).hits


def test_words_of_another_stemmer_are_told_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [replace(r, document=Document(r.document.id, "laufende Hunde und Häuser")) for r in RECORDS]

    def use(release: str, length: int) -> SqliteStore:
        monkeypatch.setattr(terms, "_stemmer_release", lambda: release)
        terms.rules_of.cache_clear()
        monkeypatch.setattr(terms, "_snowball", lambda word, language: word[:length])
        terms.terms_of_word.cache_clear()
        postings._keys_by.cache_clear()
        store = SqliteStore(str(tmp_path / "index"), language="de")
        store.bind("e", SPACES)
        return store

    with use("1.0", 4) as store:
        store.upsert(records)
        assert store.check().clean
        assert "terms" not in store.describe()
    with use("2.0", 5) as store:
        said = "made by snowballstemmer 1.0, codes 2, and here is snowballstemmer 2.0, codes 2: run `vlmsearch reindex"
        assert said in store.describe()["terms"]
        assert any("words, made by snowballstemmer 1.0, codes 2, and here" in said for said in store.check().unindexed)
        assert store.delete(["id-0", "id-1"]) == 2
        assert store.check(repair=True).repaired
        assert store.check().clean
        assert "terms" not in store.describe()
        for word in ("Hunde", "laufende", "Häuser"):
            assert len(store.search_words(word, limit=99).hits) == len(store) == 58
    terms.terms_of_word.cache_clear()
    terms.rules_of.cache_clear()
    postings._keys_by.cache_clear()


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


def changed_index(tmp_path: Path, *statements: str) -> SqliteStore:
    """An index of two long documents, whose rows were changed by hand."""
    path = tmp_path / "index"
    with SqliteStore(str(path)) as store:
        store.bind("encoder 1", SPACES)
        store.upsert([*RECORDS[:3], make_long("a"), make_long("b", first=8)])
    with closing(sqlite3.connect(path)) as db:
        table = next(name for (name,) in db.execute("SELECT name FROM sqlite_master") if name.startswith("documents_"))
        for statement in statements:
            db.execute(statement.format(table=table))
        for row in [tables.Row._make(values) for values in db.execute(f"SELECT * FROM {table}")]:
            db.execute(f"UPDATE {table} SET crc = ? WHERE row = ?", [row.sealed().crc, row.row])
        db.commit()
    return SqliteStore(str(path))


def test_a_passage_of_another_version_or_of_no_document_is_told_and_removed(tmp_path: Path) -> None:
    with changed_index(tmp_path, "UPDATE {table} SET digest = 'other' || digest WHERE id = 'a#passage=2'") as store:
        report = store.check()
        assert (report.documents, report.orphans[0], report.missing) == (5, "a#passage=2", ("passages of a",))
        assert store.records(["a"])[0].stamp.digest == ""
        hits = store.search(TEXT, VECTORS[2:3], limit=1)[0]
        assert hits[0].id == "a#passage=2"
        assert store.get_versions({hit.id: hit.version for hit in hits}) == {}  # type: ignore[attr-defined]
        store.check(repair=True)
        assert store.check().clean
        assert (store.stamps(["a"])["a"].digest, store.count_passages()) == ("", 5)
        assert store.records(["b"])[0].stamp.digest == "d1"
        store.upsert([make_long("a", ("One part.",))])
        assert (store.check().clean, store.count_passages()) == (True, 4)


def test_a_passage_without_its_vector_makes_its_document_count_as_changed(tmp_path: Path) -> None:
    path = tmp_path / "index"
    changed_index(tmp_path).close()
    with closing(sqlite3.connect(path)) as db:
        [table] = [name for (name,) in db.execute("SELECT name FROM sqlite_master") if name.startswith("documents_")]
        [row] = db.execute(f"SELECT row FROM {table} WHERE id = 'b#passage=1'").fetchone()
        field = table.replace("documents", "vectors") + "_2"
        assert db.execute(f"DELETE FROM {field} WHERE row = ?", [row]).rowcount == 1
        db.commit()
    with SqliteStore(str(path)) as store:
        assert any("b#passage=1" in missing for missing in store.check().missing)
        store.check(repair=True)
        assert store.stamps(["a", "b"]) == {"a": Stamp("d1", "books/long.txt"), "b": Stamp("", "books/long.txt")}
        assert len(store.check().missing) == 0
