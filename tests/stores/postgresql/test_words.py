"""Words of PostgreSQL: each search is that of one moment, whoever writes, and reads no more than it has to."""

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
import pytest
from vlmsearch_mocks.contracts.passages import make_long
from vlmsearch_mocks.contracts.records import SPACES
from vlmsearch_mocks.contracts.words import make_record, search_words, words_of_store

import vlmsearch.stores.postgresql.words as module
from tests.support.postgres_servers import execute
from vlmsearch import Record
from vlmsearch.registry import open_store
from vlmsearch.stores.documents import words_of_row
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.postgresql.connection import Session, all_rows
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.postgresql.values import compile_filter
from vlmsearch.stores.postgresql.words import ONE_MOMENT
from vlmsearch.stores.postings import Postings, WordTable, max_score
from vlmsearch.stores.terms import query_terms

NAMES = [f"word{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(60)]
OTHERS = ["AB-4711", "XY 12", "Häuser", "laufende", "the dogs", "running", "собаки", "東京", "Haus", "AB4711"]
FILTERS: list[dict[str, Any] | None] = [
    None,
    {"number": -1},
    {"hundredth": 7},
    {"hundredth": {"$lt": 1}},
    {"half": 1},
    {"all": True},
    {"half": {"$ne": 0}},
]
IDS = 400


def draw(rng: random.Random, number: int) -> Record:
    """Return a record with drawn words. Some are long, some equal, and some are images or have passages."""
    metadata = {"number": number, "hundredth": number % 100, "half": number % 2, "all": True}
    weights = [1 / (i + 2) for i in range(len(NAMES))]
    words = rng.choices(NAMES, weights, k=rng.choice([1, 3, 12, 40])) + rng.choices(OTHERS, k=rng.randrange(3))
    if rng.random() < 0.1:
        parts = tuple(f"{' '.join(rng.choices(NAMES, weights, k=20))}. " for _ in range(rng.randrange(1, 5)))
        long = make_long(f"id-{number:03}", parts)
        return replace(long, document=replace(long.document, metadata=metadata))
    return make_record(f"id-{number:03}", " ".join(words) if rng.random() < 0.9 else None, metadata)


def compared(store: PostgresStore, session: Session, query: str, limit: int, where: dict[str, Any] | None) -> int:
    """Compare a search with a table of what its transaction sees, and count the hits."""
    condition = None if where is None else parse_filter(where)
    compiled = compile_filter(condition)
    hits, bound = store._words.search(session, query, limit, compiled)
    numbers = all_rows(session, f"SELECT row, id, version FROM {store._tables.documents} ORDER BY row")
    rows = store._read_rows(session, [id for _, id, _ in numbers], ["document"])
    documents = [rows[id] for _, id, _ in numbers]
    texts = [words_of_row(row.record()) for row in documents]
    table = WordTable([Postings.of(range(len(texts)), texts, "auto")], None)
    passing = np.array([condition is None or condition.matches(row.document.metadata) for row in documents], bool)
    asked = query_terms(query, "auto")
    places, scores, terms = table.best(asked, limit, passing)
    expected = [(numbers[place][1], score, numbers[place][2]) for place, score in zip(places, scores.tolist())]
    assert [(hit.id, hit.score, hit.version) for hit in hits] == expected, (query, limit, where)
    assert bound == max_score(terms, table.texts)
    some = [id for _, id, _ in numbers[::3]]
    values, _ = table.scores(asked, np.arange(len(texts))[::3])
    wanted = {id: score for id, score, passes in zip(some, values.tolist(), passing[::3]) if score and passes}
    again = store._words.compare(session, query, [*some, "none"], compiled)
    assert [(hit.id, hit.score) for hit in again] == sorted(wanted.items(), key=lambda own: (-own[1], own[0]))
    return len(hits)


def test_each_search_is_that_of_a_table_of_the_documents_of_its_moment(postgres_url: str) -> None:
    url = f"{postgres_url}?table=words_moment"
    rng = random.Random(11)
    with open_store(url) as store, open_store(url) as other:
        assert isinstance(store, PostgresStore)
        for own in (store, other):
            own.bind("encoder 1", SPACES)
        store.upsert([draw(rng, number) for number in range(IDS)])
        # of each language, one stays
        store.upsert(
            [make_record(f"stays-{i}", text) for i, text in enumerate((*OTHERS, "a dog in the snow", "das Haus"))]
        )
        is_over, seen = threading.Event(), list[int]()

        def write(seed: int) -> None:
            own = random.Random(seed)
            while not is_over.is_set():
                numbers = own.sample(range(IDS), own.choice([1, 2, 30]))
                other.upsert([draw(own, number) for number in numbers])
                if own.random() < 0.3:
                    other.delete([f"id-{number:03}" for number in own.sample(range(IDS), 20)])

        def read(seed: int) -> None:
            own = random.Random(seed)
            while not is_over.is_set():
                query = " ".join(own.choices(NAMES[:30] + OTHERS, k=own.randrange(1, 5)))
                limit, where = own.choice([1, 10, 100, 1000]), own.choice(FILTERS)
                seen.append(
                    store._session(
                        "search",
                        lambda session: compared(store, session, query, limit, where),  # noqa: B023
                        f"{ONE_MOMENT} SET TRANSACTION READ ONLY;",
                    )
                )

        with ThreadPoolExecutor(5) as threads:
            running = [threads.submit(write, seed) for seed in range(3)] + [
                threads.submit(read, 9 + i) for i in range(2)
            ]
            deadline = time.monotonic() + 6
            while time.monotonic() < deadline and not any(thread.done() for thread in running):
                time.sleep(0.05)
            is_over.set()
            for thread in running:
                thread.result()
        assert len(seen) > 20
        assert max(seen) > 100
        with psycopg.connect(postgres_url) as session:
            names = session.execute("SELECT concat(segment, ' ', xmin) FROM words_moment$1$words").fetchall()
        words_of_store(store).search_words("none", limit=1)
        assert [*store._words._known.heads] == [name for (name,) in names]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Plans of the queries that searches make."""
    made: list[str] = []

    def explained(session: Session, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        made.append("\n".join(line for (line,) in session.execute(f"EXPLAIN {query}", values).fetchall()))
        return all_rows(session, query, values)

    monkeypatch.setattr(module, "all_rows", explained)
    return made


@pytest.mark.parametrize("is_analysed", [False, True])
def test_a_search_makes_three_queries_that_follow_indexes(
    is_analysed: bool, postgres_url: str, plans: list[str]
) -> None:
    name = f"words_plans_{is_analysed:d}"
    with open_store(f"{postgres_url}?table={name}") as store:
        store.bind("encoder 1", SPACES)
        records = [
            make_record(
                f"id-{i:04}", f"star {'dog' * (i % 3 == 0)} {NAMES[i % 60]}a", {"hundredth": i % 100, "half": i % 2}
            )
            for i in range(3000)
        ]
        store.upsert(records)
        execute(postgres_url, f"ANALYZE {name}$1, {name}$1$words, {name}$1$pages" if is_analysed else "SELECT 1")
        for where, queries in ((None, 3), ({"half": 1}, 3), ({"hundredth": 7}, 5), ({"hundredth": -1}, 5)):
            for query in ("star dog", f"{NAMES[7]}a"):
                plans.clear()
                condition = None if where is None else parse_filter(where)
                hits = words_of_store(store).search_words(query, limit=50, where=condition).hits
                passing = [r for r in records if condition is None or condition.matches(r.document.metadata)]
                wanted = [r for r in passing if {*query.split()} & {*str(r.document.text).split()}]
                assert len(hits) == min(len(wanted), 50)
                assert len(plans) == (queries if query == "star dog" else 3)
                assert "$pages_pkey" in plans[1]
                assert not any(f"Seq Scan on {name}$1{table}" in plan for plan in plans for table in (" ", "$pages"))


def test_what_a_hand_deleted_is_left_out_and_the_next_ones_take_its_place(postgres_url: str) -> None:
    with open_store(f"{postgres_url}?table=words_hand") as store:
        store.bind("encoder 1", SPACES)
        store.upsert([make_record(f"id-{i:02}", "dog " * (60 - i) + "cat") for i in range(60)])
        before = words_of_store(store).search_words("dog", limit=60)
        assert [hit.id for hit in before.hits] == [f"id-{i:02}" for i in range(60)]
        execute(postgres_url, "DELETE FROM words_hand$1 WHERE id < 'id-15'")
        assert words_of_store(store).search_words("dog", limit=10).hits == before.hits[15:25]


def test_a_segment_that_has_the_number_of_another_is_read_anew(postgres_url: str) -> None:
    # as on a server that took over without the last transactions
    with open_store(f"{postgres_url}?table=words_number") as store:
        store.bind("encoder 1", SPACES)
        store.upsert([make_record("a", "dog")])
        (before,) = search_words(store, "dog")
        execute(postgres_url, "UPDATE words_number$1$words SET lengths = decode('10000000', 'hex')")
        (after,) = search_words(store, "dog")
        assert after.score < before.score
