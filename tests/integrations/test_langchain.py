"""What LangChain's suites do not ask: images, metadata, filters, scores, diversity, errors and its indexing API."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from tests.support.pdf_files import write_pdf
from tests.support.service import RunningService
from vlmsearch import (
    ConfigError,
    IndexMismatchError,
    InvalidBatchError,
    InvalidInputError,
    Paths,
    Pipeline,
    RemoteImage,
    SourceOptions,
    Store,
    connect,
)
from vlmsearch.demo.scenes import make_scene
from vlmsearch.integrations.langchain import (
    EmbeddingsEncoder,
    VlmsearchEmbeddings,
    VlmsearchRetriever,
    VlmsearchVectorStore,
    image_block,
    to_langchain,
)
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.types import Document as DocumentOfIndex

TEXTS = ["a dog in the snow", "a blue car", "a dog of 2021", "two cats on a sofa"]


@pytest.fixture
def pictures(files: list[str]) -> list[Path]:
    return [Path(file) for file in files[:3]]


@pytest.fixture
def pipeline(url: str) -> Iterator[Pipeline]:
    with Pipeline.open(encoder="mock:", store=url) as pipeline:
        yield pipeline


@pytest.fixture
def vectors(pipeline: Pipeline) -> VlmsearchVectorStore:
    return VlmsearchVectorStore(pipeline, space="minilm")


def ids(found: list[Document]) -> list[str | None]:
    return [document.id for document in found]


# ---- images


def test_images_are_added_and_found(store: Store, pictures: list[Path]) -> None:
    vectors = VlmsearchVectorStore(Pipeline(open_encoder("mock:"), store))
    captioned = Document("a drawing", metadata={"image": str(pictures[1]), "year": 2021})
    added = vectors.add_images(pictures[:1], [{"year": 2019}])
    added += vectors.add_documents([captioned, Document("a text", metadata={"year": 2021})], ids=["drawn", "said"])
    assert added == [str(pictures[0]), "drawn", "said"]
    first, second = vectors.get_by_ids(added[:2])
    assert first == Document("", id=str(pictures[0]), metadata={"image": str(pictures[0]), "year": 2019})
    assert second == Document("a drawing", id="drawn", metadata=captioned.metadata)
    for number, id in enumerate(added[:2]):
        assert ids(vectors.similarity_search_by_image(str(pictures[number]), k=1)) == [id]
    picture = PIL.Image.open(pictures[1])
    [(found, score)] = vectors.similarity_search_by_image_with_score(picture, k=1, filter={"year": 2021})
    assert found == second
    assert 0 <= score <= 1
    vectors.delete(["drawn"])
    assert "drawn" not in ids(vectors.similarity_search_by_image(pictures[1].read_bytes(), k=3))


def test_an_image_is_found_by_what_it_shows(tmp_path: Path, pictures: list[Path]) -> None:
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        vectors = VlmsearchVectorStore(pipeline)
        vectors.add_images(pictures)
        for seed, picture in enumerate(pictures):
            assert ids(vectors.similarity_search(make_scene(seed).caption(), k=1)) == [str(picture)]


def test_an_image_that_was_indexed_otherwise_has_the_same_id(
    vectors: VlmsearchVectorStore, pictures: list[Path]
) -> None:
    vectors.pipeline.index(pictures)
    vectors.add_images([pictures[0]])
    assert len(vectors.pipeline.store) == len(pictures)
    assert vectors.get_by_ids([str(pictures[2])])[0].metadata["image"] == str(pictures[2])


def test_an_image_becomes_a_part_of_a_message(vectors: VlmsearchVectorStore, pictures: list[Path]) -> None:
    [added] = vectors.add_images(pictures[:1], texts=["a drawing"])
    [document] = vectors.get_by_ids([added])
    block = image_block(document, edge=48)
    with PIL.Image.open(BytesIO(base64.b64decode(block["base64"]))) as picture:
        assert picture.format == "JPEG"
        assert max(picture.size) == 48
    with pytest.raises(InvalidInputError, match="'1' has no image"):
        image_block(Document("a text", id="1"))


def test_an_image_on_a_server_becomes_a_part_of_a_message(running_service: RunningService) -> None:
    with connect(running_service.url, index="notes") as remote:
        found = VlmsearchRetriever(pipeline=remote, min_score=0).invoke("", image=make_scene(1).draw(64), k=1)[0]
        assert httpx.get(found.metadata["image"]).content == Path(str(found.id)).read_bytes()
        with pytest.raises(InvalidInputError):
            image_block(found)
        block = image_block(found, server=remote, edge=48)
    with PIL.Image.open(BytesIO(base64.b64decode(block["base64"]))) as picture:
        assert max(picture.size) == 48


def test_the_path_of_an_image_does_not_depend_on_the_folder(
    vectors: VlmsearchVectorStore, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pictures[0].parent)
    assert vectors.add_images([pictures[0].name]) == [str(pictures[0])]
    [found] = vectors.get_by_ids([str(pictures[0])])
    assert found.metadata["image"] == str(pictures[0])


def test_the_key_of_the_image_can_be_another(pipeline: Pipeline, pictures: list[Path]) -> None:
    vectors = VlmsearchVectorStore(pipeline, image_key="path")
    drawing = Document("a drawing", id="1", metadata={"path": str(pictures[0]), "image": "not a path"})
    vectors.add_documents([drawing])
    assert vectors.get_by_ids(["1"]) == [drawing]
    assert pipeline.store.get(["1"])[0].image == pictures[0]


# ---- metadata and filters


def test_filters_are_those_of_the_stores(vectors: VlmsearchVectorStore) -> None:
    vectors.add_texts(TEXTS, [{"n": n, "even": n % 2 == 0} for n in range(4)], ids=list("abcd"))
    filters = [
        ({"n": {"$gte": 2}}, ["c", "d"]),
        ({"even": True}, ["a", "c"]),
        ({"$or": [{"n": 0}, {"n": {"$in": [3]}}]}, ["a", "d"]),
        ({"n": {"$ne": 1}, "even": False}, ["d"]),
        ({}, ["a", "b", "c", "d"]),
    ]
    for where, expected in filters:
        assert sorted(map(str, ids(vectors.similarity_search("a dog", k=9, filter=where)))) == expected
        assert sorted(map(str, ids(vectors.max_marginal_relevance_search("a dog", k=9, filter=where)))) == expected
        vector = VlmsearchEmbeddings(vectors.pipeline.encoder, space="minilm").embed_query("a dog")
        assert sorted(map(str, ids(vectors.similarity_search_by_vector(vector, k=9, filter=where)))) == expected
    with pytest.raises(ConfigError, match="no such operator"):
        vectors.similarity_search("a dog", filter={"n": {"$near": 1}})


def test_a_list_that_names_a_string_twice_is_found_by_it_and_comes_back(vectors: VlmsearchVectorStore) -> None:
    vectors.add_texts(["a dog"], [{"tags": ["a", "b", "a"]}], ids=["a"])
    assert vectors.similarity_search("a dog", filter={"tags": {"$ne": "b"}}) == []
    (document,) = vectors.similarity_search("a dog", filter={"tags": "b"})
    assert document.metadata == {"tags": ["a", "b", "a"]}


# ---- scores, diversity, vectors


def test_scores_are_relevances(vectors: VlmsearchVectorStore) -> None:
    vectors.add_texts(TEXTS, ids=list("abcd"))
    found = vectors.similarity_search_with_score("dog snow", k=4)
    assert found[0][0].id == "a"
    assert len(found) == 4
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert vectors.similarity_search_with_relevance_scores("dog snow", k=4) == found
    threshold = (scores[0] + scores[1]) / 2
    best = vectors.similarity_search_with_relevance_scores("dog snow", k=4, score_threshold=threshold)
    assert best == found[:1]
    assert ids(vectors.as_retriever(search_kwargs={"k": 4, "min_score": threshold}).invoke("dog snow")) == ["a"]


def test_options_go_to_the_search(vectors: VlmsearchVectorStore) -> None:
    vectors.add_texts(TEXTS, ids=list("abcd"))
    assert "a" not in ids(vectors.similarity_search("dog", without=["a"]))
    assert ids(vectors.similarity_search("dog 2021", k=1, rerank="mock:")) == ["c"]
    with pytest.raises(TypeError, match="colour"):
        vectors.similarity_search("dog", colour="red")
    left_out: dict[str, Any] = dict.fromkeys(
        ("limit", "without", "where", "rerank", "sort", "group", "offset", "facets")
    )
    assert vectors.similarity_search("dog", **left_out) == vectors.similarity_search("dog", k=10)


def test_diverse_documents_do_not_repeat_each_other(store: Store) -> None:
    vectors = VlmsearchVectorStore(Pipeline(open_encoder("mock:"), store), space="minilm")
    vectors.add_texts(["red dog snow", "red dog snow", "red ship"], ids=["a", "b", "c"])
    assert ids(vectors.max_marginal_relevance_search("red dog", k=2, lambda_mult=1.0)) == ["a", "b"]
    assert ids(vectors.max_marginal_relevance_search("red dog", k=2, lambda_mult=0.2)) == ["a", "c"]
    assert ids(vectors.max_marginal_relevance_search("red dog", k=2, fetch_k=2, lambda_mult=0.2)) == ["a", "b"]
    vector = VlmsearchEmbeddings(vectors.pipeline.encoder, space="minilm").embed_query("red dog")
    assert ids(vectors.similarity_search_by_vector(vector, k=3)) == ["a", "b", "c"]
    for factor in (1, 0.01):
        scaled = (factor * np.array(vector)).tolist()
        assert ids(vectors.max_marginal_relevance_search_by_vector(scaled, k=2, lambda_mult=0.9)) == ["a", "b"]
        assert ids(vectors.max_marginal_relevance_search_by_vector(scaled, k=2, lambda_mult=0.2)) == ["a", "c"]
    assert ids(vectors.as_retriever(search_type="mmr", search_kwargs={"k": 1}).invoke("ship")) == ["c"]


def test_a_vector_finds_texts_and_images(pictures: list[Path]) -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        vectors = VlmsearchVectorStore(pipeline, space="clip")
        embeddings = vectors.embeddings
        assert isinstance(embeddings, VlmsearchEmbeddings)
        vector = embeddings.embed_image(pictures[1:2])[0]
        assert vectors.similarity_search_by_vector(vector) == []
        vectors.add_images(pictures, texts=["a ship", "a dog", "a car"], ids=["0", "1", "2"])
        vectors.add_texts(["two cats"], ids=["cats"])
        assert ids(vectors.similarity_search_by_vector(vector, k=4))[0] == "1"
        assert ids(vectors.similarity_search_by_vector(embeddings.embed_query("a car"), k=1)) == ["2"]
        assert ids(vectors.similarity_search_by_vector(embeddings.embed_query("two cats"), k=1)) == ["cats"]


def test_a_vector_of_a_space_that_is_not_clear_is_refused() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        vectors = VlmsearchVectorStore(pipeline)
        assert vectors.embeddings is None
        vectors.add_texts(["a dog"])
        with pytest.raises(ConfigError, match=r"clip \(image and text, 176\), minilm \(text, 128\): there are several"):
            vectors.similarity_search_by_vector([1.0])


# ---- what goes wrong


def test_an_image_that_is_none_is_refused(vectors: VlmsearchVectorStore) -> None:
    with pytest.raises(InvalidBatchError, match="'image' is the path of an image or bytes, not 7") as caught:
        vectors.add_documents([Document("a dog", id="1"), Document("a car", id="2", metadata={"image": 7})])
    assert list(caught.value.items) == [1]
    assert vectors.get_by_ids(["1"]) == []


def test_numbers_of_ids_and_images_have_to_agree(vectors: VlmsearchVectorStore) -> None:
    given: dict[str, Any]
    for given in ({"metadatas": [{}]}, {"ids": iter(["1"])}, {"ids": []}, {"ids": "12"}):
        with pytest.raises(ValueError, match=r"there are 2 texts and . (metadatas|ids)"):
            vectors.add_texts(["a dog", "a cat"], **given)
    with pytest.raises(ValueError, match="1 images and 2 texts"):
        vectors.add_images(["a.png"], texts=["a", "b"])


# ---- LangChain's ways in


def test_without_ids_everything_is_deleted(vectors: VlmsearchVectorStore) -> None:
    vectors.add_texts(TEXTS)
    assert vectors.delete() is True
    assert vectors.similarity_search("dog") == []


def test_documents_are_deleted_by_a_filter(vectors: VlmsearchVectorStore) -> None:
    vectors.add_texts(TEXTS, [{"n": n} for n in range(4)], ids=list("abcd"))
    assert vectors.delete(filter={"n": {"$gte": 2}}) is True
    assert asyncio.run(vectors.adelete(filter={"n": 0})) is True
    assert set(vectors.pipeline.store.ids()) == {"b"}
    assert vectors.delete(["a"], filter=None) is True


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"where": {"n": 1}}, TypeError, "no option 'where'; did you mean 'filter'"),
        ({"expr": "n == 1"}, TypeError, "no option 'expr'; did you mean 'filter'"),
        ({"id": ["a"]}, TypeError, "no option 'id'; did you mean 'ids'"),
        ({"filter": {}}, ConfigError, "filter"),
        ({"filter": None}, ConfigError, "filter"),
        ({"filter": {"$and": []}}, ConfigError, "and"),
        ({"filter": {"n": {"$near": 1}}}, ConfigError, "near"),
        ({"filter": lambda document: True}, ConfigError, "filter"),
        ({"ids": ["a"], "filter": {"n": 1}}, ConfigError, "ids or a `filter`"),
    ],
)
def test_nothing_is_deleted_where_what_to_delete_is_not_clear(
    vectors: VlmsearchVectorStore, given: dict[str, Any], error: type[Exception], told: str
) -> None:
    vectors.add_texts(TEXTS, [{"n": n} for n in range(4)], ids=list("abcd"))
    with pytest.raises(error, match=told) as refused:
        vectors.delete(**given)
    assert "\n" not in str(refused.value)
    with pytest.raises(error, match=told):
        asyncio.run(vectors.adelete(**given))
    assert len(vectors.pipeline.store) == 4


def test_unknown_options_are_refused_by_name(vectors: VlmsearchVectorStore) -> None:
    with pytest.raises(TypeError, match="no option 'metadata'; did you mean 'metadatas'"):
        vectors.add_texts(["x"], metadata=[{"n": 1}])
    with pytest.raises(TypeError, match="no option 'id'; did you mean 'ids'"):
        vectors.add_documents([Document("x")], id=["a"])
    assert vectors.add_texts(["x"], ids=["a"], batch_size=1) == ["a"]
    with pytest.raises(TypeError, match=r"no option 'filter'; it has .*search_kwargs"):
        vectors.as_retriever(filter={"n": 1})
    assert ids(vectors.as_retriever(search_kwargs={"k": 1}, tags=["t"]).invoke("x")) == ["a"]


def test_its_indexing_api_keeps_an_index_in_step(store: Store) -> None:
    vectors = VlmsearchVectorStore(Pipeline(open_encoder("mock:"), store))
    records = InMemoryRecordManager("test")
    records.create_schema()
    first = [Document(text, metadata={"source": text[:5]}) for text in TEXTS]
    told = index(first, records, vectors, cleanup="full", source_id_key="source", key_encoder="sha256")
    assert told == {"num_added": 4, "num_updated": 0, "num_skipped": 0, "num_deleted": 0}
    told = index(first[1:], records, vectors, cleanup="full", source_id_key="source", key_encoder="sha256")
    assert told == {"num_added": 0, "num_updated": 0, "num_skipped": 3, "num_deleted": 1}
    found = vectors.similarity_search("dog", k=9)
    assert sorted(document.page_content for document in found) == sorted(TEXTS[1:])


def test_an_index_is_opened_from_texts(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'index'}"
    fake = DeterministicFakeEmbedding(size=6)
    vectors = VlmsearchVectorStore.from_texts(TEXTS, fake, [{"n": n} for n in range(4)], ids=list("abcd"), store=url)
    assert vectors.embeddings is fake
    assert ids(vectors.similarity_search(TEXTS[1], k=1)) == ["b"]
    assert ids(vectors.similarity_search_by_vector(fake.embed_query(TEXTS[2]), k=1)) == ["c"]
    vectors.pipeline.close()
    again = VlmsearchVectorStore.from_documents([Document("a dog", id="e")], fake, store=open_store(url))
    assert len(again.pipeline.store) == 5
    again.pipeline.close()
    with pytest.raises(IndexMismatchError):
        VlmsearchVectorStore.from_texts(["a"], DeterministicFakeEmbedding(size=7), store=url)


def test_its_own_embeddings_bring_the_whole_encoder(pictures: list[Path]) -> None:
    with open_encoder("mock:") as encoder:
        embeddings = VlmsearchEmbeddings(encoder, space="minilm")
        vectors = VlmsearchVectorStore.from_texts(["a dog"], embeddings, ids=["dog"], store="mock:", image_key="path")
        assert vectors.pipeline.encoder is encoder
        vectors.add_images(pictures)
        assert vectors.similarity_search_by_image(pictures[0], k=1)[0].metadata["path"] == str(pictures[0])
        vectors.pipeline.close()


# ---- the retriever


def test_it_retrieves_what_is_relevant_alone(vectors: VlmsearchVectorStore, pictures: list[Path]) -> None:
    vectors.add_texts(TEXTS, ids=list("abcd"))
    vectors.add_images(pictures[:1])
    retriever = VlmsearchRetriever(pipeline=vectors.pipeline, score_key="relevance")
    [found] = retriever.invoke("snow")
    assert found.id == "a"
    assert 0.3 <= found.metadata["relevance"] <= 1
    assert retriever.invoke("zebras") == []
    assert len(retriever.invoke("zebras", min_score=0)) == 4
    assert ids(retriever.invoke("", image=pictures[0], k=1)) == [str(pictures[0])]
    assert retriever.invoke("dog", filter={"n": 1}) == []
    assert retriever.invoke("snow", filter={}) == [found]


def test_a_retriever_refuses_unknown_options_by_name(pipeline: Pipeline) -> None:
    for name, near in {"where": "filter", "limit": "k", "minscore": "min_score"}.items():
        options: dict[str, Any] = {"pipeline": pipeline, name: None}
        with pytest.raises(
            TypeError, match=f"VlmsearchRetriever has no option '{name}'; did you mean '{near}'"
        ) as told:
            VlmsearchRetriever(**options)
        assert "\n" not in str(told.value)
    retriever = VlmsearchRetriever(pipeline=pipeline, tags=["t"], name="mine")
    assert VlmsearchRetriever.model_validate(retriever) is retriever
    with pytest.raises(TypeError, match="no option 'wher'"):
        retriever.invoke("a", wher={})


def test_a_retriever_takes_the_names_of_a_search(vectors: VlmsearchVectorStore) -> None:
    vectors.add_texts(["a dog", "a dog too", "a dog three"], [{"n": n, "m": n} for n in range(3)], ids=list("abc"))
    made = VlmsearchRetriever(pipeline=vectors.pipeline, min_score=0, search_kwargs={"where": {"n": {"$gte": 1}}})
    assert sorted(map(str, ids(made.invoke("dog")))) == ["b", "c"]
    assert ids(made.invoke("dog", filter={"m": 1})) == ["b"]
    assert ids(made.invoke("dog", where={"n": 0})) == ["a"]
    assert len(made.invoke("dog", where={"n": {"$lt": 2}}, limit=1)) == 1
    assert len(made.invoke("dog", where=None)) == 3
    few = VlmsearchRetriever(pipeline=vectors.pipeline, min_score=0, search_kwargs={"limit": 1})
    assert [len(few.invoke("dog")), len(few.invoke("dog", k=2)), len(few.invoke("dog", limit=3))] == [1, 2, 3]


def test_it_retrieves_each_relevant_page_of_a_file(tmp_path: Path) -> None:
    report = write_pdf(tmp_path / "report.pdf", ["a red dog", "rain in spring", "a red dog and a cat"], title="Animals")
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        pipeline.index(Paths([report], options=SourceOptions(pdf=True)))
        retriever = VlmsearchRetriever(pipeline=pipeline)
        found = retriever.invoke("red dog")
        assert sorted(map(str, ids(found))) == [f"{report}#page=1", f"{report}#page=3"]
        assert [document.metadata["page"] for document in found] == [1, 3]
        block = image_block(found[0], edge=64)
        with PIL.Image.open(BytesIO(base64.b64decode(block["base64"]))) as picture:
            assert max(picture.size) == 64
        assert ids(retriever.invoke("red dog", group=True)) == ids(found[:1])
        vectors = VlmsearchVectorStore(pipeline)
        assert ids(vectors.similarity_search("red dog", k=2)) == ids(found)
        assert ids(vectors.similarity_search("red dog", k=9, group=True)) == ids(found[:1])


def test_it_retrieves_from_a_server(running_service: RunningService) -> None:
    with connect(running_service.url, index="notes") as remote:
        retriever = VlmsearchRetriever(pipeline=remote, k=2, filter={"n": {"$lt": 2}})
        assert ids(retriever.invoke("dog snow")) == ["a"]
        assert ids(asyncio.run(retriever.ainvoke("blue car"))) == ["b"]


def test_it_is_a_part_of_a_chain(vectors: VlmsearchVectorStore) -> None:
    vectors.add_texts(TEXTS, ids=list("abcd"))
    prompt = ChatPromptTemplate.from_template("{question} {sources}")
    retriever = VlmsearchRetriever(pipeline=vectors.pipeline)
    chain = {"sources": retriever | (lambda found: found[0].page_content), "question": RunnablePassthrough()} | prompt
    assert chain.invoke("snow").to_string() == "Human: snow a dog in the snow"
    batch = chain.batch(["snow", "sofa", "car"])
    assert [value.to_string().split(" ", 2)[2] for value in batch] == [TEXTS[0], TEXTS[3], TEXTS[1]]


# ---- encoders


class Zeros(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [float("nan") if text == "nan" else 0.0 if text == "zero" else 3.0, 0.0]


def test_embeddings_without_a_direction_are_named() -> None:
    encoder = EmbeddingsEncoder(Zeros())
    assert encoder.encode_texts(["a"])["embedding"].tolist() == [[1.0, 0.0]]
    with pytest.raises(InvalidBatchError, match="has no direction") as caught:
        encoder.encode_texts(["a", "zero", "b", "nan"])
    assert list(caught.value.items) == [1, 3]


def test_a_fingerprint_tells_models_apart() -> None:
    class Named(Zeros):
        def __init__(self, model: str) -> None:
            self.model = model

    assert EmbeddingsEncoder(Zeros()).fingerprint == "langchain:Zeros"
    assert EmbeddingsEncoder(Named("small")).fingerprint == "langchain:Named:small"
    assert EmbeddingsEncoder(Named("small"), fingerprint="large").fingerprint == "large"


def test_nothing_else_imports_langchain() -> None:
    import subprocess

    code = "import sys, vlmsearch.cli, vlmsearch.pipeline, vlmsearch.integrations; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"langchain_core", "pydantic"} & set(loaded)


def test_the_metadata_of_an_index_name_no_image() -> None:
    named = DocumentOfIndex("a", text="a dog", metadata={"image": "/home/me/private.png", "year": 2024})
    assert to_langchain(named).metadata == {"year": 2024}
    there = replace(named, image=RemoteImage("http://127.0.0.1:1", "photos", "a", "/home/me/private.png"))
    assert to_langchain(there).metadata == {
        "year": 2024,
        "image": "http://127.0.0.1:1/api/v1/indexes/photos/image?id=a",
    }
