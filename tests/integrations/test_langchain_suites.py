"""LangChain's own suites."""

from __future__ import annotations

from collections.abc import Iterator
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

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("ignore:.*is marked with '@pytest.mark.asyncio'"),  # the suites mix both kinds
]


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
