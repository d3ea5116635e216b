"""The search for vectors: by their signs, by graphs, and exactly."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from vlmsearch import Document, Field, Record, Space
from vlmsearch.registry import open_store
from vlmsearch.stores.base import Store
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.postgresql import vectors as module, words
from vlmsearch.stores.postgresql.connection import Session, all_rows
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.readers import readable
from vlmsearch.stores.restricted import restricted_store
from vlmsearch.types import Vectors

COUNT, DIM = 3000, 384
TEXT = Field("minilm", "text")
SPACES = (Space("minilm", DIM, frozenset({"text"})),)
OPTIONS = "exact_up_to=50&graph_from=1000&ef_search=200"
FILTERS: dict[str, dict[str, Any]] = {
    "1 of 3,000": {"number": 77},
    "a range of 1 %": {"number": {"$lt": 30}},
    "a range of 70 %": {"number": {"$gte": 900}},
    "all but one": {"number": {"$ne": 3}},
    "those of some clusters": {"cluster": {"$lt": 20}},
    "two of three": {"$and": [{"third": {"$ne": 1}}, {"cluster": {"$ne": 4}}]},
}


def drawn(count: int, seed: int) -> tuple[Vectors, NDArray[np.int64]]:
    """Vectors in 40 clusters, with the cluster of each."""
    centres = np.random.default_rng(0).standard_normal((40, DIM))
    random = np.random.default_rng(seed)
    clusters = random.integers(0, 40, count)
    vectors = centres[clusters] + 0.7 * random.standard_normal((count, DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), clusters


VECTORS, CLUSTERS = drawn(COUNT, 1)
QUERIES, _ = drawn(20, 2)


def metadata(i: int) -> dict[str, Any]:
    return {"number": i, "third": i % 3, "cluster": int(CLUSTERS[i])}


def records(numbers: range, vectors: Vectors = VECTORS) -> list[Record]:
    return [Record(Document(f"id-{i:04}", text="a", metadata=metadata(i)), {TEXT: vectors[i]}) for i in numbers]


def opened(url: str, table: str, options: str = OPTIONS) -> PostgresStore:
    store = open_store(f"{url}?table={table}&{options}")
    assert isinstance(store, PostgresStore)
    store.bind("e", SPACES)
    store._vectors.maintain = lambda: None  # type: ignore[method-assign]
    return store


def check_recall(
    store: Store, given: dict[str, NDArray[np.float32]], at_least: float = 0.985, where: Any = None
) -> None:
    """Assert that searches find hits that are as near as the nearest of some vectors."""
    ids, vectors = list(given), np.stack(list(given.values()))
    right = total = 0
    for query, hits in zip(QUERIES, store.search(TEXT, QUERIES, limit=10, where=where)):
        cosines = dict(zip(ids, (vectors @ query).tolist()))
        best = sorted(cosines.values(), reverse=True)[:10]
        assert [hit.score for hit in hits] == pytest.approx([cosines[hit.id] for hit in hits], abs=1e-5)
        assert len({hit.id for hit in hits}) == len(best)
        assert hits[0].score >= best[0] - 1e-5
        right += sum(hit.score >= best[-1] - 1e-5 for hit in hits)
        total += len(best)
    assert right / total >= at_least


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the plans of the searches of a test."""
    plans: list[str] = []

    def explained(session: Session, query: str, values: Any = ()) -> list[tuple[Any, ...]]:
        if "<#>" in query:
            plans.append("\n".join(line for (line,) in session.execute(f"EXPLAIN {query}", values).fetchall()))
        return all_rows(session, query, values)

    monkeypatch.setattr(module, "all_rows", explained)
    return plans


@pytest.fixture(scope="module", params=["bits", "a graph", "a graph and bits"])
def store(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[PostgresStore]:
    """Yield a store of 3,000 documents that have a graph, none, or one of a part."""
    with opened(postgres_url, "vectors_" + str(request.param).replace(" ", "_")) as store:
        store.upsert(records(range(1500)))
        if request.param == "a graph and bits":
            assert store.check(repair=True).unindexed == ("vectors of minilm/text: more than 1,000 have no graph",)
        store.upsert(records(range(1500, COUNT)))
        if request.param == "a graph":
            store.check(repair=True)
            assert store.check().clean
        yield store


@pytest.mark.parametrize("compared", [100, 1000], ids=["few are compared", "as it chooses"])
@pytest.mark.parametrize("where", [None, *FILTERS.values()], ids=["no filter", *FILTERS])
def test_the_nearest_are_found_whatever_the_filter(
    where: dict[str, Any] | None, compared: int, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RERANKED", compared)
    monkeypatch.setattr(module, "_SIGNS", 0)
    condition = None if where is None else parse_filter(where)
    passing = [i for i in range(COUNT) if condition is None or condition.matches(metadata(i))]
    check_recall(store, {f"id-{i:04}": VECTORS[i] for i in passing}, where=condition)


def test_a_search_follows_the_graph_and_scans_the_signs_of_later_rows(store: PostgresStore, plans: list[str]) -> None:
    store.search(TEXT, QUERIES[:1], limit=3)
    (plan,) = plans
    described = store.describe()
    assert described["search"] == "approximate"
    assert described["search minilm/text"].startswith("approximate, recall ")
    assert " passes " in described["search minilm/text"]
    assert ("graph_vector_idx" in plan) == ("a_graph" in store.name)
    assert "$bits" in plan


def test_a_small_field_and_given_documents_are_compared_exactly(
    store: PostgresStore, plans: list[str], postgres_url: str
) -> None:
    table = store.name.partition("table=")[2]
    with opened(postgres_url, table, "exact_up_to=20000") as exact:
        check_recall(exact, {f"id-{i:04}": VECTORS[i] for i in range(COUNT)}, 1.0)
        assert exact.describe()["search"] == "exact"
    store.compare(TEXT, QUERIES[:1], ["id-0001", "id-0002"], parse_filter({"third": 1}))
    assert not any("$bits" in plan or "$graph" in plan for plan in plans)


@pytest.fixture(scope="module")
def with_readers(postgres_url: str) -> Iterator[PostgresStore]:
    """Yield a store in which a third of the documents is for one group, and a third for another."""
    with opened(postgres_url, "vectors_readers") as store:
        of_third: list[list[str] | None] = [["group:a"], ["group:b"], None]
        store.upsert(
            [
                replace(own, document=_given(own.document, of_third[n % 3]))
                for n, own in enumerate(records(range(COUNT)))
            ]
        )
        yield store


def _given(document: Document, readers: list[str] | None) -> Document:
    return replace(document, metadata={**document.metadata, **Document("x", readers=readers).metadata})


@pytest.mark.parametrize("where", [None, {"number": {"$gte": 900}}], ids=["no filter", "a filter"])
@pytest.mark.parametrize(
    ("way", "name", "value"),
    [
        ("named, and compared", "exact_up_to", 20_000),
        ("named, by signs", "exact_up_to", 50),
        ("too many to be named", "_MAX_NAMED", 1999),
        ("too many to be looked for", "_LARGE", 0),
    ],
)
def test_the_nearest_readable_documents_are_found(
    way: str,
    name: str,
    value: int,
    where: dict[str, Any] | None,
    with_readers: PostgresStore,
    plans: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_RERANKED", 300)
    monkeypatch.setattr(module, "_SIGNS", 0)
    if name in vars(words):
        monkeypatch.setattr(words, name, value)
    table = with_readers.name.partition("table=")[2]
    with opened(
        with_readers.name.partition("?")[0], table, f"{name}={value}" if name == "exact_up_to" else OPTIONS
    ) as own:
        restricted = restricted_store(own, readable(["group:a"]))
        condition = None if where is None else parse_filter(where)
        passing = [i for i in range(COUNT) if i % 3 != 1 and (condition is None or condition.matches(metadata(i)))]
        check_recall(restricted, {f"id-{i:04}": VECTORS[i] for i in passing}, where=condition)
    assert all(("$readers" in plan) == way.startswith("too many") for plan in plans)
    assert any("$bits" in plan for plan in plans) == (way != "named, and compared")


def test_documents_without_words_are_readable_as_soon_as_they_are_written(postgres_url: str) -> None:
    with opened(postgres_url, "vectors_images") as store:
        images = [
            Record(Document(f"i{n}", image=Path("-.png"), readers=["group:a"]), {TEXT: VECTORS[n]}) for n in range(3)
        ]
        restricted = restricted_store(store, readable(["group:a"]))
        for count in range(1, 4):
            store.upsert(images[count - 1 : count])
            assert len(restricted.search(TEXT, QUERIES[:1], limit=9)[0]) == count
        assert store.delete(["i0"]) == 1
        assert len(restricted.search(TEXT, QUERIES[:1], limit=9)[0]) == 2


def test_a_limit_may_be_as_large_as_a_search_asks_for(store: PostgresStore) -> None:
    assert len(store.search(TEXT, QUERIES[:1], limit=2**28)[0]) == COUNT


def test_identical_vectors_do_not_cut_a_graph(postgres_url: str) -> None:
    vectors = VECTORS.copy()
    vectors[::5] = vectors[0]
    with opened(postgres_url, "vectors_same") as store:
        store.upsert(records(range(COUNT), vectors))
        store.check(repair=True)
        check_recall(store, {f"id-{i:04}": vector for i, vector in enumerate(vectors)})
        hits = store.search(TEXT, vectors[:1], limit=600)[0]
        assert [hit.id for hit in hits] == [f"id-{i:04}" for i in range(0, COUNT, 5)]


def test_what_was_replaced_or_removed_leaves_a_graph_at_once(postgres_url: str) -> None:
    others, _ = drawn(COUNT, 5)
    with opened(postgres_url, "vectors_later") as store:
        store.upsert(records(range(COUNT)))
        store.check(repair=True)
        store.upsert(records(range(500), others))
        store.delete([f"id-{i:04}" for i in range(500, 2500)])
        given = {f"id-{i:04}": others[i] if i < 500 else VECTORS[i] for i in (*range(500), *range(2500, COUNT))}
        check_recall(store, given)
        store.upsert(records(range(500, 2500)))
        store.check(repair=True)
        given |= {f"id-{i:04}": VECTORS[i] for i in range(500, 2500)}
        check_recall(store, given)
        assert store.check().clean


def test_a_row_whose_writer_is_slower_than_a_graph_is_found(postgres_url: str) -> None:
    with opened(postgres_url, "vectors_slow") as store, psycopg.connect(postgres_url) as blocker:
        store.upsert(records(range(1500)))
        blocker.execute("LOCK TABLE vectors_slow$1$1 IN SHARE MODE")  # the writer has its number, and waits here
        writer = threading.Thread(target=store.upsert, args=(records(range(1500, 1510)),))
        writer.start()
        _wait_for(postgres_url, "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted")
        builder = threading.Thread(target=store._vectors.build, args=(TEXT,))
        builder.start()
        _wait_for(postgres_url, "SELECT count(*) = 2 FROM pg_locks WHERE NOT granted")
        blocker.rollback()
        writer.join()
        builder.join()
        check_recall(store, {f"id-{i:04}": VECTORS[i] for i in range(1510)})
        hits = store.search(TEXT, VECTORS[1500:1510], limit=1)
        assert [page[0].id for page in hits] == [f"id-{i}" for i in range(1500, 1510)]


def test_a_graph_that_is_cut_off_leaves_nothing(postgres_url: str) -> None:
    with opened(postgres_url, "vectors_cut") as store, psycopg.connect(postgres_url, autocommit=True) as other:
        store.upsert(records(range(COUNT)))
        del store._vectors.maintain
        with psycopg.connect(postgres_url) as blocker:
            blocker.execute("LOCK TABLE vectors_cut$1$1$graph IN SHARE MODE")
            store.upsert(records(range(1)))  # which begins a graph in the background
            _wait_for(postgres_url, "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted")
            store.close()
        assert not any(thread.name == "graphs" for thread in threading.enumerate())
        assert other.execute("SELECT count(*) FROM vectors_cut$1$1$graph").fetchone() == (0,)
        assert other.execute(
            "SELECT count(*) FROM pg_index WHERE indrelid = 'vectors_cut$1$1$graph'::regclass"
        ).fetchone() == (0,)
    with opened(postgres_url, "vectors_cut") as store:
        check_recall(store, {f"id-{i:04}": VECTORS[i] for i in range(COUNT)})
        del store._vectors.maintain
        store.upsert(records(range(1)))
        builder = store._vectors._builder
        assert builder is not None
        builder.join()
        assert store.check().clean
        check_recall(store, {f"id-{i:04}": VECTORS[i] for i in range(COUNT)})


@pytest.mark.parametrize(("dim", "way"), [(24, "exact"), (2500, "approximate"), (4100, "approximate")])
def test_vectors_of_any_length_are_found(dim: int, way: str, postgres_url: str) -> None:
    vectors = np.random.default_rng(dim).standard_normal((60, dim), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    field = Field("long", "text")
    with open_store(f"{postgres_url}?table=long_{dim}&exact_up_to=0&graph_from=10") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", [Space("long", dim, frozenset({"text"}))])
        store.upsert([Record(Document(f"id-{i:02}", text="a"), {field: vector}) for i, vector in enumerate(vectors)])
        store.check(repair=True)
        (hits,) = store.search(field, vectors[7:8], limit=5)
        cosines = vectors @ vectors[7]
        assert [hit.id for hit in hits] == [f"id-{i:02}" for i in np.argsort(-cosines)[:5]]
        assert np.array_equal(store.records(["id-07"])[0].vectors[field], vectors[7])
        assert store.check().clean
        assert store.describe()["search"] == way


def _wait_for(url: str, condition: str) -> None:
    """Wait until the server says that a condition holds."""
    with psycopg.connect(url, autocommit=True) as session:
        for _ in range(6000):
            if session.execute(condition).fetchone() == (True,):
                return
            time.sleep(0.01)
    raise AssertionError(condition)


def test_writers_of_the_same_documents_wait_for_each_other_in_turn(postgres_url: str) -> None:
    given = records(range(60))
    before = _deadlocks(postgres_url)
    with opened(postgres_url, "vectors_writers", "retries=0&exact_up_to=10") as store:

        def write(writer: int) -> None:
            rng = np.random.default_rng(writer)
            for turn in range(15):
                chosen = [given[i] for i in rng.permutation(60)[:40]]
                if turn % 5 == 4:
                    store.delete([record.document.id for record in chosen[:20]])
                store.upsert(chosen)

        with ThreadPoolExecutor(6) as threads:
            for done in [threads.submit(write, writer) for writer in range(6)]:
                done.result()
        assert store.check().clean
    assert _deadlocks(postgres_url) == before


def _deadlocks(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as session:
        row = session.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])
