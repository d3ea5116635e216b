"""What a store is, and what some stores can do beside it."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from vlmsearch._util.arguments import shown
from vlmsearch._util.batching import PAGE, batches, pages
from vlmsearch._util.closable import Closable
from vlmsearch._util.markup import HtmlDisplay, plain
from vlmsearch.errors import ConfigError, IndexMismatchError, InvalidInputError, apply_to_each
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.passages import has_own_words, passages_of, rows_of, shown_document
from vlmsearch.stores.samples import sampling_key
from vlmsearch.types import (
    MIN_SCORE,
    PASSAGE,
    WORDS,
    Document,
    Field,
    Hit,
    Manifest,
    MetadataChange,
    Modality,
    Passage,
    Record,
    Reject,
    Space,
    Stamp,
    Vectors,
    WordHits,
    check_document_id,
    check_metadata,
    document_of,
    files_text,
    part_of,
)

_MAX_DIM = 2**20


class Store(Closable, ABC):
    """A place that keeps documents with their vectors and finds the nearest ones.

    Constructing a store creates nothing: the first `bind` does. Every method takes and gives whole batches. Ids that a
    store does not have are left out of answers, never an error. A store may be used from several threads. Any method
    raises BackendError where the store's database fails.

    A record may have passages. They are written, replaced and removed with their document, and never counted or listed.
    Searches and comparisons are of passages as well: each is named ``DOCUMENT#passage=N``, and a document with passages
    has no text of its own there. Where a method takes or gives ids for these, it says "or passages".

    Example:
        >>> import numpy as np
        >>> from vlmsearch.registry import open_store
        >>> field = Field("tiny", "text")
        >>> with open_store("mock:") as store:
        ...     store.bind("letters:1", [Space("tiny", 2, frozenset({"text"}))])
        ...     store.upsert([Record(Document("a"), {field: np.array([0.6, 0.8], np.float32)})])
        ...     store.search(field, np.array([[1, 0]], np.float32), limit=1)[0][0].id
        'a'
    """

    name: str
    """Kind and place of the store, for messages; never holds a secret."""
    is_served: bool = False
    """Whether servers keep it.

    Then processes of several machines can open and write it by the same URL.
    """

    def as_opened(self) -> Manifest | None:
        """Return the manifest of the index that is open here; its tuning may be older.

        Returns:
            The manifest; None where there is no index yet.
        """
        return self.manifest()

    @abstractmethod
    def bind(self, fingerprint: str, spaces: Sequence[Space]) -> None:
        """Make the store ready for the vectors of one encoder; create it the first time.

        Args:
            fingerprint: Fingerprint of the encoder.
            spaces: Spaces of the encoder.

        Raises:
            IndexMismatchError: Another encoder filled the store; nothing was written.
        """

    @abstractmethod
    def manifest(self) -> Manifest | None:
        """Return the manifest of the index: what built it. Nothing is created.

        Returns:
            The manifest, with the tuning that the index has now, or None where there is no index yet.
        """

    @abstractmethod
    def upsert(self, records: Sequence[Record]) -> None:
        """Add records, or replace those whose ids are there: their old vectors, text and metadata are gone.

        When this returns, all records are durable and can be found; meanwhile readers see each document either as it
        was or as it will be.

        Args:
            records: The records; their ids are distinct.

        Raises:
            InvalidBatchError: Some records do not fit; all of them are named, and nothing was written.
            ConfigError: The store was never bound.
        """

    @abstractmethod
    def update_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace the metadata of documents that are still as they were read. Texts of changes are replaced, too.

        All else of the documents stays.

        A document that is gone, or whose stamp or metadata were changed since, is left as it is: what others write
        meanwhile is never undone. The comparison and the write are one step. Readers see a document either as it was
        or as it will be.

        Args:
            changes: The changes; the ids of their documents are distinct. Stamps are those that `records` gave.

        Returns:
            The ids of the documents that were changed, in the order of ``changes``. When this returns, their metadata
            are durable, and filters see them.

        Raises:
            InvalidBatchError: Some metadata do not fit; all of them are named, and nothing was written.
        """

    @abstractmethod
    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        """Find the nearest documents or passages by cosine.

        Args:
            field: The field to compare vectors of.
            vectors: The queries: float32 of shape (n, dim), each row of length one.
            limit: Hits for each query at most.
            where: Filter on the metadata.

        Returns:
            For each query its hits, best first; equal cosines are in the order of the ids.

        Raises:
            ConfigError: The index has no such field.
        """

    def compare(self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Compare given documents or passages with a query, as they are now.

        Args:
            field: The field to compare vectors of.
            vectors: The query: float32 of shape (1, dim), of length one.
            ids: Ids of the documents or passages.
            where: Filter on the metadata.

        Returns:
            The documents that are there, pass and have a vector of the field, each with its exact cosine, best first.
            Equal cosines are in the order of the ids.

        Raises:
            ConfigError: The index has no such field.
        """
        manifest = self.manifest()
        if manifest is None:
            return []
        dim_of(self.name, manifest.spaces, field)
        passing = (
            record
            for record in self.encoded(ids)
            if field in record.vectors and (where is None or where.matches(record.document.metadata))
        )
        query = vectors[0].astype(np.float64)  # in float32, a cosine would depend on those that it is computed with

        def cosine(record: Record) -> float:
            return float(np.clip(np.float32(record.vectors[field].astype(np.float64) @ query), -1, 1))

        hits = [Hit(record.document.id, cosine(record)) for record in passing]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))

    def sample(self, field: Field, count: int) -> Vectors:
        """Return vectors of documents or passages that are chosen at random.

        They are the same ones while the index does not change. Where looking for changes would take long, a store may
        return older vectors of documents that were replaced since.

        Args:
            field: The field of the vectors.
            count: Vectors at most.

        Returns:
            Vectors of shape (n, dim), which the caller does not write to: ``count`` of them, or as many as there are.
            The shape is (0, 0) where there is no index yet.

        Raises:
            ConfigError: The index has no such field.
        """
        manifest = self.manifest()
        if manifest is None:
            return np.empty((0, 0), np.float32)
        dim = dim_of(self.name, manifest.spaces, field)
        vectors = [row.vectors.get(field) for row in self.encoded(self.sample_ids(field, count))]
        return np.array([vector for vector in vectors if vector is not None], np.float32).reshape(-1, dim)

    def sample_ids(self, field: Field, count: int) -> list[str]:
        """Return ids of documents or passages that are chosen at random.

        They are the same ones while the index does not change.

        Args:
            field: A field that they have.
            count: Ids at most.

        Returns:
            The ids: ``count`` of them, or as many as there are.
        """
        return drawn_ids(self, field, count)

    def get(self, ids: Sequence[str]) -> list[Document]:
        """Return documents, or passages as documents with their ids and texts.

        Args:
            ids: Ids of the documents or passages.

        Returns:
            The documents that are there, in the order of ``ids``.
        """
        there = {row.document.id: shown_document(row) for row in self.encoded(ids)}
        return [there[id] for id in ids if id in there]

    def passages(self, ids: Sequence[str]) -> dict[str, tuple[Passage, ...]]:
        """Return the passages of documents.

        Args:
            ids: Ids of the documents.

        Returns:
            The passages, in their order, by the ids of the documents that have any.
        """
        return passages_of(self.records(ids))

    def encoded(self, ids: Iterable[str]) -> list[Record]:
        """Return documents or passages as records of what is encoded of them.

        Args:
            ids: Ids of the documents or passages.

        Returns:
            The records, in the order of their first ids. That of a passage has its heading and its text for a text.
        """
        wanted = dict.fromkeys(ids)
        records = self.records(list(dict.fromkeys(map(document_of, wanted))))
        there = {row.document.id: row for row in rows_of(records)}
        return [there[id] for id in wanted if id in there]

    def size(self) -> int:
        """Return about how many documents there are.

        Returns:
            Their number; beyond 1000, that of documents and passages will do.
        """
        return len(self)

    @abstractmethod
    def records(self, ids: Sequence[str]) -> list[Record]:
        """Return documents with their vectors, stamps and the fingerprint of the index, as `upsert` took them.

        Each record is of one version of its document, even while others write. A vector may be missing, as after the
        crash of a server: then the record comes without it and its stamp has no digest.

        Args:
            ids: Ids of the documents.

        Returns:
            The records of the documents that are there, in the order of ``ids``. Images are paths. Vectors are float32
            of shape (dim,), within 1e-6 of what was written.

        Raises:
            IndexMismatchError: The index was built anew since it was opened, and what it had is gone.
        """

    def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
        """Return the stamps of documents.

        Args:
            ids: Ids of the documents.

        Returns:
            The stamps, by id, of the documents that are in the store whole.
        """
        return {record.document.id: record.stamp for record in self.records(ids)}

    def fields(self, ids: Sequence[str]) -> dict[str, frozenset[Field]]:
        """Return the fields that documents or passages have a vector in.

        Args:
            ids: Ids of the documents or passages.

        Returns:
            The fields, by id, of those that are in the store. Of a document with passages they are those of its image.
        """
        records = self.records(list(dict.fromkeys(map(document_of, ids))))
        there = {own.document.id: frozenset(own.vectors) for own in (*rows_of(records), *records)}  # images: of records
        return {id: there[id] for id in ids if id in there}

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents and their vectors.

        When this returns, none of them is found any more, and that is durable. Each document goes whole, but not all
        go at once: a call that fails or is killed half-way has removed some, and calling again removes the others.

        Args:
            ids: Ids of the documents; unknown ids are ignored.

        Returns:
            The number of documents that were there.
        """

    @abstractmethod
    def ids(self) -> Iterator[str]:
        """Iterate over the ids of all documents, in no particular order.

        Returns:
            An iterator, which reads as it goes.
        """

    def row_ids(self) -> Iterator[str]:
        """Iterate over the ids of all documents without passages, and of all passages.

        Returns:
            An iterator, which reads as it goes.
        """
        for records in map(self.records, batches(self.ids(), PAGE)):
            yield from (row.document.id for row in rows_of(records) if has_own_words(row.stamp))

    @abstractmethod
    def __len__(self) -> int:
        """Count the documents."""

    def count_passages(self) -> int:
        """Count the passages of all documents.

        Returns:
            Their number.
        """
        return sum(PASSAGE in id for id in self.row_ids())

    def count_files(self) -> int:
        """Count the documents that are no parts of files: whole files, rows and what was added.

        Returns:
            Their number.
        """
        return sum(part_of(id) is None for id in self.ids())

    def places(self) -> tuple[Path, ...]:
        """Return the files and folders of this machine that hold the index. There are none where a server has it.

        Returns:
            The paths, which no index job of a service reads.
        """
        return ()


def check_manifest(name: str, manifest: Manifest, fingerprint: str, spaces: Sequence[Space]) -> None:
    """Raise IndexMismatchError unless ``manifest`` is of an index that this encoder filled."""
    if manifest.fingerprint != fingerprint or set(manifest.spaces) != set(spaces):
        raise IndexMismatchError(
            f"the index {name} was built with {manifest.fingerprint}, not with {fingerprint}: "
            "open it with that encoder, build a new one with `vlmsearch index PATHS --store NEW`, or change this one "
            "with `vlmsearch reindex --encoder URL`"
        )


def space_of(name: object, dim: object, modalities: object) -> Space:
    """Return the space that a manifest describes; ValueError for a wrong description."""
    every: tuple[Modality, ...] = ("image", "text")
    known = [modality for modality in every if isinstance(modalities, list) and modality in modalities]
    if not isinstance(name, str) or not name or not isinstance(dim, int) or not 0 < dim <= _MAX_DIM or not known:
        raise ValueError(f"no space of vectors: {[name, dim, modalities]!r:.200}")
    return Space(name, dim, frozenset(known))


def drawn_ids(store: Store, field: Field, count: int) -> list[str]:
    """Return ids of documents or passages that have a vector of a field, chosen at random.

    Args:
        store: The store; all its ids are read, and those of passages.
        field: The field.
        count: Ids at most.

    Returns:
        The ids with the smallest sampling keys, in the order of these.
    """
    chosen: list[str] = []
    for some in pages(sorted(store.row_ids(), key=lambda id: (sampling_key(id), id))):
        fields = store.fields(some)
        chosen += [id for id in some if field in fields.get(id, ())]
        if len(chosen) >= count:
            break
    return chosen[:count]


def dim_of(name: str, spaces: Sequence[Space], field: Field) -> int:
    """Return the length of the vectors of a field: ConfigError where the index ``name`` has no such field."""
    dims = {known: space.dim for space in spaces for known in space.fields}
    if field not in dims:
        raise ConfigError(f"{name} has no field {field}; it has {', '.join(map(str, dims))}")
    return dims[field]


def check_records(records: Sequence[Record], spaces: Sequence[Space]) -> None:
    """Raise InvalidBatchError that names all records which not every store could keep.

    Ids are valid, distinct and none of a passage, metadata within `vlmsearch.types.check_metadata`, and each vector is
    of a field of ``spaces`` and as long.
    """
    dims = {field: space.dim for space in spaces for field in space.fields}
    seen: set[str] = set()

    def check(record: Record) -> None:
        id = record.document.id
        check_document_id(id)
        check_metadata(record.document.metadata)
        if id in seen:
            raise InvalidInputError("invalid", f"the id {id!r} is there twice in one batch")
        seen.add(id)
        for vectors in (record.vectors, *(passage.vectors for passage in record.passages)):
            for field, vector in vectors.items():
                if vector.shape != (dims.get(field),):
                    wanted = f"{dims[field]} numbers" if field in dims else f"a field of {', '.join(map(str, dims))}"
                    raise InvalidInputError(
                        "invalid", f"{id!r} has a vector {field} of shape {vector.shape}; expected {wanted}"
                    )

    apply_to_each(check, records)


def check_changes(changes: Sequence[MetadataChange]) -> list[Record]:
    """Raise InvalidBatchError that names all changes to metadata which not every store could keep.

    Returns:
        The documents as the changes make them, without vectors.
    """

    def changed(change: MetadataChange) -> Record:
        check_metadata(change.metadata)
        stamp = replace(change.stamp, digest=change.digest)
        return Record(change.of(change.document), change.vectors, stamp, passages=change.passages)

    return apply_to_each(changed, changes)


def changed_records(records: Iterable[Record], changes: Sequence[MetadataChange]) -> list[Record]:
    """Return records as changes make them.

    Args:
        records: The records that a store has now, with or without vectors.
        changes: The changes.

    Returns:
        The records whose documents are still as they were read for a change, with other metadata and digests.
    """
    wanted = {change.document.id: change for change in changes}
    changed: list[Record] = []
    for record in records:
        change = wanted[record.document.id]
        if record.stamp == change.stamp and record.document.metadata == change.document.metadata:
            document, stamp = change.of(record.document), replace(record.stamp, digest=change.digest)
            vectors = record.vectors
            if change.text is not None and change.passages:
                vectors = {field: vector for field, vector in vectors.items() if field.modality != "text"}
            passages = record.passages if change.text is None else change.passages
            changed.append(Record(document, {**vectors, **change.vectors}, stamp, record.fingerprint, passages))
    return changed


@runtime_checkable
class WordSearch(Protocol):
    """A store that ranks documents by the words that they share with a query.

    The manifest's ``language`` says how words are compared: by the stems of each document's language (``auto``), by
    those of one language, or as they are (``none``), see `vlmsearch.stores.terms`. An index whose ``language`` is ""
    ranks none.

    Example:
        >>> from vlmsearch.registry import open_store
        >>> with open_store("mock:") as store:
        ...     isinstance(store, WordSearch)
        True
    """

    def search_words(self, query: str, *, limit: int, where: Filter | None = None) -> WordHits:
        """Find the documents whose words fit a query best, by BM25.

        A document's words are those of its text, or of the name of its image file where it has no text. Scores are on
        the same scale in every store: see `vlmsearch.stores.postings.idf`, with k1 1.2 and b 0.75.

        Args:
            query: Any string; quotes and operators in it mean nothing.
            limit: Documents at most.
            where: Filter on the metadata.

        Returns:
            The documents that share at least one word with the query, best first, and the score that none can exceed.
            Equal scores are in an order that does not change while the documents do not.
        """

    def compare_words(self, query: str, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Score given documents by their words, with the scores that `search_words` would give them.

        Args:
            query: Any string.
            ids: Ids of the documents.
            where: Filter on the metadata.

        Returns:
            The documents that share at least one word with the query, best first. Equal scores are in the order of the
            ids.
        """


@runtime_checkable
class CountsWords(WordSearch, Protocol):
    """A store that counts the texts that hold words.

    A search takes words that no text holds for misspelt.

    Example:
        >>> from vlmsearch.registry import open_store
        >>> with open_store("mock:") as store:
        ...     isinstance(store, CountsWords)
        True
    """

    def count_words(self, words: Sequence[str]) -> list[int]:
        """Count the texts that hold words.

        Args:
            words: Words in small letters, of letters alone.

        Returns:
            For each, how many texts hold it or a word of its stem; an estimate where the store does not count them.
        """


@runtime_checkable
class Tunable(Protocol):
    """A store that keeps with an index how it is searched best.

    Example:
        >>> from vlmsearch.registry import open_store
        >>> with open_store("mock:") as store:
        ...     isinstance(store, Tunable)
        True
    """

    def tune(self, values: Mapping[str, float]) -> None:
        """Replace the tuning of the index, which `Store.manifest` returns from then on, in every process.

        It belongs to the model that built the index: one that is put in its place begins without.

        Args:
            values: How much fields count, by their names, such as ``clip/image`` and ``words``, and the least relevance
                of a match, ``min_score``; none to go back to the defaults.

        Raises:
            ConfigError: The store was never bound, has no such field, or a value is out of its range.
            BackendUnavailableError: The index takes no writes now.
        """


def check_tuning(name: str, values: Mapping[str, float], spaces: Sequence[Space]) -> None:
    """Raise ConfigError where ``values`` cannot be the tuning of the index ``name``."""
    names = [*(str(field) for space in spaces for field in space.fields), WORDS]
    for key, value in values.items():
        if key not in (*names, MIN_SCORE):
            raise ConfigError(f"{name} has no {key!r} to tune; there are {', '.join(names)} and {MIN_SCORE}")
        if not 0 <= value <= (1 if key == MIN_SCORE else sys.float_info.max):
            limit = "from 0 to 1" if key == MIN_SCORE else "a number of at least 0"
            raise ConfigError(f"{key} is {limit}, not {shown(value)}")


@runtime_checkable
class RejectList(Protocol):
    """A store that keeps a list of the inputs that could not be used.

    Indexing skips what is on the list until its content changes. With any other store it tries such inputs again in
    each run, and reports them each time.

    Example:
        >>> from vlmsearch.registry import open_store
        >>> with open_store("mock:") as store:
        ...     isinstance(store, RejectList)
        True
    """

    def rejects(self) -> list[Reject]:
        """Return the reject list.

        Returns:
            Its entries, in the order of their ids; none where there is no index yet.
        """

    def reject(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the list, or replace their entries.

        Args:
            rejects: The entries.

        Raises:
            ConfigError: The store was never bound.
        """

    def release(self, ids: Sequence[str]) -> None:
        """Take inputs off the list.

        Args:
            ids: Ids of the inputs; unknown ids are ignored.
        """


class _NoRejectList:
    """The list of a store that keeps none: nothing is ever on it."""

    def rejects(self) -> list[Reject]:
        return []

    def reject(self, rejects: Sequence[Reject]) -> None:
        pass

    def release(self, ids: Sequence[str]) -> None:
        pass


class _HasManifest(Protocol):
    @property
    def name(self) -> str: ...

    def manifest(self) -> Manifest | None: ...


def needed_manifest(index: _HasManifest) -> Manifest:
    """Return what built an index, a store or an export; ConfigError where there is none."""
    manifest = index.manifest()
    if manifest is None:
        raise ConfigError(f"{index.name} is not an index yet: there is nothing in it")
    return manifest


def reject_list_of(store: Store) -> RejectList:
    """Return the store itself where it keeps a reject list. Else return a list that stays empty."""
    return store if isinstance(store, RejectList) else _NoRejectList()


@dataclass(frozen=True, repr=False)
class CheckReport(HtmlDisplay):
    """The result of a check of a store; the tuples name what is not in order.

    Attributes:
        store: The store's name.
        documents: Number of documents.
        vectors: Number of vectors, by field.
        orphans: Vectors and passages of no document.
        stale: Vectors of versions that were replaced or deleted.
        missing: Vectors and passages that a document should have. They cannot be made up, so these documents count as
            changed: indexing their sources again completes them. With chroma: they are listed until then.
        unfinished: Writes and deletes that were cut off.
        in_progress: Number of writes under way.
        repaired: Whether all that is listed has been put in order.
        unindexed: Vectors that searching does not find, and what else follows from documents and does not agree.
        damaged: Documents, and inputs on the reject list, that are not what was written. What can be read of such a
            document is kept, and it counts as changed: indexing its source again puts it right.
        identical: Fields with so many equal vectors that searches may miss others, and what to do.
        files: Number of documents that are no parts of files; `check_store` counts them.
        exposed: Places in which others may put what a store runs, for an administrator to close: see `Exposable`.

    Example:
        >>> CheckReport("chroma://localhost:8000/index", 3, {"clip/image": 3}, orphans=("a",)).clean
        False
    """

    store: str
    documents: int
    vectors: Mapping[str, int]
    orphans: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    in_progress: int = 0
    repaired: bool = False
    unindexed: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    identical: tuple[str, ...] = ()
    files: int = 0

    def __repr__(self) -> str:
        names = ("orphans", "stale", "missing", "unfinished", "unindexed", "damaged")
        counts = "".join(f", {len(ids):,} {name}" for name in names if (ids := getattr(self, name)))
        state = "in order" if self.clean else "repaired" if self.repaired else "not in order"
        documents = f"{self.documents:,} documents{files_text(self.documents, self.files)}"
        return f"{type(self).__name__}({plain(self.store)}: {documents}, {state}{counts})"

    @property
    def clean(self) -> bool:
        """Return whether everything was in order."""
        listed = (self.orphans, self.stale, self.missing, self.unindexed, self.unfinished, self.damaged)
        return not any(listed)


@runtime_checkable
class Checkable(Protocol):
    """A store that checks whether all its parts agree.

    Example:
        >>> from vlmsearch.registry import open_store
        >>> isinstance(open_store("sqlite:./index"), Checkable)
        True
    """

    def check(self, *, repair: bool = False) -> CheckReport:
        """Check the store.

        Args:
            repair: Whether to finish or roll back what is not in order.

        Returns:
            What is in the store and what is not in order.
        """


def check_store(store: Store, *, repair: bool = False) -> CheckReport:
    """Check a store; ConfigError for one that cannot be checked."""
    if not isinstance(store, Checkable):
        raise ConfigError(f"{store.name} cannot be checked: its class has no method `check`")
    return replace(store.check(repair=repair), files=store.count_files())


@runtime_checkable
class Replaceable(Protocol):
    """A store that has another index built beside it. It switches to that in one step.

    Example:
        >>> from vlmsearch.registry import open_store
        >>> isinstance(open_store("sqlite:./index"), Replaceable)
        True
    """

    def beside(self, fingerprint: str, spaces: Sequence[Space]) -> Store:
        """Return the index for another encoder beside this one; the same again until `switch`.

        Whoever else was building it cannot write to it any more, and a `freeze` that they left ends.

        Args:
            fingerprint: Fingerprint of the other encoder.
            spaces: Spaces of the other encoder.

        Returns:
            The index, as a store.
        """

    def unfinished(self, fingerprint: str, spaces: Sequence[Space]) -> Store | None:
        """Return the index for another encoder that is being built beside this one.

        Args:
            fingerprint: Fingerprint of the other encoder.
            spaces: Spaces of the other encoder.

        Returns:
            The index, as a store; None where there is none for this encoder.
        """

    def successor(self) -> Store | None:
        """Return the index that took the place of this one since this store was opened.

        Returns:
            The index, as a store over the same connections; None where none did.
        """

    def freeze(self, built: Store) -> None:
        """Refuse writes until `switch` or `unfreeze`: what has returned by now is all there is to copy.

        Args:
            built: The index that was built beside this one.
        """

    def unfreeze(self, built: Store | None = None) -> bool:
        """Take writes again after a `freeze`.

        Args:
            built: The index that the freeze was for; None for whichever.

        Returns:
            False where there was no such freeze.
        """

    def switch(self, built: Store) -> None:
        """Put the index that was built beside this one in its place, in one step. This one is frozen for it.

        The old one is kept, to be read by those who have it open, until `drop_old` or the next `switch`.

        Args:
            built: The index that was built.
        """

    def drop_old(self) -> bool:
        """Remove the index that the last `switch` replaced.

        Returns:
            False where there is none.
        """


@dataclass(frozen=True)
class DiskUse:
    """The room that an index takes on a disk.

    Attributes:
        bytes: Bytes of the index, of the index that it replaced and of the index that is being built beside it.
        documents: Documents of all of these together.
        free: Bytes that are left on the disk; None where the server does not say.

    Example:
        >>> DiskUse(bytes=3_000_000, documents=1000, free=None).bytes // 1000
        3000
    """

    bytes: int
    documents: int
    free: int | None


@runtime_checkable
class OnDisk(Protocol):
    """A store that measures its room on the disk, for `vlmsearch reindex`.

    Example:
        >>> from vlmsearch.registry import open_store
        >>> isinstance(open_store("sqlite:./index"), OnDisk)
        True
    """

    def disk_use(self) -> DiskUse:
        """Measure what the index takes.

        Returns:
            The measure.
        """

    def vector_bytes(self, dim: int) -> int:
        """Estimate how many bytes a vector takes.

        Args:
            dim: Its length, in numbers.

        Returns:
            The bytes, with what belongs to it elsewhere, such as an index.
        """


@runtime_checkable
class Exposable(Protocol):
    """A store on a server on which others may have rights that lead to its data.

    Example:
        >>> from vlmsearch.registry import open_store
        >>> isinstance(open_store("postgresql://db.example.com/photos"), Exposable)
        True
    """

    def exposures(self) -> tuple[str, ...]:
        """Say who else may create what in the places that the store uses.

        Returns:
            A phrase each, such as "mallory may create in the schema public".
        """


@runtime_checkable
class Describable(Protocol):
    """A store that describes how it works, for `vlmsearch info`.

    Example:
        >>> from vlmsearch.registry import open_store
        >>> isinstance(open_store("sqlite:./index"), Describable)
        True
    """

    def describe(self) -> dict[str, str]:
        """Describe the store to people.

        Returns:
            Names and values.
        """
