"""A pipeline for LangChain: a vector store, embeddings and a retriever, with images.

`VlmsearchVectorStore` is LangChain's `VectorStore` over a `Pipeline`. `VlmsearchRetriever` is its retriever, also over
a server. `VlmsearchEmbeddings` is its `Embeddings` over an `Encoder`, and `EmbeddingsEncoder` is an `Encoder` over any
`Embeddings` of LangChain. This module needs ``langchain-core``, which ``pip install 'vlmsearch[langchain]'`` brings.

A document of LangChain has a text and metadata. An image is the path in ``metadata["image"]``, on the way in and out.
Metadata may be any JSON, and are kept as for Haystack and LlamaIndex, which read the same index. Filters compare
strings, finite numbers of 64 bits and bools; others, such as None, lists and mappings, come back, but no filter sees
them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document as LangchainDocument
from langchain_core.embeddings import Embeddings
from langchain_core.messages.content import ImageContentBlock, create_image_block
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from pydantic import Field, model_validator
from typing_extensions import Self

from vlmsearch._util.text import utf8_bytes
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError, InvalidBatchError, InvalidInputError, apply_to_each
from vlmsearch.index import Index
from vlmsearch.indexing.sources import file_id
from vlmsearch.integrations.framework_index import (
    EMBEDDING,
    ExternalEncoder,
    FrameworkDocument,
    FrameworkFilter,
    FrameworkIndex,
    Ranking,
    awaited,
    check_options,
    columns,
    combination,
    unpack,
)
from vlmsearch.integrations.sentence_transformers import SentenceModel, choose_space
from vlmsearch.media.images import thumbnail
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import DEFAULT_STORE, open_store
from vlmsearch.stores.base import Store
from vlmsearch.types import Document, ImageSource, Passage, RemoteImage, Role, Space, Vectors

IMAGE_KEY = "image"
"""The key of the metadata with the path of an image."""
_EDGE = 768
"""The longer side of a picture, in pixels: about what models see."""


def to_langchain(
    document: Document, *, image_key: str = IMAGE_KEY, passage: Passage | None = None
) -> LangchainDocument:
    """Return the document of LangChain that an index has.

    Args:
        document: The document, such as that of a match of `Pipeline.search`.
        image_key: Under which key of the metadata to put the path of its image, the URL where it is on a server, and
            nothing else.
        passage: The passage of its text to return in its place, such as that of the match. Its metadata have the
            ``document_id``, the number of the ``passage``, its ``heading``, ``start_index`` and ``end_index``.

    Returns:
        The text, "" where there is none, with the metadata and the id.

    Example:
        >>> to_langchain(Document("1", image=Path("dog.jpg"), metadata={"year": 2024})).metadata
        {'year': 2024, 'image': 'dog.jpg'}
    """
    return _to_langchain(unpack(document, passage=passage), image_key)


def _to_langchain(document: FrameworkDocument, image_key: str) -> LangchainDocument:
    metadata = {key: value for key, value in document.metadata.items() if key != image_key}
    if document.image is not None:
        metadata[image_key] = document.image.url if isinstance(document.image, RemoteImage) else str(document.image)
    return LangchainDocument(document.text or "", id=document.id, metadata=metadata)


def _from_langchain(document: LangchainDocument, id: str, image_key: str) -> FrameworkDocument:
    """Return a document for an index; InvalidInputError if its image is none."""
    image = document.metadata.get(image_key)
    if not isinstance(image, (str, Path, bytes, type(None))):
        raise InvalidInputError("invalid", f"metadata {image_key!r} is the path of an image or bytes, not {image!r}")
    metadata = {key: value for key, value in document.metadata.items() if key != image_key}
    path, data = (None, image) if isinstance(image, bytes) else (None if image is None else Path(image), None)
    return FrameworkDocument(
        id, document.page_content or None, metadata, image=path, data=data, is_image=data is not None
    )


def image_block(
    document: LangchainDocument,
    *,
    edge: int = _EDGE,
    image_key: str = IMAGE_KEY,
    server: Index | None = None,
    limits: ImageLimits = DEFAULT_LIMITS,
) -> ImageContentBlock:
    """Return the image of a document as a part of a message for a chat model.

    Args:
        document: A document that a store or retriever returned, with an image.
        edge: The longer side, in pixels; the image is scaled down to it.
        image_key: The key of the metadata with the path.
        server: The service that the document came from, where the file is there and not here.
        limits: How large the image may be.

    Returns:
        A JPEG in LangChain's content block.

    Raises:
        InvalidInputError: The document has no image, or its file cannot be used.
        VlmsearchError: The server refused, or cannot be reached.

    Example:
        >>> import tempfile
        >>> from vlmsearch.demo.scenes import make_scene
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     make_scene(1).draw(256).save(Path(folder, "scene.png"))
        ...     block = image_block(LangchainDocument("", metadata={"image": f"{folder}/scene.png"}))
        >>> block["type"], block["mime_type"]
        ('image', 'image/jpeg')
    """
    path = document.metadata.get(image_key)
    if not isinstance(path, (str, Path)):
        raise InvalidInputError("empty", f"{document.id!r} has no image: its metadata have no {image_key!r}")
    if server is not None:
        data = server.thumbnail(str(document.id), size=edge)
    else:
        data = thumbnail(Path(path), edge=edge, limits=limits)
    return create_image_block(base64=base64.b64encode(data).decode(), mime_type="image/jpeg")


class VlmsearchEmbeddings(Embeddings):
    """An embedding model of texts and images over an encoder, for users of LangChain's `Embeddings`.

    Args:
        encoder: The encoder; it stays open as long as this is used.
        space: The name of one of its spaces with texts; needed where it has several.

    Raises:
        ConfigError: There is no such space, or there are several and none is named.

    Example:
        >>> from vlmsearch.registry import open_encoder
        >>> with open_encoder("mock:") as encoder:
        ...     len(VlmsearchEmbeddings(encoder, space="minilm").embed_query("a dog"))
        128
    """

    def __init__(self, encoder: Encoder, *, space: str | None = None) -> None:
        self.encoder = encoder
        self._model = SentenceModel(encoder, space=space)

    @property
    def space(self) -> Space:
        """Return the space of the vectors."""
        return self._model.space

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts that are searched.

        Args:
            texts: Any number of them.

        Returns:
            Vectors of length one.

        Raises:
            InvalidBatchError: Some texts are not valid Unicode.
            BackendError: The model failed.
        """
        return self._lists(texts)

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text that is looked for.

        Args:
            text: The text.

        Returns:
            A vector of length one.

        Raises:
            InvalidBatchError: The text is not valid Unicode.
            BackendError: The model failed.
        """
        return self._lists([text], role="query")[0]

    def embed_image(self, uris: Sequence[str | ImageSource]) -> list[list[float]]:
        """Return the vectors of images; texts of the same space can be compared with them.

        Args:
            uris: Paths, encoded bytes or decoded images; a string is a path.

        Returns:
            Vectors of length one.

        Raises:
            ConfigError: The space has texts alone.
            InvalidBatchError: Some images cannot be used; those of the first batch with such are named.
            BackendError: The model failed.
        """
        return self._lists([_image(uri) for uri in uris])

    def _lists(self, inputs: Sequence[str | ImageSource], *, role: Role = "document") -> list[list[float]]:
        vectors: list[list[float]] = self._model.vectors(inputs, role=role).tolist()
        return vectors


class EmbeddingsEncoder(ExternalEncoder):
    """An encoder of texts over any `Embeddings` of LangChain, for a `Pipeline`.

    One text is embedded to learn the length of the vectors. The fingerprint, by which an index is refused to another
    model, is the name of the class and that of its model: give another where these do not tell two models apart. An
    index of such vectors can be read with Haystack and LlamaIndex.

    Args:
        embeddings: The embedding model; its errors pass through.
        fingerprint: The name of the model that an index keeps; ``vectors:768`` for an index that Haystack or LlamaIndex
            filled with vectors of this model, of that length.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> encoder = EmbeddingsEncoder(DeterministicFakeEmbedding(size=6))
        >>> encoder.fingerprint, encoder.encode_texts(["a dog"])["embedding"].shape
        ('langchain:DeterministicFakeEmbedding', (1, 6))
    """

    def __init__(self, embeddings: Embeddings, *, fingerprint: str | None = None) -> None:
        self.embeddings = embeddings
        name = fingerprint or f"langchain:{_model_name(embeddings)}"
        super().__init__(len(embeddings.embed_query("a text")), fingerprint=name)

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Encode texts, by ``embed_query`` or ``embed_documents``.

        Args:
            texts: Any number of them.
            role: Whether they are queries or documents.

        Returns:
            Float32 of shape (len(texts), dim), each row of length one, of the space ``embedding``.

        Raises:
            InvalidBatchError: Some texts are not valid Unicode, or their vectors are zeros or not finite.
        """
        apply_to_each(utf8_bytes, texts)
        if role == "query":
            vectors = [self.embeddings.embed_query(text) for text in texts]
        else:
            vectors = self.embeddings.embed_documents(list(texts)) if texts else []
        rows = np.array(vectors, np.float32).reshape(len(texts), self.spaces[0].dim)
        lengths = np.linalg.norm(rows, axis=1)
        bad = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0)).tolist()
        if bad:
            why = "its embedding has no direction: it is zeros, or not finite"
            raise InvalidBatchError({i: InvalidInputError("invalid", f"{texts[i][:60]!r}: {why}") for i in bad})
        return {EMBEDDING.space: rows / lengths[:, None]}

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Return nothing: LangChain's interface has no images.

        Args:
            images: Images.

        Returns:
            An empty mapping.
        """
        return {}


class VlmsearchVectorStore(VectorStore):
    """A vector store of LangChain over a pipeline: texts, images and words, with filters.

    Searches are those of `Pipeline.search`, so scores are relevances from 0 to 1; like other stores of LangChain this
    shows the best ``k`` however weak they are, unless ``min_score`` says otherwise. `VlmsearchRetriever` shows what is
    relevant. ``filter`` is a filter on metadata: see `vlmsearch.stores.filters`. All other keyword arguments of a
    search go to `Pipeline.search`, such as ``without``, ``weights`` and ``rerank``. Pages of one file are documents
    like others here; with ``group=True`` the best of a file is shown alone. Of a long text, the document of LangChain
    is the passage that fits best, with its own ``id``; it is deleted by the ``document_id`` in its metadata.

    Args:
        pipeline: The index, which its owner closes.
        space: The space of `similarity_search_by_vector`; needed only there, and where the encoder has several.
        image_key: The key of a document's metadata with the path of its image, or its bytes.
        image_folder: The folder for images that are given as bytes.
        passages: Whether texts that are longer than the model reads are encoded in passages. A text splitter of
            LangChain makes documents of them instead.

    Example:
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     store = VlmsearchVectorStore(pipeline)
        ...     ids = store.add_texts(["a dog in the snow", "a blue car"], [{"year": 2019}, {"year": 2021}])
        ...     [found] = store.similarity_search("dog", k=1)
        ...     late = store.similarity_search("dog", k=1, filter={"year": {"$gte": 2020}})
        >>> found.page_content, found.metadata, late[0].page_content
        ('a dog in the snow', {'year': 2019}, 'a blue car')
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        space: str | None = None,
        image_key: str = IMAGE_KEY,
        image_folder: str | Path | None = None,
        passages: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self._index = FrameworkIndex(pipeline, image_folder=image_folder, passages=passages)
        self._space = space
        self._image_key = image_key

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        store: Store | str = DEFAULT_STORE,
        **kwargs: Any,
    ) -> Self:
        """Open an index and add texts.

        Args:
            texts: The texts.
            embedding: Any `Embeddings` of LangChain; of a `VlmsearchEmbeddings` the encoder is used, with all spaces.
            metadatas: The metadata of each text.
            ids: The id of each text.
            store: An open store, or the URL of one.
            **kwargs: Those of the class.

        Returns:
            The store; ``pipeline.close()`` closes it.

        Raises:
            ConfigError: The URL is wrong.
            InvalidBatchError: Some texts cannot be used.
            IndexMismatchError: Another model built the index.
            BackendError: The store failed.
        """
        encoder = embedding.encoder if isinstance(embedding, VlmsearchEmbeddings) else EmbeddingsEncoder(embedding)
        opened = open_store(store) if isinstance(store, str) else store
        made = cls(Pipeline(encoder, opened), **kwargs)
        made.add_texts(texts, metadatas, ids=ids)
        return made

    @property
    def embeddings(self) -> Embeddings | None:
        """Return what embeds texts for `similarity_search_by_vector`, or None where it is not clear in which space."""
        encoder = self.pipeline.encoder
        if isinstance(encoder, EmbeddingsEncoder):
            return encoder.embeddings
        try:
            return VlmsearchEmbeddings(encoder, space=self._space)
        except ConfigError:
            return None

    # ---- documents in and out

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Iterable[dict[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts, or replace those whose ids are there; see `add_documents`.

        Args:
            texts: The texts.
            metadatas: The metadata of each.
            ids: The id of each; where there is none, a random one is made.
            **kwargs: Those of `add_documents`.

        Returns:
            The ids, in the order of the texts.

        Raises:
            TypeError: `add_documents` has no such keyword.
            ValueError: There are not as many metadata or ids as texts.
        """
        check_options("add_texts", kwargs, ("metadatas", "ids", "batch_size"))
        rows = zip(*columns("texts", texts, metadatas=metadatas, ids=ids))
        return self.add_documents([LangchainDocument(text, id=id, metadata=data or {}) for text, data, id in rows])

    def add_documents(self, documents: list[LangchainDocument], **kwargs: Any) -> list[str]:
        """Add documents, or replace those whose ids are there; those that did not change are skipped.

        Args:
            documents: The documents; the image under the metadata's ``image_key`` is indexed, too. Its path comes back
                as an absolute one, and its bytes as the path of the file where they are kept.
            **kwargs: ``ids``, in place of those of the documents. Where there is none, a random one is made.
                ``batch_size``, which LangChain passes to every store, has no effect.

        Returns:
            The ids, in the order of the documents.

        Raises:
            InvalidBatchError: Some documents cannot be used, such as one without a text and an image; the others are
                in the index, unless metadata cannot be kept.
            ConfigError: An image is given as bytes, and there is no ``image_folder``.
            TypeError: There is another keyword.
            ValueError: There are not as many ids as documents.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.
        """
        check_options("add_documents", kwargs, ("ids", "batch_size"))
        documents, given = columns("documents", documents, ids=kwargs.get("ids"))
        ids = [id or document.id or str(uuid4()) for id, document in zip(given, documents)]
        pairs = list(zip(documents, ids))
        self._index.write(apply_to_each(lambda pair: _from_langchain(*pair, self._image_key), pairs))
        return ids

    def add_images(
        self,
        uris: Iterable[str | Path],
        metadatas: Iterable[dict[str, Any]] | None = None,
        *,
        texts: Iterable[str] | None = None,
        ids: Iterable[str] | None = None,
    ) -> list[str]:
        """Add images, or replace those whose ids are there.

        Args:
            uris: Their paths, which the index keeps as absolute ones.
            metadatas: The metadata of each.
            texts: What is said of each, such as a caption.
            ids: The id of each; by default its absolute path, as `Pipeline.index` has it.

        Returns:
            The ids, in the order of the images.

        Raises:
            InvalidBatchError: Some images cannot be used; the others are in the index.
            ValueError: There are not as many metadata, texts or ids as images.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.
        """
        rows = zip(*columns("images", uris, metadatas=metadatas, texts=texts, ids=ids))
        documents = [
            LangchainDocument(
                text or "", id=id or file_id(str(uri)), metadata={**(metadata or {}), self._image_key: uri}
            )
            for uri, metadata, text, id in rows
        ]
        return self.add_documents(documents)

    aadd_images = awaited(add_images)

    def get_by_ids(self, ids: Iterable[str], /) -> list[LangchainDocument]:
        """Return documents.

        Args:
            ids: The ids of the documents.

        Returns:
            The documents that are there, in the order of ``ids``.

        Raises:
            BackendError: The store failed.
        """
        return [_to_langchain(document, self._image_key) for document in self._index.get(ids)]

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Remove documents, with the files of their bytes.

        Args:
            ids: The ids of the documents; unknown ids are ignored. Without ids and a filter, all documents go.
            **kwargs: ``filter``, in place of ids, for the documents that pass it.

        Returns:
            True.

        Raises:
            ConfigError: The filter is wrong or empty, or there are ids beside it.
            TypeError: There is another keyword.
            BackendError: The store failed.
        """
        check_options("delete", kwargs, ("ids", "filter"))
        if "filter" in kwargs and bool(kwargs["filter"]) != (ids is None):
            raise ConfigError("delete takes ids or a `filter` with a condition; with neither of the two, all goes")
        if ids is not None:
            self._index.delete(ids)
        elif kwargs:
            self._index.delete([document.id for document in self._index.find(FrameworkFilter(kwargs["filter"]))])
        else:
            self._index.clear()
        return True

    # ---- searches

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[LangchainDocument]:
        """Return the best documents for a text.

        Args:
            query: The text to look for.
            k: The most documents.
            **kwargs: ``filter``, ``min_score`` and those of `Pipeline.search`.

        Returns:
            The documents, best first.

        Raises:
            InvalidInputError: There is nothing to look for.
            ConfigError: An option is wrong.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.
        """
        return self._documents(self._search(query, k, **kwargs))

    def similarity_search_with_score(self, *args: Any, **kwargs: Any) -> list[tuple[LangchainDocument, float]]:
        """Return the best documents for a text with their relevances, from 0 to 1; see `similarity_search`.

        Args:
            *args: The query, and ``k``.
            **kwargs: Those of `similarity_search`.

        Returns:
            The documents and their scores, best first: the higher, the better.
        """
        return self._with_scores(self._search(*args, **kwargs))

    def as_retriever(self, **kwargs: Any) -> VectorStoreRetriever:
        """Return LangChain's own retriever over this store.

        Args:
            **kwargs: Those of `VectorStoreRetriever`; the options of a search go into its ``search_kwargs``.

        Returns:
            The retriever.

        Raises:
            TypeError: It has no such option.
        """
        check_options("as_retriever", kwargs, VectorStoreRetriever.model_fields)
        return super().as_retriever(**kwargs)

    def _select_relevance_score_fn(self) -> Any:
        return float  # scores are relevances already

    def similarity_search_by_image(self, uri: str | ImageSource, k: int = 4, **kwargs: Any) -> list[LangchainDocument]:
        """Return the best documents for an image.

        Args:
            uri: A path, encoded bytes or a decoded image; a string is a path.
            k: The most documents.
            **kwargs: As in `similarity_search`.

        Returns:
            The documents, best first.

        Raises:
            InvalidInputError: The image cannot be used.
            ConfigError: An option is wrong, or the encoder has no images.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.
        """
        return self._documents(self._search(None, k, image=_image(uri), **kwargs))

    def similarity_search_by_image_with_score(
        self, uri: str | ImageSource, k: int = 4, **kwargs: Any
    ) -> list[tuple[LangchainDocument, float]]:
        """Return the best documents for an image with their relevances; see `similarity_search_by_image`.

        Args:
            uri: A path, encoded bytes or a decoded image; a string is a path.
            k: The most documents.
            **kwargs: As in `similarity_search`.

        Returns:
            The documents and their scores, best first: the higher, the better.
        """
        return self._with_scores(self._search(None, k, image=_image(uri), **kwargs))

    asimilarity_search_by_image = awaited(similarity_search_by_image)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[LangchainDocument]:
        """Return the documents whose vectors are nearest by cosine, with no words and no relevance.

        Args:
            embedding: A vector of `embeddings`; in a space with images it is compared with texts and images.
            k: The most documents.
            **kwargs: ``filter``.

        Returns:
            The documents, nearest first.

        Raises:
            ConfigError: The encoder has several spaces, and this names none; or a filter is wrong.
            IndexMismatchError: Another encoder built the index.
            BackendError: The store failed.
        """
        return self._documents(self._nearest(embedding, k, **kwargs))

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[LangchainDocument]:
        """Return documents for a text that are relevant, and unlike each other (maximal marginal relevance).

        Args:
            query: The text to look for.
            k: The most documents.
            fetch_k: The number of the best to choose from.
            lambda_mult: The weight of relevance beside diversity: 1 for relevance alone, 0 for none.
            **kwargs: As in `similarity_search`.

        Returns:
            The documents, in the order in which they were chosen.

        Raises:
            InvalidInputError: There is nothing to look for.
            ConfigError: An option is wrong.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.
        """
        matches = self._search(query, max(k, fetch_k), **kwargs)
        return self._documents(self._index.diversify(matches, 1 - lambda_mult)[:k])

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[LangchainDocument]:
        """Return documents that are near to a vector, and unlike each other.

        Args:
            embedding: A vector, as for `similarity_search_by_vector`.
            k: The most documents.
            fetch_k: The number of the nearest to choose from.
            lambda_mult: The weight of nearness beside diversity: 1 for nearness alone, 0 for none.
            **kwargs: ``filter``.

        Returns:
            The documents, in the order in which they were chosen.

        Raises:
            ConfigError: The encoder has several spaces, and this names none; or a filter is wrong.
            IndexMismatchError: Another encoder built the index.
            BackendError: The store failed.
        """
        matches = self._nearest(embedding, max(k, fetch_k), **kwargs)
        return self._documents(self._index.diversify(matches, 1 - lambda_mult)[:k])

    def _search(
        self, query: str | None, k: int = 4, *, filter: Mapping[str, object] | None = None, **options: Any
    ) -> Ranking:
        narrowed = FrameworkFilter(filter or None)
        return self._index.search(query, filter=narrowed, **{"limit": k, "min_score": 0.0, **options})

    def _nearest(self, embedding: list[float], k: int, *, filter: Mapping[str, object] | None = None) -> Ranking:
        """Return the documents nearest to a vector by cosine, in any field of its space."""
        fields = choose_space(self.pipeline.encoder, self._space).fields
        return self._index.nearest(embedding, limit=k, fields=fields, filter=FrameworkFilter(filter or None))

    def _documents(self, matches: Ranking) -> list[LangchainDocument]:
        return [document for document, _ in self._with_scores(matches)]

    def _with_scores(self, matches: Ranking) -> list[tuple[LangchainDocument, float]]:
        return [(_to_langchain(document, self._image_key), score) for document, score in matches]


class VlmsearchRetriever(BaseRetriever):
    """A retriever of the relevant documents of an index, here or on a server.

    What is less relevant than the threshold of the index is not returned, so that there may be fewer than ``k``
    documents, or none. Each relevant page of a file is one of them, and of a long text the best passage. Keyword
    arguments of ``invoke`` take the place of these attributes, or go to `Pipeline.search`, such as ``image`` and
    ``group``. A ``where`` narrows the filter.

    Attributes:
        pipeline: The index; it stays open as long as this is used.
        k: The most documents.
        filter: A filter on metadata: see `vlmsearch.stores.filters`.
        min_score: The least relevance, from 0 to 1; by default that of the index.
        search_kwargs: More keyword arguments of `Pipeline.search`, such as ``{"rerank": "onnx:demo-reranker"}``.
        image_key: The key of a document's metadata with the path of its image.
        score_key: The key of the metadata to put the relevance under; None for none.

    Raises:
        TypeError: There is no such option.

    Example:
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     _ = pipeline.add([Document("a", text="a dog in the snow"), Document("b", text="a blue car")])
        ...     retriever = VlmsearchRetriever(pipeline=pipeline)
        ...     found = retriever.invoke("dog snow"), retriever.invoke("boats")
        >>> [[document.id for document in documents] for documents in found]
        [['a'], []]
    """

    pipeline: Index
    k: int = 4
    filter: dict[str, Any] | None = None
    min_score: float | None = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    image_key: str = IMAGE_KEY
    score_key: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, options: Any) -> Any:
        check_options(cls.__name__, options if isinstance(options, dict) else (), cls.model_fields)
        return options

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[LangchainDocument]:
        own = {"k": self.k, "filter": self.filter, "min_score": self.min_score, "group": False}
        given = (*self.search_kwargs.items(), *kwargs.items())
        options: dict[str, Any] = {**own, **{"k" if name == "limit" else name: value for name, value in given}}
        limit = options.pop("k")
        where = combination([options.pop("filter") or None, options.pop("where", None)], is_all=True)
        documents = []
        for match in self.pipeline.search(query or None, limit=limit, where=where, **options):
            document = to_langchain(match.document, image_key=self.image_key, passage=match.passage)
            if self.score_key is not None:
                document.metadata[self.score_key] = match.score
            documents.append(document)
        return documents


def _image(uri: str | ImageSource) -> ImageSource:
    """Return an image; a string is a path, as everywhere in LangChain."""
    return Path(uri) if isinstance(uri, str) else uri


def _model_name(embeddings: Embeddings) -> str:
    """Return the class, and the model that it says it is of."""
    names = (getattr(embeddings, key, None) for key in ("model", "model_name"))
    return ":".join([type(embeddings).__name__, *(name for name in names if isinstance(name, str))][:2])
