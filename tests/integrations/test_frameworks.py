"""One index for LangChain, Haystack and LlamaIndex: what one of them wrote, it and the two others read."""

from __future__ import annotations

import asyncio
import inspect
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import haystack
import pytest
from haystack.dataclasses import ByteStream
from haystack.document_stores.types import DuplicatePolicy
from langchain_core.documents import Document as LangchainDocument
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.retrievers import BaseRetriever
from llama_index.core.schema import ImageNode, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery

from tests.support.long_texts import PASSAGES, long_record
from tests.support.shards import png
from vlmsearch import Document, IndexMismatchError, InvalidBatchError, Pipeline
from vlmsearch.integrations import haystack as of_haystack, langchain as of_langchain, llama_index as of_llama_index
from vlmsearch.integrations.framework_index import awaited
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


class Frameworks:
    """The stores of the three frameworks over one index."""

    def __init__(self, url: str, images: Path, opened: Callable[[Any], Any]) -> None:
        self.images = images
        self.pipeline: Pipeline = opened(Pipeline.open(encoder="mock:", store=url))
        self.langchain = VlmsearchVectorStore(self.pipeline, image_folder=images)
        options: dict[str, Any] = {"encoder": "mock:", "image_folder": str(images)}
        self.haystack: VlmsearchDocumentStore = opened(VlmsearchDocumentStore(url, **options))
        self.llama_index: VlmsearchNodeStore = opened(VlmsearchNodeStore(url, **options))

    def write(self, framework: str, *documents: tuple[str, str, dict[str, Any]]) -> None:
        if framework == "langchain":
            self.langchain.add_documents([LangchainDocument(text, id=id, metadata=m) for id, text, m in documents])
        elif framework == "haystack":
            self.haystack.write_documents(
                [haystack.Document(id=id, content=text, meta=m) for id, text, m in documents],
                policy=DuplicatePolicy.OVERWRITE,
            )
        else:
            self.llama_index.add([TextNode(id_=id, text=text, metadata=m) for id, text, m in documents])

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
def frameworks(url: str, tmp_path: Path, opened: Callable[[Any], Any]) -> Frameworks:
    return Frameworks(url, tmp_path / "images", opened)


@pytest.mark.parametrize("reader", FRAMEWORKS)
@pytest.mark.parametrize("writer", FRAMEWORKS)
def test_metadata_of_any_json_are_read_and_filtered_by_each(frameworks: Frameworks, writer: str, reader: str) -> None:
    rain = {"year": 2019, "season": "spring", "share": 0.25, "place": "Rome"}
    frameworks.write(writer, ("a", "a dog in the snow", METADATA), ("b", "a dog in the rain", rain))
    wanted = {"a": ("a dog in the snow", METADATA)}
    for key in ("year", "share", "season"):
        assert frameworks.read(reader, key, METADATA[key]) == wanted
    assert frameworks.read(reader, "place", "Rome").keys() == {"b"}
    [(_, found)] = frameworks.read(reader, "year", 2024).values()
    assert [type(found[key]) for key in METADATA] == [type(value) for value in METADATA.values()]


def test_a_long_text_that_was_indexed_otherwise_is_its_best_passage(frameworks: Frameworks) -> None:
    query, pipeline = "emergency number of the plumber", frameworks.pipeline
    pipeline.add(Document("note", text="a red kite", metadata={"kind": "note"}))
    pipeline.store.upsert([long_record(pipeline.encoder, "handbook", metadata={"kind": "book"})])
    end = len("".join(PASSAGES))
    place = {"document_id": "handbook", "passage": 3, "heading": "Keys"}
    metadata = {"kind": "book", **place, "start_index": end - len(PASSAGES[2]), "end_index": end}
    retriever = of_langchain.VlmsearchRetriever(pipeline=pipeline, k=1)
    [said] = frameworks.haystack.search(query, limit=1)
    [node] = frameworks.llama_index.search(query, limit=1)
    for id, text, found in (
        *((each.id, each.page_content, each.metadata) for each in retriever.invoke(query)),
        *((each.id, each.page_content, each.metadata) for each in frameworks.langchain.similarity_search(query, k=1)),
        *((each.id, each.page_content, each.metadata) for each in frameworks.langchain.get_by_ids([str(said.id)])),
        (said.id, said.content, said.meta),
        (node.node.node_id, node.node.get_content(), node.node.metadata),
    ):
        assert (id, text, found) == ("handbook#passage=3", PASSAGES[2], metadata)
    diverse = frameworks.langchain.max_marginal_relevance_search(query, k=2)
    assert [document.id for document in diverse] == ["handbook#passage=3", "note"]
    [whole] = frameworks.langchain.get_by_ids(["handbook"])
    assert (whole.page_content, whole.metadata) == ("".join(PASSAGES), {"kind": "book"})
    assert len(frameworks.haystack.filter_documents()) == frameworks.haystack.count_documents() == 2
    with pytest.raises(InvalidBatchError, match="names a passage"):  # it would replace the whole by its passage
        frameworks.langchain.add_documents(retriever.invoke(query))
    frameworks.langchain.delete(["handbook#passage=3"])
    assert frameworks.haystack.count_documents() == 2
    frameworks.langchain.delete(["handbook"])
    assert pipeline.store.count_passages() == 0


def images_of(frameworks: Frameworks, id: str) -> list[bytes]:
    """The image of a document, as each framework has it."""
    [document] = frameworks.langchain.get_by_ids([id])
    found = [Path(document.metadata["image"]).read_bytes()]
    [read] = [each for each in frameworks.haystack.filter_documents() if each.id == id]
    found.append(read.blob.data if read.blob else Path(read.meta["file_path"]).read_bytes())
    [node] = frameworks.llama_index.get_nodes([id])
    assert isinstance(node, ImageNode)
    return [*found, b64decode(node.image) if node.image else Path(str(node.image_path)).read_bytes()]


def test_images_are_read_by_each(frameworks: Frameworks, files: list[str]) -> None:
    frameworks.langchain.add_documents([LangchainDocument("", id="0", metadata={"image": png(0)})])
    frameworks.langchain.add_images([files[1]], ids=["1"])
    frameworks.haystack.write_documents(
        [
            haystack.Document(id="2", blob=ByteStream(png(2))),
            haystack.Document(id="3", meta={"file_path": files[3]}),
        ]
    )
    frameworks.llama_index.add([ImageNode(id_="4", image=b64encode(png(4)).decode())])
    frameworks.llama_index.add([ImageNode(id_="5", image_path=files[5])])
    for seed in range(6):
        assert images_of(frameworks, str(seed)) == [png(seed)] * 3
    frameworks.pipeline.index(files[6])
    assert images_of(frameworks, files[6]) == [png(6)] * 3
    kept = {path.read_bytes() for path in frameworks.images.iterdir()}
    assert kept == {png(0), png(2), png(4)}
    frameworks.langchain.delete(["2"])
    frameworks.haystack.delete_documents(["0"])
    frameworks.llama_index.delete_nodes(["4"])
    assert list(frameworks.images.iterdir()) == []


def test_a_document_with_an_image_of_bytes_is_added_again_as_it_was_read(frameworks: Frameworks) -> None:
    frameworks.langchain.add_documents([LangchainDocument("", id="a", metadata={"image": png(1)})])
    [read] = frameworks.langchain.get_by_ids(["a"])
    read.metadata["year"] = 2024
    frameworks.langchain.add_documents([read])
    assert images_of(frameworks, "a") == [png(1)] * 3
    assert frameworks.read("haystack", "year", 2024).keys() == {"a"}
    frameworks.langchain.delete(["a"])
    assert list(frameworks.images.iterdir()) == []


@pytest.mark.parametrize("writer", FRAMEWORKS)
def test_bad_documents_are_named_and_the_others_added(frameworks: Frameworks, tmp_path: Path, writer: str) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    broken = dict.fromkeys(("image", "file_path"), str(tmp_path / "broken.png"))
    documents: list[tuple[str, str, dict[str, Any]]] = [("1", "", {"year": 1}), ("2", "a dog", {}), ("3", "", broken)]
    codes = {0: "empty", 2: "empty" if writer == "llama_index" else "unsupported"}  # its images are no metadata
    for _ in range(2):  # they are tried, and named, again
        with pytest.raises(InvalidBatchError) as caught:
            frameworks.write(writer, *documents)
        assert {place: error.code for place, error in caught.value.items.items()} == codes
    assert [document.id for document in frameworks.haystack.filter_documents()] == ["2"]


KINDS = [kind for module in (of_haystack, of_langchain, of_llama_index) for kind in vars(module).values()]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if isinstance(kind, type) and kind.__name__[:3] == "Vlm"])
def test_an_awaited_method_is_the_method_of_that_name(kind: type) -> None:
    methods = dict(inspect.getmembers(kind, inspect.iscoroutinefunction))
    own = {name: method.__wrapped__ for name, method in methods.items() if method.__qualname__.startswith("Vlm")}
    assert own or issubclass(kind, (BaseRetriever, Embeddings))  # LangChain awaits these itself
    for name, method in own.items():
        assert name.removesuffix("_async").endswith(method.__name__.strip("_"))


def test_an_awaited_method_runs_in_another_thread() -> None:
    async def thread() -> int:
        return await awaited(threading.get_ident)()

    assert asyncio.run(thread()) != threading.get_ident()


def test_vectors_of_a_model_of_langchain_are_read_by_the_others(url: str, opened: Callable[[Any], Any]) -> None:
    model = DeterministicFakeEmbedding(size=6)
    texts = VlmsearchVectorStore.from_texts(["a dog", "a car"], model, [{"tags": [1]}, {}], ids=["a", "b"], store=url)
    opened(texts.pipeline)
    documents = opened(VlmsearchDocumentStore(url, embedding_dim=6))
    vector = model.embed_query("a dog")
    [near] = documents.nearest(vector, top_k=1)
    assert (near.id, near.meta) == ("a", {"tags": [1]})
    assert near.score == pytest.approx(1, abs=1e-5)
    documents.write_documents([haystack.Document(id="c", content="a cat", embedding=model.embed_query("a cat"))])
    assert opened(VlmsearchNodeStore(url)).query(
        VectorStoreQuery(model.embed_query("a cat"), similarity_top_k=1)
    ).ids == ["c"]
    [best] = texts.similarity_search_by_vector(model.embed_query("a cat"), k=1)
    assert best.id == "c"
    with pytest.raises(IndexMismatchError, match="langchain:DeterministicFakeEmbedding"):
        opened(VlmsearchDocumentStore(url, embedding_dim=7)).nearest([1] * 7)


@pytest.mark.parametrize("writer", ["haystack", "llama_index"])
def test_vectors_that_others_were_given_are_read_by_langchain(
    url: str, opened: Callable[[Any], Any], writer: str
) -> None:
    model = DeterministicFakeEmbedding(size=6)
    vector = model.embed_query("a dog")
    if writer == "haystack":
        documents = opened(VlmsearchDocumentStore(url, embedding_dim=6))
        documents.write_documents([haystack.Document(id="a", content="a dog", embedding=vector)])
    else:
        opened(VlmsearchNodeStore(url)).add([TextNode(id_="a", text="a dog", embedding=vector)])
    with Pipeline(EmbeddingsEncoder(model, fingerprint="vectors:6"), open_store(url)) as pipeline:
        store = VlmsearchVectorStore(pipeline)
        store.add_texts(["a car"], ids=["b"])
        assert [each.id for each in store.similarity_search_by_vector(vector, k=1)] == ["a"]
        assert [each.id for each in store.similarity_search("a dog", k=1)] == ["a"]
    with Pipeline(EmbeddingsEncoder(model), open_store(url)) as pipeline, pytest.raises(IndexMismatchError):
        VlmsearchVectorStore(pipeline).similarity_search_by_vector(vector)


def test_iterators_are_as_good_as_lists(frameworks: Frameworks, files: list[str]) -> None:
    store, count = frameworks.langchain, frameworks.pipeline.count
    metadatas = ({"year": year} for year in (2019, 2020))
    assert store.add_texts((text for text in ("one dog", "two cats")), metadatas, ids=iter(("1", "2"))) == ["1", "2"]
    assert [found.metadata for found in store.get_by_ids(iter(["2", "1"]))] == [{"year": 2020}, {"year": 2019}]
    assert asyncio.run(store.aadd_texts("three", ids=iter(("3",)))) == ["3"]  # type: ignore[arg-type]
    assert store.add_documents(LangchainDocument(text, id=text) for text in ("4", "5")) == ["4", "5"]  # type: ignore[arg-type]
    assert len(store.add_images(iter(files), texts=iter(["a"] * len(files)))) == len(files)
    nodes = (TextNode(id_=text, text=text) for text in ("6", "7"))
    assert frameworks.llama_index.add(nodes) == ["6", "7"]  # type: ignore[arg-type]
    assert count() == 7 + len(files)
    store.delete(iter(["1", "2"]))  # type: ignore[arg-type]
    frameworks.haystack.delete_documents(iter(["3"]))  # type: ignore[arg-type]
    frameworks.llama_index.delete_nodes(iter(["6"]))  # type: ignore[arg-type]
    assert count() == 3 + len(files)
    documents = (haystack.Document(content=text) for text in ("one", "two"))
    embedder = of_haystack.VlmsearchDocumentEmbedder("mock:")
    assert len(embedder.run(documents)["documents"]) == 2  # type: ignore[arg-type]
