"""MongoDB passes the same suite as every store."""

from hashlib import sha256
from pathlib import Path

import pytest
from vlmsearch_mocks.contracts import RejectListContract, StoreContract, TuningContract, WordsContract

from vlmsearch.stores.base import Store
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore


def name_for(path: Path) -> str:
    return f"t{sha256(str(path).encode()).hexdigest()[:16]}"


class TestMongo(StoreContract, RejectListContract, TuningContract, WordsContract):
    durable = True

    @pytest.fixture(autouse=True)
    def _server(self, mongo_address: str) -> None:
        self.address = mongo_address

    def make_store(self, tmp_path: Path) -> Store:
        return MongoStore(f"//{self.address}/{name_for(tmp_path)}")


class TestMongoWithChroma(StoreContract, RejectListContract, TuningContract, WordsContract):
    durable = True
    recall = 0.95

    @pytest.fixture(autouse=True)
    def _server(self, mongo_address: str, chroma_address: str) -> None:
        self.mongo, self.chroma = mongo_address, chroma_address

    def make_store(self, tmp_path: Path) -> Store:
        return MongoChromaStore(f"//{self.mongo}/{name_for(tmp_path)}", chroma=f"http://{self.chroma}")
