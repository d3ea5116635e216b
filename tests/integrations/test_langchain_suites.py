"""LangChain's own suites, on every store with its real server."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import (
    EmbeddingsIntegrationTests,
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)
from langchain_tests.unit_tests import EmbeddingsUnitTests
from vlmsearch_mocks import MockEncoder
from vlmsearch_mocks.contracts import EncoderContract

from vlmsearch import Document, Encoder, Pipeline, Store
from vlmsearch.integrations.langchain import (
    EmbeddingsEncoder,
    VlmsearchEmbeddings,
    VlmsearchRetriever,
    VlmsearchVectorStore,
)
from vlmsearch.registry import open_store

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("ignore:.*is marked with '@pytest.mark.asyncio'"),  # the suites mix both kinds
]
STORES = ["sqlite", "chroma", "chroma-server", "mongodb", "mongodb+chroma"]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    name = f"langchain-{sha256(str(tmp_path).encode()).hexdigest()[:16]}"

    def address(fixture: str) -> str:
        return str(request.getfixturevalue(fixture))

    if request.param == "sqlite":
        url = f"sqlite:{tmp_path / 'index'}"
    elif request.param == "chroma":
        url = f"chroma:{tmp_path / 'index'}"
    elif request.param == "chroma-server":
        url = f"chroma://{address('chroma_address')}/{name}"
    elif request.param == "mongodb":
        url = f"mongodb://{address('mongo_address')}/{name}"
    else:
        url = f"mongodb+chroma://{address('mongo_address')}/{name}?chroma=http://{address('chroma_address')}"
    with open_store(url) as opened:
        yield opened


class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, store: Store) -> VectorStore:
        return VlmsearchVectorStore(Pipeline(EmbeddingsEncoder(self.get_embeddings()), store))


class TestVectorStoreOfTwoSpaces(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[VectorStore]:
        with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
            yield VlmsearchVectorStore(pipeline)


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _index(self, store: Store) -> None:
        self.pipeline = Pipeline(MockEncoder(), store)
        self.pipeline.add(Document(str(number), text=f"dog number {number}") for number in range(5))

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return VlmsearchRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline}

    @property
    def retriever_query_example(self) -> str:
        return "dog number"


class TestEmbeddings(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[VlmsearchEmbeddings]:
        return VlmsearchEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"encoder": MockEncoder(), "space": "minilm"}


class TestEmbeddingsUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[VlmsearchEmbeddings]:
        return VlmsearchEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"encoder": MockEncoder(), "space": "clip"}


class TestEncoderOverEmbeddings(EncoderContract):
    def make_encoder(self) -> Encoder:
        return EmbeddingsEncoder(VlmsearchEmbeddings(MockEncoder(), space="minilm"))
