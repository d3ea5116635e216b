"""An index as frameworks see one: documents whose metadata are any JSON, with bytes and with vectors of any model.

An index keeps scalars as metadata, images as paths and the vectors of its own encoder. A document of a framework may
have more. Other metadata are kept as JSON under one key, and bytes as files in a folder. Vectors of another model have
a space of their own.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import mimetypes
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vlmsearch._util.arguments import strings
from vlmsearch._util.batching import batches
from vlmsearch._util.closable import Closable
from vlmsearch._util.files import expand_home, replace_file
from vlmsearch._util.plain import plain_value, value_problem
from vlmsearch._util.tables import suggest
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError, InvalidBatchError, InvalidInputError, apply_to_each
from vlmsearch.index import add_reported
from vlmsearch.indexing.containers import with_parts
from vlmsearch.indexing.metadata import change_metadata, update_documents
from vlmsearch.integrations.sentence_transformers import choose_space
from vlmsearch.media.images import format_of
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import open_encoder, open_store, open_usual_encoder
from vlmsearch.search.arrange import diversify
from vlmsearch.search.options import MAX_PAGE, SearchOptions
from vlmsearch.stores.base import Store, WordSearch, check_manifest
from vlmsearch.stores.filters import Filter, parse_filter
from vlmsearch.stores.listing import all_documents
from vlmsearch.stores.readers import keep_file_readers
from vlmsearch.stores.versions import named_passages
from vlmsearch.types import (
    PASSAGE,
    READERS,
    Document,
    Field,
    Hit,
    ImageSource,
    Manifest,
    Match,
    MetadataChange,
    Passage,
    Record,
    RemoteImage,
    Role,
    Scalar,
    Space,
    Stamp,
    Vectors,
    check_metadata,
    document_of,
)

T = TypeVar("T")
EMBEDDING = Field("embedding", "text")
"""The field of vectors that were made elsewhere."""
JSON_KEY = "_json"
"""The key of the metadata under which everything is that no other key can hold."""
_FILE_NAME = re.compile(r"[0-9a-f]{32}-[0-9a-f]{32}(?:\.[\w.+-]+)?", re.ASCII)
"""Names of files of bytes: digests of the id and of the bytes, with the ending of their kind."""
_PAGE = 500
"""Documents that are read or written at a time."""
_SIGNS = {
    "==": "$in",
    "in": "$in",
    "!=": "$nin",
    "not in": "$nin",
    "nin": "$nin",
    ">": "$gt",
    ">=": "$gte",
    "<": "$lt",
    "<=": "$lte",
}
"""Comparisons of frameworks, as a store has them."""
LIST_OPERATORS = frozenset({"in", "not in", "nin"})
"""Comparisons with a list of values."""
_OPPOSITE = {"$in": "$nin", "$nin": "$in"}
_MEANT = {"where": "filter", "expr": "filter", "limit": "k"}
"""Options of other libraries, with what frameworks call them."""
_MAX_EXACT = 2**53
"""Whole numbers up to this are the same as doubles, as which filters compare them."""


class ExternalEncoder(Encoder):
    """A stand-in for a model that runs elsewhere: its vectors are given, and nothing is encoded here.

    Args:
        dim: The length of its vectors.
        fingerprint: The name of the model that an index keeps; by default the length of its vectors alone.

    Example:
        >>> ExternalEncoder(768).fingerprint
        'vectors:768'
    """

    def __init__(self, dim: int, *, fingerprint: str | None = None) -> None:
        if not isinstance(dim, int) or dim < 1:
            raise ConfigError(f"the length of vectors is a whole number of at least 1, not {dim!r}")
        self.fingerprint = fingerprint or f"vectors:{dim}"
        self.spaces = (Space(EMBEDDING.space, dim, frozenset({EMBEDDING.modality})),)

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Raise ConfigError: the model is elsewhere."""
        raise ConfigError("this index holds vectors that a framework gave: search it through the framework")

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Raise ConfigError: the model is elsewhere."""
        raise ConfigError("this index holds vectors that a framework gave: search it through the framework")


@dataclass(frozen=True)
class FrameworkDocument:
    """A document as a framework has it.

    Attributes:
        id: The id.
        text: The text.
        metadata: Any JSON.
        extra: Any JSON that belongs to the framework alone, and that no filter sees.
        image: The file of the image, also of one that was given as bytes; or the place of the image on a server.
        data: Bytes; they come back as the path of the file that keeps them.
        mime_type: The kind of the bytes, such as ``image/png``; empty where it is not known.
        is_image: Whether the bytes are the image.
        embedding: The vector of a model elsewhere, of any length above 0.

    Example:
        >>> FrameworkDocument("a", "a dog", {"tags": ["snow"]}).metadata["tags"]
        ['snow']
    """

    id: str
    text: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    image: Path | RemoteImage | None = None
    data: bytes | Path | None = None
    mime_type: str = ""
    is_image: bool = False
    embedding: Sequence[float] | None = None

    @property
    def file_bytes(self) -> bytes | None:
        """Return the bytes in the file that keeps them; None without a file."""
        return self.data.read_bytes() if isinstance(self.data, Path) and self.data.is_file() else None


Where = Mapping[str, object]
"""A filter that the store applies: see `vlmsearch.stores.filters`."""
Ranking = list[tuple[FrameworkDocument, float]]
"""Documents with their scores, best first."""
Hits = Sequence[tuple[FrameworkDocument | None, float]]
"""The same, with None for documents that were removed meanwhile."""


@dataclass(frozen=True)
class FrameworkFilter:
    """A filter of a framework, in the form of a store and as a function.

    Attributes:
        where: A filter that leaves out nothing that passes, for the store; None where no store can apply one.
        passes: The filter for the documents that the store returns; None where the store applies all of it.

    Example:
        >>> winter = FrameworkFilter({"season": "winter"}) & FrameworkFilter(passes=lambda document: document.id < "c")
        >>> winter.where, winter.keeps(FrameworkDocument("d"))
        ({'$and': [{'season': 'winter'}]}, False)
    """

    where: Where | None = None
    passes: Callable[[FrameworkDocument], bool] | None = None

    def __and__(self, other: FrameworkFilter) -> FrameworkFilter:
        """Return the filter of what passes both."""
        where = combination([self.where, other.where], is_all=True)
        return FrameworkFilter(where, lambda document: self.keeps(document) and other.keeps(document))

    def keeps(self, document: FrameworkDocument) -> bool:
        """Return whether a document that the store returned passes."""
        return self.passes is None or self.passes(document)

    @property
    def condition(self) -> Filter | None:
        """Return the filter of the store, parsed."""
        return None if self.where is None else parse_filter(self.where)


_ALL = FrameworkFilter()


class FrameworkIndex(Closable):
    """An index as frameworks use one. The first of its threads that uses it opens it.

    Args:
        store: The URL of the store; or an open pipeline, which its owner closes.
        encoder: The URL of the encoder of texts and images; None for the one that built the index, or for given
            vectors.
        dim: The length of given vectors; None for that of the first ones.
        image_folder: The folder for bytes, a file a document.
        passages: Whether texts that are longer than the model reads are encoded in passages.
        is_encoding: Whether a new index has the default encoder where neither of the two is named; else vectors are
            given.

    Raises:
        ConfigError: Two of a pipeline, an encoder and a length of given vectors are named.

    Example:
        >>> with FrameworkIndex("mock:", dim=2) as index:
        ...     index.write([FrameworkDocument("a", "a dog", {"tags": ["snow"]}, embedding=[3, 4])])
        ...     [(document, score)] = index.nearest([1, 0], limit=1)
        >>> document.text, round(score, 3), document.metadata
        ('a dog', 0.6, {'tags': ['snow']})
    """

    def __init__(
        self,
        store: str | Pipeline,
        *,
        encoder: str | None = None,
        dim: int | None = None,
        image_folder: str | Path | None = None,
        passages: bool = False,
        is_encoding: bool = False,
    ) -> None:
        if encoder is not None and dim is not None:
            raise ConfigError(f"vectors come from {encoder!r} or are given, of length {dim}: name one of the two")
        if isinstance(store, Pipeline) and (encoder, dim) != (None, None):
            raise ConfigError("a pipeline has an encoder: name no other one, and no length of vectors")
        self._source, self._encoder, self._dim, self._passages = store, encoder, dim, passages
        self._is_encoding = is_encoding
        self._manifest: Manifest | None = None
        self._folder = None if image_folder is None else expand_home(image_folder).absolute()
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._pipeline: Pipeline | None = None

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Refuse to be copied or pickled; TypeError says what to do."""
        raise TypeError("a store that is open is neither copied nor pickled: make another one with the same arguments")

    # ---- opening

    @property
    def store(self) -> Store:
        """Return the store, which is opened the first time."""
        if isinstance(self._source, Pipeline):
            return self._source.store
        with self._lock:
            if self._store is None:
                self._store = open_store(self._source)
            return self._store

    @property
    def pipeline(self) -> Pipeline | None:
        """Return the pipeline; None before the first given vectors, whose length nothing else says."""
        if isinstance(self._source, Pipeline):
            return self._source
        with self._lock:
            if self._pipeline is None:
                encoder = self._open_encoder()
                self._pipeline = None if encoder is None else Pipeline(encoder, self.store)
            return self._pipeline

    @property
    def gives_vectors(self) -> bool:
        """Return whether the framework gives the vectors."""
        if self._encoder is not None or isinstance(self._source, Pipeline):
            return False
        self._manifest = self._manifest or (self.store.manifest() if self._dim is None else None)
        if self._manifest is None:
            return self._dim is not None or not self._is_encoding
        return all(space.name == EMBEDDING.space for space in self._manifest.spaces)

    def close(self) -> None:
        """Close what was opened here, the store and the encoder; the next call opens them anew."""
        with self._lock, ExitStack() as stack:
            for part in (self._store, self._pipeline):
                if part is not None:
                    stack.callback(part.close)
            self._store = self._pipeline = self._manifest = None

    def _open_encoder(self) -> Encoder | None:
        """Open the encoder, or the stand-in for the model elsewhere.

        Where the index has vectors of this length, the latter has the name of their model.
        """
        if not self.gives_vectors:
            return open_usual_encoder(self._encoder, self.store.name, self._manifest)
        manifest = self.store.manifest()
        if manifest is None:
            return None if self._dim is None else ExternalEncoder(self._dim)
        dims = {space.name: space.dim for space in manifest.spaces}
        dim = self._dim or dims.get(EMBEDDING.space, 1)
        return ExternalEncoder(dim, fingerprint=manifest.fingerprint if dims == {EMBEDDING.space: dim} else None)

    def _ready(self, documents: Sequence[FrameworkDocument]) -> Pipeline:
        """Return the pipeline for writing.

        The first vectors say how long all are, where nothing else does.
        """
        with self._lock:
            pipeline = self.pipeline
            if pipeline is None:
                first = next((document.embedding for document in documents if document.embedding is not None), None)
                if first is None:
                    raise ConfigError("the first documents need vectors, or say how long vectors are")
                pipeline = self._pipeline = Pipeline(ExternalEncoder(len(first)), self.store)
            return pipeline

    # ---- writing

    def write(self, documents: Sequence[FrameworkDocument]) -> None:
        """Add documents, or replace those whose ids are there.

        Args:
            documents: The documents; of two with one id the later is kept. Where there is an encoder, each has a text
                or an image, and the vector that it may have is left out.

        Raises:
            InvalidBatchError: Some documents cannot be used; the others are there, unless metadata or vectors cannot
                be kept.
            ConfigError: A document has bytes, and there is no folder for them.
            IndexMismatchError: Another encoder built the index.
            BackendError: The encoder or the store failed.
        """
        if not documents:
            return
        pipeline = self._ready(documents)
        places = {document.id: place for place, document in enumerate(documents)}
        files = self._files(places)
        try:
            prepared = apply_to_each(lambda document: self._to_index(document, files), documents)
            if self.gives_vectors:
                encoder = pipeline.encoder
                pairs = zip(prepared, (document.embedding for document in documents))
                records = apply_to_each(lambda pair: _record(pair[0], encoder, pair[1]), pairs)
                self.store.bind(encoder.fingerprint, encoder.spaces)
                for some in batches([records[place] for place in places.values()], _PAGE):
                    self.store.upsert(keep_file_readers(some, self.store))
            else:
                last = (prepared[place] for place in places.values())
                report = add_reported(pipeline, last, passages=self._passages, retry_rejects=True)
                if report.rejects:
                    raise InvalidBatchError(
                        {places[reject.id]: InvalidInputError(reject.code, reject.message) for reject in report.rejects}
                    )
        finally:  # of what was replaced, and of what could not be written
            for path in files - self._files(places):
                path.unlink(missing_ok=True)

    def _to_index(self, document: FrameworkDocument, files: set[Path]) -> Document:
        """Return the document as the index keeps it.

        Its bytes are put into a file, which is added to ``files``.
        """
        image, name = document.image, ""
        if isinstance(image, Path):
            image = Path(os.path.abspath(image))
        if isinstance(document.data, bytes):
            if self._folder is None:
                raise ConfigError(
                    f"{document.id!r} has {len(document.data):,} bytes of data, which an index does not hold: give "
                    "`image_folder`, where they are kept, or the path of a file in place of them"
                )
            kind = document.mime_type or f"image/{format_of(document.data).lower()}"
            name = f"{_short(document.id)}-{_short(document.data)}" + (mimetypes.guess_extension(kind) or "")
            if not (self._folder / name).exists():  # which a document may have that cannot be read here
                files.add(self._folder / name)
            replace_file(self._folder / name, document.data)
            image = self._folder / name if document.is_image else image
        elif image in files:  # read as a path, and given back
            name = image.name
        flat, rest = _split(document.metadata)
        extra = {key: value for key, value in document.extra.items() if _is_json(value)}
        flat |= {key: value for key, value in document.extra.items() if key not in extra}
        norm = 1.0 if document.embedding is None else float(np.linalg.norm(np.asarray(document.embedding, np.float64)))
        has_norm = self.gives_vectors and abs(norm - 1) > 1e-6
        others = {"metadata": rest, "extra": extra, "data": name, "norm": norm if has_norm else None}
        return Document(document.id, document.text, image, _pack(flat, others))

    def update_metadata(self, ids: Sequence[str], metadata: Mapping[str, Any]) -> int:
        """Set keys of the metadata of documents. Nothing is encoded, and nothing that others write is undone.

        Args:
            ids: The ids of the documents; unknown ids are ignored.
            metadata: The keys with their new values; others stay.

        Returns:
            The number of documents that were changed.

        Raises:
            InvalidInputError: The metadata cannot be kept.
            BackendUnavailableError: Others kept changing the documents.
        """

        def changes(some: Sequence[str]) -> list[MetadataChange]:
            return [_with_metadata(record, metadata) for record in self.store.records(some)]

        count = update_documents(self.store, ids, changes)
        readers = _split(metadata)[0].get(READERS)
        return count if readers is None else count + change_metadata(self.store, ids, {READERS: readers})

    def delete(self, ids: Iterable[str]) -> int:
        """Remove documents, with the files of their bytes and the parts of files.

        Args:
            ids: The ids of the documents; unknown ids are ignored.

        Returns:
            The number of documents that were there.
        """
        count = 0
        for some in batches(with_parts(self.store, strings("ids", ids)), _PAGE):
            files = self._files(some)
            count += self.store.delete(some)
            for path in files:
                path.unlink(missing_ok=True)
        return count

    def clear(self) -> None:
        """Remove all documents."""
        self.delete(list(self.ids()))

    def _files(self, ids: Iterable[str]) -> set[Path]:
        """Return the files that hold bytes of documents."""
        if self._folder is None:
            return set()
        return {document.data for document in self.get(list(ids)) if isinstance(document.data, Path)}

    # ---- reading

    def __len__(self) -> int:
        """Return how many documents there are."""
        return len(self.store)

    def ids(self) -> Iterator[str]:
        """Iterate over all ids, in no particular order."""
        return self.store.ids()

    def get(self, ids: Iterable[str]) -> list[FrameworkDocument]:
        """Return documents, without vectors.

        Args:
            ids: The ids of the documents, or of passages of long texts.

        Returns:
            The documents that are there, in the order of ``ids``.
        """
        documents = []
        for some in batches(strings("ids", ids), _PAGE):
            passages = named_passages(self.store, some)
            documents += [unpack(stored, self._folder, passages.get(stored.id)) for stored in self.store.get(some)]
        return documents

    def with_embeddings(self, documents: Sequence[FrameworkDocument]) -> list[FrameworkDocument]:
        """Return documents with the vectors that were given for them, as float32 has them."""
        records: dict[str, Record] = {}
        for some in batches([document.id for document in documents] if self.gives_vectors else [], _PAGE):
            records |= {record.document.id: record for record in self.store.records(some)}
        return [
            replace(document, embedding=_embedding(records[document.id])) if document.id in records else document
            for document in documents
        ]

    def find(self, filter: FrameworkFilter = _ALL) -> Iterator[FrameworkDocument]:
        """Iterate over the documents that pass a filter, in the order of their ids.

        Args:
            filter: The filter; by default for all documents.

        Returns:
            An iterator, which reads as it goes.
        """
        for document in all_documents(self.store, filter.condition):
            if filter.keeps(unpacked := unpack(document, self._folder)):
                yield unpacked

    def nearest(
        self,
        vector: Sequence[float],
        *,
        limit: int,
        fields: Sequence[Field] = (),
        ids: Sequence[str] | None = None,
        filter: FrameworkFilter = _ALL,
    ) -> Ranking:
        """Return the documents whose vectors are nearest to one that was made elsewhere.

        Args:
            vector: The query's, of any length above 0.
            limit: Maximum number of documents.
            fields: Which vectors of one space to compare with, by the highest cosine; by default the given ones, or
                the encoder's first field.
            ids: The documents to compare with; None for all.
            filter: A filter that the documents pass; as many are read as it takes.

        Returns:
            Documents with their cosines, best first.

        Raises:
            InvalidInputError: The vector is of another dimension than the field, zero or not finite.
            ConfigError: There is no such field.
            IndexMismatchError: Another encoder built the index.
        """
        pipeline, manifest = self.pipeline, self.store.manifest()
        if pipeline is None or manifest is None or limit < 1:
            return []
        encoder = pipeline.encoder
        check_manifest(self.store.name, manifest, encoder.fingerprint, encoder.spaces)
        compared = fields or encoder.spaces[0].fields[:1]
        dims = {field: space.dim for space in encoder.spaces for field in space.fields}
        for name in compared:
            if name not in dims:
                raise ConfigError(f"{self.store.name} has no field {name}; it has {', '.join(map(str, dims))}")
        query, condition = unit_vector(vector, dims[compared[0]])[None], filter.condition

        def fetch(depth: int) -> Hits:
            cosines: dict[str, float] = {}
            for name in compared:
                if ids is None:
                    hits = self.store.search(name, query, limit=depth, where=condition)[0]
                else:
                    hits = self.store.compare(name, query, ids, where=condition)
                for hit in hits:
                    cosines[hit.id] = max(hit.score, cosines.get(hit.id, hit.score))
            return self._read([Hit(id, score) for id, score in best_of(cosines, depth)])

        return _first(fetch, limit, filter)

    def words(self, query: str, *, limit: int, filter: FrameworkFilter = _ALL) -> Ranking:
        """Return the documents whose words fit a query best, by BM25.

        Args:
            query: Any string.
            limit: Maximum number of documents.
            filter: A filter that the documents pass.

        Returns:
            Documents with scores from 0 to 1: BM25 by the most that any document could reach.

        Raises:
            ConfigError: The store ranks no words.
        """
        store = self.store
        if not isinstance(store, WordSearch):
            raise ConfigError(f"{store.name} ranks no words: docs/howto/stores.md says which stores do")
        condition = filter.condition

        def fetch(depth: int) -> Hits:
            matches = store.search_words(query, limit=depth, where=condition)
            return self._read([Hit(hit.id, hit.score / matches.max_score) for hit in matches.hits])

        return _first(fetch, limit, filter) if limit > 0 else []

    def search(self, text: str | None, *, filter: FrameworkFilter = _ALL, **arguments: Any) -> Ranking:
        """Return what `Pipeline.search` finds; parts of one file are documents like others here.

        Of a document with a long text it is the passage that fits best.

        Args:
            text: The text to look for.
            filter: A filter that the matches pass; where the store cannot apply it, for the 10,000 best documents.
            **arguments: Other arguments of `Pipeline.search`; None is the same as leaving one out.

        Returns:
            Documents with their relevance from 0 to 1, best first.

        Raises:
            ConfigError: Vectors are given to this index, and nothing can be encoded; or an option is wrong.
            InvalidInputError: There is nothing to look for, or the image cannot be used.
        """
        pipeline, chosen = self.pipeline, {name: value for name, value in arguments.items() if value is not None}
        limit, narrowed = chosen.pop("limit", SearchOptions.limit), filter & FrameworkFilter(chosen.pop("where", None))
        if pipeline is None or self.gives_vectors:
            raise ConfigError("a text or an image is looked for where an encoder is named, such as onnx:default")
        if limit < 1:
            return []

        def fetch(depth: int) -> Hits:
            page = {"limit": min(depth, MAX_PAGE), "where": narrowed.where}
            matches = pipeline.search(text, **{"group": False, **chosen, **page})
            return [(unpack(match.document, self._folder, match.passage), match.score) for match in matches]

        return _first(fetch, limit, narrowed)

    def diversify(self, ranked: Ranking, diversity: float) -> Ranking:
        """Return documents in the order of maximal marginal relevance: see `vlmsearch.search.arrange.diversify`.

        Args:
            ranked: The documents, best first.
            diversity: From 0, which is the order of the scores, to 1.

        Returns:
            The same documents.
        """
        documents = {document.id: document for document, _ in ranked}
        records = {record.document.id: record for record in self.store.encoded(list(documents))}
        matches = diversify([Match(Document(document.id), score, {}) for document, score in ranked], records, diversity)
        return [(documents[match.document.id], match.score) for match in matches]

    def _read(self, hits: Sequence[Hit]) -> Hits:
        documents = {document.id: document for document in self.get([hit.id for hit in hits])}
        return [(documents.get(hit.id), hit.score) for hit in hits]


def _first(fetch: Callable[[int], Hits], limit: int, filter: FrameworkFilter) -> Ranking:
    """Return the first documents that pass, of as many as it takes."""
    depth = limit  # enough, where the store applies all of a filter
    while True:
        hits = fetch(depth)
        passing = ((document, score) for document, score in hits if document is not None and filter.keeps(document))
        first = list(islice(passing, limit))
        if len(first) == limit or len(hits) < depth:
            return first
        depth = 4 * depth + _PAGE


def best_of(scores: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    """Return the ids with the highest scores, best first and then by id."""
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]


def unpack(document: Document, image_folder: Path | None = None, passage: Passage | None = None) -> FrameworkDocument:
    """Return a document of an index, or of a service, as a framework has it.

    Args:
        document: The document.
        image_folder: Where bytes are kept.
        passage: The passage of its text to return in its place. Its metadata name its document and its place.

    Returns:
        The document, without its vector.
    """
    metadata: dict[str, object] = {
        key: list(value) if isinstance(value, tuple) else value for key, value in document.metadata.items()
    }
    id, text, place = document.id, document.text, dict[str, object]()
    if passage is not None:
        of = document_of(id)
        id, text = f"{of}{PASSAGE}{passage.number}", passage.text
        place = {"document_id": of, "passage": passage.number, "heading": passage.heading}
        place |= {"start_index": passage.start, "end_index": passage.end}
    others = _unpack_json(metadata.pop(JSON_KEY, None))
    name, image = _file_name(document, others.get("data")), document.image
    is_image = bool(name) and isinstance(image, Path) and image.name == name
    file = image if is_image else image_folder / name if name and image_folder is not None else None
    return FrameworkDocument(
        id,
        text,
        {**metadata, **others.get("metadata", {}), **place},
        others.get("extra", {}),
        image if isinstance(image, (Path, RemoteImage)) else None,
        file if isinstance(file, Path) else None,
        mimetypes.guess_type(name)[0] or "",
        is_image,
    )


def columns(what: str, items: Iterable[Any], **others: Iterable[Any] | None) -> list[list[Any]]:
    """Return items and what is given for each as lists. A text is a list of one; None is a list of None.

    ValueError where there are not as many.
    """
    rows = [items] if isinstance(items, str) else list(items)
    lists = {name: [None] * len(rows) if values is None else list(values) for name, values in others.items()}
    for name, values in lists.items():
        if isinstance(others[name], str) or len(values) != len(rows):
            raise ValueError(f"there are {len(rows)} {what} and {len(values)} {name}")
    return [rows, *lists.values()]


def check_options(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError for an option that a class or a method does not have."""
    names = list(known)
    for name in given:
        if name not in names:
            have = f"it has {', '.join(names)}" if names else "it has none"
            raise TypeError(f"{what} has no option {name!r}; {suggest(_MEANT.get(name, name), names)}{have}")


def awaited(method: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Return a method that runs another one in a thread, to be awaited."""

    @wraps(method)
    async def run(*args: Any, **kwargs: Any) -> T:
        return await asyncio.to_thread(method, *args, **kwargs)

    return run


def unit_vector(values: Sequence[float], dim: int) -> Vectors:
    """Return a vector of length one; InvalidInputError for one that has no direction, or another dimension."""
    row = np.asarray(values, np.float64)
    norm = float(np.linalg.norm(row)) if row.shape == (dim,) else math.nan
    if not 0 < norm < math.inf:
        what = "is zero or not finite" if row.shape == (dim,) else f"has the shape {row.shape}"
        raise InvalidInputError("invalid", f"a vector of this index has {dim} numbers and a length; this one {what}")
    return (row / norm).astype(np.float32)


def comparison(key: str, operator: str, value: object, *, negated: bool) -> Where | None:
    """Return the filter of a store for a comparison of a framework.

    Args:
        key: The key of the metadata.
        operator: The comparison in the words of the framework, such as ``==`` or ``not in``.
        value: The value to compare with, or the list of them.
        negated: Whether the documents are wanted that do not pass.

    Returns:
        The filter; None where a store would compare in another way than Python.
    """
    sign, values = _SIGNS.get(operator), value if isinstance(value, list) and operator in LIST_OPERATORS else [value]
    if sign is None or not key or key[0] == "$" or key == JSON_KEY or not values or not all(map(_comparable, values)):
        return None
    if sign in _OPPOSITE:
        equal = [other for value in values for other in _equal_values(value)]
        return {key: {_OPPOSITE[sign] if negated else sign: equal}}
    return None if negated or isinstance(values[0], (str, bool)) else {key: {sign: values[0]}}


def combination(parts: Sequence[Where | None], *, is_all: bool) -> Where | None:
    """Return the filter of a store that demands all of some filters, or one of them.

    None where no store can apply it.
    """
    known = [part for part in parts if part is not None]
    if is_all:
        return {"$and": known} if known else None
    return {"$or": known} if known and len(known) == len(parts) else None


def _comparable(value: object) -> bool:
    """Return whether a store compares a value with metadata exactly as Python does."""
    if isinstance(value, (str, bool)):
        return True
    if isinstance(value, int):
        return abs(value) <= _MAX_EXACT
    return isinstance(value, float) and math.isfinite(value)


def _equal_values(value: object) -> list[object]:
    """Return all that equals a value in Python: 1 and True do, and in an index they do not."""
    if isinstance(value, bool):
        return [value, int(value)]
    return [value, bool(value)] if value in (0, 1) else [value]


class SpaceEmbedder:
    """One space of an encoder, which is opened when it is first used.

    Args:
        encoder: The URL of the encoder.
        space: The name of the space; None for the first that texts and images share, or else the first.

    Example:
        >>> [vector] = SpaceEmbedder("mock:", "minilm").texts(["a dog"])
        >>> len(vector)
        128
    """

    def __init__(self, encoder: str, space: str | None) -> None:
        self._url, self._name = encoder, space

    @cached_property
    def encoder(self) -> Encoder:
        """Return the encoder, which is opened the first time."""
        return open_encoder(self._url)

    @property
    def _space(self) -> str:
        spaces = self.encoder.spaces
        shared = max(spaces, key=lambda space: len(space.modalities))
        return (shared if self._name is None else choose_space(self.encoder, self._name, spaces)).name

    def texts(self, texts: Sequence[str], *, role: Role = "document") -> list[list[float]]:
        """Return the vectors of texts, of length one."""
        rows: list[list[float]] = self.encoder.encode_texts(texts, role=role)[self._space].tolist() if texts else []
        return rows

    def images(self, images: Sequence[ImageSource]) -> list[list[float]]:
        """Return the vectors of images, of length one."""
        rows: list[list[float]] = self.encoder.encode_images(images)[self._space].tolist() if images else []
        return rows


def _split(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata that filters see, and the rest, which is JSON.

    A list that would not come back as it was is in both. What is neither is among the first, as a `Document` says that
    it cannot be kept.
    """
    flat: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, value in metadata.items():
        name, plain = str(plain_value(key)), plain_value(value)
        if name == READERS:  # in the form of a document's, in which what is no name opens nothing
            flat |= {key: value for key, value in Document("", metadata={name: value}).metadata.items() if key == name}
            continue
        is_kept = name != JSON_KEY and not value_problem(name, plain)
        if is_kept:
            flat[name] = plain
        if not is_kept or (isinstance(value, list) and list(plain) != value):
            (rest if _is_json(value) else flat)[name] = value
    return flat, rest


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, default=_json_value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _json_value(value: object) -> Scalar | None:
    """Return a value that JSON does not have as one that it has.

    TypeError where there is none.
    """
    plain = plain_value(value)
    if plain is None or isinstance(plain, (str, int, float)):
        return plain
    raise TypeError(f"no JSON: {type(value).__name__}")


def _pack(flat: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that an index keeps."""
    parts = {key: value for key, value in others.items() if value}
    return {**flat, JSON_KEY: json.dumps(parts, ensure_ascii=False, default=_json_value)} if parts else dict(flat)


def _file_name(document: Document, name: object) -> str:
    """Return the name of the file of a document's bytes; "" for that of another."""
    is_own = isinstance(name, str) and _FILE_NAME.fullmatch(name) and name[:32] == _short(document_of(document.id))
    return str(name) if is_own else ""


def _short(data: str | bytes) -> str:
    return hashlib.sha256(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).hexdigest()[:32]


def _unpack_json(packed: object) -> dict[str, Any]:
    """Return what stands under the key for the rest; nothing where somebody else put something there."""
    try:
        parts = json.loads(packed) if isinstance(packed, str) else {}
    except (ValueError, RecursionError):
        return {}
    return parts if isinstance(parts, dict) else {}


def _record(document: Document, encoder: Encoder, embedding: Sequence[float] | None) -> Record:
    vectors = {} if embedding is None else {EMBEDDING: unit_vector(embedding, encoder.spaces[0].dim)}
    return Record(document, vectors, Stamp(_digest(document, vectors)), encoder.fingerprint)


def _embedding(record: Record) -> list[float] | None:
    vector = record.vectors.get(EMBEDDING)
    norm = _unpack_json(record.document.metadata.get(JSON_KEY)).get("norm", 1.0)
    return None if vector is None else [float(value) for value in vector.astype(np.float64) * norm]


def _with_metadata(record: Record, metadata: Mapping[str, Any]) -> MetadataChange:
    """Return the change that sets keys of metadata, with a digest of its own.

    The source would bring the old ones back.
    """
    document = record.document
    replaced = {JSON_KEY, *metadata} - {READERS}  # a missing value opens nothing
    before = {key: value for key, value in document.metadata.items() if key not in replaced}
    flat, rest = _split(metadata)
    check_metadata(flat)
    others = _unpack_json(document.metadata.get(JSON_KEY))
    old = {key: value for key, value in others.get("metadata", {}).items() if key not in metadata}
    packed = _pack(before | flat, others | {"metadata": old | rest})
    changed = replace(document, metadata=packed)
    return MetadataChange(document, record.stamp, changed.metadata, _digest(changed, record.vectors))


def _digest(document: Document, vectors: Mapping[Field, Vectors]) -> str:
    """Return a digest of all of a document that its vectors were given for."""
    parts = [document.text, str(document.image), sorted(document.metadata.items())]
    digest = hashlib.sha256(json.dumps(parts).encode())
    for name in sorted(vectors):
        digest.update(str(name).encode() + vectors[name].tobytes())
    return digest.hexdigest()
