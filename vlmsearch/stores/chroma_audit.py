"""Comparing the documents of an index in Chroma with their vectors, while others may write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from vlmsearch.stores.chroma_vectors import Key, VectorRows
from vlmsearch.stores.chroma_versions import State, is_abandoned
from vlmsearch.types import Field


@dataclass
class Findings:
    """What there is and what is not in order, by field; ``in_progress`` counts the writes under way."""

    documents: int
    counts: dict[str, int] = field(default_factory=dict)
    orphans: dict[Field, set[Key]] = field(default_factory=dict)
    stale: dict[Field, set[Key]] = field(default_factory=dict)
    missing: dict[Field, set[Key]] = field(default_factory=dict)
    unindexed: dict[Field, set[Key]] = field(default_factory=dict)
    in_progress: int = 0

    @staticmethod
    def names(found: Mapping[Field, set[Key]]) -> tuple[str, ...]:
        """Field, id and version of each, for people."""
        return tuple(sorted(f"{each} {id} {version}" for each, keys in found.items() for id, version in keys))


def compare(
    vectors: VectorRows,
    states: Mapping[str, State],
    look_again: Callable[[Collection[str]], Mapping[str, State]],
    *,
    is_alone: bool,
) -> Findings:
    """What is not in order; what looks so is looked at again, for it may have been written meanwhile.

    Unless ``is_alone``, vectors that no document names are those of a write under way until it must have ended.
    """
    found = Findings(len(states))
    under_way: set[str] = set()
    for each in vectors.fields:
        rows = set(vectors.keys(each))
        wanted = {(id, state.version) for id, state in states.items() if str(each) in state.fields}
        found.counts[str(each)] = len(rows)
        now = look_again({id for id, _ in rows ^ wanted})
        named = {(id, state.version) for id, state in now.items() if str(each) in state.fields}
        extra = vectors.among(each, (rows - wanted) - named)
        young = {key for key in extra if not (is_alone or is_abandoned(key[1]))}
        under_way |= {version for _, version in young}
        found.orphans[each] = {key for key in extra - young if key[0] not in now}
        found.stale[each] = extra - young - found.orphans[each]
        lost = (wanted - rows) & named
        found.missing[each] = lost - vectors.among(each, lost)
        found.unindexed[each] = vectors.lost(each) & wanted & rows
    found.in_progress = len(under_way)
    return found
