"""The room on the disk that `reindex` needs for an index with another model."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vlmsearch.stores.base import OnDisk, Replaceable, Store, needed_manifest
from vlmsearch.stores.samples import sampling_key
from vlmsearch.types import Field, Modality, Space

_SAMPLE = 4096


@dataclass(frozen=True)
class RoomNeeded:
    """The room that a second index takes.

    It follows from the sizes of vectors and what a document takes beside them now.

    Attributes:
        bytes_added: The growth while there are two indexes.
        bytes_free: The free space on the disk; None where the server does not say.
    """

    bytes_added: int
    bytes_free: int | None

    @property
    def fits(self) -> bool:
        """Return whether there is room for it, as far as is known."""
        return self.bytes_free is None or self.bytes_added < self.bytes_free


def room_needed(store: Store, fingerprint: str, spaces: Sequence[Space]) -> RoomNeeded:
    """Estimate the room for an index of the same documents with another model.

    Args:
        store: The index.
        fingerprint: The fingerprint of the new model.
        spaces: The spaces of the new model.

    Returns:
        The room. What an unfinished index of that model has already is not counted again.

    Example:
        >>> from vlmsearch import Document, Pipeline, Space
        >>> from vlmsearch_mocks import MockEncoder, MockStore
        >>> with Pipeline(MockEncoder(), MockStore()) as pipeline:
        ...     _ = pipeline.add([Document("a", text="a dog"), Document("b", text="a car")])
        ...     room_needed(pipeline.store, "other", [Space("text", 100, frozenset({"text"}))])
        RoomNeeded(bytes_added=800, bytes_free=None)
    """
    unfinished = store.unfinished(fingerprint, spaces) if isinstance(store, Replaceable) else None
    documents = len(store)
    left = max(documents - (0 if unfinished is None else len(unfinished)), 0)
    drawn = heapq.nsmallest(_SAMPLE, store.row_ids(), key=lambda id: (sampling_key(id), id))
    held = [{field.modality for field in fields} for fields in store.fields(drawn).values()]
    rows = (documents + store.count_passages()) / max(documents, 1)
    use = store.disk_use() if isinstance(store, OnDisk) else None
    needed = rows * _vector_bytes(store, spaces, held)
    if use is not None:
        now = rows * _vector_bytes(store, needed_manifest(store).spaces, held)
        needed += max(use.bytes / max(use.documents, 1) - now, 0)
    return RoomNeeded(round(left * needed), None if use is None else use.free)


def _vector_bytes(store: Store, spaces: Iterable[Space], held: Sequence[set[Modality]]) -> float:
    """Return the mean size of the vectors of documents that hold images, texts or both."""
    bytes_of: dict[Field, int] = {
        field: store.vector_bytes(space.dim) if isinstance(store, OnDisk) else 4 * space.dim
        for space in spaces
        for field in space.fields
    }
    sizes = (size for modalities in held for field, size in bytes_of.items() if field.modality in modalities)
    return sum(sizes) / max(len(held), 1)
