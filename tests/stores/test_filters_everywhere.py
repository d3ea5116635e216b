"""The same random filters give the same ids on every store, and those that Python itself finds."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from vlmsearch_mocks import MemoryStore, MockStore
from vlmsearch_mocks.pair import mock_mongo_store

from tests.support.filters import FIELD, SPACE, conditions, metadata
from vlmsearch import Document, Record
from vlmsearch.stores.base import Store
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import MetadataValue

VECTOR = np.array([1, 0, 0, 0], np.float32)


@pytest.fixture(scope="module")
def stores(
    mongo_address: str, chroma_address: str, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Store]]:
    folder: Path = tmp_path_factory.mktemp("filters")
    made: dict[str, Store] = {
        "memory": MemoryStore(),
        "mock": MockStore(),
        "mock mongodb": mock_mongo_store(),
        "sqlite": SqliteStore(str(folder / "index.db")),
        "chroma": ChromaStore(f"//{chroma_address}/filters"),
        "mongodb": MongoStore(f"//{mongo_address}/filters"),
        "mongodb+chroma": MongoChromaStore(f"//{mongo_address}/filters-pair", chroma=f"http://{chroma_address}"),
        "postgresql": PostgresStore(postgres_url.removeprefix("postgresql:"), table="filters"),
        "postgresql by index": PostgresStore(
            postgres_url.removeprefix("postgresql:"), table="filters_by_index", exact_up_to=0
        ),
    }
    with ExitStack() as stack:
        for store in made.values():
            stack.enter_context(store)
            store.bind("encoder", [SPACE])
        yield made


SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
DOCUMENTS = st.lists(metadata, min_size=1, max_size=8)
FILTERS = st.lists(conditions, min_size=30, max_size=30)


def check(
    stores: dict[str, Store], documents: list[dict[str, MetadataValue]], filters: list[dict[str, object]]
) -> None:
    records = [Record(Document(str(i), metadata=values), {FIELD: VECTOR}) for i, values in enumerate(documents)]
    for store in stores.values():
        store.delete(list(store.ids()))
        store.upsert(records)
    for where in map(parse_filter, filters):
        wanted = {str(i) for i, values in enumerate(documents) if where.matches(values)}
        for name, store in stores.items():
            found = {hit.id for hit in store.search(FIELD, VECTOR[None], limit=20, where=where)[0]}
            assert found == wanted, name


@settings(max_examples=5, suppress_health_check=SLOW)
@given(documents=DOCUMENTS, filters=FILTERS)
def test_a_filter_passes_the_same_documents_on_every_store(
    stores: dict[str, Store], documents: list[dict[str, MetadataValue]], filters: list[dict[str, object]]
) -> None:
    check(stores, documents, filters)


@pytest.mark.exhaustive
@settings(max_examples=100, suppress_health_check=SLOW)
@given(documents=DOCUMENTS, filters=FILTERS)
def test_thousands_of_filters_pass_the_same_documents_on_every_store(
    stores: dict[str, Store], documents: list[dict[str, MetadataValue]], filters: list[dict[str, object]]
) -> None:
    check(stores, documents, filters)
