"""Words of PostgreSQL: what is left out is never on the page."""

import random
from collections.abc import Sequence

import pytest
from vlmsearch_mocks.contracts.records import SPACES
from vlmsearch_mocks.contracts.words import make_record

import vlmsearch.stores.postgresql.words as module
from vlmsearch.registry import open_store
from vlmsearch.stores.postgresql.connection import all_rows
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.postings import term_key

WORDS = {"everywhere": 0.95, "often": 0.4, "sometimes": 0.1, "rarely": 0.02}


def test_documents_with_frequent_words_alone_are_left_out_where_they_cannot_be_on_the_page(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    texts = [
        " ".join(["filler", *(word for word, share in WORDS.items() for _ in range(3) if rng.random() < share)])
        for _ in range(1500)
    ]
    looked_up: list[Sequence[int]] = []

    def noted(session: object, query: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        looked_up.extend(value for value in values if "score" in query and isinstance(value, list))
        return all_rows(session, query, values)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "all_rows", noted)
    with open_store(f"{postgres_url}?table=words_left_out&language=none") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", SPACES)
        store.upsert([make_record(f"id-{i:04}", text) for i, text in enumerate(texts)])
        for query in ("rarely everywhere", "sometimes often everywhere", "often everywhere", "rarely often sometimes"):
            for limit in (1, 10, 300, 1500):
                monkeypatch.setattr(module, "_LIGHT", 0.0)
                whole = store.search_words(query, limit=limit)
                monkeypatch.setattr(module, "_LIGHT", 0.4)
                assert store.search_words(query, limit=limit) == whole, (query, limit)
        looked_up.clear()
        store.search_words("rarely everywhere", limit=10)
        assert looked_up == [[term_key("rarely")]]
        looked_up.clear()
        store.search_words("rarely everywhere", limit=1000)
        assert looked_up == [[term_key("rarely")], sorted(map(term_key, ("rarely", "everywhere")))]
