"""Every store passes the same suite: in memory, SQLite and a Chroma server."""

from hashlib import sha256
from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore
from vlmsearch_mocks.contracts import RejectListContract, StoreContract, TuningContract, WordsContract

from vlmsearch.stores.base import Store
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.sqlite.store import SqliteStore


class TestMemoryStore(StoreContract, RejectListContract, TuningContract, WordsContract):
    def make_store(self, tmp_path: Path) -> Store:
        return MemoryStore(str(tmp_path))


class TestSqlite(StoreContract, RejectListContract, TuningContract, WordsContract):
    durable = True

    def make_store(self, tmp_path: Path) -> Store:
        return SqliteStore(str(tmp_path / "index"))


class TestChroma(StoreContract, RejectListContract, TuningContract):
    durable = True
    recall = 0.95

    @pytest.fixture(autouse=True)
    def _server(self, chroma_address: str) -> None:
        self.address = chroma_address

    def make_store(self, tmp_path: Path) -> Store:
        return ChromaStore(f"//{self.address}/test-{sha256(str(tmp_path).encode()).hexdigest()[:16]}")
