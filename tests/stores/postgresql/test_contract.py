"""PostgreSQL passes the same suite as every store."""

from hashlib import sha256
from pathlib import Path

import pytest
from vlmsearch_mocks.contracts import RejectListContract, StoreContract, TuningContract, WordsContract
from vlmsearch_mocks.contracts.search import SearchSuite

from vlmsearch.registry import open_store
from vlmsearch.stores.base import Store


class TestPostgres(StoreContract, RejectListContract, TuningContract, WordsContract):
    durable = True

    @pytest.fixture(autouse=True)
    def _server(self, postgres_url: str) -> None:
        self.url = postgres_url

    def make_store(self, tmp_path: Path) -> Store:
        return open_store(f"{self.url}?table=t{sha256(str(tmp_path).encode()).hexdigest()[:16]}")


class TestPostgresByIndex(SearchSuite):
    """What differs where every search follows an index of vectors."""

    durable = True
    recall = 0.95

    @pytest.fixture(autouse=True)
    def _server(self, postgres_url: str) -> None:
        self.url = postgres_url

    def make_store(self, tmp_path: Path) -> Store:
        return open_store(f"{self.url}?exact_up_to=0&table=t{sha256(str(tmp_path).encode()).hexdigest()[:16]}")
