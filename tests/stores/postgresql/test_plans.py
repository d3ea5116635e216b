"""Which searches follow the index of vectors, and that a page is full however few documents pass a filter."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg
import pytest
from vlmsearch_mocks.contracts.records import unit_vectors

from vlmsearch import Document, Field, Record, Space
from vlmsearch.registry import open_store
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.postgresql import store as module
from vlmsearch.stores.postgresql.connection import Session, all_rows
from vlmsearch.stores.postgresql.store import PostgresStore

COUNT = 5000
TEXT = Field("minilm", "text")
SPACES = (Space("minilm", 24, frozenset({"text"})),)
FILTERS: dict[str, dict[str, Any]] = {
    "1 of 5,000": {"number": 77},
    "1 %": {"hundredth": 3},
    "50 %": {"half": 1},
    "all": {"all": True},
}


def records(count: int, *, seed: int = 0) -> list[Record]:
    vectors = unit_vectors(count, TEXT, seed=seed)
    return [
        Record(
            Document(
                f"id-{i}", text="a text", metadata={"number": i, "hundredth": i % 100, "half": i % 2, "all": True}
            ),
            {TEXT: vectors[i]},
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def indexed(postgres_url: str) -> Iterator[PostgresStore]:
    """5,000 documents with an index of vectors."""
    with open_store(f"{postgres_url}?table=plans&exact_up_to=0") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", SPACES)
        store.upsert(records(COUNT))
        with psycopg.connect(postgres_url, autocommit=True) as session:
            session.execute("VACUUM ANALYZE plans$1, plans$1$1")
        yield store


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plans of the searches for vectors that a test makes."""
    found: list[str] = []

    def explained(session: Session, query: str, values: Any = ()) -> list[tuple[Any, ...]]:
        if "<#>" in query:
            found.append("\n".join(line for (line,) in session.execute(f"EXPLAIN {query}", values).fetchall()))
        return all_rows(session, query, values)

    monkeypatch.setattr(module, "all_rows", explained)
    return found


@pytest.mark.parametrize("where", [None, *FILTERS.values()], ids=["no filter", *FILTERS])
def test_a_search_follows_the_index_whatever_the_filter(
    where: dict[str, Any] | None, indexed: PostgresStore, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EXACT_MATCHES", -1)
    condition = None if where is None else parse_filter(where)
    indexed.search(TEXT, unit_vectors(1, TEXT), limit=1, where=condition)
    assert "plans$1$1$hnsw" in plans[0]
    assert "Seq Scan" not in plans[0]


def test_an_exact_comparison_does_not(indexed: PostgresStore, plans: list[str], postgres_url: str) -> None:
    with open_store(f"{postgres_url}?table=plans") as exact:
        for where in (None, *FILTERS.values()):
            condition = None if where is None else parse_filter(where)
            exact.search(TEXT, unit_vectors(1, TEXT), limit=10, where=condition)
            indexed.compare(TEXT, unit_vectors(1, TEXT), ["id-1", "id-2"], condition)
    assert len(plans) == 10
    assert not any("hnsw" in plan for plan in plans)


@pytest.mark.parametrize("narrow", [-1, 10_000], ids=["by the index", "as it chooses"])
@pytest.mark.parametrize("where", [None, *FILTERS.values()], ids=["no filter", *FILTERS])
def test_a_page_is_full_however_many_documents_pass(
    where: dict[str, Any] | None, narrow: int, indexed: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EXACT_MATCHES", narrow)
    condition = None if where is None else parse_filter(where)
    vectors = np.stack([record.vectors[TEXT] for record in records(COUNT)])
    passing = [i for i in range(COUNT) if condition is None or condition.matches(records_metadata(i))]
    for query in unit_vectors(3, TEXT, seed=9):
        hits = indexed.search(TEXT, query[None], limit=20, where=condition)[0]
        assert len({hit.id for hit in hits}) == min(20, len(passing))
        best = sorted(passing, key=lambda i: -float(vectors[i] @ query))[: len(hits)]
        assert len({hit.id for hit in hits} & {f"id-{i}" for i in best}) >= len(best) * 0.9
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def records_metadata(i: int) -> dict[str, Any]:
    return {"number": i, "hundredth": i % 100, "half": i % 2, "all": True}


def test_no_page_is_short_after_most_documents_were_deleted(postgres_url: str) -> None:
    with open_store(f"{postgres_url}?table=plans_deleted&exact_up_to=0") as store:
        store.bind("e", SPACES)
        store.upsert(records(2000))
        assert store.delete([f"id-{i}" for i in range(2000) if i % 50]) == 1960
        for where in (None, parse_filter({"half": 0})):
            for query in unit_vectors(3, TEXT, seed=4):
                hits = store.search(TEXT, query[None], limit=30, where=where)[0]
                assert len({hit.id for hit in hits}) == 30


def test_writers_of_the_same_documents_wait_for_each_other_in_turn(postgres_url: str) -> None:
    given = records(60)
    before = _deadlocks(postgres_url)
    with open_store(f"{postgres_url}?table=plans_writers&retries=0&exact_up_to=10") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", SPACES)

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


@pytest.mark.parametrize(("dim", "kind"), [(2000, "vector"), (2500, "halfvec"), (4100, "")])
def test_long_vectors_have_the_index_that_there_is_for_them(
    dim: int, kind: str, postgres_url: str, plans: list[str]
) -> None:
    space = Space("long", dim, frozenset({"text"}))
    field = Field("long", "text")
    vectors = np.random.default_rng(dim).standard_normal((40, dim), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with open_store(f"{postgres_url}?table=long_{dim}&exact_up_to=0") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", [space])
        store.upsert([Record(Document(f"id-{i:02}", text="a"), {field: vector}) for i, vector in enumerate(vectors)])
        (hits,) = store.search(field, vectors[7:8], limit=5)
        cosines = vectors @ vectors[7]
        assert [hit.id for hit in hits] == [f"id-{i:02}" for i in np.argsort(-cosines)[:5]]
        assert [hit.score for hit in hits] == pytest.approx(sorted(cosines.tolist(), reverse=True)[:5], abs=1e-5)
        assert np.array_equal(store.records(["id-07"])[0].vectors[field], vectors[7])
        assert store.check().clean
        assert store.describe()["search"] == ("HNSW" if kind else "exact")
    assert ("hnsw" in plans[0]) == bool(kind)
    assert ("halfvec" in plans[0]) == (kind == "halfvec")


def test_the_recall_is_measured_when_the_index_has_grown_and_remembered_until_then(
    postgres_url: str, plans: list[str]
) -> None:
    with open_store(f"{postgres_url}?table=recall&exact_up_to=0") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", SPACES)
        store.upsert(records(300))
        described = store.describe()
        assert described["search minilm/text"].startswith("approximate, recall ")
        assert " passes " in described["search minilm/text"]
        measured = len(plans)
        assert measured > 0
        assert store.describe() == described
        assert len(plans) == measured
        store.upsert(records(1500))
        store.describe()
        assert len(plans) > measured


def test_equal_vectors_count_as_hits_and_their_share_is_told(postgres_url: str) -> None:
    given = records(400)
    with open_store(f"{postgres_url}?table=equal&exact_up_to=0") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", SPACES)
        store.upsert([Record(r.document, given[i % 40].vectors) for i, r in enumerate(given)])
        described = store.describe()
    assert float(described["search minilm/text"].split()[2]) > 0.9
    assert described["identical minilm/text"] == "2 % of the vectors"
