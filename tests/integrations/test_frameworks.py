"""One index for LangChain, Haystack and LlamaIndex: what one of them wrote, it and the two others read."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import haystack
import pytest
from haystack.dataclasses import ByteStream
from langchain_core.documents import Document as LangchainDocument
from langchain_core.embeddings import DeterministicFakeEmbedding
from llama_index.core.schema import ImageNode, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery

from vlmsearch import IndexMismatchError, InvalidBatchError, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.integrations.haystack import VlmsearchDocumentStore
from vlmsearch.integrations.langchain import EmbeddingsEncoder, VlmsearchVectorStore
from vlmsearch.integrations.llama_index import VlmsearchNodeStore
from vlmsearch.registry import open_store

FRAMEWORKS = ("langchain", "haystack", "llama_index")
METADATA: dict[str, Any] = {
    "tags": ["winter", "dog"],
    "place": {"city": "Oslo", "at": [59.9, 10.8, None]},
    "": "no key",
    "$price": 5,
    "empty": [],
    "none": None,
    "large": 2**70,
    "_json": "taken",
    "year": 2024,
    "share": 0.5,
    "new": True,
    "season": "winter",
}


def picture(seed: int) -> bytes:
    file = BytesIO()
    make_scene(seed).draw(96).save(file, "PNG")
    return file.getvalue()


class Frameworks:
    """The stores of the three frameworks over one index."""

    def __init__(self, folder: Path) -> None:
        self.url, self.images = f"sqlite:{folder / 'index'}", folder / "images"
        self.pipeline = Pipeline.open(encoder="mock:", store=self.url)
        self.langchain = VlmsearchVectorStore(self.pipeline, image_folder=self.images)
        self.haystack = VlmsearchDocumentStore(self.url, encoder="mock:", image_folder=str(self.images))
        self.llama_index = VlmsearchNodeStore(self.url, encoder="mock:", image_folder=str(self.images))

    def close(self) -> None:
        for store in (self.pipeline, self.haystack, self.llama_index):
            store.close()

    def write(self, framework: str, id: str, text: str, metadata: dict[str, Any]) -> None:
        if framework == "langchain":
            self.langchain.add_documents([LangchainDocument(text, id=id, metadata=metadata)])
        elif framework == "haystack":
            self.haystack.write_documents([haystack.Document(id=id, content=text, meta=metadata)])
        else:
            self.llama_index.add([TextNode(id_=id, text=text, metadata=metadata)])

    def read(self, framework: str, key: str, value: float | str) -> dict[str, tuple[str, dict[str, Any]]]:
        """Texts and metadata by id, of what has a value under a key."""
        if framework == "langchain":
            found = self.langchain.similarity_search("dog", k=9, filter={key: value})
            return {str(each.id): (each.page_content, each.metadata) for each in found}
        if framework == "haystack":
            there = self.haystack.filter_documents({"field": f"meta.{key}", "operator": "==", "value": value})
            return {each.id: (each.content or "", each.meta) for each in there}
        filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value)])
        return {
            each.node_id: (each.get_content(), each.metadata) for each in self.llama_index.get_nodes(filters=filters)
        }


@pytest.fixture
def frameworks(tmp_path: Path) -> Iterator[Frameworks]:
    made = Frameworks(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("reader", FRAMEWORKS)
@pytest.mark.parametrize("writer", FRAMEWORKS)
def test_metadata_of_any_json_are_read_and_filtered_by_each(frameworks: Frameworks, writer: str, reader: str) -> None:
    frameworks.write(writer, "a", "a dog in the snow", METADATA)
    frameworks.write(
        writer, "b", "a dog in the rain", {"year": 2019, "season": "spring", "share": 0.25, "place": "Rome"}
    )
    wanted = {"a": ("a dog in the snow", METADATA)}
    for key in ("year", "share", "season"):
        assert frameworks.read(reader, key, METADATA[key]) == wanted
    assert frameworks.read(reader, "place", "Rome").keys() == {"b"}
    [(_, found)] = frameworks.read(reader, "year", 2024).values()
    assert [type(found[key]) for key in METADATA] == [type(value) for value in METADATA.values()]


def images_of(frameworks: Frameworks, id: str) -> list[bytes]:
    """The image of a document, as each framework has it."""
    [document] = frameworks.langchain.get_by_ids([id])
    found = [Path(document.metadata["image"]).read_bytes()]
    [read] = [each for each in frameworks.haystack.filter_documents() if each.id == id]
    found.append(read.blob.data if read.blob else Path(read.meta["file_path"]).read_bytes())
    [node] = frameworks.llama_index.get_nodes([id])
    assert isinstance(node, ImageNode)
    return [*found, b64decode(node.image) if node.image else Path(str(node.image_path)).read_bytes()]


def test_images_are_read_by_each(frameworks: Frameworks, tmp_path: Path) -> None:
    for seed in range(7):
        (tmp_path / f"{seed}.png").write_bytes(picture(seed))
    frameworks.langchain.add_documents([LangchainDocument("", id="0", metadata={"image": picture(0)})])
    frameworks.langchain.add_images([tmp_path / "1.png"], ids=["1"])
    frameworks.haystack.write_documents(
        [
            haystack.Document(id="2", blob=ByteStream(picture(2))),
            haystack.Document(id="3", meta={"file_path": str(tmp_path / "3.png")}),
        ]
    )
    frameworks.llama_index.add([ImageNode(id_="4", image=b64encode(picture(4)).decode())])
    frameworks.llama_index.add([ImageNode(id_="5", image_path=str(tmp_path / "5.png"))])
    for seed in range(6):
        assert images_of(frameworks, str(seed)) == [picture(seed)] * 3
    frameworks.pipeline.index(tmp_path / "6.png")
    assert images_of(frameworks, str(tmp_path / "6.png")) == [picture(6)] * 3
    kept = {path.read_bytes() for path in frameworks.images.iterdir()}
    assert kept == {picture(0), picture(2), picture(4)}
    frameworks.langchain.delete(["2"])
    frameworks.haystack.delete_documents(["0"])
    frameworks.llama_index.delete_nodes(["4"])
    assert list(frameworks.images.iterdir()) == []


def test_a_document_with_an_image_of_bytes_is_added_again_as_it_was_read(frameworks: Frameworks) -> None:
    frameworks.langchain.add_documents([LangchainDocument("", id="a", metadata={"image": picture(1)})])
    [read] = frameworks.langchain.get_by_ids(["a"])
    read.metadata["year"] = 2024
    frameworks.langchain.add_documents([read])
    assert images_of(frameworks, "a") == [picture(1)] * 3
    assert frameworks.read("haystack", "year", 2024).keys() == {"a"}
    frameworks.langchain.delete(["a"])
    assert list(frameworks.images.iterdir()) == []


def test_each_names_all_documents_that_cannot_be_used_and_keeps_the_others(frameworks: Frameworks) -> None:
    texts = ["", "a dog", ""]
    with pytest.raises(InvalidBatchError) as of_langchain:
        frameworks.langchain.add_texts(texts, ids=["1", "2", "3"])
    with pytest.raises(InvalidBatchError) as of_haystack:
        frameworks.haystack.write_documents(
            [haystack.Document(id=f"h{i}", content=text) for i, text in enumerate(texts)]
        )
    with pytest.raises(InvalidBatchError) as of_llama_index:
        frameworks.llama_index.add([TextNode(id_=f"l{i}", text=text) for i, text in enumerate(texts)])
    for caught in (of_langchain, of_haystack, of_llama_index):
        assert list(caught.value.items) == [0, 2]
    assert {each.id for each in frameworks.haystack.filter_documents()} == {"2", "h1", "l1"}


def test_vectors_of_a_model_of_langchain_are_read_by_the_others(tmp_path: Path) -> None:
    url, model = f"sqlite:{tmp_path / 'index'}", DeterministicFakeEmbedding(size=6)
    texts = VlmsearchVectorStore.from_texts(["a dog", "a car"], model, [{"tags": [1]}, {}], ids=["a", "b"], store=url)
    of_haystack, of_llama_index = VlmsearchDocumentStore(url, embedding_dim=6), VlmsearchNodeStore(url)
    vector = model.embed_query("a dog")
    [near] = of_haystack.nearest(vector, top_k=1)
    assert (near.id, near.meta) == ("a", {"tags": [1]})
    assert near.score == pytest.approx(1, abs=1e-5)
    of_haystack.write_documents([haystack.Document(id="c", content="a cat", embedding=model.embed_query("a cat"))])
    assert of_llama_index.query(VectorStoreQuery(model.embed_query("a cat"), similarity_top_k=1)).ids == ["c"]
    [best] = texts.similarity_search_by_vector(model.embed_query("a cat"), k=1)
    assert best.id == "c"
    other = VlmsearchDocumentStore(url, embedding_dim=7)
    with pytest.raises(IndexMismatchError, match="langchain:DeterministicFakeEmbedding"):
        other.nearest([1] * 7)
    for store in (texts.pipeline, of_haystack, of_llama_index, other):
        store.close()


@pytest.mark.parametrize("writer", ["haystack", "llama_index"])
def test_vectors_that_others_were_given_are_read_by_langchain(tmp_path: Path, writer: str) -> None:
    url, model = f"sqlite:{tmp_path / 'index'}", DeterministicFakeEmbedding(size=6)
    if writer == "haystack":
        documents = VlmsearchDocumentStore(url, embedding_dim=6)
        documents.write_documents([haystack.Document(id="a", content="a dog", embedding=model.embed_query("a dog"))])
        documents.close()
    else:
        nodes = VlmsearchNodeStore(url)
        nodes.add([TextNode(id_="a", text="a dog", embedding=model.embed_query("a dog"))])
        nodes.close()
    with Pipeline(EmbeddingsEncoder(model, fingerprint="vectors:6"), open_store(url)) as pipeline:
        store = VlmsearchVectorStore(pipeline)
        store.add_texts(["a car"], ids=["b"])
        assert [each.id for each in store.similarity_search_by_vector(model.embed_query("a dog"), k=1)] == ["a"]
        assert [each.id for each in store.similarity_search("a dog", k=1)] == ["a"]
    with Pipeline(EmbeddingsEncoder(model), open_store(url)) as pipeline, pytest.raises(IndexMismatchError):
        VlmsearchVectorStore(pipeline).similarity_search_by_vector(model.embed_query("a dog"))
