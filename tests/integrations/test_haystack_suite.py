"""The document store passes Haystack's own suites."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest
from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DocumentStore
from haystack.testing.document_store import (
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    DocumentStoreBaseExtendedTests,
    DocumentStoreBaseTests,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
)
from haystack.testing.document_store_async import (
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    CountUniqueMetadataByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    GetMetadataFieldMinMaxAsyncTest,
    GetMetadataFieldsInfoAsyncTest,
    GetMetadataFieldUniqueValuesAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
)

from vlmsearch.integrations.haystack import VlmsearchDocumentStore


class Suites(
    DocumentStoreBaseExtendedTests,
    CountDocumentsByFilterTest,
    CountUniqueMetadataByFilterTest,
    GetMetadataFieldMinMaxTest,
    GetMetadataFieldsInfoTest,
    GetMetadataFieldUniqueValuesTest,
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    CountUniqueMetadataByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    GetMetadataFieldMinMaxAsyncTest,
    GetMetadataFieldsInfoAsyncTest,
    GetMetadataFieldUniqueValuesAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
):
    """All that there are; an index is not made anew to delete what is in it, so that there is no option for that."""

    test_delete_all_documents_with_recreate_index = None  # type: ignore[assignment]
    test_delete_all_documents_without_recreate_index = None  # type: ignore[assignment]
    test_delete_all_documents_with_recreate_index_async = None
    test_delete_all_documents_without_recreate_index_async = None

    @staticmethod
    def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
        """Documents come in the order of their ids, and vectors as float32."""
        received, expected = sorted(received, key=attrgetter("id")), sorted(expected, key=attrgetter("id"))
        assert [each.id for each in received] == [each.id for each in expected]
        for found, wanted in zip(received, expected):
            assert (found.content, found.meta, found.blob) == (wanted.content, wanted.meta, wanted.blob)
            assert (found.embedding is None) == (wanted.embedding is None)
            if wanted.embedding is not None:
                assert found.embedding == pytest.approx(wanted.embedding, rel=1e-5, abs=1e-6)

    def test_write_documents(self, document_store: DocumentStore) -> None:
        first = Document(id="1", content="a dog")
        assert document_store.write_documents([first]) == 1
        with pytest.raises(DuplicateDocumentError, match="'1'"):
            document_store.write_documents([Document(id="2", content="a cat"), first])
        self.assert_documents_are_equal(document_store.filter_documents(), [first])

    @pytest.mark.asyncio
    async def test_write_documents_async(self, document_store: VlmsearchDocumentStore) -> None:
        first = Document(id="1", content="a dog")
        assert await document_store.write_documents_async([first]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([first])


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VlmsearchDocumentStore]:
    """One index for all tests: it is empty before each."""
    store = VlmsearchDocumentStore(f"sqlite:{tmp_path_factory.mktemp('haystack') / 'index'}", embedding_dim=768)
    yield store
    store.close()


class TestGivenVectors(Suites):
    @pytest.fixture
    def document_store(self, opened: VlmsearchDocumentStore) -> VlmsearchDocumentStore:
        opened.delete_all_documents()
        return opened


class TestEncodedHere(DocumentStoreBaseTests):
    """The vectors that documents come with are not kept, those of the encoder are; the rest is the same."""

    test_write_documents = Suites.test_write_documents

    @staticmethod
    def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
        def content(documents: list[Document]) -> list[tuple[object, ...]]:
            return sorted((each.id, each.content, sorted(each.meta.items())) for each in documents)

        assert content(received) == content(expected)

    @pytest.fixture
    def document_store(self, tmp_path: Path) -> Iterator[VlmsearchDocumentStore]:
        store = VlmsearchDocumentStore(f"sqlite:{tmp_path / 'index'}", encoder="mock:")
        yield store
        store.close()
