"""What a document's row in Chroma says, how versions are named, and whether documents and vectors agree."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from vlmsearch.stores.chroma.filters import filterable
from vlmsearch.stores.chroma.vectors import Key, VectorRows
from vlmsearch.types import Field, Record, Stamp


@dataclass(frozen=True)
class State:
    """What the documents' row says beside the document itself: its stamp, version and fields."""

    stamp: Stamp
    version: str
    fields: tuple[str, ...]

    def dump(self) -> str:
        """Return as it is kept."""
        return json.dumps([self.stamp.digest, self.stamp.source, self.version, self.fields])

    @classmethod
    def load(cls, metadata: Mapping[str, str]) -> State:
        """Return what `dump` gave."""
        digest, source, version, fields = json.loads(metadata["state"])
        return cls(Stamp(digest, source), version, tuple(fields))


def digest_version(record: Record) -> str:
    """Return the version of a record by its content."""
    digest = hashlib.blake2b(digest_size=8)
    for asked in sorted(record.vectors, key=str):
        digest.update(str(asked).encode())
        digest.update(np.ascontiguousarray(record.vectors[asked], "<f4").tobytes())
    digest.update(json.dumps(filterable(record.document.metadata), sort_keys=True).encode())
    return "d" + digest.hexdigest()[:15]


@dataclass
class Discrepancies:
    """What there is and what is not in order, by field."""

    documents: int
    counts: dict[str, int] = field(default_factory=dict)
    orphans: dict[Field, set[Key]] = field(default_factory=dict)
    stale: dict[Field, set[Key]] = field(default_factory=dict)
    missing: dict[Field, set[Key]] = field(default_factory=dict)
    unindexed: dict[Field, set[Key]] = field(default_factory=dict)


def row_names(found: Mapping[Field, set[Key]]) -> tuple[str, ...]:
    """Return field, id and version of each row, for people."""
    return tuple(sorted(f"{each} {id} {version}" for each, keys in found.items() for id, version in keys))


def compare(
    vectors: VectorRows,
    states: Mapping[str, State],
    look_again: Callable[[Collection[str]], Mapping[str, State]],
    under_way: Callable[[], Collection[str]],
) -> Discrepancies:
    """Return what is not in order; what looks so is looked at again, for it may have been written meanwhile.

    ``under_way`` gives the versions that may be named yet. It is asked after the vectors were listed and before the
    documents are looked at again: a write that is not under way by then has named its vectors, or never will.
    """
    found = Discrepancies(len(states))
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
