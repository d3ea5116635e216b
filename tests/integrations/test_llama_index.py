"""LlamaIndex over an index: its vector store's behaviour, images, filters and retrievers."""

from __future__ import annotations

import asyncio
import base64
import copy
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.indices import MultiModalVectorStoreIndex
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from tests.support.shards import png
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.integrations.framework_index import _split
from vlmsearch.integrations.llama_index import (
    VlmsearchEmbedding,
    VlmsearchMultiModalRetriever,
    VlmsearchNodeStore,
    _matches,
    _to_where,
)
from vlmsearch.stores.filters import parse_filter

RAIN, SNOW, SUN = "2024-rain", "2024-snow", "2025-sun"


def nodes() -> list[TextNode]:
    """Three chunks of two documents, with all kinds of metadata."""

    def chunk(id: str, text: str, of: str, vector: list[float], **metadata: Any) -> TextNode:
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=of)}
        return TextNode(id_=id, text=text, embedding=vector, metadata=metadata, relationships=source)

    return [
        chunk(RAIN, "a dog in the rain", "doc-0", [1.0, 0.0], weight=1.0, rank="a", tags=["wet", "dog"], quality="low"),
        chunk(SNOW, "a dog in the snow", "doc-0", [0.0, 1.0], weight=2.0, rank="c", tags=["cold", "dog"]),
        chunk(SUN, "a cat in the sun", "doc-1", [1.0, 1.0], weight=3.0, rank="c", tags=[], quality="high"),
    ]


Opened = Callable[[VlmsearchNodeStore], VlmsearchNodeStore]


def only(key: str, operator: FilterOperator, value: Any) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, operator=operator, value=value)])


@pytest.fixture
def empty(url: str, tmp_path: Path, opened: Opened) -> VlmsearchNodeStore:
    return opened(VlmsearchNodeStore(url, image_folder=str(tmp_path / "images")))


@pytest.fixture
def store(empty: VlmsearchNodeStore) -> VlmsearchNodeStore:
    empty.add(nodes())
    return empty


def ids(store: VlmsearchNodeStore, **query: Any) -> list[str]:
    found = store.query(VectorStoreQuery(**{"query_embedding": [1.0, 1.0], "similarity_top_k": 3, **query}))
    assert found.ids is not None
    assert found.nodes is not None
    assert [each.node_id for each in found.nodes] == found.ids
    assert found.similarities == sorted(found.similarities or [], reverse=True)
    return found.ids


def test_an_empty_store_has_nothing(empty: VlmsearchNodeStore) -> None:
    assert ids(empty) == []
    assert empty.get_nodes() == []
    empty.delete("doc-0")
    empty.delete_nodes([RAIN])
    empty.clear()
    with pytest.raises(ConfigError, match="how long"):
        empty.add([TextNode(text="no vector yet")])


def test_nodes_come_back_as_they_were(store: VlmsearchNodeStore) -> None:
    found = store.query(VectorStoreQuery(query_embedding=[2.0, 0.0], similarity_top_k=1))
    assert found.ids == [RAIN]
    assert (found.similarities or [0])[0] == pytest.approx(1.0, abs=1e-5)
    wanted = {each.node_id: each for each in nodes()}
    got = store.get_nodes()
    assert {each.node_id for each in got} == set(wanted)
    for each in got:
        vector, each.embedding = each.embedding, None
        one = wanted[each.node_id]
        assert vector == pytest.approx(one.embedding, abs=1e-6)
        one.embedding = None
        assert each == one
        assert each.ref_doc_id == one.ref_doc_id


def test_the_nearest_are_first_and_as_many_as_asked(store: VlmsearchNodeStore) -> None:
    assert ids(store, query_embedding=[0.9, 1.0]) == [SUN, SNOW, RAIN]
    assert ids(store, query_embedding=[0.9, 1.0], similarity_top_k=1) == [SUN]


CASES: list[tuple[str, FilterOperator, Any, set[str]]] = [
    ("rank", FilterOperator.EQ, "c", {SNOW, SUN}),
    ("weight", FilterOperator.EQ, 1, {RAIN}),
    ("weight", FilterOperator.EQ, "1", set()),
    ("rank", FilterOperator.NE, "c", {RAIN}),
    ("quality", FilterOperator.NE, "high", {RAIN, SNOW}),
    ("weight", FilterOperator.GT, 1.0, {SNOW, SUN}),
    ("weight", FilterOperator.GTE, 2, {SNOW, SUN}),
    ("weight", FilterOperator.LT, 2.0, {RAIN}),
    ("weight", FilterOperator.LTE, 2.0, {RAIN, SNOW}),
    ("rank", FilterOperator.GT, "b", {SNOW, SUN}),
    ("weight", FilterOperator.GT, "b", set()),
    ("rank", FilterOperator.IN, ["a", "x"], {RAIN}),
    ("quality", FilterOperator.IN, ["low", "high"], {RAIN, SUN}),
    ("quality", FilterOperator.NIN, ["low", "x"], {SNOW, SUN}),
    ("tags", FilterOperator.ANY, ["wet", "cold"], {RAIN, SNOW}),
    ("tags", FilterOperator.ALL, ["wet", "dog"], {RAIN}),
    ("tags", FilterOperator.CONTAINS, "dog", {RAIN, SNOW}),
    ("weight", FilterOperator.CONTAINS, "dog", set()),
    ("quality", FilterOperator.TEXT_MATCH, "hig", {SUN}),
    ("quality", FilterOperator.TEXT_MATCH, "HIG", set()),
    ("quality", FilterOperator.TEXT_MATCH_INSENSITIVE, "HIG", {SUN}),
    ("quality", FilterOperator.IS_EMPTY, None, {SNOW}),
    ("tags", FilterOperator.IS_EMPTY, None, {SUN}),
    ("unknown", FilterOperator.EQ, "x", set()),
    ("unknown", FilterOperator.NE, "x", {RAIN, SNOW, SUN}),
    ("ref_doc_id", FilterOperator.EQ, "doc-1", {SUN}),
    ("doc_id", FilterOperator.EQ, "doc-0", {RAIN, SNOW}),
    ("document_id", FilterOperator.NE, "doc-0", {SUN}),
]


def test_every_operator_holds(store: VlmsearchNodeStore) -> None:
    for key, operator, value, wanted in CASES:
        filters = only(key, operator, value)
        assert set(ids(store, filters=filters)) == wanted, (key, operator, value)
        assert {each.node_id for each in store.get_nodes(filters=filters)} == wanted, (key, operator, value)


def test_conditions_nest(store: VlmsearchNodeStore) -> None:
    is_c = MetadataFilter(key="rank", value="c")
    light = MetadataFilter(key="weight", operator=FilterOperator.LT, value=3)
    wet = MetadataFilter(key="tags", operator=FilterOperator.CONTAINS, value="wet")

    def found(condition: FilterCondition, *filters: MetadataFilter | MetadataFilters) -> set[str]:
        return set(ids(store, filters=MetadataFilters(filters=list(filters), condition=condition)))

    assert found(FilterCondition.AND, is_c, light) == {SNOW}
    assert found(FilterCondition.OR, is_c, wet) == {RAIN, SNOW, SUN}
    assert found(FilterCondition.NOT, is_c, wet) == set()
    assert found(FilterCondition.NOT, wet) == {SNOW, SUN}
    inner = MetadataFilters(filters=[is_c, light], condition=FilterCondition.AND)
    assert found(FilterCondition.NOT, inner) == {RAIN, SUN}
    assert found(FilterCondition.OR, inner, wet) == {RAIN, SNOW}
    assert found(FilterCondition.AND, is_c, MetadataFilter(key="rank", value="a")) == set()
    assert set(ids(store, filters=MetadataFilters(filters=[]))) == {RAIN, SNOW, SUN}


def test_ids_of_nodes_and_documents_narrow_a_query(store: VlmsearchNodeStore) -> None:
    assert set(ids(store, node_ids=[RAIN, SUN, "unknown"])) == {RAIN, SUN}
    assert ids(store, node_ids=[RAIN, SUN], filters=only("rank", FilterOperator.EQ, "c")) == [SUN]
    assert len(ids(store, node_ids=[])) == 3
    assert set(ids(store, doc_ids=["doc-0"])) == {RAIN, SNOW}
    assert ids(store, doc_ids=["doc-0"], filters=only("rank", FilterOperator.EQ, "a")) == [RAIN]


def test_nodes_are_replaced_and_deleted(store: VlmsearchNodeStore) -> None:
    changed = nodes()[0]
    changed.text, changed.embedding, changed.metadata = "a bird", [0.5, 0.1], {"new": [None]}
    assert store.add([changed]) == [RAIN]
    [found] = store.get_nodes([RAIN, "unknown"])
    assert isinstance(found, TextNode)
    assert (found.text, found.metadata) == ("a bird", {"new": [None]})
    store.delete_nodes([SNOW], filters=only("rank", FilterOperator.EQ, "a"))
    assert set(ids(store)) == {RAIN, SNOW, SUN}
    store.delete_nodes(filters=only("weight", FilterOperator.EQ, 2))
    assert set(ids(store)) == {RAIN, SUN}
    store.delete("doc-1")
    assert ids(store) == [RAIN]
    store.delete_nodes([RAIN])
    assert ids(store) == []
    store.add(nodes())
    store.clear()
    assert store.get_nodes() == []


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({}, ConfigError, "clear"),
        ({"filters": MetadataFilters(filters=[])}, ConfigError, "clear"),
        ({"filters": MetadataFilters(filters=[MetadataFilters(filters=[])])}, ConfigError, "clear"),
        ({"where": {"rank": "a"}}, TypeError, "no option 'where'; did you mean 'filters'"),
        ({"node_ids": [RAIN], "where": {"rank": "c"}}, TypeError, "no option 'where'; did you mean 'filters'"),
    ],
)
def test_nothing_is_deleted_where_what_to_delete_is_not_clear(
    store: VlmsearchNodeStore, given: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        store.delete_nodes(**given)
    with pytest.raises(error, match=told):
        asyncio.run(store.adelete_nodes(**given))
    assert len(store.get_nodes()) == 3
    store.delete_nodes([])
    assert len(store.get_nodes()) == 3


def test_unknown_options_are_refused_by_name(store: VlmsearchNodeStore) -> None:
    for name, near in {"encodr": "encoder", "image_foldr": "image_folder"}.items():
        with pytest.raises(
            TypeError, match=f"VlmsearchNodeStore has no option '{name}'; did you mean '{near}'"
        ) as told:
            VlmsearchNodeStore("mock:", **{name: "mock:"})
        assert "\n" not in str(told.value)
    with pytest.raises(TypeError, match="VlmsearchEmbedding has no option 'spce'; did you mean 'space'"):
        VlmsearchEmbedding(encoder="mock:", spce="clip")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="delete has no option 'filters'"):
        store.delete("doc-0", filters=only("rank", FilterOperator.EQ, "a"))
    with pytest.raises(TypeError, match="query has no option 'where'"):
        store.query(VectorStoreQuery(query_embedding=[1.0, 1.0]), where={})
    assert len(store.get_nodes()) == 3


def test_what_is_written_to_a_file_is_read_again(store: VlmsearchNodeStore) -> None:
    again = VlmsearchNodeStore.from_dict(store.to_dict())
    assert (again.store, again.image_folder) == (store.store, store.image_folder)
    embedding = VlmsearchEmbedding(encoder="mock:", space="minilm")
    assert VlmsearchEmbedding.from_dict(embedding.to_dict()).space == "minilm"
    assert VlmsearchEmbedding(**embedding.model_dump()).space == "minilm"
    assert VlmsearchEmbedding.model_validate(embedding) is embedding


def test_another_store_of_the_same_url_has_the_nodes(store: VlmsearchNodeStore, opened: Opened) -> None:
    other = opened(VlmsearchNodeStore(store.store))
    assert ids(other, query_embedding=[0.9, 1.0], similarity_top_k=1, filters=only("rank", FilterOperator.NE, "x")) == [
        SUN
    ]
    assert ids(other, filters=only("tags", FilterOperator.CONTAINS, "wet"), similarity_top_k=1) == [RAIN]
    with pytest.raises(InvalidInputError, match="2 numbers"):
        other.add([TextNode(text="of another model", embedding=[1.0, 0.0, 0.0])])
    assert len(other.client) == 3


def test_words_and_vectors_are_ranked_together(store: VlmsearchNodeStore) -> None:
    words = {"query_str": "snow", "query_embedding": None, "mode": VectorStoreQueryMode.TEXT_SEARCH}
    assert ids(store, **words) == [SNOW]
    assert ids(store, **words | {"filters": only("rank", FilterOperator.EQ, "a")}) == []
    hybrid = {"mode": VectorStoreQueryMode.HYBRID, "query_str": "snow", "query_embedding": [1.0, 0.0]}
    assert ids(store, **hybrid, alpha=1.0)[0] == RAIN
    assert ids(store, **hybrid, alpha=0.0)[0] == SNOW
    assert ids(store, **hybrid, hybrid_top_k=1, alpha=0.9) == [RAIN]


def test_marginal_relevance_leaves_out_what_is_alike(empty: VlmsearchNodeStore) -> None:
    vectors = {"best": [1.0, 0.1], "copy": [1.0, 0.11], "other": [0.6, -0.8]}
    empty.add([TextNode(id_=id, text=id, embedding=vector) for id, vector in vectors.items()])
    mmr = VectorStoreQuery([1.0, 0.0], similarity_top_k=2, mode=VectorStoreQueryMode.MMR, mmr_threshold=0.3)
    assert set(empty.query(mmr).ids or []) == {"best", "other"}
    assert set(empty.query(mmr, mmr_threshold=1.0).ids or []) == {"best", "copy"}


def test_what_a_query_lacks_is_said(store: VlmsearchNodeStore) -> None:
    with pytest.raises(ConfigError, match="svm"):
        store.query(VectorStoreQuery([1, 0], mode=VectorStoreQueryMode.SVM))
    with pytest.raises(InvalidInputError, match="query_embedding"):
        store.query(VectorStoreQuery(query_str="a dog"))
    with pytest.raises(InvalidInputError, match="query_str"):
        store.query(VectorStoreQuery([1, 0], mode=VectorStoreQueryMode.TEXT_SEARCH))
    with pytest.raises(InvalidInputError, match="2 numbers"):
        store.query(VectorStoreQuery([1, 0, 0]))
    with pytest.raises(InvalidInputError, match="takes a string"):
        store.query(VectorStoreQuery([1, 0], filters=only("rank", FilterOperator.TEXT_MATCH, 1)))
    with pytest.raises(ConfigError, match="encoder"):
        VlmsearchMultiModalRetriever(store)


# ---- filters

VALUES = st.one_of(
    st.sampled_from([0, 1, 2, 2.0, -3.5, "a", "b", ""]), st.integers(2**53 - 1, 2**53 + 2), st.just(float("inf"))
)
LISTS = st.one_of(st.lists(st.integers(0, 3), max_size=3), st.lists(st.sampled_from("ab"), max_size=3))
HELD = st.one_of(VALUES, st.booleans(), st.none(), LISTS)
METADATA = st.dictionaries(st.sampled_from(["a", "b", "ref_doc_id"]), HELD, max_size=3)
KEYS = st.sampled_from(["a", "b", "doc_id", "none"])


def condition(operators: list[FilterOperator], values: st.SearchStrategy[Any]) -> st.SearchStrategy[MetadataFilter]:
    return st.builds(MetadataFilter, key=KEYS, operator=st.sampled_from(operators), value=values)


ONE = st.one_of(
    condition([FilterOperator.EQ, FilterOperator.NE], VALUES),
    condition([FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE], VALUES),
    condition([FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL], LISTS),
    condition([FilterOperator.CONTAINS, FilterOperator.IS_EMPTY], st.sampled_from(["a", "b"])),
)
NESTED = st.recursive(
    ONE,
    lambda inner: st.builds(
        MetadataFilters, filters=st.lists(inner, min_size=1, max_size=3), condition=st.sampled_from(FilterCondition)
    ),
    max_leaves=5,
)


@given(filters=NESTED, metadata=METADATA)
@settings(max_examples=200)
def test_the_store_leaves_out_nothing_that_passes(
    filters: MetadataFilter | MetadataFilters, metadata: dict[str, Any]
) -> None:
    where = _to_where(filters)
    flat, rest = _split(metadata)
    is_odd = any(isinstance(value, bool) for value in metadata.values()) or float("inf") in rest.values()
    if where is not None and _matches(filters, metadata) and not is_odd:
        assert parse_filter(where).matches(flat)


@given(filters=st.lists(ONE, min_size=1, max_size=3), kind=st.sampled_from(FilterCondition), metadata=METADATA)
@settings(max_examples=200)
def test_filters_mean_what_they_mean_in_llama_index(
    filters: list[MetadataFilter], kind: FilterCondition, metadata: dict[str, Any]
) -> None:
    """Save where LlamaIndex fails for a value that has no such comparison, and for the names of a node's document."""
    given_filters = MetadataFilters(filters=list(filters), condition=kind)
    if any(each.key == "doc_id" for each in filters):
        return
    try:
        theirs = build_metadata_filter_fn(lambda _: metadata, given_filters)("x")
    except TypeError:
        return
    is_part = any(each.operator == FilterOperator.IN and each.value == [] for each in filters)
    assert is_part or _matches(given_filters, metadata) == theirs


def test_most_filters_reach_the_store() -> None:
    year = MetadataFilter(key="year", operator=FilterOperator.GTE, value=2020)
    city = MetadataFilter(key="city", operator=FilterOperator.IN, value=["Oslo", "Rome"])
    tags = MetadataFilter(key="tags", operator=FilterOperator.CONTAINS, value="a")
    assert _to_where(year) == {"year": {"$gte": 2020}}
    both = MetadataFilters(filters=[year, city, tags])
    assert _to_where(both) == {"$and": [{"year": {"$gte": 2020}}, {"city": {"$in": ["Oslo", "Rome"]}}]}
    assert _to_where(MetadataFilters(filters=[city, tags], condition=FilterCondition.OR)) is None
    neither = MetadataFilters(filters=[city, tags], condition=FilterCondition.NOT)
    assert _to_where(neither) == {"$and": [{"city": {"$nin": ["Oslo", "Rome"]}}]}


# ---- images


def test_every_kind_of_node_comes_back_with_its_image(empty: VlmsearchNodeStore, files: list[str]) -> None:
    encoded = base64.b64encode(png(3)).decode()
    written: list[BaseNode] = [
        ImageNode(id_="path", image_path=files[0], metadata={"n": 0}),
        ImageNode(id_="bytes", image=encoded, image_mimetype="image/png", text="a drawing"),
        ImageNode(id_="url", image_url="http://localhost/1.png", text="elsewhere"),
        ImageDocument(id_="document", image_path=files[1], metadata={"n": 1}),
        ImageDocument(id_="document-bytes", image=encoded, image_mimetype="image/png"),
        Node(
            id_="multimodal",
            text_resource=MediaResource(text="a scene"),
            image_resource=MediaResource(data=png(4), mimetype="image/png"),
            audio_resource=MediaResource(data=b"RIFF", mimetype="audio/wav"),
        ),
        Document(id_="text", text="a text"),
        IndexNode(id_="index", text="a summary", index_id="other"),
    ]
    for number, each in enumerate(written):
        each.embedding = [1.0, float(number)]
    empty.add(written)
    found = {each.node_id: each for each in empty.get_nodes()}
    assert found.keys() == {each.node_id for each in written}
    for each in written:
        one = found[each.node_id]
        one.embedding = each.embedding
        assert type(one) is type(each)
        assert one.to_dict() == each.to_dict()
        if isinstance(one, Node) and isinstance(each, Node):  # dumps have no bytes
            assert (one.image_resource, one.audio_resource) == (each.image_resource, each.audio_resource)
    assert len(list(Path(empty.image_folder or "").iterdir())) == 3
    empty.delete_nodes(["bytes", "document-bytes"])
    assert len(list(Path(empty.image_folder or "").iterdir())) == 1


@pytest.fixture
def gallery(url: str, files: list[str], opened: Opened) -> VlmsearchNodeStore:
    store = opened(VlmsearchNodeStore(url, encoder="onnx:demo", min_score=0.0))
    store.add(
        [
            *(ImageNode(id_=str(i), image_path=path, metadata={"n": i}) for i, path in enumerate(files[:6])),
            TextNode(id_="text", text="a note on squares"),
        ]
    )
    return store


def test_a_retriever_finds_texts_and_images(gallery: VlmsearchNodeStore, files: list[str]) -> None:
    by_text = VlmsearchMultiModalRetriever(gallery).retrieve("squares")
    assert "text" in [each.node_id for each in by_text]
    retriever = VlmsearchMultiModalRetriever(gallery, similarity_top_k=3)
    assert [each.node_id for each in retriever.text_retrieve("squares")] == ["text"]
    pictures = retriever.text_to_image_retrieve(make_scene(4).caption())
    assert len(pictures) == 3
    assert "text" not in [each.node_id for each in pictures]
    [best, *_] = retriever.image_to_image_retrieve(files[2])
    assert best.node_id == "2"
    assert isinstance(best.node, ImageNode)
    assert best.node.image_path == files[2]
    assert best.score is not None
    assert 0.5 < best.score <= 1
    few = VlmsearchMultiModalRetriever(gallery, filters=only("n", FilterOperator.LT, 2))
    assert {each.node_id for each in few.image_to_image_retrieve(files[2])} <= {"0", "1"}
    both = retriever.text_to_image_retrieve(QueryBundle(query_str="a square", image_path=files[2]))
    assert both[0].node_id == "2"
    with pytest.raises(InvalidInputError, match="path of a file"):
        retriever.image_to_image_retrieve(QueryBundle(query_str="a square"))


def test_an_index_of_llama_index_works_over_the_store(empty: VlmsearchNodeStore) -> None:
    embedding = VlmsearchEmbedding(encoder="onnx:demo", space="minilm")
    documents = [Document(id_="a", text="a dog in the snow"), Document(id_="b", text="a red car in the city")]
    context = StorageContext.from_defaults(vector_store=empty)
    index = VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=embedding)
    [found] = index.as_retriever(similarity_top_k=1).retrieve("a dog in the snow")
    assert found.node.get_content() == "a dog in the snow"
    assert found.node.ref_doc_id == "a"
    index.delete_ref_doc("a")
    again = VectorStoreIndex.from_vector_store(empty, embed_model=embedding)
    assert [each.node.ref_doc_id for each in again.as_retriever(similarity_top_k=5).retrieve("a dog")] == ["b"]


def test_what_encodes_itself_needs_no_embedding_of_llama_index(gallery: VlmsearchNodeStore) -> None:
    assert not gallery.is_embedding_query
    found = gallery.query(VectorStoreQuery(query_str=make_scene(3).caption(), similarity_top_k=2))
    assert len(found.ids or []) == 2
    with pytest.raises(ConfigError, match="mmr"):
        gallery.query(VectorStoreQuery(query_str="a", mode=VectorStoreQueryMode.MMR))


def test_a_copy_is_refused_with_what_to_do(empty: VlmsearchNodeStore) -> None:
    with pytest.raises(TypeError, match="make another one with the same arguments"):
        copy.deepcopy(empty)


def test_a_multimodal_index_keeps_texts_and_images_in_two_stores(
    empty: VlmsearchNodeStore, tmp_path: Path, files: list[str], opened: Opened
) -> None:
    images = opened(VlmsearchNodeStore(f"sqlite:{tmp_path / 'images'}"))
    context = StorageContext.from_defaults(vector_store=empty, image_store=images)
    index = MultiModalVectorStoreIndex(
        [TextNode(text="a note on squares"), *(ImageNode(image_path=path, metadata={"file": path}) for path in files)],
        storage_context=context,
        embed_model=VlmsearchEmbedding(encoder="onnx:demo", space="minilm"),
        image_embed_model=VlmsearchEmbedding(encoder="onnx:demo"),
    )
    retriever = index.as_retriever(similarity_top_k=1, image_similarity_top_k=1)
    [found] = retriever.image_to_image_retrieve(files[3])
    assert isinstance(found.node, ImageNode)
    assert found.node.image_path == files[3]
    assert len(retriever.retrieve("squares")) == 2


def test_stores_and_embeddings_are_written_to_files(url: str) -> None:
    store = VlmsearchNodeStore(url, encoder="mock:", min_score=0.5)
    again = VlmsearchNodeStore.from_dict(store.to_dict())
    assert again.to_dict() == store.to_dict()
    assert VlmsearchNodeStore.from_json(store.to_json()).is_embedding_query is False
    embedding = VlmsearchEmbedding(encoder="mock:", space="minilm")
    same = VlmsearchEmbedding.from_json(embedding.to_json())
    assert (same.encoder, same.space) == ("mock:", "minilm")
    assert same.get_text_embedding_batch(["a dog", "a cat"])[0] == embedding.get_text_embedding("a dog")
    assert len(embedding.get_query_embedding("a dog")) == 128


def test_images_are_embedded_from_files_and_bytes(files: list[str]) -> None:
    embedding = VlmsearchEmbedding(encoder="onnx:demo")
    one = embedding.get_image_embedding(files[0])
    assert embedding.get_image_embedding(BytesIO(png(0))) == pytest.approx(one, abs=1e-5)
    with pytest.raises(InvalidInputError):
        embedding.get_image_embedding(BytesIO(b"no image"))
