"""Indexes of which another one can be built beside, with another model, to take its place in one step.

What built an index and which generation of it is in use stands in one row, ``index``; the one that is built beside it
has the row ``next``. Each generation has documents and vectors of its own, and replacing the row ``index`` is the
instant at which readers that open the index find the new ones.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, Literal

from typing_extensions import Self

from vlmsearch.errors import ConfigError, IndexMismatchError
from vlmsearch.stores.base import Store, check_manifest
from vlmsearch.types import Manifest, Space

Slot = Literal["index", "next"]
_FORMAT = 1


class GenerationalStore(Store):
    """A store whose rows ``index`` and ``next`` are kept by the class below, as are documents and vectors."""

    kind: str
    """The scheme; an index is opened with the one that made it."""

    def __init__(self, name: str, slot: Slot) -> None:
        self.name = name
        self._slot: Slot = slot
        self._row: Mapping[str, Any] | None = None
        self._opened: Manifest | None = None
        self._opening = threading.RLock()

    # ---- what the class below has

    @abstractmethod
    def read_slot(self, slot: Slot) -> dict[str, Any] | None:
        """The row of a slot, or None. Creates nothing."""

    @abstractmethod
    def fill_slot(self, slot: Slot, row: Mapping[str, Any]) -> None:
        """Make the row of a slot, unless there is one."""

    @abstractmethod
    def replace_slot(self, slot: Slot, row: Mapping[str, Any]) -> None:
        """Put another row in a slot, at one instant."""

    @abstractmethod
    def clear_slot(self, slot: Slot) -> None:
        """Remove the row of a slot."""

    @abstractmethod
    def prepare(self, spaces: Sequence[Space], generation: str) -> None:
        """Make what a new generation needs."""

    @abstractmethod
    def opened(self, manifest: Manifest, generation: str) -> None:
        """The index is there: get what searching and writing need."""

    @abstractmethod
    def drop(self, generation: str, spaces: Sequence[Space]) -> None:
        """Remove everything that a generation has."""

    @abstractmethod
    def over(self, slot: Slot) -> Self:
        """Another store over the same connections."""

    def wait_until_ready(self) -> None:
        """Return when what was written can be found."""

    # ---- the index

    def bind(self, fingerprint: str, spaces: Sequence[Space]) -> None:
        """Make the index ready, creating it the first time; IndexMismatchError if another encoder filled it."""
        with self._opening:
            if self.manifest() is None:
                self.fill_slot(self._slot, self._begin(fingerprint, spaces))
            manifest = self.manifest()
            if manifest is not None:
                check_manifest(self.name, manifest, fingerprint, spaces)
                self.wait_until_ready()

    def _begin(self, fingerprint: str, spaces: Sequence[Space]) -> dict[str, Any]:
        """Make what a new generation needs; returns its row."""
        now = datetime.now(timezone.utc).isoformat()
        described = [[space.name, space.dim, sorted(space.modalities)] for space in spaces]
        row = {"format": _FORMAT, "kind": self.kind, "generation": self._next_generation(), "created": now}
        self.prepare(tuple(spaces), str(row["generation"]))
        return {**row, "fingerprint": fingerprint, "spaces": described}

    def manifest(self) -> Manifest | None:
        """What built this index, or None where there is none."""
        with self._opening:
            if self._opened is None:
                row = self.read_slot(self._slot)
                if row is not None:
                    manifest = self._read(row)
                    self.opened(manifest, row["generation"])
                    self._row, self._opened = row, manifest
            return self._opened

    def _read(self, row: Mapping[str, Any]) -> Manifest:
        if row.get("format") != _FORMAT:
            raise ConfigError(
                f"{self.name} is of a format that this version of vlmsearch cannot read: upgrade, or index again "
                "under another name"
            )
        if row["kind"] != self.kind:
            raise ConfigError(f"{self.name} was made by {row['kind']}:, so it is opened with that, not {self.kind}:")
        spaces = tuple(Space(name, dim, frozenset(kinds)) for name, dim, kinds in row["spaces"])
        return Manifest(row["fingerprint"], spaces, row["created"])

    def needed(self) -> Manifest:
        """What built the index; ConfigError where there is none."""
        manifest = self.manifest()
        if manifest is None:
            raise ConfigError(f"{self.name} is no index yet: bind it to an encoder before writing")
        return manifest

    # ---- generations

    def beside(self, fingerprint: str, spaces: Sequence[Space]) -> Store:
        """The index for another encoder that is built beside this one; the same again until `switch`."""
        other = self.over("next")
        manifest = other.manifest()
        if manifest is not None and (other.generation == self.generation or not _is_of(manifest, fingerprint, spaces)):
            self.replace_slot("next", self._begin(fingerprint, spaces))  # a generation with a number of its own
            if other.generation != self.generation:
                other.drop(other.generation, other.needed().spaces)
            other = self.over("next")
        other.bind(fingerprint, spaces)
        return other

    def switch(self) -> Store:
        """Put the index that was built beside this one in its place, in one step, and give the old one to read.

        The old one is kept, and holds all that was written to it: a write that had not returned by then has failed.
        """
        built = self.read_slot("next")
        if built is None:
            raise ConfigError(f"{self.name} has no other index beside it")
        now = self.read_slot("index") or {}
        if built["generation"] == now.get("generation"):
            raise ConfigError(f"{self.name} has been switched already")
        self.drop_old()
        old = {key: value for key, value in now.items() if key != "old"}
        before = self.over("index")
        before.manifest()
        with self._opening:
            self.replace_slot("index", {**built, "old": old})
            self._row = self._opened = None
            self.clear_slot("next")
        return before

    def drop_old(self) -> bool:
        """Remove the index that the last `switch` replaced; False where there is none."""
        row = self.read_slot("index") or {}
        old = row.pop("old", None)
        if not old:
            return False
        self.drop(old["generation"], self._read(old).spaces)
        self.replace_slot("index", row)
        return True

    @property
    def generation(self) -> str:
        """The generation in use."""
        self.needed()
        return str((self._row or {})["generation"])

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """What is written meanwhile gets into the index: IndexMismatchError if another one took its place."""
        self.check_in_use()
        yield
        self.check_in_use()

    def check_in_use(self, *, to_read: bool = False) -> None:
        """Raise IndexMismatchError if another index took the place of this one since it was opened.

        ``to_read``: only if the index is not there any more.
        """
        row = self.read_slot(self._slot) or {}
        usable = (row, row.get("old") or {}) if to_read else (row,)
        self.needed()
        if all(_identity(each) != _identity(self._row or {}) for each in usable):
            raise IndexMismatchError(
                f"the index {self.name} has been built anew with {row.get('fingerprint', 'another model')} since it "
                "was opened: open it again with that encoder"
            )

    def _next_generation(self) -> str:
        found = [row for row in (self.read_slot("index"), self.read_slot("next")) if row]
        used = [int(each["generation"]) for row in found for each in (row, row.get("old") or row)]
        return str(max(used, default=0) + 1)


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What no other index has: two that are begun at the same moment may have one number."""
    return tuple(row.get(name) for name in ("generation", "fingerprint", "created"))


def _is_of(manifest: Manifest, fingerprint: str, spaces: Sequence[Space]) -> bool:
    return manifest.fingerprint == fingerprint and set(manifest.spaces) == set(spaces)
