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
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from typing_extensions import Unpack

from vlmsearch._util.batching import batches
from vlmsearch._util.closable import Closable
from vlmsearch._util.files import expand_home, replace_file
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError, InvalidBatchError, InvalidInputError, apply_to_each
from vlmsearch.index import add_reported
from vlmsearch.indexing.containers import with_parts
from vlmsearch.indexing.metadata import update_documents
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.search.arrange import diversify
from vlmsearch.search.options import LONGEST_PAGE, SearchKeywords
from vlmsearch.stores.base import Store, WordSearch, check_manifest
from vlmsearch.stores.filters import Filter, parse_filter
from vlmsearch.stores.listing import documents_after
from vlmsearch.types import (
    Document,
    Field,
    Hit,
    ImageSource,
    Match,
    MetadataChange,
    Record,
    RemoteImage,
    Role,
    Scalar,
    Space,
    Stamp,
    Vectors,
    check_metadata,
)

T = TypeVar("T")
EMBEDDING = Field("embedding", "text")
"""The field of vectors that were made elsewhere."""
KEPT = "_json"
"""The key of the metadata under which everything is that no other key can hold."""
_PAGE = 500
"""Documents that are read or written at a time."""
_OPPOSITE = {"$in": "$nin", "$nin": "$in"}
_LARGEST_EXACT = 2**53
"""Whole numbers up to this are the same as doubles, as which filters compare them."""


class GivenVectors(Encoder):
    """A stand-in for a model that runs elsewhere: its vectors are given, and nothing is encoded here.

    Args:
        dim: The length of its vectors.
        fingerprint: The name of the model that an index keeps; by default the length of its vectors alone.

    Example:
        >>> GivenVectors(768).fingerprint
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
        suffix: The ending of that file.
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
    suffix: str = ""
    is_image: bool = False
    embedding: Sequence[float] | None = None


Passes = Callable[[FrameworkDocument], bool]
"""A filter of the framework that the store cannot apply."""
Where = Mapping[str, object]
"""A filter that the store applies: see `vlmsearch.stores.filters`."""
Found = list[tuple[FrameworkDocument, float]]
"""Documents with their scores, best first."""
Hits = Sequence[tuple[FrameworkDocument | None, float]]
"""The same, with None for documents that were removed meanwhile."""


class FrameworkIndex(Closable):
    """An index as frameworks use one. The first of its threads that uses it opens it.

    Args:
        store: The URL of the store; or an open pipeline, which its owner closes.
        encoder: The URL of the encoder of texts and images; None where vectors are given.
        dim: The length of given vectors; None for that of the first ones.
        image_folder: The folder for bytes, a file a document.

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
    ) -> None:
        if encoder is not None and dim is not None:
            raise ConfigError(f"vectors come from {encoder!r} or are given, of length {dim}: name one of the two")
        if isinstance(store, Pipeline) and (encoder, dim) != (None, None):
            raise ConfigError("a pipeline has an encoder: name no other one, and no length of vectors")
        self._source, self._encoder, self._dim = store, encoder, dim
        self._folder = None if image_folder is None else expand_home(image_folder).absolute()
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._pipeline: Pipeline | None = None

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
        """Return the pipeline; None where vectors are given and none were yet, so that their length is not known."""
        if isinstance(self._source, Pipeline):
            return self._source
        with self._lock:
            if self._pipeline is None:
                encoder = open_encoder(self._encoder) if self._encoder is not None else self._given_vectors()
                self._pipeline = None if encoder is None else Pipeline(encoder, self.store)
            return self._pipeline

    @property
    def gives_vectors(self) -> bool:
        """Return whether the framework gives the vectors."""
        return self._encoder is None and not isinstance(self._source, Pipeline)

    def close(self) -> None:
        """Close what was opened here, the store and the encoder; the next call opens them anew."""
        with self._lock, ExitStack() as stack:
            for part in (self._store, self._pipeline):
                if part is not None:
                    stack.callback(part.close)
            self._store = self._pipeline = None

    def _given_vectors(self) -> GivenVectors | None:
        """Return what stands for the model elsewhere; where the index has vectors of this length, the one it names."""
        manifest = self.store.manifest()
        if manifest is None:
            return None if self._dim is None else GivenVectors(self._dim)
        dims = {space.name: space.dim for space in manifest.spaces}
        dim = self._dim or dims.get(EMBEDDING.space, 1)
        return GivenVectors(dim, fingerprint=manifest.fingerprint if dims == {EMBEDDING.space: dim} else None)

    def _ready(self, documents: Sequence[FrameworkDocument]) -> Pipeline:
        """Return the pipeline for writing; the first vectors say how long all are, where nothing else does."""
        with self._lock:
            pipeline = self.pipeline
            if pipeline is None:
                first = next((document.embedding for document in documents if document.embedding is not None), None)
                if first is None:
                    raise ConfigError("the first documents need vectors, or say how long vectors are")
                pipeline = self._pipeline = Pipeline(GivenVectors(len(first)), self.store)
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
            kept = apply_to_each(lambda document: self._keep(document, files), documents)
            if self.gives_vectors:
                encoder = pipeline.encoder
                every = zip(kept, (document.embedding for document in documents))
                records = apply_to_each(lambda pair: _record(pair[0], encoder, pair[1]), every)
                self.store.bind(encoder.fingerprint, encoder.spaces)
                for some in batches([records[place] for place in places.values()], _PAGE):
                    self.store.upsert(some)
            else:
                report = add_reported(pipeline, (kept[place] for place in places.values()), retry_rejects=True)
                if report.rejects:
                    raise InvalidBatchError(
                        {places[reject.id]: InvalidInputError(reject.code, reject.message) for reject in report.rejects}
                    )
        finally:  # of what was replaced, and of what could not be written
            for path in files - self._files(places):
                path.unlink(missing_ok=True)

    def _keep(self, given: FrameworkDocument, files: set[Path]) -> Document:
        """Return the document as the index keeps it, its bytes in a file, which is added to ``files``."""
        image, name = given.image, ""
        if isinstance(given.data, bytes):
            if self._folder is None:
                raise ConfigError(
                    f"{given.id!r} has {len(given.data):,} bytes of data, which an index does not hold: give "
                    "`image_folder`, where they are kept, or the path of a file in place of them"
                )
            digests = [hashlib.sha256(part).hexdigest()[:32] for part in (given.id.encode(), given.data)]
            name = "-".join(digests) + given.suffix
            files.add(self._folder / name)
            replace_file(self._folder / name, given.data)
            image = self._folder / name if given.is_image else image
        elif image in files:  # read as a path, and given back
            name = image.name
        flat, rest = _split(given.metadata)
        norm = 1.0 if given.embedding is None else float(np.linalg.norm(np.asarray(given.embedding, np.float64)))
        has_norm = self.gives_vectors and abs(norm - 1) > 1e-6
        parts = {"metadata": rest, "extra": dict(given.extra), "data": name, "norm": norm if has_norm else None}
        kept = {key: value for key, value in parts.items() if value}
        try:
            packed = {KEPT: json.dumps(kept, ensure_ascii=False)} if kept else {}
        except (TypeError, ValueError) as exc:
            raise InvalidInputError("invalid", f"the metadata of {given.id!r} cannot be kept as JSON: {exc}") from exc
        return Document(given.id, given.text, image, {**flat, **packed})

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

        return update_documents(self.store, ids, changes)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents, with the files of their bytes, and with a file of several documents all of its parts.

        Args:
            ids: The ids of the documents; unknown ids are ignored.

        Returns:
            The number of documents that were there.
        """
        if self.store.manifest() is None:
            return 0
        count = 0
        for some in batches(with_parts(self.store, ids), _PAGE):
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
        return len(self.store) if self.store.manifest() is not None else 0

    def ids(self) -> Iterator[str]:
        """Iterate over all ids, in no particular order."""
        return self.store.ids() if self.store.manifest() is not None else iter(())

    def get(self, ids: Sequence[str]) -> list[FrameworkDocument]:
        """Return documents, without vectors.

        Args:
            ids: The ids of the documents.

        Returns:
            The documents that are there, in the order of ``ids``.
        """
        if self.store.manifest() is None:
            return []
        return [unpack(document, self._folder) for some in batches(ids, _PAGE) for document in self.store.get(some)]

    def with_embeddings(self, documents: Sequence[FrameworkDocument]) -> list[FrameworkDocument]:
        """Return documents with the vectors that were given for them, as float32 has them."""
        records: dict[str, Record] = {}
        for some in batches([document.id for document in documents] if self.gives_vectors else [], _PAGE):
            records |= {record.document.id: record for record in self.store.records(some)}
        return [
            replace(document, embedding=_embedding(records[document.id])) if document.id in records else document
            for document in documents
        ]

    def find(
        self, where: Mapping[str, object] | None = None, passes: Passes | None = None
    ) -> Iterator[FrameworkDocument]:
        """Iterate over the documents that pass a filter, in the order of their ids.

        Args:
            where: A filter that the store applies: see `vlmsearch.stores.filters`.
            passes: A filter for the documents that the store returns.

        Returns:
            An iterator, which reads as it goes.
        """
        if self.store.manifest() is None:
            return
        condition, last = _parsed(where), ""
        while page := documents_after(self.store, last, _PAGE, condition):
            last = page[-1].id
            unpacked = (unpack(document, self._folder) for document in page)
            yield from (document for document in unpacked if passes is None or passes(document))

    def nearest(
        self,
        vector: Sequence[float],
        *,
        limit: int,
        fields: Sequence[Field] = (),
        ids: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        passes: Passes | None = None,
    ) -> Found:
        """Return the documents whose vectors are nearest to one that was made elsewhere.

        Args:
            vector: The query's, of any length above 0.
            limit: The most documents.
            fields: Which vectors of one space to compare with, by the highest cosine; by default the given ones, or
                the encoder's first field.
            ids: The documents to compare with; None for all.
            where: A filter that the store applies.
            passes: A filter for the documents that the store returns; it reads as many as it takes.

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
        query, condition = unit_vector(vector, dims[compared[0]])[None], _parsed(where)

        def fetch(depth: int) -> Hits:
            cosines: dict[str, float] = {}
            for name in compared:
                if ids is None:
                    hits = self.store.search(name, query, limit=depth, where=condition)[0]
                else:
                    hits = self.store.compare(name, query, ids, where=condition)
                for hit in hits:
                    cosines[hit.id] = max(hit.score, cosines.get(hit.id, hit.score))
            best = sorted(cosines, key=lambda id: (-cosines[id], id))[:depth]
            return self._read([Hit(id, cosines[id]) for id in best])

        return _first(fetch, limit, passes)

    def words(
        self, query: str, *, limit: int, where: Mapping[str, object] | None = None, passes: Passes | None = None
    ) -> Found:
        """Return the documents whose words fit a query best, by BM25.

        Args:
            query: Any string.
            limit: The most documents.
            where: A filter that the store applies.
            passes: A filter for the documents that the store returns.

        Returns:
            Documents with scores from 0 to 1: BM25 by the most that any document could reach.

        Raises:
            ConfigError: The store ranks no words.
        """
        store = self.store
        if not isinstance(store, WordSearch):
            raise ConfigError(f"{store.name} ranks no words: docs/howto/stores.md says which stores do")
        if store.manifest() is None or limit < 1:
            return []
        condition = _parsed(where)

        def fetch(depth: int) -> Hits:
            matches = store.search_words(query, limit=depth, where=condition)
            return self._read([Hit(hit.id, hit.score / matches.max_score) for hit in matches.hits])

        return _first(fetch, limit, passes)

    def search(
        self,
        text: str | None,
        *,
        image: ImageSource | None = None,
        like: str | Iterable[str] = (),
        without: str | ImageSource | Sequence[str] | None = None,
        passes: Passes | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Found:
        """Return what `Pipeline.search` finds; parts of one file are documents like others here.

        Args:
            text: The text to look for.
            image: The image to look for.
            like: Ids of documents whose vectors to look for.
            without: A text or an image that the matches must not be like.
            passes: A filter for the 10,000 best documents.
            options: How the matches are chosen and arranged: see `SearchOptions`.

        Returns:
            Documents with their relevance from 0 to 1, best first.

        Raises:
            ConfigError: Vectors are given to this index, and nothing can be encoded; or an option is wrong.
            InvalidInputError: There is nothing to look for, or the image cannot be used.
        """
        pipeline, limit = self.pipeline, options.pop("limit", 10)
        if pipeline is None or self.gives_vectors:
            raise ConfigError("a text or an image is looked for where an encoder is named, such as onnx:default")
        if limit < 1:
            return []

        def fetch(depth: int) -> Hits:
            given: SearchKeywords = {"group": False, **options, "limit": min(depth, LONGEST_PAGE)}
            matches = pipeline.search(text, image=image, like=like, without=without, **given)
            return [(unpack(match.document, self._folder), match.score) for match in matches]

        return _first(fetch, limit, passes)

    def diversify(self, ranked: Found, diversity: float) -> Found:
        """Return documents in the order of maximal marginal relevance: see `vlmsearch.search.arrange.diversify`.

        Args:
            ranked: The documents, best first.
            diversity: From 0, which is the order of the scores, to 1.

        Returns:
            The same documents.
        """
        documents = {document.id: document for document, _ in ranked}
        records = {record.document.id: record for record in self.store.records(list(documents))}
        matches = diversify([Match(Document(document.id), score, {}) for document, score in ranked], records, diversity)
        return [(documents[match.document.id], match.score) for match in matches]

    def _read(self, hits: Sequence[Hit]) -> Hits:
        documents = {document.id: document for document in self.get([hit.id for hit in hits])}
        return [(documents.get(hit.id), hit.score) for hit in hits]


def _first(fetch: Callable[[int], Hits], limit: int, passes: Passes | None) -> Found:
    """Return the first documents that pass, of as many as it takes."""
    depth = limit  # enough, where the store applies all of a filter
    while True:
        hits = fetch(depth)
        there = (
            (document, score)
            for document, score in hits
            if document is not None and (passes is None or passes(document))
        )
        first = list(islice(there, limit))
        if len(first) == limit or len(hits) < depth:
            return first
        depth = 4 * depth + _PAGE


def unpack(document: Document, image_folder: Path | None = None) -> FrameworkDocument:
    """Return a document of an index, or of a service, as a framework has it.

    Args:
        document: The document.
        image_folder: Where bytes are kept.

    Returns:
        The document, without its vector.
    """
    metadata = dict(document.metadata)
    kept = _kept(metadata.pop(KEPT, None))
    name, image = kept.get("data", ""), document.image
    is_image = bool(name) and isinstance(image, Path) and image.name == name
    file = image if is_image else image_folder / name if name and image_folder is not None else None
    return FrameworkDocument(
        document.id,
        document.text,
        {**metadata, **kept.get("metadata", {})},
        kept.get("extra", {}),
        image if isinstance(image, (Path, RemoteImage)) else None,
        file if isinstance(file, Path) else None,
        Path(name).suffix,
        is_image,
    )


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


def comparison(key: str, sign: str, values: Sequence[object], *, negated: bool) -> Where | None:
    """Return the filter of a store for a comparison of a framework.

    Args:
        key: The key of the metadata.
        sign: ``$in``, ``$nin``, ``$gt``, ``$gte``, ``$lt`` or ``$lte``; the last four have one value.
        values: The values to compare with.
        negated: Whether the documents are wanted that do not pass.

    Returns:
        The filter; None where a store would compare in another way than Python.
    """
    if not key or key[0] == "$" or key == KEPT or not values or not all(map(_comparable, values)):
        return None
    if sign in _OPPOSITE:
        equal = [other for value in values for other in _equal_values(value)]
        return {key: {_OPPOSITE[sign] if negated else sign: equal}}
    return None if negated or isinstance(values[0], (str, bool)) else {key: {sign: values[0]}}


def combination(parts: Sequence[Where | None], *, every: bool) -> Where | None:
    """Return the filter of a store that demands all of some filters, or one of them; None where no store can say."""
    known = [part for part in parts if part is not None]
    if every:
        return {"$and": known} if known else None
    return {"$or": known} if known and len(known) == len(parts) else None


def _comparable(value: object) -> bool:
    """Return whether a store compares a value with metadata exactly as Python does."""
    if isinstance(value, (str, bool)):
        return True
    if isinstance(value, int):
        return abs(value) <= _LARGEST_EXACT
    return isinstance(value, float) and math.isfinite(value)


def _equal_values(value: object) -> list[object]:
    """Return all that equals a value in Python: 1 and True do, and in an index they do not."""
    if isinstance(value, bool):
        return [value, int(value)]
    return [value, bool(value)] if value in (0, 1) else [value]


def shared_space(encoder: Encoder, name: str | None) -> Space:
    """Return the space of this name, or by default the first that texts and images share, or else the first.

    ConfigError where there is none of this name.
    """
    if name is None:
        return max(encoder.spaces, key=lambda space: len(space.modalities))
    for space in encoder.spaces:
        if space.name == name:
            return space
    there = ", ".join(space.name for space in encoder.spaces)
    raise ConfigError(f"{encoder.fingerprint} has no space {name!r}; it has {there}")


def _parsed(where: Mapping[str, object] | None) -> Filter | None:
    return None if where is None else parse_filter(where)


def _split(metadata: Mapping[str, Any]) -> tuple[dict[str, Scalar], dict[str, Any]]:
    """Return the metadata that every store keeps and filters on, and the rest."""
    flat: dict[str, Scalar] = {}
    rest: dict[str, Any] = {}
    for key, value in metadata.items():
        try:
            check_metadata({key: value})
        except InvalidInputError as exc:
            if exc.code == "too_large":
                raise
            rest[key] = value
        else:
            (rest if key == KEPT else flat)[key] = value
    return flat, rest


def _kept(packed: Scalar | None) -> dict[str, Any]:
    """Return what stands under the key for the rest; nothing where somebody else put something there."""
    try:
        kept = json.loads(packed) if isinstance(packed, str) else {}
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}


def _record(document: Document, encoder: Encoder, embedding: Sequence[float] | None) -> Record:
    vectors = {} if embedding is None else {EMBEDDING: unit_vector(embedding, encoder.spaces[0].dim)}
    return Record(document, vectors, Stamp(_digest(document, vectors)), encoder.fingerprint)


def _embedding(record: Record) -> list[float] | None:
    vector = record.vectors.get(EMBEDDING)
    norm = _kept(record.document.metadata.get(KEPT)).get("norm", 1.0)
    return None if vector is None else [float(value) for value in vector.astype(np.float64) * norm]


def _with_metadata(record: Record, metadata: Mapping[str, Any]) -> MetadataChange:
    """Return the change that sets keys of metadata, with a digest of its own.

    The source would bring the old ones back.
    """
    document = record.document
    before = {key: value for key, value in document.metadata.items() if key != KEPT and key not in metadata}
    flat, rest = _split(metadata)
    kept = _kept(document.metadata.get(KEPT))
    others = {key: value for key, value in kept.pop("metadata", {}).items() if key not in metadata}
    kept |= {"metadata": others | rest} if others or rest else {}
    packed = {KEPT: json.dumps(kept, ensure_ascii=False)} if kept else {}
    changed = replace(document, metadata={**before, **flat, **packed})
    return MetadataChange(document, record.stamp, changed.metadata, _digest(changed, record.vectors))


def _digest(document: Document, vectors: Mapping[Field, Vectors]) -> str:
    """Return a digest of all of a document that its vectors were given for."""
    parts = [document.text, str(document.image), sorted(document.metadata.items())]
    digest = hashlib.sha256(json.dumps(parts).encode())
    for name in sorted(vectors):
        digest.update(str(name).encode() + vectors[name].tobytes())
    return digest.hexdigest()
