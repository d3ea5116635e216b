"""Words of PostgreSQL as they are kept: pages, segments, merges beside writers, and what a check repairs."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest
from vlmsearch_mocks.contracts.passages import make_long
from vlmsearch_mocks.contracts.records import SPACES
from vlmsearch_mocks.contracts.words import make_record

from tests.support.postgres_servers import execute
from vlmsearch import Record
from vlmsearch.registry import open_store
from vlmsearch.stores.documents import words_of_row
from vlmsearch.stores.postgresql import segments as module
from vlmsearch.stores.postgresql.connection import Session, all_rows
from vlmsearch.stores.postgresql.pages import packed, unpacked
from vlmsearch.stores.postgresql.segments import SegmentSize, is_due
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.postings import MAX_ROWS, Postings, sorted_postings

WORDS = [f"word{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(200)]
_tables = count()


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with open_store(f"{postgres_url}?table=segments{next(_tables)}") as opened:
        assert isinstance(opened, PostgresStore)
        opened.bind("encoder 1", SPACES)
        yield opened


def draw(rng: random.Random, number: int) -> Record:
    text = " ".join(rng.choices(WORDS, [1 / (i + 2) for i in range(len(WORDS))], k=rng.choice([1, 5, 40])))
    if rng.random() < 0.1:
        return make_long(f"id-{number:03}", tuple(f"{word}. " for word in text.split()[:4]))
    return make_record(f"id-{number:03}", text if rng.random() < 0.9 else None)


def items_of(words: Postings) -> set[tuple[int, int, int, int]]:
    """Return the postings as they say themselves: row, its length, key and times."""
    keys = np.repeat(words.keys, np.diff(words.starts))
    columns = words.rows[words.places], words.lengths[words.places], keys, words.times
    return set(zip(*(column.tolist() for column in columns)))


def sizes_of(store: PostgresStore) -> list[SegmentSize]:
    rows = store._run("look", f"SELECT segment, length(rows) / 8, length(dead) / 8 FROM {store._tables.words.segments}")
    return [SegmentSize(*row) for row in rows]


def assert_right(store: PostgresStore) -> None:
    """Check that the segments have the words of all documents, at one moment."""

    def compare(session: Session) -> None:
        numbers = all_rows(session, f"SELECT row, id FROM {store._tables.documents} ORDER BY row")
        rows = store._read_rows(session, [id for _, id in numbers], ["document"])
        texts = [words_of_row(rows[id].record()) for _, id in numbers]
        wanted = items_of(Postings.of([number for number, _ in numbers], texts, "auto"))
        words = store._tables.words
        dead = module.dead_of(segments := words._read(session))
        parts = [words._alive(session, segment, dead) for segment in segments]
        assert all((np.diff(segment.part.rows) > 0).all() for segment in segments)
        assert sum(map(len, parts)) == len({row for row, *_ in wanted})
        assert set().union(*map(items_of, parts)) == wanted

    store._session("compare", compare, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;")


@pytest.mark.parametrize("texts", [[], ["word"], ["same words"] * 5000, None])
def test_pages_hold_what_they_were_given(texts: list[str] | None) -> None:
    rng = random.Random(3)
    drawn = [" ".join(rng.choices(WORDS, k=30)) + f" rare{n}" for n in range(2500)]
    words = Postings.of(
        range(7, 7 + len(texts or drawn if texts is None else texts)), drawn if texts is None else texts, "auto"
    )
    pages = list(packed(words))
    assert [page[:2] for page in pages] == sorted({page[:2] for page in pages})
    assert max((len(page.body) for page in pages), default=0) < 8000
    again = sorted_postings(words.rows, words.lengths, *unpacked(page.body for page in pages), words.languages)
    assert items_of(again) == items_of(words)


def test_segments_keep_the_words_of_the_documents_under_writers_and_mergers(store: PostgresStore) -> None:
    is_over = threading.Event()

    def write(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            store.upsert([draw(rng, number) for number in rng.sample(range(300), rng.choice([1, 3, 30]))])
            store.delete([f"id-{number:03}" for number in rng.sample(range(300), rng.choice([1, 20]))])

    def merge() -> int:
        merged = 0
        while not is_over.is_set():
            merged += store._session("merge", store._tables.words.merge)
        return merged

    def look() -> int:
        looks = 0
        while not is_over.is_set():
            assert_right(store)
            assert store.check().clean
            looks += 1
        return looks

    with ThreadPoolExecutor(6) as threads:
        others = [threads.submit(merge), threads.submit(merge), threads.submit(look)]
        for writer in [threads.submit(write, seed) for seed in range(3)]:
            writer.result()
        is_over.set()
        assert others[-1].result()
    while store._session("merge", store._tables.words.merge):
        pass
    assert_right(store)
    sizes = sizes_of(store)
    assert len(sizes) < 30
    assert not is_due(sizes)
    assert store.check().clean


def test_dead_documents_are_dropped_when_they_are_many(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW_DEAD", 10)
    monkeypatch.setattr(module, "_TIER", 1000)
    rng = random.Random(5)
    for start in range(0, 400, 100):
        store.upsert([make_record(f"id-{number:03}", rng.choice(WORDS)) for number in range(start, start + 100)])
    store.delete([f"id-{number:03}" for number in range(150)])
    sizes = sizes_of(store)
    assert sum(size.rows for size in sizes) == 250
    assert sum(size.dead for size in sizes) == 0
    assert_right(store)


def test_a_write_that_is_cut_off_leaves_nothing(store: PostgresStore) -> None:
    store.upsert([make_record("a", "a dog")])
    before = sizes_of(store)

    def cut(session: Session) -> None:
        store._writer([make_record("a", "a cat"), make_record("b", "two")], "v")(session)
        raise KeyError

    with pytest.raises(KeyError):
        store._session("write", cut)
    assert sizes_of(store) == before
    assert_right(store)


def test_a_merge_that_fails_leaves_the_write(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.WordTables, "merge", lambda own, session: all_rows(session, "SELECT 1 / 0"))
    for number in range(7):
        store.upsert([make_record(f"id-{number}", "a dog")])
    monkeypatch.undo()
    assert [size.rows for size in sizes_of(store)] == [1] * 7
    store.upsert([make_record("id-7", "a dog")])
    assert [size.rows for size in sizes_of(store)] == [8]
    assert_right(store)


DAMAGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "documents deleted": ("words of row", lambda table: f"DELETE FROM \"{table}\" WHERE id < 'id-02'"),
    "vectors deleted": ("", lambda table: f'DELETE FROM "{table}$1" WHERE row < 20'),
    "segments deleted": ("words of id-", lambda table: f'DELETE FROM "{table}$words" WHERE segment < 3'),
    "pages deleted": ("words of id-", lambda table: f'DELETE FROM "{table}$pages" WHERE part = 0'),
    "a length changed": ("words of id-05", lambda table: f"UPDATE \"{table}\" SET length = 99 WHERE id = 'id-05'"),
    "dead invented": ("words of id-", lambda table: f'UPDATE "{table}$words" SET dead = rows WHERE segment = 2'),
    "a segment twice": (
        "words of row",
        lambda table: (
            f'INSERT INTO "{table}$words" (rows, lengths, languages, dead) '
            f'SELECT rows, lengths, languages, dead FROM "{table}$words" LIMIT 1'
        ),
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_check_names_what_somebody_damaged_and_puts_it_right(
    name: str, store: PostgresStore, postgres_url: str
) -> None:
    for start in range(0, 60, 20):
        store.upsert([make_record(f"id-{number:02}", f"a dog {number}") for number in range(start, start + 20)])
    said, damage = DAMAGES[name]
    before = store.check()
    assert before.clean
    stamps = store.stamps(list(store.ids()))
    execute(postgres_url, damage(store._tables.name))
    report = store.check()
    assert not report.clean
    assert any(line.startswith(said) for line in (*report.unindexed, *report.missing))
    assert store.check(repair=True).repaired
    after = store.check()
    assert after.clean == (name != "vectors deleted")  # nobody can make these up
    if not name.endswith(("vectors deleted", "documents deleted")):
        assert (after.vectors, store.stamps(list(stamps))) == (before.vectors, stamps)
    assert_right(store)
    assert len(store) == (58 if name == "documents deleted" else 60)


def test_segments_of_one_size_are_due_and_none_is_too_large() -> None:
    assert not is_due([SegmentSize(n, 1, 0) for n in range(5)])
    assert is_due([SegmentSize(n, 1, 0) for n in range(6)])
    assert is_due([SegmentSize(n, 20_000, 0) for n in range(6)])
    assert not is_due([SegmentSize(n, MAX_ROWS - n, 0) for n in range(60)])
    assert is_due([SegmentSize(0, MAX_ROWS, 0), SegmentSize(1, 0, MAX_ROWS)])
