"""The mock servers pass the suite that the real ones pass, and fail as they are told."""

from pathlib import Path

from vlmsearch_mocks.contracts import StoreContract
from vlmsearch_mocks.pair import MockStore, mock_chroma_store, mock_mongo_store

from vlmsearch.stores.base import Store


class TestMockPair(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return MockStore(str(tmp_path))


class TestMockChroma(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return mock_chroma_store()


class TestMockMongo(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return mock_mongo_store()


class TestMockMongoWithVectorSearch(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return mock_mongo_store(vector_search=True)
