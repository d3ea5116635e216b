"""Haystack over an index: images, filters, retrievers, embedders and files of pipelines."""

from __future__ import annotations

import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from haystack import Document, Pipeline
from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ByteStream, ImageContent, SparseEmbedding
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter
from hypothesis import given, settings, strategies as st

from tests.support.cli import ok
from tests.support.shards import png
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import ConfigError, IndexMismatchError, InvalidInputError
from vlmsearch.integrations.framework_index import FrameworkIndex, _split
from vlmsearch.integrations.haystack import (
    VlmsearchDocumentEmbedder,
    VlmsearchDocumentStore,
    VlmsearchEmbeddingRetriever,
    VlmsearchImageEmbedder,
    VlmsearchImageRetriever,
    VlmsearchTextEmbedder,
    VlmsearchTextRetriever,
    _to_where,
)
from vlmsearch.stores.filters import parse_filter

Opened = Callable[[VlmsearchDocumentStore], VlmsearchDocumentStore]


@pytest.fixture
def gallery(url: str, files: list[str], opened: Opened) -> VlmsearchDocumentStore:
    """Six images, each a document, and a text, encoded by a real model."""
    store = opened(VlmsearchDocumentStore(url, encoder="onnx:demo"))
    images = [Document(id=str(i), meta={"file_path": path, "number": i}) for i, path in enumerate(files[:6])]
    store.write_documents([*images, Document(id="text", content="a note on squares", meta={"number": 10})])
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder for bytes of documents."""
    return tmp_path / "images"


def test_images_come_back_and_are_found_by_an_image(url: str, folder: Path, files: list[str], opened: Opened) -> None:
    empty = opened(VlmsearchDocumentStore(url, encoder="onnx:demo", image_folder=str(folder)))
    blob = ByteStream(png(1), meta={"camera": "X100"}, mime_type="image/png")
    written = [
        Document(id="bytes", blob=blob, meta={"tags": ["red", None], "year": 2024}),
        Document(id="file", meta={"file_path": files[2]}),
        Document(id="both", content="a car park", blob=ByteStream(png(3))),
        Document(id="sound", content="a song", blob=ByteStream(b"RIFF....", mime_type="audio/wav")),
        Document(
            id="sparse",
            content="a note",
            meta={"infinite": float("inf")},
            sparse_embedding=SparseEmbedding([1, 5], [0.5, 0.25]),
        ),
    ]
    assert empty.write_documents(written) == 5
    found = {each.id: each for each in empty.filter_documents()}
    assert {id: (each.content, each.blob, each.meta, each.sparse_embedding) for id, each in found.items()} == {
        each.id: (each.content, each.blob, each.meta, each.sparse_embedding) for each in written
    }
    retriever = VlmsearchImageRetriever(empty, top_k=1, min_score=0.0)
    for image, id in ((ByteStream(png(1)), "bytes"), (Path(files[2]), "file"), (files[3], "both")):
        [best] = retriever.run(image)["documents"]
        assert best.id == id
        assert best.score is not None
        assert best.score > 0.5
        assert best.blob == found[id].blob


def test_the_bytes_of_replaced_and_deleted_documents_are_removed(url: str, folder: Path, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, encoder="mock:", image_folder=str(folder)))
    for number in (1, 2):
        one = Document(id="a", blob=ByteStream(png(number)))
        store.write_documents([one], policy=DuplicatePolicy.OVERWRITE)
        assert [path.read_bytes() for path in folder.iterdir()] == [png(number)]
    store.update_by_filter({"field": "id", "operator": "==", "value": "a"}, {"seen": True})
    [changed] = store.filter_documents()
    assert (changed.blob, changed.meta) == (ByteStream(png(2)), {"seen": True})
    store.delete_documents(["a"])
    assert list(folder.iterdir()) == []


def test_no_file_is_left_of_a_document_that_cannot_be_written(url: str, folder: Path, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, encoder="mock:", image_folder=str(folder)))
    good = Document(id="a", blob=ByteStream(png(1)))
    store.write_documents([good])
    broken = [Document(id="b", blob=ByteStream(b"no image", mime_type="image/png"))]
    with pytest.raises(InvalidInputError):
        store.write_documents(broken, policy=DuplicatePolicy.OVERWRITE)
    assert [path.read_bytes() for path in folder.iterdir()] == [png(1)]
    assert [each.blob for each in store.filter_documents()] == [good.blob]


def test_bytes_without_a_folder_are_refused_and_nothing_is_written(url: str, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, encoder="mock:"))
    with pytest.raises(ConfigError, match="image_folder"):
        store.write_documents([Document(id="text", content="a dog"), Document(id="a", blob=ByteStream(png(1)))])
    assert store.count_documents() == 0


def test_a_document_whose_image_file_has_gone_comes_without_it(url: str, folder: Path, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, embedding_dim=2, image_folder=str(folder)))
    store.write_documents([Document(id="a", content="a dog", blob=ByteStream(b"\x00\x01"), embedding=[3, 4])])
    for path in folder.iterdir():
        path.unlink()
    [found] = store.filter_documents()
    assert (found.content, found.blob) == ("a dog", None)
    assert found.embedding == pytest.approx([3, 4])


def test_a_broken_image_is_named(url: str, tmp_path: Path, opened: Opened) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    store = opened(VlmsearchDocumentStore(url, encoder="mock:"))
    with pytest.raises(InvalidInputError, match=r"a\.png"):
        store.write_documents([Document(meta={"file_path": str(tmp_path / "a.png")})])
    with pytest.raises(InvalidInputError, match=r"no text|neither|empty"):
        store.write_documents([Document(meta={"year": 2024})])


# ---- filters

VALUES = st.one_of(
    st.sampled_from([0, 1, 2, 2.0, -3.5, True, False, "a", "b", "1", "2024-01-31", "2024-01-31T00:00:00", None]),
    st.integers(2**53 - 1, 2**53 + 2),
)
KEYS = st.sampled_from(["a", "b", "deep"])
METADATA = st.dictionaries(KEYS, st.one_of(VALUES, st.lists(VALUES, max_size=2), st.just({"x": 1})), max_size=3)
NAMES = st.sampled_from(["meta.a", "b", "meta.deep.x", "content", "id", "meta.none"])
NUMBERS = st.one_of(st.none(), st.integers(-3, 3), st.floats(-3, 3))
COMPARISONS = st.one_of(
    st.fixed_dictionaries({"field": NAMES, "operator": st.sampled_from(["==", "!="]), "value": VALUES}),
    st.fixed_dictionaries(
        {"field": NAMES, "operator": st.sampled_from(["in", "not in"]), "value": st.lists(VALUES, max_size=3)}
    ),
    st.fixed_dictionaries({"field": NAMES, "operator": st.sampled_from([">", ">=", "<", "<="]), "value": NUMBERS}),
)
FILTERS = st.recursive(
    COMPARISONS,
    lambda inner: st.fixed_dictionaries(
        {"operator": st.sampled_from(["AND", "OR", "NOT"]), "conditions": st.lists(inner, max_size=3)}
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(filters=FILTERS, meta=METADATA)
@settings(max_examples=200)
def test_the_store_leaves_out_nothing_that_passes(filters: dict[str, Any], meta: dict[str, Any]) -> None:
    where = _to_where(filters)
    if where is None:
        return
    try:
        passes = document_matches_filter(filters, Document(id="x", content="a", meta=meta))
    except (FilterError, TypeError):  # values that cannot be compared
        return
    is_bool_in_order = any(isinstance(value, bool) for value in meta.values()) and any(
        sign in str(filters) for sign in ("'>", "'<")
    )
    if passes and not is_bool_in_order:
        flat, _ = _split(meta)
        assert parse_filter(where).matches(flat)


def test_most_filters_reach_the_store() -> None:
    year = {"field": "meta.year", "operator": ">=", "value": 2020}
    city = {"field": "city", "operator": "in", "value": ["Oslo", "Rome"]}
    deep = {"field": "meta.person.name", "operator": "==", "value": "Ada"}
    assert _to_where(year) == {"year": {"$gte": 2020}}
    both = {"operator": "AND", "conditions": [year, city, deep]}
    assert _to_where(both) == {"$and": [{"year": {"$gte": 2020}}, {"city": {"$in": ["Oslo", "Rome"]}}]}
    assert _to_where({"operator": "OR", "conditions": [city, deep]}) is None
    assert _to_where({"operator": "NOT", "conditions": [city]}) == {"$or": [{"city": {"$nin": ["Oslo", "Rome"]}}]}
    assert _to_where({"operator": "NOT", "conditions": [year]}) is None


@pytest.mark.parametrize(
    "filters",
    [
        {"field": "meta.a", "operator": "like", "value": 1},
        {"operator": "XOR", "conditions": []},
        {"field": "meta.a", "operator": ">", "value": [1]},
        {"field": "meta.a", "operator": "in", "value": "Oslo"},
        {"operator": "AND", "conditions": ["year"]},
    ],
)
def test_wrong_filters_are_refused_by_an_empty_store_too(filters: dict[str, Any]) -> None:
    with pytest.raises(FilterError):
        VlmsearchDocumentStore("mock:", embedding_dim=2).filter_documents(filters)


def test_a_filter_that_the_store_cannot_apply_still_fills_the_page(url: str, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, embedding_dim=2))
    angles = np.linspace(0, 1, 3000)
    store.write_documents(
        [
            Document(id=str(i), embedding=[float(np.cos(a)), float(np.sin(a))], meta={"at": {"place": i % 1000}})
            for i, a in enumerate(angles)
        ]
    )
    last = {"field": "meta.at.place", "operator": "==", "value": 999}
    found = store.nearest([1, 0], filters=last, top_k=3)
    assert [each.id for each in found] == ["999", "1999", "2999"]
    assert found[0].score == pytest.approx(float(np.cos(angles[999])), abs=1e-5)


# ---- retrievers and embedders


def test_retrievers_find_images_by_text_and_the_nearest_by_vector(gallery: VlmsearchDocumentStore) -> None:
    found = VlmsearchTextRetriever(gallery, top_k=3, min_score=0.0).run(make_scene(4).caption())["documents"]
    assert "4" in [each.id for each in found]
    assert [each.score for each in found] == sorted((each.score or 0 for each in found), reverse=True)
    embedder = VlmsearchTextEmbedder("onnx:demo")
    vector = embedder.run(make_scene(4).caption())["embedding"]
    near = VlmsearchEmbeddingRetriever(gallery, top_k=2).run(vector)["documents"]
    assert near[0].id == "4"
    few = {"field": "meta.number", "operator": "<", "value": 2}
    assert {each.id for each in VlmsearchEmbeddingRetriever(gallery, filters=few).run(vector)["documents"]} == {
        "0",
        "1",
    }
    with pytest.raises(ConfigError, match="no field"):
        VlmsearchEmbeddingRetriever(gallery, field="other/text").run(vector)
    with pytest.raises(InvalidInputError, match="numbers"):
        gallery.nearest([1.0, 2.0])


def test_a_retriever_merges_filters_where_it_is_told_to(gallery: VlmsearchDocumentStore) -> None:
    least = {"field": "meta.number", "operator": ">=", "value": 2}
    most = {"field": "meta.name", "operator": "==", "value": None}
    merged = VlmsearchTextRetriever(gallery, filters=least, filter_policy=FilterPolicy.MERGE, min_score=0.0)
    assert {each.id for each in merged.run("a square", filters=most)["documents"]} == {"2", "3", "4", "5", "text"}


def test_embedders_serve_another_document_store(files: list[str]) -> None:
    other = InMemoryDocumentStore(embedding_similarity_function="cosine", shared=False)
    images = [Document(id=str(i), meta={"file_path": path}) for i, path in enumerate(files)]
    images.append(Document(id="bytes", blob=ByteStream(png(7))))
    embedded = VlmsearchImageEmbedder("onnx:demo").run(images)["documents"]
    assert all(each.embedding is None for each in images)
    other.write_documents(embedded)
    text = VlmsearchTextEmbedder("onnx:demo").run(make_scene(7).caption())["embedding"]
    assert other.embedding_retrieval(text, top_k=1)[0].id == "bytes"
    [one] = VlmsearchDocumentEmbedder("onnx:demo", space="minilm").run([Document(content="a dog")])["documents"]
    assert np.linalg.norm(one.embedding or []) == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match="no text"):
        VlmsearchDocumentEmbedder("mock:").run([Document(meta={"a": 1})])
    with pytest.raises(ValueError, match="no image"):
        VlmsearchImageEmbedder("mock:").run([Document(content="a dog")])
    with pytest.raises(ConfigError, match=r"clip \(image and text, 176\), minilm \(text, 128\): not 'other'"):
        VlmsearchTextEmbedder("mock:", space="other").run("a dog")
    with pytest.raises(TypeError):
        VlmsearchTextEmbedder("mock:").run(["a dog"])  # type: ignore[arg-type]
    assert VlmsearchDocumentEmbedder("mock:").run([])["documents"] == []


def test_given_vectors_have_words_as_well(url: str, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, embedding_dim=2))
    assert store.nearest([1, 0]) == []
    store.write_documents([Document(id="a", content="a dog in the snow"), Document(id="b", content="a blue car")])
    [found] = VlmsearchTextRetriever(store).run("snow")["documents"]
    assert found.id == "a"
    assert 0 < (found.score or 0) <= 1
    assert VlmsearchTextRetriever(store, where={"n": 1}).run("snow")["documents"] == []
    assert VlmsearchTextRetriever(store, cursor=None, min_score=0.0).run("snow")["documents"] == [found]
    with pytest.raises(TypeError, match="words alone has no option 'rerank'"):
        VlmsearchTextRetriever(store, rerank="mock:").run("snow")
    with pytest.raises(TypeError, match="no option 'minscore'; did you mean 'min_score'"):
        VlmsearchTextRetriever(store, minscore=1).run("snow")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="encoder"):
        store.search(None, image=ByteStream(png(1)))
    with pytest.raises(InvalidInputError, match="2 numbers"):
        store.write_documents([Document(embedding=[1, 2, 3])])
    with pytest.raises(InvalidInputError, match="zero"):
        store.write_documents([Document(embedding=[0, 0])])


def test_an_index_of_given_vectors_is_copied_and_gets_an_encoder(url: str, tmp_path: Path, opened: Opened) -> None:
    copied = f"sqlite:{tmp_path / 'copied'}"
    first = opened(VlmsearchDocumentStore(url, embedding_dim=3))
    first.write_documents(
        [Document(id="a", content="a dog", embedding=[1, 2, 3], meta={"x": [1]}), Document(id="b", content="a car")]
    )
    ok("copy", "--from", url, "--to", copied)
    other = opened(VlmsearchDocumentStore(copied, embedding_dim=3))
    assert other.nearest([1, 2, 3], return_embedding=True)[0].embedding == pytest.approx([1, 2, 3])
    assert other.filter_documents() == first.filter_documents()
    first.close()
    other.close()
    ok("reindex", "--store", url, "--encoder", "mock:")
    encoded = opened(VlmsearchDocumentStore(url, encoder="mock:"))
    [found] = encoded.search("dog")
    assert (found.id, found.meta) == ("a", {"x": [1]})
    encoded.close()


def test_an_index_of_another_encoder_is_refused(url: str, opened: Opened) -> None:
    first = opened(VlmsearchDocumentStore(url, embedding_dim=2))
    first.write_documents([Document(content="a dog", embedding=[1, 0])])
    first.close()
    for other in (VlmsearchDocumentStore(url, encoder="mock:"), VlmsearchDocumentStore(url, embedding_dim=3)):
        with pytest.raises(IndexMismatchError, match="vectors:2"):
            other.write_documents([Document(content="a cat")])
        other.close()
    with pytest.raises(ConfigError, match="name one of the two"):
        VlmsearchDocumentStore(url, encoder="mock:", embedding_dim=2)


def test_a_pipeline_is_written_to_a_file_and_read_again(url: str, files: list[str], opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, encoder="onnx:demo", image_folder="images"))
    filling = Pipeline()
    filling.add_component("writer", DocumentWriter(store))
    assert filling.run({"writer": {"documents": [Document(meta={"file_path": files[0]})]}})["writer"] == {
        "documents_written": 1
    }
    asking = Pipeline()
    asking.add_component("embedder", VlmsearchTextEmbedder("onnx:demo"))
    asking.add_component("nearest", VlmsearchEmbeddingRetriever(store, top_k=1, filter_policy=FilterPolicy.MERGE))
    asking.add_component("words", VlmsearchTextRetriever(store, min_score=0.0))
    asking.add_component("image", VlmsearchImageRetriever(store, min_score=0.0))
    asking.connect("embedder.embedding", "nearest.query_embedding")
    content = ImageContent(base64.b64encode(png(0)).decode(), mime_type="image/png")
    data = {"embedder": {"text": "a square"}, "words": {"query": "a square"}, "image": {"image": content}}
    again = Pipeline.loads(asking.dumps(), allowed_modules=["vlmsearch.integrations.haystack"])
    assert again.to_dict() == asking.to_dict()
    for each in (asking, again):
        found = each.run(data)
        assert [len(found[name]["documents"]) for name in ("nearest", "words", "image")] == [1, 1, 1]
        assert found["image"]["documents"][0].meta == {"file_path": files[0]}
    filled = Pipeline.loads(filling.dumps(), allowed_modules=["vlmsearch.integrations.haystack"])
    assert filled.to_dict() == filling.to_dict()


def test_components_that_take_any_store_take_this_one(url: str, opened: Opened) -> None:
    from haystack.components.preprocessors import DocumentSplitter
    from haystack.components.retrievers import FilterRetriever, SentenceWindowRetriever, TextEmbeddingRetriever

    store = opened(VlmsearchDocumentStore(url, embedding_dim=8))
    text = Document(
        content=". ".join(f"Sentence {i} is about {topic}" for i, topic in enumerate(["dogs", "cats", "cars"]))
    )
    chunks = DocumentSplitter(split_by="period", split_length=1).run([text])["documents"]
    written = MockDocumentEmbedder(dimension=8).run(chunks)["documents"]
    assert DocumentWriter(store).run(written)["documents_written"] == 3
    assert len(FilterRetriever(store).run({"field": "meta.split_id", "operator": ">=", "value": 1})["documents"]) == 2
    around = SentenceWindowRetriever(store, window_size=1)
    [cats] = VlmsearchTextRetriever(store, top_k=1).run("cats")["documents"]
    assert [each.content for each in around.run([cats])["context_documents"]] == [each.content for each in chunks]
    both = TextEmbeddingRetriever(
        retriever=VlmsearchEmbeddingRetriever(store, top_k=1), text_embedder=MockTextEmbedder(dimension=8)
    )
    assert [each.content for each in both.run(chunks[2].content or "")["documents"]] == [chunks[2].content]


def test_all_documents_are_not_deleted_by_a_filter(url: str, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, embedding_dim=2))
    store.write_documents([Document(id="a", content="a dog", meta={"n": 1}), Document(id="b", content="a car")])
    for filters in ({}, None, {"operator": "AND", "conditions": []}):
        with pytest.raises(FilterError, match="delete_all_documents"):
            store.delete_by_filter(filters)  # type: ignore[arg-type]
    with pytest.raises(FilterError):
        store.delete_by_filter({"operator": "AND", "conditions": ["n"]})
    assert store.count_documents() == 2
    assert store.delete_by_filter({"field": "meta.n", "operator": "==", "value": 1}) == 1


def test_duplicates_in_one_list_follow_the_policy(url: str, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, embedding_dim=2))
    twice = [Document(id="a", content="one"), Document(id="a", content="two")]
    assert store.write_documents(twice, policy=DuplicatePolicy.OVERWRITE) == 2
    assert [each.content for each in store.filter_documents()] == ["two"]
    store.delete_all_documents()
    assert store.write_documents(twice, policy=DuplicatePolicy.SKIP) == 1
    assert [each.content for each in store.filter_documents()] == ["one"]


def test_an_update_is_undone_by_indexing_the_source_again(url: str, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, encoder="mock:"))
    first = Document(id="a", content="a dog", meta={"year": 2024, "deep": [1]})
    store.write_documents([first])
    assert (
        store.update_by_filter({"field": "meta.year", "operator": "==", "value": 2024}, {"year": [1], "deep": 2}) == 1
    )
    assert store.filter_documents()[0].meta == {"year": [1], "deep": 2}
    store.write_documents([first], policy=DuplicatePolicy.OVERWRITE)
    assert store.filter_documents()[0].meta == first.meta


def test_values_are_in_order_a_page_at_a_time(url: str, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, embedding_dim=2))
    values = [10, -2.5, 9, "b", True, ["x"], {"y": 1}, -30, None]
    store.write_documents([Document(id=str(i), meta={"v": value}) for i, value in enumerate(values)])
    assert store.get_metadata_field_unique_values("meta.v", size=5) == ([-30, -2.5, True, 9, 10], 8)
    assert store.get_metadata_field_unique_values("v", from_=5) == ([{"y": 1}, ["x"], "b"], 8)
    assert store.get_metadata_field_min_max("v") == {"min": None, "max": None}
    assert store.count_unique_metadata_by_filter({}, ["meta.v", "none"]) == {"v": 8, "none": 0}


def test_threads_share_a_store(url: str, opened: Opened) -> None:
    store = opened(VlmsearchDocumentStore(url, encoder="mock:"))

    def work(number: int) -> list[str]:
        store.write_documents([Document(id=str(number), content=f"word{number} and more")])
        return [each.id for each in store.search(f"word{number}", limit=1, min_score=0)]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(16))) == [[str(number)] for number in range(16)]
    assert store.count_documents() == 16


def test_the_index_is_opened_late_and_again_after_it_was_closed(url: str, tmp_path: Path) -> None:
    index = FrameworkIndex(url, dim=2)
    assert not (tmp_path / "index").exists()
    assert (len(index), index.get(["a"]), list(index.find()), index.delete(["a"])) == (0, [], [], 0)
    index.close()
    index.close()
    assert len(index) == 0
    index.close()


def test_a_retriever_takes_the_options_of_a_search_and_keeps_them_in_its_file() -> None:
    store = VlmsearchDocumentStore("mock:", encoder="mock:")
    texts = ["a dog in the snow", "a blue car", "a dog of 2021"]
    store.write_documents([Document(id=str(i), content=text) for i, text in enumerate(texts)])
    retriever = VlmsearchTextRetriever(store, rerank="mock:", min_score=0.0, top_k=1)
    [found] = retriever.run("dog 2021")["documents"]
    assert found.id == "2"
    again = VlmsearchTextRetriever.from_dict(retriever.to_dict())
    assert again.to_dict() == retriever.to_dict()
    assert retriever.to_dict()["init_parameters"]["rerank"] == "mock:"
    with pytest.raises(TypeError, match="colour"):
        VlmsearchTextRetriever(store, colour="red").run("dog")  # type: ignore[call-arg]
