"""The stores of vlmsearch over mock servers."""

from __future__ import annotations

from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.mongodb.connection import MongoConnection
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch_mocks.chroma import MockChroma, MockChromaConnection
from vlmsearch_mocks.faults import Faults
from vlmsearch_mocks.mongo import MockMongo


class MockStore(MongoChromaStore):
    """``mongodb+chroma:`` over a `MockMongo` and a `MockChroma` of its own, which keep everything in memory.

    ``faults`` is what goes wrong with them; a call that fails is tried ``retries`` times more. ``language`` is how
    words are compared, as for ``mongodb+chroma:``. It needs the drivers, ``vlmsearch[chroma,mongodb]``.
    """

    def __init__(self, location: str = "", *, retries: int = 2, language: str | None = None) -> None:
        self.faults = Faults()
        self.mongo = MockMongo(faults=self.faults)
        self.chroma = MockChroma(faults=self.faults)
        connection = mock_connection(self.mongo, retries=retries)
        chroma = MockChromaConnection(self.chroma, retries=retries)
        super().__init__(connection, chroma=chroma, language=language)
        self.name = f"mock:{location}"


def mock_connection(client: MockMongo, *, retries: int = 2) -> MongoConnection:
    """Return a connection to a `MockMongo`."""
    return MongoConnection("mongodb://mock/test", "test", lambda: client, retries)  # type: ignore[arg-type,return-value]


def mock_mongo_store(
    *, faults: Faults | None = None, vector_search: bool = False, retries: int = 2, index_timeout: float = 10.0
) -> MongoStore:
    """``mongodb:`` over a `MockMongo`; with ``vector_search``, over one that has ``$vectorSearch``."""
    connection = mock_connection(MockMongo(faults=faults, vector_search=vector_search), retries=retries)
    return MongoStore(connection, index_timeout=index_timeout)


def mock_chroma_store(*, faults: Faults | None = None, retries: int = 2) -> ChromaStore:
    """``chroma:`` over a `MockChroma`."""
    return ChromaStore(MockChromaConnection(MockChroma(faults=faults), retries=retries))
