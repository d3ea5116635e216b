"""A store that does what `Store` asks for and nothing more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vlmsearch_mocks.store import MemoryStore

from vlmsearch.stores.base import Store
from vlmsearch.stores.filters import Filter
from vlmsearch.types import Field, Hit, Manifest, MetadataChange, Record, Space, Vectors


class SmallStore(Store):
    """Hands everything to another store, and has none of the methods that `Store` does not ask for."""

    def __init__(self) -> None:
        self._kept = MemoryStore()
        self.name = "small"

    def bind(self, fingerprint: str, spaces: Sequence[Space]) -> None:
        self._kept.bind(fingerprint, spaces)

    def manifest(self) -> Manifest | None:
        return self._kept.manifest()

    def upsert(self, records: Sequence[Record]) -> None:
        self._kept.upsert(records)

    def update_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        return self._kept.update_metadata(changes)

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        return self._kept.search(field, vectors, limit=limit, where=where)

    def records(self, ids: Sequence[str]) -> list[Record]:
        return self._kept.records(ids)

    def delete(self, ids: Sequence[str]) -> int:
        return self._kept.delete(ids)

    def ids(self) -> Iterator[str]:
        return self._kept.ids()

    def __len__(self) -> int:
        return len(self._kept)
