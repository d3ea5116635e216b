"""The same 1,000 random filters give the same ids on the mock, embedded Chroma, MongoDB and the pair."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vlmsearch_mocks import MockStore
from vlmsearch_mocks.pair import mock_mongo_store

from tests.support.filters import FIELD, SPACE, conditions, metadata
from vlmsearch import Document, Record
from vlmsearch.stores.base import Store
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.types import Scalar

VECTOR = np.array([1, 0, 0, 0], np.float32)


@pytest.fixture(scope="module")
def stores(
    mongo_address: str, chroma_address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Store]]:
    folder: Path = tmp_path_factory.mktemp("filters")
    made: dict[str, Store] = {
        "mock": MockStore(),
        "mock mongodb": mock_mongo_store(),
        "chroma": ChromaStore(str(folder / "index")),
        "mongodb": MongoStore(f"//{mongo_address}/filters"),
        "mongodb+chroma": MongoChromaStore(f"//{mongo_address}/filters-pair", chroma=f"http://{chroma_address}"),
    }
    with ExitStack() as stack:
        for store in made.values():
            stack.enter_context(store)
            store.bind("encoder", [SPACE])
        yield made


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(documents=st.lists(metadata, min_size=1, max_size=8), filters=st.lists(conditions, min_size=50, max_size=50))
def test_a_filter_passes_the_same_documents_on_every_store(
    stores: dict[str, Store], documents: list[dict[str, Scalar]], filters: list[dict[str, object]]
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
