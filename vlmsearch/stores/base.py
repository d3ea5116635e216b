"""What a store is, and what some stores can do beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from vlmsearch._util.closing import Closable
from vlmsearch.errors import ConfigError, IndexMismatchError, InvalidInputError, apply_to_each
from vlmsearch.stores.filters import Filter
from vlmsearch.types import (
    Document,
    Field,
    Hit,
    Manifest,
    Record,
    Reject,
    Space,
    Stamp,
    Vectors,
    check_id,
    check_metadata,
)


class Store(Closable, ABC):
    """Keeps documents with their vectors and finds the nearest ones.

    Constructing a store creates nothing: the first `bind` does. Every method takes and gives whole batches; ids that a
    store does not have are left out of answers, never an error. A store may be used from several threads.
    """

    name: str
    """What the store is and where, for messages; never holds a secret."""

    @abstractmethod
    def bind(self, fingerprint: str, spaces: Sequence[Space]) -> None:
        """Make the store ready for the vectors of one encoder, creating it the first time.

        Raises IndexMismatchError, before anything is written, if another encoder filled it.
        """

    @abstractmethod
    def manifest(self) -> Manifest | None:
        """What built this index, or None where there is no index yet. Creates nothing."""

    @abstractmethod
    def upsert(self, records: Sequence[Record]) -> None:
        """Add records, or replace those whose ids are there: their old vectors, text and metadata are gone.

        When this returns, all records are durable and can be found; meanwhile readers see each document either as it
        was or as it will be. Ids must be distinct within one call. Raises InvalidBatchError, which names the records
        that do not fit, before anything is written, and ConfigError before the first `bind`.
        """

    @abstractmethod
    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        """For each query vector, the ``limit`` nearest documents by cosine that pass ``where``, best first.

        Equal cosines are in the order of the ids. Raises ConfigError for a field that the index does not have.
        """

    @abstractmethod
    def get(self, ids: Sequence[str]) -> list[Document]:
        """The documents with these ids, in the order of ``ids``; unknown ids are left out."""

    @abstractmethod
    def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
        """The stamps of those documents among ``ids`` that are in the store whole."""

    @abstractmethod
    def fields(self, ids: Sequence[str]) -> dict[str, frozenset[Field]]:
        """The fields that each of those documents among ``ids`` that are in the store has a vector in."""

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents and their vectors; returns how many were there."""

    @abstractmethod
    def ids(self) -> Iterator[str]:
        """All ids, in no particular order."""

    @abstractmethod
    def __len__(self) -> int:
        """How many documents there are."""


def check_manifest(name: str, manifest: Manifest, fingerprint: str, spaces: Sequence[Space]) -> None:
    """Raise IndexMismatchError unless ``manifest`` is of an index that this encoder filled."""
    if manifest.fingerprint != fingerprint or set(manifest.spaces) != set(spaces):
        raise IndexMismatchError(
            f"the index {name} was built with {manifest.fingerprint}, not with {fingerprint}: "
            "open it with that encoder, build a new one with `vlmsearch index PATHS --store NEW`, or change this one "
            "with `vlmsearch reindex --encoder URL`"
        )


def check_records(records: Sequence[Record], spaces: Sequence[Space]) -> None:
    """Raise InvalidBatchError that names all records which not every store could keep.

    Ids are valid and distinct, metadata within `vlmsearch.types.check_metadata`, and each vector is of a field of
    ``spaces`` and as long.
    """
    dims = {field: space.dim for space in spaces for field in space.fields}
    seen: set[str] = set()

    def check(record: Record) -> None:
        id = record.document.id
        check_id(id)
        check_metadata(record.document.metadata)
        if id in seen:
            raise InvalidInputError("invalid", f"the id {id!r} is there twice in one batch")
        seen.add(id)
        for field, vector in record.vectors.items():
            if vector.shape != (dims.get(field),):
                wanted = f"{dims[field]} numbers" if field in dims else f"a field of {', '.join(map(str, dims))}"
                raise InvalidInputError(
                    "invalid", f"{id!r} has a vector {field} of shape {vector.shape}; expected {wanted}"
                )

    apply_to_each(check, records)


@runtime_checkable
class Quarantine(Protocol):
    """A store that keeps a list of inputs that could not be used.

    Indexing skips what is on the list until its content changes; with any other store it tries such inputs again in
    each run, and reports them each time.
    """

    def rejects(self) -> list[Reject]:
        """The inputs on the list, by id; none where there is no index yet."""

    def quarantine(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the list, or replace their entries; ConfigError before the first `bind`."""

    def release(self, ids: Sequence[str]) -> None:
        """Take inputs off the list; unknown ids are ignored."""


class _NoQuarantine:
    """The list of a store that keeps none: nothing is ever on it."""

    def rejects(self) -> list[Reject]:
        return []

    def quarantine(self, rejects: Sequence[Reject]) -> None:
        pass

    def release(self, ids: Sequence[str]) -> None:
        pass


def quarantine_of(store: Store) -> Quarantine:
    """Return the store itself where it keeps a quarantine list; else a list on which nothing ever is."""
    return store if isinstance(store, Quarantine) else _NoQuarantine()


@dataclass(frozen=True)
class CheckReport:
    """What `check` found. ``vectors`` counts those of each field; the lists name what is not in order.

    ``orphans``: vectors of no document; ``stale``: vectors of versions that were replaced or deleted; ``missing``:
    vectors that a document should have; ``unindexed``: vectors that searching does not find; ``unfinished``:
    writes and deletes that were cut off; ``in_progress`` counts the writes under way. ``repaired``: whether all that is
    listed has been put in order; the vectors of ``missing`` cannot be made up, so those documents count as changed, and
    indexing their sources again completes them. On a Chroma server they are listed until then.
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

    @property
    def clean(self) -> bool:
        """Whether everything was in order."""
        return not (self.orphans or self.stale or self.missing or self.unindexed or self.unfinished)


@runtime_checkable
class Checkable(Protocol):
    """A store that can say whether all of its parts agree."""

    def check(self, *, repair: bool = False) -> CheckReport:
        """What is in the store and what is not in order; with ``repair``, each is finished or rolled back."""


def check_store(store: Store, *, repair: bool = False) -> CheckReport:
    """What the store's own `check` gives; ConfigError for a store that has none."""
    if not isinstance(store, Checkable):
        raise ConfigError(f"{store.name} cannot be checked; chroma:, mongodb: and mongodb+chroma: can")
    return store.check(repair=repair)


@runtime_checkable
class Replaceable(Protocol):
    """A store that can have another index built beside its own, and switch to it in one step."""

    def beside(self, fingerprint: str, spaces: Sequence[Space]) -> Store:
        """The index for another encoder beside this one; the same again until `switch`.

        Whoever else was building it cannot write to it any more, and a `freeze` that they left ends.
        """

    def freeze(self, built: Store) -> None:
        """Refuse writes until `switch` or `thaw`: what has returned by now is all there is to copy."""

    def thaw(self, built: Store | None = None) -> bool:
        """Take writes again after a `freeze`, or only after that for ``built``; False where there was none."""

    def switch(self, built: Store) -> None:
        """Put the index that was built beside this one, and for which this one is frozen, in its place in one step.

        The old one is kept, to be read by those who have it open, until `drop_old` or the next `switch`.
        """

    def drop_old(self) -> bool:
        """Remove the index that the last `switch` replaced; False where there is none."""


@runtime_checkable
class Described(Protocol):
    """A store that has something to tell about how it works."""

    def describe(self) -> dict[str, str]:
        """Names and values, for people."""
