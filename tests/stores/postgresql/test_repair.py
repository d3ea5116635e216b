"""`check` finds what somebody removed by hand, and its repair loses nothing else."""

import itertools

import numpy as np
import psycopg
import pytest

from vlmsearch import Document, Field, Record, Space
from vlmsearch.registry import open_store
from vlmsearch.stores.postgresql.store import PostgresStore

TEXT = Field("minilm", "text")
VECTORS = np.random.default_rng(0).standard_normal((200, 64)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
_names = (f"removed{n}" for n in itertools.count())


@pytest.mark.server
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ('TRUNCATE "{table}$1$1$bits"', "200 vectors of minilm/text"),
        ('TRUNCATE "{table}$1$1$graph"', "150 vectors of minilm/text"),
        ('DROP INDEX "{table}$1$1$graph_vector_idx"', "100 vectors of minilm/text"),
        ('TRUNCATE "{table}$1$words"', "words of id-000"),
        ('TRUNCATE "{table}$1$pages"', "words of id-000"),
        ('UPDATE "{table}$1$words" SET dead = substr(rows, 1, 80) || dead', "words of id-000"),
        ('DELETE FROM "{table}$1$words" WHERE segment = 1', "pages of segment 1"),
    ],
)
def test_what_was_removed_by_hand_is_there_after_a_repair(statement: str, said: str, postgres_url: str) -> None:
    table = next(_names)
    store = open_store(f"{postgres_url}?table={table}&exact_up_to=10&graph_from=150")
    assert isinstance(store, PostgresStore)
    with store:
        store.bind("e", [Space("minilm", 64, frozenset({"text"}))])
        for end in (100, 150, 200):
            store.upsert(
                [
                    Record(Document(f"id-{i:03}", text="everywhere", metadata={"n": i}), {TEXT: VECTORS[i]})
                    for i in range(end - 50 if end > 100 else 0, end)
                ]
            )
            if end < 200:
                store._vectors.build(TEXT)
        assert store.check().clean
        documents = store.get([f"id-{i:03}" for i in range(200)])
        with psycopg.connect(postgres_url) as session:
            session.execute(statement.format(table=table).encode())
        assert said in "\n".join(store.check().unindexed)
        store.check(repair=True)
        assert store.check().clean
        nearest = [hits[0].id for hits in store.search(TEXT, VECTORS, limit=1)]
        assert nearest == [f"id-{i:03}" for i in range(200)]
        assert sorted(hit.id for hit in store.search_words("everywhere", limit=300).hits) == nearest
        assert store.get(nearest) == documents
