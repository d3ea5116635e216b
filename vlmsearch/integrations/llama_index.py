"""An index for LlamaIndex: a vector store, a multimodal retriever and an embedding (https://docs.llamaindex.ai).

A store either encodes here, texts and images alike (``encoder="onnx:default"``), or keeps the vectors that the
embedding model of a LlamaIndex index made.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from llama_index.core.base.base_multi_modal_retriever import MultiModalRetriever
from llama_index.core.base.embeddings.base import Embedding
from llama_index.core.bridge.pydantic import PrivateAttr, model_validator
from llama_index.core.embeddings import MultiModalEmbedding
from llama_index.core.indices.query.schema import QueryType
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    ImageType,
    IndexNode,
    Node,
    NodeWithScore,
    QueryBundle,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn
from typing_extensions import Unpack

from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.integrations.framework_index import (
    LIST_OPERATORS,
    FrameworkDocument,
    FrameworkFilter,
    FrameworkIndex,
    Ranking,
    SpaceEmbedder,
    Where,
    awaited,
    best_of,
    check_options,
    combination,
    comparison,
)
from vlmsearch.registry import DEFAULT_ENCODER, DEFAULT_STORE
from vlmsearch.search.options import SearchKeywords
from vlmsearch.types import ImageSource

REF = "ref_doc_id"
"""The key of the metadata that names the document which a node is of."""
_ALIASES = frozenset({"doc_id", "document_id"})
_CLASSES: dict[str, type[BaseNode]] = {
    kind.class_name(): kind for kind in (Document, ImageDocument, ImageNode, IndexNode, Node, TextNode)
}
_WITH_LISTS = LIST_OPERATORS | {FilterOperator.ANY.value, FilterOperator.ALL.value}
_WITH_TEXTS = frozenset({FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE})
_MMR_CANDIDATES = 4
"""The number of nodes that `mmr` chooses from, for each one that is wanted."""


class VlmsearchNodeStore(BasePydanticVectorStore):
    """A vector store of LlamaIndex over an index, with texts, images and relations of nodes.

    All filter operators and nested conditions hold: if the index cannot apply one, it is applied to the nodes that the
    index returns.
    Modes of a query: ``default``, ``text_search`` and ``sparse`` (by words), ``hybrid``, ``mmr``.

    Args:
        store: The URL of the index, such as ``sqlite:./index`` or ``postgresql://host/photos``.
        encoder: The URL of the encoder for texts and images of nodes that are added; None for the one
            that built the index. In a new one, an embedding model of LlamaIndex makes the vectors then.
        embedding_dim: The length of these vectors; None for that of the first ones.
        image_folder: The folder for images that nodes hold as bytes.
        min_score: The lowest relevance of a node where nodes are encoded here, from 0 to 1; None for that of the index.
        passages: Whether texts that are longer than the encoder reads are encoded in passages. A node parser of
            LlamaIndex makes nodes of them instead.

    Raises:
        TypeError: There is no such option.

    Example:
        >>> from llama_index.core.vector_stores.types import VectorStoreQuery
        >>> store = VlmsearchNodeStore(store="mock:")
        >>> store.add([TextNode(id_="a", text="a dog", embedding=[0.6, 0.8])])
        ['a']
        >>> store.query(VectorStoreQuery(query_embedding=[0.6, 0.8])).nodes[0].text
        'a dog'
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    store: str = DEFAULT_STORE
    encoder: str | None = None
    embedding_dim: int | None = None
    image_folder: str | None = None
    min_score: float | None = None
    passages: bool = False
    _index: FrameworkIndex = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _known(cls, options: Any) -> Any:
        return _only_fields(cls, options)

    def __init__(self, store: str = DEFAULT_STORE, **options: Any) -> None:
        super().__init__(**{"store": store, **options})
        self._index = FrameworkIndex(
            store, encoder=self.encoder, dim=self.embedding_dim, image_folder=self.image_folder, passages=self.passages
        )
        self.is_embedding_query = self._index.gives_vectors

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the store in files."""
        return "VlmsearchNodeStore"

    @property
    def client(self) -> FrameworkIndex:
        """Return the index behind the store."""
        return self._index

    def close(self) -> None:
        """Close the index; the next call opens it anew."""
        self._index.close()

    # ---- writing

    def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
        """Add nodes, or replace those whose ids are there.

        Args:
            nodes: The nodes; each has a vector, or, where they are encoded here, a text or an image.
            add_kwargs: Arguments of other stores; ignored.

        Returns:
            The ids of the nodes.

        Raises:
            InvalidInputError: A node cannot be used.
            ConfigError: A node holds the bytes of an image, and there is no ``image_folder``.
        """
        nodes = list(nodes)
        self._index.write([_from_node(node, with_vector=self.is_embedding_query) for node in nodes])
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Remove all nodes of a document.

        Args:
            ref_doc_id: The id of the document.
            delete_kwargs: Arguments of other stores; refused.

        Raises:
            TypeError: There is another argument.
        """
        check_options("delete", delete_kwargs, ("ref_doc_id",))
        self._index.delete([node.id for node in self._index.find(FrameworkFilter({REF: ref_doc_id}))])

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Remove nodes, by their ids or a filter; `clear` removes all.

        Args:
            node_ids: Their ids; None for all that pass the filters.
            filters: A filter that the nodes pass.
            delete_kwargs: Arguments of other stores; refused.

        Raises:
            ConfigError: There are no ids, and no filter with a condition.
            TypeError: There is another argument.
        """
        check_options("delete_nodes", delete_kwargs, ("node_ids", "filters"))
        if node_ids is None and (filters is None or not _has_condition(filters)):
            raise ConfigError("delete_nodes takes `node_ids`, or `filters` with a condition; clear() removes all nodes")
        self._index.delete([node.id for node in self._find(node_ids, filters)])

    def clear(self) -> None:
        """Remove all nodes."""
        self._index.clear()

    # ---- reading

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return nodes.

        Args:
            node_ids: Their ids; None for all that pass the filters.
            filters: A filter that the nodes pass.

        Returns:
            The nodes that are there, with their vectors.
        """
        return [_to_node(node) for node in self._index.with_embeddings(self._find(node_ids, filters))]

    def _find(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> list[FrameworkDocument]:
        if node_ids is None:
            return list(self._index.find(_filter(filters)))
        return list(filter(_filter(filters).keeps, self._index.get(node_ids)))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes that fit a query best.

        Args:
            query: The query, with its mode and filters. ``text_search`` and ``sparse`` rank by words; ``hybrid``
                adds the similarities of words and vectors, each scaled to 0 to 1, with ``alpha`` for the vectors.
            kwargs: ``mmr_threshold`` for ``mmr``, as in the query.

        Returns:
            The nodes, their ids and their similarities, best first: cosines where vectors are given; relevances from 0
            to 1 where nodes are encoded here, and by words.

        Raises:
            ConfigError: There is no such mode, or the store ranks no words.
            InvalidInputError: The query has no vector, or no text, and the mode asks for it.
            TypeError: There is another argument.
        """
        check_options("query", kwargs, ("mmr_threshold",))
        mode, limit = query.mode, query.similarity_top_k
        if mode in (VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE):
            matches = self._by_words(query, query.sparse_top_k or limit)
        elif mode == VectorStoreQueryMode.DEFAULT or (not self.is_embedding_query and mode in _HYBRID):
            matches = self._by_vector(query, limit)  # a store that encodes looks for words, too
        elif mode in _HYBRID:
            sparse = self._by_words(query, query.sparse_top_k or limit)
            matches = _merged(self._by_vector(query, limit), sparse, query.alpha, query.hybrid_top_k or limit)
        elif mode == VectorStoreQueryMode.MMR and self.is_embedding_query:
            matches = self._diverse(query, limit, kwargs.get("mmr_threshold", query.mmr_threshold))
        else:
            raise ConfigError(
                f"this store has no mode {mode.value!r}; it has default, text_search, sparse and hybrid, and mmr where "
                "vectors are given"
            )
        return VectorStoreQueryResult(
            nodes=[_to_node(node) for node, _ in matches],
            similarities=[score for _, score in matches],
            ids=[node.id for node, _ in matches],
        )

    def search(
        self,
        text: str | None,
        *,
        image: ImageSource | None = None,
        filters: MetadataFilters | None = None,
        only: Callable[[FrameworkDocument], bool] | None = None,
        **options: Unpack[SearchKeywords],
    ) -> list[NodeWithScore]:
        """Return the best nodes for a text, an image or both.

        The store encodes its nodes.

        Args:
            text: The text to look for.
            image: The image to look for.
            filters: A filter that the nodes pass.
            only: Another filter that they pass.
            options: How nodes are chosen and arranged: see `SearchOptions`.

        Returns:
            The nodes with their relevance from 0 to 1, best first.

        Raises:
            ConfigError: Vectors are given to this store.
            InvalidInputError: There is nothing to look for, or the image cannot be used.
        """
        chosen: SearchKeywords = {"min_score": self.min_score, **options}
        narrowed = _filter(filters) & FrameworkFilter(passes=only)
        matches = self._index.search(text or None, image=image, filter=narrowed, **chosen)
        return [NodeWithScore(node=_to_node(node), score=score) for node, score in matches]

    def _by_words(self, query: VectorStoreQuery, limit: int) -> Ranking:
        if not query.query_str:
            raise InvalidInputError("empty", f"a query of the mode {query.mode.value!r} has a text: query_str")
        return self._index.words(query.query_str, limit=limit, filter=_query_filter(query))

    def _by_vector(self, query: VectorStoreQuery, limit: int) -> Ranking:
        narrowed = _query_filter(query)
        if not self.is_embedding_query:
            return self._index.search(query.query_str, limit=limit, filter=narrowed, min_score=self.min_score)
        if query.query_embedding is None:
            raise InvalidInputError("empty", f"a query of the mode {query.mode.value!r} has a vector: query_embedding")
        return self._index.nearest(query.query_embedding, limit=limit, ids=query.node_ids or None, filter=narrowed)

    def _diverse(self, query: VectorStoreQuery, limit: int, threshold: float | None) -> Ranking:
        near = self._by_vector(query, _MMR_CANDIDATES * limit)
        return self._index.diversify(near, 0.5 if threshold is None else 1 - threshold)[:limit]

    # ---- the same, awaited

    async_add = awaited(add)
    adelete = awaited(delete)
    adelete_nodes = awaited(delete_nodes)
    aclear = awaited(clear)
    aget_nodes = awaited(get_nodes)
    aquery = awaited(query)


def _only_fields(kind: type[BasePydanticVectorStore | MultiModalEmbedding], options: Any) -> Any:
    """Return the options of a class; TypeError for an unknown one.

    LlamaIndex adds the name of the class when it writes them to a file.
    """
    given = [name for name in options if name != "class_name"] if isinstance(options, dict) else []
    check_options(kind.__name__, given, kind.model_fields)
    return options


_HYBRID = (VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SEMANTIC_HYBRID)


# ---- nodes


def _from_node(node: BaseNode, *, with_vector: bool) -> FrameworkDocument:
    """Return a node as an index keeps it, with its other fields as JSON."""
    data = node.model_dump(mode="json", exclude={"metadata"}, fallback=str)
    metadata = dict(node.metadata)
    for key in ("id_", "embedding"):
        data.pop(key, None)
    resource = data.get("text_resource") or {}
    text = data.pop("text", None) if "text" in data else resource.pop("text", None)
    picture = data.get("image_resource") or {}
    resources = {} if isinstance(node, TextNode) else _resources(node)  # what LlamaIndex leaves out of dumps
    encoded = data.pop("image", None) if isinstance(node, ImageNode) else resources.pop("image_resource", None)
    for name, value in resources.items():
        data[name]["data"] = value
    path = data.get("image_path") or picture.get("path")
    kind = data.get("image_mimetype") or picture.get("mimetype") or ""
    if node.ref_doc_id is not None and REF not in metadata:
        metadata[REF] = node.ref_doc_id
        data["has_ref"] = True
    return FrameworkDocument(
        node.node_id,
        text or None,
        metadata,
        {"node": data},
        Path(path) if path and not encoded else None,
        base64.b64decode(encoded) if encoded else None,
        kind,
        bool(encoded),
        node.embedding if with_vector else None,
    )


def _resources(node: BaseNode) -> dict[str, str]:
    """Return the bytes of a node's image, sound and film in base64, by field."""
    resources = {name: getattr(node, name, None) for name in ("image_resource", "audio_resource", "video_resource")}
    return {
        name: resource.data.decode()
        for name, resource in resources.items()
        if resource is not None and resource.data is not None
    }


def _to_node(document: FrameworkDocument) -> BaseNode:
    """Return the node of a document.

    A document that was written otherwise becomes a text or an image. Bytes whose file has gone are left out.
    """
    metadata, vector = dict(document.metadata), None if document.embedding is None else list(document.embedding)
    if "node" not in document.extra:
        parts: dict[str, Any] = {
            "id_": document.id,
            "text": document.text or "",
            "metadata": metadata,
            "embedding": vector,
        }
        return TextNode(**parts) if document.image is None else ImageNode(image_path=str(document.image), **parts)
    data = dict(document.extra["node"])
    if data.pop("has_ref", False):
        metadata.pop(REF, None)
    data |= {"id_": document.id, "metadata": metadata, "embedding": vector}
    kind = _CLASSES.get(data.get("class_name", ""), TextNode)
    encoded = base64.b64encode(document.file_bytes or b"").decode()
    if issubclass(kind, TextNode):
        data["text"] = document.text or ""
        data |= {"image": encoded} if encoded else {}
    else:
        if data.get("text_resource") is not None:
            data["text_resource"] = {**data["text_resource"], "text": document.text}
        if encoded:
            data["image_resource"] = {**(data.get("image_resource") or {}), "data": encoded}
    return kind.from_dict(data)


# ---- filters


def _query_filter(query: VectorStoreQuery) -> FrameworkFilter:
    documents, wanted = list(query.doc_ids or ()), frozenset(query.node_ids or ())
    of_documents = FrameworkFilter({REF: {"$in": documents}} if documents else None)
    of_nodes = FrameworkFilter(passes=(lambda node: node.id in wanted) if wanted else None)
    return _filter(query.filters) & of_documents & of_nodes


def _filter(filters: MetadataFilters | None) -> FrameworkFilter:
    """Return a filter of LlamaIndex."""
    if filters is None or not filters.filters:
        return FrameworkFilter()
    return FrameworkFilter(_to_where(filters), lambda node: _matches(filters, node.metadata))


def _has_condition(condition: MetadataFilters | MetadataFilter) -> bool:
    return isinstance(condition, MetadataFilter) or any(map(_has_condition, condition.filters))


def _to_where(condition: MetadataFilters | MetadataFilter, *, negated: bool = False) -> Where | None:
    """Return a weaker filter for the store, of a filter or of its negation.

    None where no store can apply one.
    """
    if isinstance(condition, MetadataFilter):
        return comparison(_key(condition), condition.operator.value, condition.value, negated=negated)
    kind = condition.condition or FilterCondition.AND
    inner_negated = negated != (kind == FilterCondition.NOT)
    inner = [_to_where(part, negated=inner_negated) for part in condition.filters]
    return combination(inner, is_all=(kind == FilterCondition.AND) != inner_negated)  # NOT is the negation of OR


def _key(condition: MetadataFilter) -> str:
    """Return the key of the metadata; LlamaIndex has three names for the document of a node."""
    return REF if condition.key in _ALIASES else condition.key


def _matches(condition: MetadataFilters | MetadataFilter, metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata pass a filter. A key that is missing passes `NE`, `NIN` and `IS_EMPTY` alone."""
    if isinstance(condition, MetadataFilters):
        passed = (_matches(part, metadata) for part in condition.filters)
        if condition.condition == FilterCondition.NOT:
            return not any(passed)
        return any(passed) if condition.condition == FilterCondition.OR else all(passed)
    key = condition.key if condition.key in metadata else _key(condition)
    if condition.operator.value in _WITH_LISTS and not isinstance(condition.value, list):
        raise InvalidInputError("invalid", f"the filter operators in, nin, any and all take a list: {condition}")
    if condition.operator in _WITH_TEXTS and not isinstance(condition.value, str):
        raise InvalidInputError("invalid", f"a text match takes a string: {condition}")
    passes = build_metadata_filter_fn(
        lambda _: {condition.key: metadata.get(key)}, MetadataFilters(filters=[condition])
    )
    try:
        return bool(passes(""))
    except TypeError:  # of values that cannot be compared
        return False


def _merged(dense: Ranking, sparse: Ranking, alpha: float | None, limit: int) -> Ranking:
    """Return both lists as one, by their similarities scaled to 0 to 1 (relative score fusion)."""
    share = 0.5 if alpha is None else alpha
    scores: dict[str, float] = {}
    for matches, weight in ((dense, share), (sparse, 1 - share)):
        values = [score for _, score in matches]
        lowest, highest = min(values, default=0.0), max(values, default=0.0)
        for node, score in matches:
            scaled = (score - lowest) / (highest - lowest) if highest > lowest else 1.0
            scores[node.id] = scores.get(node.id, 0.0) + weight * scaled
    documents = {node.id: node for node, _ in (*dense, *sparse)}
    return [(documents[id], score) for id, score in best_of(scores, limit)]


# ---- retriever and embedding


class VlmsearchMultiModalRetriever(MultiModalRetriever):
    """A retriever of texts and images, for a store that encodes its nodes.

    Args:
        vector_store: The store; it names an encoder.
        similarity_top_k: The most nodes.
        filters: A filter that the nodes pass.

    Raises:
        ConfigError: Vectors are given to the store.

    Example:
        >>> store = VlmsearchNodeStore("mock:", encoder="mock:")
        >>> _ = store.add([TextNode(text="a dog in the snow"), TextNode(text="a blue car")])
        >>> [found] = VlmsearchMultiModalRetriever(store).retrieve("snow")
        >>> found.node.text
        'a dog in the snow'
    """

    def __init__(
        self,
        vector_store: VlmsearchNodeStore,
        *,
        similarity_top_k: int = 10,
        filters: MetadataFilters | None = None,
    ) -> None:
        if vector_store.is_embedding_query:
            raise ConfigError("this retriever takes a VlmsearchNodeStore with an `encoder`, such as onnx:default")
        self.vector_store = vector_store
        self.similarity_top_k = similarity_top_k
        self.filters = filters
        super().__init__()

    def _search(self, query: QueryType, only: Callable[[FrameworkDocument], bool] | None = None) -> list[NodeWithScore]:
        query = QueryBundle(query_str=query) if isinstance(query, str) else query
        return self.vector_store.search(
            query.query_str,
            image=Path(query.image_path) if query.image_path else None,
            limit=self.similarity_top_k,
            filters=self.filters,
            only=only,
        )

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._search(query_bundle)

    _aretrieve = awaited(_retrieve)

    def text_retrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """Return the nodes without an image that fit a text best.

        Args:
            str_or_query_bundle: The text.

        Returns:
            The nodes with their relevance from 0 to 1, best first.
        """
        return self._search(str_or_query_bundle, lambda node: not _has_image(node))

    def text_to_image_retrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """Return the nodes with an image that fit a text best.

        Args:
            str_or_query_bundle: The text.

        Returns:
            The nodes with their relevance from 0 to 1, best first.
        """
        return self._search(str_or_query_bundle, _has_image)

    def image_to_image_retrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """Return the nodes with an image that fit an image best.

        Args:
            str_or_query_bundle: The path of the image's file, or a bundle that names it.

        Returns:
            The nodes with their relevance from 0 to 1, best first.

        Raises:
            InvalidInputError: No image is named, or it cannot be used.
        """
        query = str_or_query_bundle
        query = QueryBundle(query_str="", image_path=query) if isinstance(query, str) else query
        if not query.image_path:
            raise InvalidInputError("empty", "an image is looked for by the path of a file")
        return self._search(query, _has_image)

    atext_retrieve = awaited(text_retrieve)
    _text_to_image_retrieve = text_to_image_retrieve  # type: ignore[assignment]  # it comes by place
    _image_to_image_retrieve = image_to_image_retrieve  # type: ignore[assignment]
    atext_to_image_retrieve = _atext_to_image_retrieve = awaited(text_to_image_retrieve)
    aimage_to_image_retrieve = _aimage_to_image_retrieve = awaited(image_to_image_retrieve)


def _has_image(document: FrameworkDocument) -> bool:
    return document.image is not None


class VlmsearchEmbedding(MultiModalEmbedding):
    """An embedding model of texts and images for any vector store of LlamaIndex.

    Args:
        encoder: The URL of the encoder.
        space: Which of its spaces; None for the first that texts and images share.

    Raises:
        TypeError: There is no such option.

    Example:
        >>> embedding = VlmsearchEmbedding(encoder="mock:")
        >>> len(embedding.get_query_embedding("a dog"))
        176
    """

    encoder: str = DEFAULT_ENCODER
    space: str | None = None
    _embedder: SpaceEmbedder = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _known(cls, options: Any) -> Any:
        return _only_fields(cls, options)

    def model_post_init(self, context: Any, /) -> None:
        """Prepare the encoder, which is opened when it is first used."""
        super().model_post_init(context)
        self._embedder = SpaceEmbedder(self.encoder, self.space)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the embedding in files."""
        return "VlmsearchEmbedding"

    def _get_query_embedding(self, query: str) -> Embedding:
        return self._embedder.texts([query], role="query")[0]

    def _get_text_embedding(self, text: str) -> Embedding:
        return self._embedder.texts([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return self._embedder.texts(texts)

    def _get_image_embedding(self, img_file_path: ImageType) -> Embedding:
        return self._get_image_embeddings([img_file_path])[0]

    def _get_image_embeddings(self, img_file_paths: list[ImageType]) -> list[Embedding]:
        return self._embedder.images(
            [image.getvalue() if isinstance(image, BytesIO) else Path(image) for image in img_file_paths]
        )

    _aget_query_embedding = awaited(_get_query_embedding)
    _aget_text_embedding = awaited(_get_text_embedding)
    _aget_image_embedding = awaited(_get_image_embedding)
