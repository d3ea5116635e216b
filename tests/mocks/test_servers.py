"""The mock servers pass the suite that the real ones pass, and fail as they are told."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from vlmsearch_mocks import MockMongo
from vlmsearch_mocks.contracts import RejectListContract, StoreContract, TuningContract, WordsContract
from vlmsearch_mocks.contracts.search import SearchSuite
from vlmsearch_mocks.pair import MockStore, mock_chroma_store, mock_mongo_store

from vlmsearch.stores.base import Store


class TestMockPair(StoreContract, RejectListContract, TuningContract, WordsContract):
    def make_store(self, tmp_path: Path) -> Store:
        return MockStore(str(tmp_path))


class TestMockChroma(StoreContract, RejectListContract, TuningContract):
    test_five_thousand_records_are_written_at_once_and_found = None  # type: ignore[assignment] # the pair has both

    def make_store(self, tmp_path: Path) -> Store:
        return mock_chroma_store()


class TestMockMongo(StoreContract, RejectListContract, TuningContract, WordsContract):
    test_five_thousand_records_are_written_at_once_and_found = None  # type: ignore[assignment] # the pair has both

    def make_store(self, tmp_path: Path) -> Store:
        return mock_mongo_store()


class TestMockMongoWithVectorSearch(SearchSuite):
    test_five_thousand_records_are_written_at_once_and_found = None  # type: ignore[assignment] # the pair has both

    def make_store(self, tmp_path: Path) -> Store:
        return mock_mongo_store(vector_search=True)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns after microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_collections_come_and_go_while_others_list_and_copy_them() -> None:
    mongo = MockMongo()
    for number in range(500):
        mongo["db"].create_collection(f"kept {number}")

    def write() -> None:
        for turn in range(3000):
            collection = mongo["db"].create_collection(f"more {turn % 50}")
            collection.insert_one({"_id": "a"})
            collection.drop()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        while not writer.done():
            assert len(mongo["db"].list_collection_names()) >= 500
        writer.result()
        writer = pool.submit(write)
        while not writer.done():
            mongo.faults.read_stale("mongo", 1)
        writer.result()
