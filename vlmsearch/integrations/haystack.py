"""An index for Haystack: a document store, retrievers and embedders for its pipelines (https://haystack.deepset.ai).

A store either encodes here, texts and images alike (``encoder="onnx:default"``), or keeps the vectors that embedders
of Haystack made (``embedding_dim=768``).
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Union

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.dataclasses import ByteStream, ImageContent, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter
from typing_extensions import Self, Unpack

from vlmsearch.errors import InvalidInputError
from vlmsearch.integrations.framework_index import (
    LIST_OPERATORS,
    FrameworkDocument,
    FrameworkFilter,
    FrameworkIndex,
    SpaceEmbedder,
    Where,
    awaited,
    check_options,
    combination,
    comparison,
)
from vlmsearch.media.images import format_of
from vlmsearch.registry import DEFAULT_ENCODER, DEFAULT_STORE
from vlmsearch.search.options import SearchKeywords, SearchOptions
from vlmsearch.types import Field, ImageSource

Image = Union[str, Path, ByteStream, ImageContent]
"""An image of a query: the path of a file, its bytes, or the content of a chat message."""
_FIELDS = frozenset(field.name for field in fields(Document))
_OPERATORS = ("==", "!=", ">", ">=", "<", "<=", "in", "not in")
_TYPES = {bool: "boolean", int: "int", float: "float"}


class _Component:
    """A base of dataclasses that are written to the file of a pipeline: their fields are their arguments."""

    run_async: Callable[..., Coroutine[Any, Any, dict[str, Any]]]
    """The method ``run``, to be awaited; only components have it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments as a dictionary for the file of a pipeline, without secrets."""
        arguments = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        plain = {name: value.value if isinstance(value, Enum) else value for name, value in arguments.items()}
        return default_to_dict(self, **plain, **getattr(self, "options", {}))

    def __init_subclass__(cls) -> None:
        if run := getattr(cls, "run", None):
            cls.run_async = awaited(run)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return what a dictionary describes; nothing is opened before it is used."""
        arguments = dict(data["init_parameters"])
        if "document_store" in arguments:
            arguments["document_store"] = VlmsearchDocumentStore.from_dict(arguments["document_store"])
        return default_from_dict(cls, {**data, "init_parameters": arguments})


@dataclass(eq=False)
class VlmsearchDocumentStore(_Component):
    """A document store of Haystack over an index, with the asynchronous forms of its methods.

    Metadata may be any JSON, and come back as they were. Bytes of a document (``blob``) are kept as files. Filters mean
    what they mean in Haystack: if the index cannot apply a filter, it is applied to the documents that the index
    returns. A bool is no number in ``>`` and its like.

    Args:
        store: The URL of the index, such as ``sqlite:./index`` or ``postgresql://host/photos``.
        encoder: The URL of the encoder for documents that are written, with their texts and images. None for
            the one that built the index, for ``onnx:default`` in a new one, or for given vectors where
            ``embedding_dim`` is given. With an encoder, the ``embedding`` of a document is not kept.
        embedding_dim: The length of vectors that embedders make.
        image_folder: The folder for the bytes of documents.
        file_path_meta_field: The key of the metadata that names the image file of a document without bytes.
        passages: Whether texts that are longer than the encoder reads are encoded in passages. A splitter of Haystack
            makes documents of them instead.

    Raises:
        ConfigError: Both an encoder and a length of given vectors are named.

    Example:
        >>> store = VlmsearchDocumentStore("mock:", encoder="mock:")
        >>> store.write_documents([Document(content="a dog in the snow", meta={"year": 2024, "tags": ["winter"]})])
        1
        >>> [found] = store.filter_documents({"field": "meta.year", "operator": ">", "value": 2020})
        >>> found.content, found.meta["tags"]
        ('a dog in the snow', ['winter'])
    """

    store: str = DEFAULT_STORE
    _: KW_ONLY
    encoder: str | None = None
    embedding_dim: int | None = None
    image_folder: str | None = None
    file_path_meta_field: str = "file_path"
    passages: bool = False

    def __post_init__(self) -> None:
        self.index = FrameworkIndex(
            self.store,
            encoder=self.encoder,
            dim=self.embedding_dim,
            image_folder=self.image_folder,
            passages=self.passages,
            is_encoding=True,
        )

    def close(self) -> None:
        """Close the index; the next call opens it anew."""
        self.index.close()

    # ---- reading

    def count_documents(self) -> int:
        """Return the number of documents."""
        return len(self.index)

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return the documents that pass a filter, in the order of their ids.

        Args:
            filters: A filter in the form of Haystack; None for all documents.

        Returns:
            The documents, with the vectors that were given for them.

        Raises:
            FilterError: The filter is wrong.
        """
        documents = list(self.index.find(_filter(filters)))
        return [self._to_document(document) for document in self.index.with_embeddings(documents)]

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Return the number of documents that pass a filter; FilterError where it is wrong."""
        return sum(1 for _ in self.index.find(_filter(filters)))

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """Return how many values keys of the metadata have among the documents that pass a filter.

        Args:
            filters: A filter in the form of Haystack; an empty one for all documents.
            metadata_fields: The keys, with or without ``meta.`` before them.

        Returns:
            The numbers, by key.
        """
        keys = [field.removeprefix("meta.") for field in metadata_fields]
        seen: dict[str, set[str]] = {key: set() for key in keys}
        for document in self.index.find(_filter(filters)):
            for key in keys:
                if document.metadata.get(key) is not None:
                    seen[key].add(_form(document.metadata[key]))
        return {key: len(values) for key, values in seen.items()}

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Return the keys of the metadata with their types: ``boolean``, ``int``, ``float`` or ``keyword``."""
        kinds: dict[str, dict[str, str]] = {}
        for document in self.index.find():
            for key, value in document.metadata.items():
                if value is not None:
                    kinds[key] = {"type": _TYPES.get(type(value), "keyword")}
        return kinds

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Return the smallest and the largest value of a key of the metadata.

        Args:
            metadata_field: The key, with or without ``meta.`` before it.

        Returns:
            Both, under ``min`` and ``max``; None where no document has a value, or they cannot be compared.
        """
        key = metadata_field.removeprefix("meta.")
        values = [
            value
            for document in self.index.find()
            if isinstance(value := document.metadata.get(key), (int, float, str))
        ]
        if not values or len({isinstance(value, str) for value in values}) > 1:
            return {"min": None, "max": None}
        return {"min": min(values), "max": max(values)}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: dict[str, Any] | None = None,
    ) -> tuple[list[Any], int]:
        """Return values of a key of the metadata, a page at a time.

        Args:
            metadata_field: The key, with or without ``meta.`` before it.
            search_term: A part of the values, in upper or lower case.
            from_: The number of values to pass over.
            size: The most values.
            filters: Which documents to look at.

        Returns:
            The values in order, and how many there are on all pages.
        """
        key = metadata_field.removeprefix("meta.")
        held = [document.metadata.get(key) for document in self.index.find(_filter(filters))]
        term = (search_term or "").lower()
        values = {_form(value): value for value in held if value is not None and term in str(value).lower()}
        ordered = [value for _, value in sorted(values.items(), key=lambda pair: _place(*pair))]
        return ordered[from_ : from_ + size], len(values)

    # ---- writing

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Write documents.

        Args:
            documents: The documents.
            policy: The treatment of documents whose ids are there; `DuplicatePolicy.NONE` is the same as ``FAIL``.

        Returns:
            The number of documents that were written.

        Raises:
            ValueError: They are no list of documents, or one of them cannot be used.
            DuplicateDocumentError: An id is there, and the policy is ``FAIL``; nothing was written.
            ConfigError: A document has bytes, and there is no ``image_folder``.
        """
        if not isinstance(documents, list) or not all(isinstance(document, Document) for document in documents):
            raise ValueError("write_documents takes a list of haystack.Document")
        written = len(documents)
        if policy != DuplicatePolicy.OVERWRITE:
            there = {document.id for document in self.index.get([document.id for document in documents])}
            new: dict[str, Document] = {}
            for given in documents:
                if given.id not in there and given.id not in new:
                    new[given.id] = given
                elif policy != DuplicatePolicy.SKIP:
                    raise DuplicateDocumentError(
                        f"the id {given.id!r} is there: choose a DuplicatePolicy, or another id"
                    )
            documents, written = list(new.values()), len(new)
        self.index.write([self._from_document(document) for document in documents])
        return written

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Set keys of the metadata of the documents that pass a filter. Nothing is encoded.

        Args:
            filters: A filter in the form of Haystack.
            meta: The keys with their new values; others stay.

        Returns:
            The number of documents that passed.
        """
        return self.index.update_metadata([document.id for document in self.index.find(_filter(filters))], meta)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Remove documents, with the files of their bytes; unknown ids are ignored."""
        self.index.delete(document_ids)

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Remove the documents that pass a filter, and return how many they were.

        Args:
            filters: A filter in the form of Haystack, with a condition.

        Raises:
            FilterError: The filter is wrong, or empty; `delete_all_documents` removes all.
        """
        narrowed = _filter(filters)
        if not filters or not _has_condition(filters):
            raise FilterError("delete_by_filter takes a filter with a condition; delete_all_documents() removes all")
        return self.index.delete([document.id for document in self.index.find(narrowed)])

    def delete_all_documents(self) -> None:
        """Remove all documents."""
        self.index.clear()

    # ---- what retrievers ask

    def search(
        self,
        text: str | None,
        *,
        image: Image | None = None,
        filters: dict[str, Any] | None = None,
        **options: Unpack[SearchKeywords],
    ) -> list[Document]:
        """Return the documents that fit a text, an image or both best.

        Where vectors are given, a text is looked for by its words alone.

        Args:
            text: The text to look for.
            image: The image to look for.
            filters: A filter in the form of Haystack.
            options: How documents are chosen and arranged: see `SearchOptions`. A text that is looked for by its words
                alone has ``limit``, ``min_score`` and ``where``.

        Returns:
            The documents with their relevance from 0 to 1, best first; none where nothing is relevant.

        Raises:
            FilterError: The filter is wrong.
            InvalidInputError: There is nothing to look for, or the image cannot be used.
            ConfigError: Vectors are given to this store, and an image is looked for; or it ranks no words.
            TypeError: There is no such option.
        """
        if text is not None and image is None and self.index.gives_vectors:
            wanted = [name for name, value in options.items() if value is not None]
            check_options("a search by words alone", wanted, ("limit", "min_score", "where"))
            limit = options.get("limit", SearchOptions.limit)
            narrowed = _filter(filters) & FrameworkFilter(options.get("where"))
            matches = self.index.words(text, limit=limit, filter=narrowed)
            matches = [(document, score) for document, score in matches if score >= (options.get("min_score") or 0)]
        else:
            source = None if image is None else _image_source(image)
            matches = self.index.search(text, image=source, filter=_filter(filters), **options)
        return [self._to_document(document, score) for document, score in matches]

    def nearest(
        self,
        query_embedding: Sequence[float],
        *,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        field: str | None = None,
        return_embedding: bool = False,
    ) -> list[Document]:
        """Return the documents whose vectors are nearest to one that an embedder made.

        Args:
            query_embedding: The vector.
            filters: A filter in the form of Haystack.
            top_k: The most documents.
            field: Which vectors to compare with where documents are encoded here, such as ``clip/image``.
            return_embedding: Whether documents come with the vectors that were given for them.

        Returns:
            The documents with their cosines, best first.

        Raises:
            FilterError: The filter is wrong.
            ValueError: The vector has another length, or there is no such field.
        """
        fields = [] if field is None else [Field.parse(field)]
        matches = self.index.nearest(query_embedding, limit=top_k, fields=fields, filter=_filter(filters))
        documents = [document for document, _ in matches]
        if return_embedding:
            documents = self.index.with_embeddings(documents)
        return [self._to_document(document, score) for document, (_, score) in zip(documents, matches)]

    # ---- the same, awaited

    count_documents_async = awaited(count_documents)
    filter_documents_async = awaited(filter_documents)
    count_documents_by_filter_async = awaited(count_documents_by_filter)
    count_unique_metadata_by_filter_async = awaited(count_unique_metadata_by_filter)
    get_metadata_fields_info_async = awaited(get_metadata_fields_info)
    get_metadata_field_min_max_async = awaited(get_metadata_field_min_max)
    get_metadata_field_unique_values_async = awaited(get_metadata_field_unique_values)
    write_documents_async = awaited(write_documents)
    update_by_filter_async = awaited(update_by_filter)
    delete_documents_async = awaited(delete_documents)
    delete_by_filter_async = awaited(delete_by_filter)
    delete_all_documents_async = awaited(delete_all_documents)

    # ---- between the two

    def _from_document(self, document: Document) -> FrameworkDocument:
        blob = document.blob
        path = document.meta.get(self.file_path_meta_field)
        has_path = blob is None and isinstance(path, str) and (mimetypes.guess_type(path)[0] or "").startswith("image/")
        parts = {
            "blob": blob and {"mime_type": blob.mime_type, "meta": blob.meta},
            "sparse_embedding": document.sparse_embedding and document.sparse_embedding.to_dict(),
        }
        return FrameworkDocument(
            document.id,
            document.content,
            document.meta,
            {"haystack": {key: value for key, value in parts.items() if value}} if any(parts.values()) else {},
            Path(path) if has_path and isinstance(path, str) else None,
            blob.data if blob else None,
            blob.mime_type or "" if blob else "",
            blob is not None and _shows_image(blob),
            document.embedding,
        )

    def _to_document(self, document: FrameworkDocument, score: float | None = None) -> Document:
        """Return the document with what was kept; bytes whose file has gone are left out."""
        extra = document.extra.get("haystack", {})
        sparse, meta, blob = extra.get("sparse_embedding"), dict(document.metadata), None
        if (data := document.file_bytes) is not None:
            blob = ByteStream(data, **(extra.get("blob") or {"mime_type": document.mime_type or None}))
        elif document.image is not None and not document.is_image:  # as Haystack's converters name it
            meta.setdefault(self.file_path_meta_field, str(document.image))
        return Document(
            id=document.id,
            content=document.text,
            blob=blob,
            meta=meta,
            score=score,
            embedding=None if document.embedding is None else list(document.embedding),
            sparse_embedding=SparseEmbedding.from_dict(sparse) if sparse else None,
        )


def _shows_image(blob: ByteStream) -> bool:
    """Return whether bytes are an image, by their type or else by how they begin."""
    return blob.mime_type.startswith("image/") if blob.mime_type else bool(format_of(blob.data))


def _image_source(image: Image) -> ImageSource:
    if isinstance(image, ByteStream):
        return image.data
    return base64.b64decode(image.base64_image) if isinstance(image, ImageContent) else Path(image)


def _form(value: object) -> str:
    """Return a form in which values differ: 1, 1.0, "1" and True are four."""
    return f"{type(value).__name__} {json.dumps(value, ensure_ascii=False, sort_keys=True)}"


def _place(form: str, value: object) -> tuple[bool, float, str]:
    """Return the place of a value in order: numbers first, by their size, then all else."""
    is_number = isinstance(value, (int, float))
    return not is_number, float(value) if isinstance(value, (int, float)) else 0.0, form


# ---- filters


def _filter(filters: dict[str, Any] | None) -> FrameworkFilter:
    """Return a filter of Haystack; FilterError where it is wrong."""
    if not filters:
        return FrameworkFilter()
    _check_filter(filters)

    def passes(document: FrameworkDocument) -> bool:
        return document_matches_filter(filters, Document(document.id, document.text, meta=dict(document.metadata)))

    return FrameworkFilter(_to_where(filters), passes)


def _check_filter(condition: object) -> None:
    """Raise FilterError for a filter that is not in the form of Haystack."""
    if not isinstance(condition, dict):
        raise FilterError(f"a filter is a dictionary, not {condition!r}")
    if "operator" not in condition:
        raise FilterError(f"'operator' is missing in {condition}")
    operator = condition["operator"]
    if "field" in condition:
        if "value" not in condition:
            raise FilterError(f"'value' is missing in {condition}")
        if operator not in _OPERATORS:
            raise FilterError(f"no such operator: {operator!r}; there are {' '.join(_OPERATORS)}")
        if (operator in LIST_OPERATORS) != isinstance(condition["value"], list) and operator not in ("==", "!="):
            wanted = "takes a list" if operator in LIST_OPERATORS else "takes a number or a date, not a list"
            raise FilterError(f"{operator!r} {wanted}: {condition['value']!r}")
        return
    if not isinstance(condition.get("conditions"), list):
        raise FilterError(f"'conditions' is missing in {condition}, or is no list")
    if operator not in ("AND", "OR", "NOT"):
        raise FilterError(f"no such operator: {operator!r}; there are AND, OR and NOT")
    for part in condition["conditions"]:
        _check_filter(part)


def _has_condition(condition: Mapping[str, Any]) -> bool:
    return not isinstance(inner := condition.get("conditions"), list) or any(map(_has_condition, inner))


def _to_where(condition: Mapping[str, Any], *, negated: bool = False) -> Where | None:
    """Return a weaker filter for the store, of a filter or of its negation.

    None where no store can apply one.
    """
    if "field" in condition:
        return _comparison(condition["field"], condition["operator"], condition["value"], negated=negated)
    operator = condition["operator"]
    inner_negated = negated != (operator == "NOT")
    inner = [_to_where(part, negated=inner_negated) for part in condition["conditions"]]
    return combination(inner, is_all=(operator != "OR") != inner_negated)  # NOT is the negation of AND


def _comparison(field: str, operator: str, value: object, *, negated: bool) -> Where | None:
    key = field.removeprefix("meta.")
    is_key = "." not in key and (field.startswith("meta.") or field not in _FIELDS)
    if not is_key or any(map(_may_be_date, value if isinstance(value, list) else [value])):
        return None
    return comparison(key, operator, value, negated=negated)


def _may_be_date(value: object) -> bool:
    """Return whether Haystack may compare a string as a point in time, which has many forms."""
    return isinstance(value, str) and value[:4].isdigit() and value[4:5] == "-"


# ---- components


@dataclass(eq=False)
class _Retriever(_Component):
    """A base of the retrievers, with their arguments.

    `component` makes another class of the one that it decorates, so that subclasses call this by its name, not `super`.
    """

    document_store: VlmsearchDocumentStore
    filters: dict[str, Any] | None = None
    top_k: int = 10
    filter_policy: FilterPolicy = FilterPolicy.REPLACE

    def __post_init__(self) -> None:
        if not isinstance(self.document_store, VlmsearchDocumentStore):
            raise TypeError(f"document_store is a VlmsearchDocumentStore, not {type(self.document_store).__name__}")
        if self.top_k < 1:
            raise ValueError(f"top_k is at least 1, not {self.top_k}")
        self.filter_policy = FilterPolicy(self.filter_policy)

    def _filters(self, filters: dict[str, Any] | None) -> dict[str, Any] | None:
        return apply_filter_policy(self.filter_policy, self.filters, filters)


class _SearchRetriever(_Retriever):
    """A retriever that searches as `Pipeline.search` does, with its options."""

    def __init__(
        self,
        document_store: VlmsearchDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
        **options: Unpack[SearchKeywords],
    ) -> None:
        _Retriever.__init__(self, document_store, filters, top_k, filter_policy)
        self.options = options

    def _search(
        self, text: str | None, image: Image | None, filters: dict[str, Any] | None, top_k: int | None
    ) -> dict[str, list[Document]]:
        options: SearchKeywords = {**self.options, "limit": self.top_k if top_k is None else top_k}
        return {"documents": self.document_store.search(text, image=image, filters=self._filters(filters), **options)}


@component
class VlmsearchTextRetriever(_SearchRetriever):
    """A retriever of documents by a text, as `Pipeline.search` finds them.

    Where vectors are given to the store, a text is looked for by its words alone. Then this is the keyword side of a
    hybrid pipeline.

    Args:
        document_store: The store of the documents.
        filters: A filter in the form of Haystack.
        top_k: The most documents.
        filter_policy: The policy for a filter that `run` gets.
        options: More options of the search, such as ``min_score``: see `SearchOptions`.

    Raises:
        TypeError: The store is another one.
        ValueError: ``top_k`` is below 1.

    Example:
        >>> store = VlmsearchDocumentStore("mock:", encoder="mock:")
        >>> _ = store.write_documents([Document(content="a dog in the snow"), Document(content="a blue car")])
        >>> [found] = VlmsearchTextRetriever(store).run("snow")["documents"]
        >>> found.content
        'a dog in the snow'
    """

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Find documents by a text.

        Args:
            query: The text.
            filters: A filter in the form of Haystack.
            top_k: The most documents.

        Returns:
            Under ``documents``, the documents with their relevance, best first.
        """
        return self._search(query, None, filters, top_k)


@component
class VlmsearchImageRetriever(_SearchRetriever):
    """A retriever of documents that fit an image, or an image and a text.

    Args:
        document_store: The store of the documents, which encodes them itself.
        filters: A filter in the form of Haystack.
        top_k: The most documents.
        filter_policy: The policy for a filter that `run` gets.
        options: More options of the search, such as ``min_score``: see `SearchOptions`.

    Raises:
        TypeError: The store is another one.
        ValueError: ``top_k`` is below 1.

    Example:
        >>> import tempfile
        >>> from vlmsearch.demo.scenes import make_scene
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = f"{folder}/scene.png"
        ...     make_scene(1).draw(64).save(path)
        ...     store = VlmsearchDocumentStore("mock:", encoder="mock:")
        ...     _ = store.write_documents([Document(meta={"file_path": path, "title": "a scene"})])
        ...     [found] = VlmsearchImageRetriever(store, min_score=0.0).run(path)["documents"]
        >>> found.meta["title"]
        'a scene'
    """

    @component.output_types(documents=list[Document])
    def run(
        self,
        image: Image,
        query: str | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """Find documents by an image.

        Args:
            image: The path of a file, its bytes, or the content of a chat message.
            query: A text to look for beside it.
            filters: A filter in the form of Haystack.
            top_k: The most documents.

        Returns:
            Under ``documents``, the documents with their relevance, best first.
        """
        return self._search(query, image, filters, top_k)


@component
@dataclass(eq=False)
class VlmsearchEmbeddingRetriever(_Retriever):
    """A retriever of documents whose vectors are nearest to one that an embedder made.

    Args:
        document_store: The store of the documents.
        filters: A filter in the form of Haystack.
        top_k: The most documents.
        filter_policy: The policy for a filter that `run` gets.
        field: Which vectors to compare with where documents are encoded by the store, such as ``clip/image``; None for
            the given ones, or the first field.
        return_embedding: Whether documents come with the vectors that were given for them.

    Raises:
        TypeError: The store is another one.
        ValueError: ``top_k`` is below 1.

    Example:
        >>> store = VlmsearchDocumentStore("mock:", embedding_dim=2)
        >>> _ = store.write_documents([Document(content="right", embedding=[1, 0]), Document(embedding=[0, 1])])
        >>> [found] = VlmsearchEmbeddingRetriever(store, top_k=1).run([0.9, 0.1])["documents"]
        >>> found.content
        'right'
    """

    field: str | None = None
    return_embedding: bool = False

    @component.output_types(documents=list[Document])
    def run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Find documents by a vector.

        Args:
            query_embedding: The vector.
            filters: A filter in the form of Haystack.
            top_k: The most documents.

        Returns:
            Under ``documents``, the documents with their cosines, best first.
        """
        documents = self.document_store.nearest(
            query_embedding,
            filters=self._filters(filters),
            top_k=self.top_k if top_k is None else top_k,
            field=self.field,
            return_embedding=self.return_embedding,
        )
        return {"documents": documents}


@dataclass(eq=False)
class _Embedder(_Component):
    """A base of the embedders, with their arguments."""

    encoder: str = DEFAULT_ENCODER
    space: str | None = None

    @cached_property
    def _embedder(self) -> SpaceEmbedder:
        return SpaceEmbedder(self.encoder, self.space)

    def warm_up(self) -> None:
        """Open the encoder."""
        _ = self._embedder.encoder


@component
class VlmsearchTextEmbedder(_Embedder):
    """An embedder of queries, for any document store of Haystack.

    Args:
        encoder: The URL of the encoder.
        space: Which of its spaces; None for the first that texts and images share.

    Example:
        >>> embedder = VlmsearchTextEmbedder("mock:", space="minilm")
        >>> len(embedder.run("a dog")["embedding"])
        128
    """

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """Make the vector of a query.

        Args:
            text: The query.

        Returns:
            Under ``embedding``, a vector of length one.
        """
        if not isinstance(text, str):
            raise TypeError(f"VlmsearchTextEmbedder takes a string, not {type(text).__name__}")
        return {"embedding": self._embedder.texts([text], role="query")[0]}


@component
class VlmsearchDocumentEmbedder(_Embedder):
    """An embedder of the texts of documents.

    Args:
        encoder: The URL of the encoder.
        space: Which of its spaces; None for the first that texts and images share.

    Example:
        >>> embedder = VlmsearchDocumentEmbedder("mock:")
        >>> [document] = embedder.run([Document(content="a dog")])["documents"]
        >>> len(document.embedding)
        176
    """

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Make the vectors.

        Args:
            documents: The documents, each with a text.

        Returns:
            Under ``documents``, copies of them with vectors of length one.

        Raises:
            ValueError: A document has no text.
        """
        documents = list(documents)
        for document in documents:
            if not document.content:
                raise InvalidInputError("empty", f"the document {document.id!r} has no text to make a vector of")
        return _with_vectors(documents, self._embedder.texts([document.content or "" for document in documents]))


@component
@dataclass(eq=False)
class VlmsearchImageEmbedder(_Embedder):
    """An embedder of the images of documents.

    The vectors are comparable with those of texts in the same space.

    Args:
        encoder: The URL of the encoder.
        space: Which of its spaces; None for the first that texts and images share.
        file_path_meta_field: The key of the metadata that names the image file of a document without bytes.

    Example:
        >>> import tempfile
        >>> from vlmsearch.demo.scenes import make_scene
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = f"{folder}/scene.png"
        ...     make_scene(1).draw(64).save(path)
        ...     [document] = VlmsearchImageEmbedder("mock:").run([Document(meta={"file_path": path})])["documents"]
        >>> len(document.embedding)
        176
    """

    file_path_meta_field: str = "file_path"

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Make the vectors.

        Args:
            documents: The documents, each with the bytes or the path of an image.

        Returns:
            Under ``documents``, copies of them with vectors of length one.

        Raises:
            ValueError: A document has no image, or one that cannot be used.
        """
        documents = list(documents)
        images: list[ImageSource] = []
        for document in documents:
            path = document.meta.get(self.file_path_meta_field)
            if document.blob is None and not isinstance(path, str):
                raise InvalidInputError(
                    "empty",
                    f"the document {document.id!r} has no image: neither bytes nor {self.file_path_meta_field!r}",
                )
            images.append(document.blob.data if document.blob is not None else Path(str(path)))
        return _with_vectors(documents, self._embedder.images(images))


def _with_vectors(documents: list[Document], vectors: list[list[float]]) -> dict[str, list[Document]]:
    return {"documents": [replace(document, embedding=row) for document, row in zip(documents, vectors)]}
