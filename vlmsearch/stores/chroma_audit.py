"""Comparing the documents of an index in Chroma with their vectors, while others may write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from vlmsearch.stores.chroma_vectors import Key, VectorRows
from vlmsearch.stores.chroma_versions import State
from vlmsearch.types import Field


@dataclass
class Findings:
    """What there is and what is not in order, by field."""

    documents: int
    counts: dict[str, int] = field(default_factory=dict)
    orphans: dict[Field, set[Key]] = field(default_factory=dict)
    stale: dict[Field, set[Key]] = field(default_factory=dict)
    missing: dict[Field, set[Key]] = field(default_factory=dict)
    unindexed: dict[Field, set[Key]] = field(default_factory=dict)

    @staticmethod
    def names(found: Mapping[Field, set[Key]]) -> tuple[str, ...]:
        """Field, id and version of each, for people."""
        return tuple(sorted(f"{each} {id} {version}" for each, keys in found.items() for id, version in keys))


def compare(
    vectors: VectorRows,
    states: Mapping[str, State],
    look_again: Callable[[Collection[str]], Mapping[str, State]],
    under_way: Callable[[], Collection[str]],
) -> Findings:
    """What is not in order; what looks so is looked at again, for it may have been written meanwhile.

    ``under_way`` gives the versions that may be named yet. It is asked after the vectors were listed and before the
    documents are looked at again: a write that is not under way by then has named its vectors, or never will.
    """
    found = Findings(len(states))
    for each in vectors.fields:
        rows = set(vectors.keys(each))
        wanted = {(id, state.version) for id, state in states.items() if str(each) in state.fields}
        found.counts[str(each)] = len(rows)
        busy = under_way()
        now = look_again({id for id, _ in rows ^ wanted})
        named = {(id, state.version) for id, state in now.items() if str(each) in state.fields}
        over = {key for key in (rows - wanted) - named if key[1] not in busy}
        extra = vectors.among(each, over)
        found.orphans[each] = {key for key in extra if key[0] not in now}
        found.stale[each] = extra - found.orphans[each]
        lost = (wanted - rows) & named
        found.missing[each] = lost - vectors.among(each, lost)
        found.unindexed[each] = vectors.lost(each) & wanted & rows
    return found
