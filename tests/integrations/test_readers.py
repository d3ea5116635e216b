"""Readers in documents of frameworks, and what frameworks do with a handle that sees some of the documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import haystack
import pytest
from haystack.document_stores.types import DuplicatePolicy
from langchain_core.documents import Document as LangchainDocument
from llama_index.core.schema import TextNode
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import Document, InvalidBatchError, Pipeline
from vlmsearch.integrations.framework_index import FrameworkDocument, FrameworkFilter, FrameworkIndex
from vlmsearch.integrations.haystack import VlmsearchDocumentStore
from vlmsearch.integrations.langchain import VlmsearchVectorStore
from vlmsearch.integrations.llama_index import VlmsearchNodeStore
from vlmsearch.registry import open_store

HR = frozenset({"group:hr"})
NOBODY = frozenset[str]()
GIVEN: dict[str, tuple[dict[str, Any], frozenset[str] | None]] = {
    "a": ({"readers": ["group:hr"]}, HR),
    "b": ({"readers": []}, NOBODY),
    "c": ({"readers": {"group": "hr"}}, NOBODY),
    "d": ({"readers": [1, 2]}, NOBODY),
    "e": ({"readers": "group:hr"}, HR),
    "f": ({"readers": 5}, NOBODY),
    "g": ({"readers": None}, None),
    "h": ({}, None),
}


def write(framework: str, url: str, opened: Callable[[Any], Any]) -> Any:
    metadata = {id: given for id, (given, _) in GIVEN.items()}
    if framework == "langchain":
        pipeline = opened(Pipeline.open(encoder="mock:", store=url))
        store = VlmsearchVectorStore(pipeline)
        store.add_documents([LangchainDocument("a dog", id=id, metadata=given) for id, given in metadata.items()])
        return {each.id: each.metadata for each in store.get_by_ids(list(GIVEN))}
    if framework == "haystack":
        store = opened(VlmsearchDocumentStore(url, encoder="mock:"))
        documents = [haystack.Document(id=id, content="a dog", meta=given) for id, given in metadata.items()]
        store.write_documents(documents, policy=DuplicatePolicy.OVERWRITE)
        return {each.id: each.meta for each in store.filter_documents()}
    store = opened(VlmsearchNodeStore(url, encoder="mock:"))
    store.add([TextNode(id_=id, text="a dog", metadata=given) for id, given in metadata.items()])
    return {node.node_id: node.metadata for node in store.get_nodes(list(GIVEN))}


@pytest.mark.parametrize("framework", ["langchain", "haystack", "llama_index"])
def test_readers_come_in_and_go_out_as_metadata(framework: str, url: str, opened: Callable[[Any], Any]) -> None:
    metadata = write(framework, url, opened)
    with open_store(url) as store:
        assert {document.id: document.readers for document in store.get(list(GIVEN))} == {
            id: expected for id, (_, expected) in GIVEN.items()
        }
    assert metadata["a"]["readers"] == ["group:hr"]
    assert Document("b", metadata=metadata["b"]).readers == NOBODY
    assert metadata["f"]["readers"] == 5


@pytest.fixture
def pipeline() -> Pipeline:
    pipeline = Pipeline(MockEncoder(), MemoryStore())
    pipeline.add(
        [
            Document("hidden", text="a dog in the snow", metadata={"year": 2024}, readers=["user:bob"]),
            Document("mine", text="a dog in the rain", metadata={"year": 2024}, readers=["user:ann"]),
            Document("all", text="a blue car", metadata={"year": 2024}),
        ]
    )
    return pipeline


def test_an_index_of_a_restricted_pipeline_has_the_readable_documents(pipeline: Pipeline, tmp_path: Path) -> None:
    index = FrameworkIndex(pipeline.restricted(["user:ann"]), image_folder=tmp_path)
    assert (len(index), set(index.ids())) == (2, {"mine", "all"})
    assert [document.id for document in index.get(["hidden", "mine"])] == ["mine"]
    year = FrameworkFilter({"year": 2024})
    assert [document.id for document in index.find(year)] == ["all", "mine"]
    assert {document.id for document, _ in index.search("a dog", filter=year, min_score=0.0)} == {"mine", "all"}
    assert {document.id for document, _ in index.words("snow rain", limit=5)} == {"mine"}
    field = next(field for field in pipeline.encoder.spaces[0].fields if field.modality == "text")
    [vector] = pipeline.encoder.encode_texts(["a dog"])[field.space].tolist()
    assert {document.id for document, _ in index.nearest(vector, limit=5, fields=[field])} == {"mine", "all"}
    assert index.update_metadata(["hidden", "mine"], {"year": 2025}) == 1
    with pytest.raises(InvalidBatchError, match="'hidden' is the id of another document"):
        index.write([FrameworkDocument("hidden", "mine")])
    assert index.delete(["hidden", "mine"]) == 1
    assert {document.id: document.metadata["year"] for document in pipeline.documents()} == {
        "hidden": 2024,
        "all": 2024,
    }


def test_an_update_sets_readers_and_a_missing_value_opens_nothing(pipeline: Pipeline) -> None:
    index = FrameworkIndex(pipeline)
    assert index.update_metadata(["mine"], {"readers": None, "year": None}) == 1
    [document] = pipeline.get("mine")
    assert (document.readers, document.metadata.get("year")) == (frozenset({"user:ann"}), None)
    pipeline.add([Document(f"a.pdf{fragment}", text="a page") for fragment in ("", "#page=1", "#page=2")])
    index.update_metadata(["a.pdf#page=1"], {"readers": [], "kind": "page"})
    pages = [document for document in pipeline.documents() if document.id.startswith("a.pdf")]
    assert [(page.readers, page.metadata.get("kind")) for page in pages] == [
        (NOBODY, None),
        (NOBODY, "page"),
        (NOBODY, None),
    ]


def test_bytes_of_a_hidden_document_stay_where_another_of_its_id_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    given = FrameworkDocument("bytes", "a dog", {"readers": ["user:bob"]}, data=b"some bytes", mime_type="text/plain")
    FrameworkIndex(pipeline, image_folder=tmp_path).write([given])
    [file] = tmp_path.iterdir()
    with pytest.raises(InvalidBatchError, match="'bytes' is the id of another document"):
        FrameworkIndex(pipeline.restricted(["user:ann"]), image_folder=tmp_path).write(
            [FrameworkDocument("bytes", "a dog", data=b"some bytes", mime_type="text/plain")]
        )
    assert file.read_bytes() == b"some bytes"


def test_a_page_with_a_given_vector_has_the_readers_of_its_file() -> None:
    with FrameworkIndex("mock:", dim=2) as index:
        for fragments in (("", "#page=1"), ("#page=2",), ("#page=1",)):
            index.write(
                [
                    FrameworkDocument(
                        f"a.pdf{name}", "a dog", {} if name else {"readers": ["group:hr"]}, embedding=[1, 0]
                    )
                    for name in fragments
                ]
            )
        assert [document.metadata for document in index.find()] == [{"readers": ["group:hr"]}] * 3


@pytest.mark.parametrize("is_beside", [True, False])
def test_metadata_name_no_file_of_another(pipeline: Pipeline, tmp_path: Path, *, is_beside: bool) -> None:
    index, other = FrameworkIndex(pipeline, image_folder=tmp_path / "files"), tmp_path / "other.txt"
    index.write([FrameworkDocument("bytes", "a dog", {"readers": ["user:bob"]}, data=b"1", mime_type="text/plain")])
    other.write_text("of somebody else")
    [file] = (tmp_path / "files").iterdir()
    named = file.name if is_beside else str(other)
    pipeline.restricted(["user:ann"]).add(Document("mine", text="a dog", metadata={"_json": f'{{"data": "{named}"}}'}))
    assert [document.file_bytes for document in index.get(["mine", "bytes"])] == [None, b"1"]
    index.delete(["mine"])
    assert file.exists()
    assert other.exists()
