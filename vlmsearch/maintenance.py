"""Keeping an index in order: checking what is in it, and building it anew with another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from vlmsearch.errors import ConfigError
from vlmsearch.types import Space

if TYPE_CHECKING:
    from vlmsearch.stores.base import Store


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
