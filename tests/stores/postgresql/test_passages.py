"""Passages in PostgreSQL: of one version for every reader, found by the index of ids, and checked."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg
import pytest
from vlmsearch_mocks.contracts.passages import PARTS, VECTORS, assert_same, make_long
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records
from vlmsearch_mocks.store import MemoryStore

from tests.support.postgres_servers import execute
from vlmsearch import MetadataChange, Record
from vlmsearch.registry import open_store
from vlmsearch.stores.base import Store
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.postgresql import store as module
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.versions import read_documents
from vlmsearch.types import PASSAGE


def turn(number: int) -> Record:
    """Return a long document whose text and number of passages tell the turn."""
    return make_long(parts=tuple(f"Turn {number}, part {n}. " for n in range(1 + number % 7)), digest=f"d{number}")


def test_readers_see_a_document_with_its_passages_of_one_version(postgres_url: str) -> None:
    url = f"{postgres_url}?table=passages_read"
    failures, is_over, seen = list[BaseException](), threading.Event(), set[str]()
    with open_store(url) as store, open_store(url) as other:
        assert isinstance(store, PostgresStore)
        store.bind("encoder 1", SPACES)
        store.upsert([turn(0)])
        other.bind("encoder 1", SPACES)

        def write() -> None:
            try:
                for number in range(1, 10_000):
                    if is_over.is_set():
                        return
                    if number % 5 == 0:
                        other.delete(["long"])
                    other.upsert([turn(number)])
                    read = other.records(["long"])[0]
                    change = MetadataChange(read.document, read.stamp, {"turn": number}, f"{read.stamp.digest}+")
                    assert other.update_metadata([change]) == ["long"]
            except BaseException as exc:  # noqa: BLE001 - told by the test
                failures.append(exc)

        writer = threading.Thread(target=write)
        writer.start()
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            for record in store.records(["long"]):
                number = int(record.stamp.digest.strip("d+"))
                seen.add(record.stamp.digest)
                assert record.document.text == turn(number).document.text
                assert [part.passage for part in record.passages] == [part.passage for part in turn(number).passages]
                assert record.document.metadata.get("turn", number) == number
            for passages in store.passages(["long"]).values():
                text = "".join(passage.text for passage in passages)
                assert text == turn(int(text.split(",")[0].split()[1])).document.text
            hits = store.search(TEXT, VECTORS[2:3], limit=9)[0]
            for content in read_documents(store, [hit.id for hit in hits], hits).values():
                assert content.passage is not None
                assert content.document.text is not None
                assert content.document.text[content.passage.start : content.passage.end] == content.passage.text
        is_over.set()
        writer.join()
        assert not failures, failures
        assert len(seen) > 10
        report = store.check()
        assert (report.clean, report.documents) == (True, 1)


def test_passages_of_no_document_are_removed_and_documents_that_lack_some_count_as_changed(postgres_url: str) -> None:
    table = "passages_check$1"
    with open_store(f"{postgres_url}?table=passages_check") as store:
        assert isinstance(store, PostgresStore)
        store.bind("encoder 1", SPACES)
        store.upsert([*make_records(3), make_long("a"), make_long("b", first=8), make_long("c", first=4)])
        assert store.check().clean
        assert (store.check().documents, store.disk_use().documents) == (6, 6)
        execute(
            postgres_url,
            f"DELETE FROM {table} WHERE id IN ('a', 'b#passage=2')",
            f"UPDATE {table} SET version = 'another' WHERE id = 'c#passage=3'",
        )
        report = store.check(repair=True)
        assert report.orphans == ("a#passage=1", "a#passage=2", "a#passage=3", "c#passage=3")
        assert report.missing == ("b", "c")
        assert store.check().clean
        assert (len(store), store.count_passages()) == (5, 4)
        assert {id: stamp.digest for id, stamp in store.stamps(["b", "c", "id-1"]).items()} == {
            "b": "",
            "c": "",
            "id-1": "digest 1",
        }
        store.upsert([make_long("b"), make_long("c")])
        assert_same(store.records(["b"])[0], make_long("b"))
        assert (store.check().clean, store.count_passages()) == (True, 6)


def test_a_passage_without_its_vector_makes_its_document_count_as_changed(postgres_url: str) -> None:
    with open_store(f"{postgres_url}?table=passages_vector") as store:
        assert isinstance(store, PostgresStore)
        store.bind("encoder 1", SPACES)
        store.upsert([make_long("a"), make_long("b", first=8)])
        row = "(SELECT row FROM passages_vector$1 WHERE id = 'b#passage=1')"
        execute(postgres_url, f"DELETE FROM passages_vector$1$3 WHERE row = {row}")
        assert store.check(repair=True).missing == ("b",)
        assert {id: stamp.digest for id, stamp in store.stamps(["a", "b"]).items()} == {"a": "d1", "b": ""}
        assert len(store.passages(["b"])["b"]) == 3


def test_texts_are_counted_as_in_every_store(postgres_url: str) -> None:
    records = [*make_records(40), make_long("a"), make_long("b", PARTS * 4), make_long("c", ("One safe garden. ",))]
    with open_store(f"{postgres_url}?table=passages_words") as store, MemoryStore() as memory:
        assert isinstance(store, PostgresStore)
        for own in (store, memory):
            own.bind("encoder 1", SPACES)
            own.upsert(records)
        for query in ("safe", "the garden", "handbook text", "weather 7"):
            words, expected = store.search_words(query, limit=90), memory.search_words(query, limit=90)
            scores = {hit.id: pytest.approx(hit.score, abs=1e-4) for hit in expected.hits}
            assert {hit.id: hit.score for hit in words.hits} == scores
            assert words.max_score == pytest.approx(expected.max_score, abs=1e-4)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note the plans of the statements on passages that a test makes."""
    made: list[str] = []
    real = psycopg.Connection.execute

    def explained(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        if PASSAGE in str(query):
            lines = real(self, f"EXPLAIN {query}", params).fetchall()
            made.append("\n".join(str(line) for (line,) in lines))
        return real(self, query, params, **options)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "execute", explained)
        yield made


def test_indexes_find_passages_and_pages_of_documents(
    postgres_url: str, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 100)  # a larger share of these documents is read faster without an index
    with open_store(f"{postgres_url}?table=passages_plans") as store:
        assert isinstance(store, PostgresStore)
        store.bind("encoder 1", SPACES)
        store.upsert([*make_records(200, (IMAGE, TEXT)), *(make_long(f"long-{n:03}") for n in range(900))])
        execute(postgres_url, "VACUUM ANALYZE passages_plans$1, passages_plans$1$3")
        plans.clear()
        some = [make_long(f"long-{n}") for n in range(300, 350)]
        store.upsert(some)
        read = store.records([record.document.id for record in some])
        store.update_metadata([MetadataChange(record.document, record.stamp, {"x": 1}, "new") for record in read])
        assert store.delete([record.document.id for record in some]) == 50
        assert len(plans) == 6
        assert len(store.documents_after("long-100", 20)) == 20
        assert len(store.documents_after("long-100", 20, parse_filter({"year": 2020}))) == 20
        assert next(store.ids()) == "id-0"
        assert next(store.outlines(["year"])).id == "id-0"
        assert len(plans) == 10
        assert not [plan for plan in plans if "Seq Scan on" in plan]
        assert [plan for plan in plans if "Sort" in plan] == []


def test_writers_of_the_same_long_documents_wait_for_each_other_in_turn(postgres_url: str) -> None:
    ids = [f"long-{n}" for n in range(12)]
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    with (
        psycopg.connect(postgres_url, autocommit=True) as session,
        open_store(f"{postgres_url}?table=passages_writers&retries=0") as store,
    ):
        assert isinstance(store, PostgresStore)
        store.bind("encoder 1", SPACES)
        before = session.execute(deadlocks).fetchone()

        def write(writer: int) -> None:
            rng = np.random.default_rng(writer)
            for number in range(12):
                some = [ids[n] for n in rng.permutation(12)[:8]]
                if number % 4 == 1:
                    store.delete(some[:4])
                elif number % 4 == 3:
                    changes = [MetadataChange(r.document, r.stamp, {"x": number}, "x") for r in store.records(some)]
                    store.update_metadata(changes)
                else:
                    store.upsert([make_long(id, PARTS[: rng.integers(1, 4)], digest=f"{writer}") for id in some])

        with ThreadPoolExecutor(5) as threads:
            for done in [threads.submit(write, writer) for writer in range(5)]:
                done.result()
        store.upsert([make_long(id) for id in ids])
        assert store.check().clean
        assert (len(store), store.count_passages()) == (12, 36)
        assert session.execute(deadlocks).fetchone() == before


def replace_it(store: Store) -> None:
    store.upsert([turn(1)])


def change_it(store: Store) -> None:
    read = store.records(["long"])[0]
    store.update_metadata([MetadataChange(read.document, read.stamp, {"kind": "novel"}, "d9")])


def delete_it(store: Store) -> None:
    store.delete(["long"])


@pytest.mark.parametrize(("action", "count"), [(replace_it, 2), (change_it, 6), (delete_it, 0)])
def test_what_fails_half_way_leaves_a_document_and_its_passages_as_they_were(
    action: Callable[[Store], None], count: int, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = psycopg.Connection.execute, [0]

    def failing(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        done = real(self, query, params, **options)
        if str(query).startswith(("INSERT", "UPDATE", "DELETE")):
            left[0] -= 1
            if left[0] == 0:
                raise ValueError("the process ends here")
        return done

    with open_store(f"{postgres_url}?table={action.__name__}") as store:
        assert isinstance(store, PostgresStore)
        store.bind("encoder 1", SPACES)
        store.upsert([turn(5)])
        monkeypatch.setattr(psycopg.Connection, "execute", failing)
        for statements in itertools.count(1):
            left[0] = statements
            try:
                action(store)
            except ValueError:
                assert_same(store.records(["long"])[0], turn(5))
                assert (store.check().clean, store.count_passages()) == (True, 6)
            else:
                break
        assert statements > (5 if action is replace_it else 1)
        assert store.check().clean
        assert store.count_passages() == count
