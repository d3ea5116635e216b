"""Comparing two indexes: documents, vectors, stamps and reject lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vlmsearch._util.batching import batches
from vlmsearch.errors import ConfigError
from vlmsearch.indexing.copy import BATCH, stamped, unknown
from vlmsearch.indexing.parquet import ParquetIndex
from vlmsearch.stores.base import RejectList, Store, needed_manifest
from vlmsearch.stores.passages import rows_of
from vlmsearch.types import Manifest, Record

TOLERANCE = 1e-6
"""The largest difference of numbers in two vectors that are the same to every store."""
LISTED = 1000
"""Differences that a report lists by default."""


@dataclass(frozen=True)
class DocumentDifference:
    """A document that differs, and in what.

    Attributes:
        id: The id of the document.
        what: ``first only`` or ``second only``, or what is not the same: ``text``, ``image``, ``metadata``, ``source``,
            ``digest``, ``passages`` or the vectors of a field, such as ``clip/image``; ``rejects`` for an entry of that
            list.
    """

    id: str
    what: tuple[str, ...]


@dataclass(frozen=True)
class DiffReport:
    """A comparison of two indexes.

    Attributes:
        documents: The number of documents that were compared or are in one of the two alone.
        index: What differs of the indexes themselves: ``model`` (the fingerprint of the encoder), ``spaces`` or
            ``tuning``.
        counts: The numbers of documents by what differs.
        differences: The first documents that differ.
    """

    documents: int
    index: tuple[str, ...]
    counts: Mapping[str, int]
    differences: tuple[DocumentDifference, ...]

    @property
    def same(self) -> bool:
        """Return whether nothing differs."""
        return not self.index and not self.counts


def diff(
    first: Store | ParquetIndex,
    second: Store | ParquetIndex,
    *,
    tolerance: float = TOLERANCE,
    limit: int = LISTED,
    on_progress: Callable[[int], None] | None = None,
) -> DiffReport:
    """Compare two indexes in any stores. The time when they were made does not count.

    Documents are read some at a time. What is written meanwhile may be compared as it was or as it is.

    Args:
        first: An index, or an export of one.
        second: The other index. Only one of the two may be an export.
        tolerance: How much a number of a vector may differ; 0 for the same bits.
        limit: The most differences to list; all are counted.
        on_progress: Called with the number of documents compared so far.

    Returns:
        What differs.

    Raises:
        ConfigError: One of the two is not an index, or both are exports.
        IndexMismatchError: One of the two was built anew meanwhile, and what this run was reading is gone.

    Example:
        >>> from vlmsearch import Document, Pipeline
        >>> from vlmsearch.registry import open_encoder, open_store
        >>> with open_store("mock:") as one, open_store("mock:") as other:
        ...     _ = Pipeline(open_encoder("mock:"), one).add([Document("a", text="a dog"), Document("b", text="a car")])
        ...     _ = Pipeline(open_encoder("mock:"), other).add(Document("a", text="a cat"))
        ...     found = diff(one, other)
        >>> dict(found.counts)
        {'text': 1, 'digest': 1, 'minilm/text': 1, 'first only': 1}
    """
    manifests = [needed_manifest(index) for index in (first, second)]
    counts: Counter[str] = Counter()
    listed: list[DocumentDifference] = []
    done = 0
    for page in _compared(first, second, tolerance):
        for difference in page:
            if difference.what:
                counts.update(difference.what)
                listed += [difference] if len(listed) < limit else []
        done += len(page)
        if on_progress:
            on_progress(done)
    rejected = _differing_rejects(first, second)
    if rejected:
        counts["rejects"] = len(rejected)
        listed += [DocumentDifference(id, ("rejects",)) for id in rejected][: max(0, limit - len(listed))]
    return DiffReport(done, _about(*manifests), dict(counts), tuple(listed))


def _about(first: Manifest, second: Manifest) -> tuple[str, ...]:
    checks = {
        "model": first.fingerprint == second.fingerprint,
        "spaces": set(first.spaces) == set(second.spaces),
        "tuning": dict(first.tuning) == dict(second.tuning),
    }
    return tuple(name for name, same in checks.items() if not same)


def _compared(
    first: Store | ParquetIndex, second: Store | ParquetIndex, tolerance: float
) -> Iterator[list[DocumentDifference]]:
    """Yield all documents, some at a time, each with what differs.

    What has no documents by id is read through, once.
    """
    if not isinstance(second, ParquetIndex):
        yield from _walk(first, second, ("first only", "second only"), tolerance)
    elif not isinstance(first, ParquetIndex):
        yield from _walk(second, first, ("second only", "first only"), tolerance)
    else:
        raise ConfigError(f"{first.name!r} and {second.name!r} are both exports: import one of them first")


def _walk(
    here: Store | ParquetIndex, there: Store, only: tuple[str, str], tolerance: float
) -> Iterator[list[DocumentDifference]]:
    for stamps, read in stamped(here):
        ids = list(stamps)
        mine = {record.document.id: record for record in read(ids)}
        others = {record.document.id: record for record in there.records(ids)}
        yield [
            DocumentDifference(id, _differing(record, others[id], tolerance) if id in others else only[:1])
            for id, record in mine.items()
        ]
    for ids in batches(there.ids(), BATCH):
        yield [DocumentDifference(id, only[1:]) for id in unknown(here, ids)]


def _differing(first: Record, second: Record, tolerance: float) -> tuple[str, ...]:
    left, right = first.document, second.document
    checks = {
        "text": left.text == right.text,
        "image": left.image == right.image,
        "metadata": _typed(left.metadata) == _typed(right.metadata),
        "source": first.stamp.source == second.stamp.source,
        "digest": first.stamp.digest == second.stamp.digest,
        "passages": [encoded.passage for encoded in first.passages] == [encoded.passage for encoded in second.passages],
    }
    for field in sorted({field for row in rows_of([first, second]) for field in row.vectors}):
        mine, others = first.vectors_of(field), second.vectors_of(field)
        checks[str(field)] = [vector.shape for vector in mine] == [vector.shape for vector in others] and bool(
            np.all(np.abs(np.array(mine) - np.array(others)) <= tolerance)
        )
    return tuple(name for name, same in checks.items() if not same)


def _typed(metadata: Mapping[str, object]) -> dict[str, tuple[type, object]]:
    """Metadata in a form in which 1, 1.0 and True differ."""
    return {key: (type(value), value) for key, value in metadata.items()}


def _differing_rejects(first: Store | ParquetIndex, second: Store | ParquetIndex) -> Sequence[str]:
    """Return the ids of inputs whose entries on the two reject lists differ.

    An entry on one list alone differs too. Empty where an index keeps no list.
    """
    lists = [index.rejects() if isinstance(index, (ParquetIndex, RejectList)) else None for index in (first, second)]
    if lists[0] is None or lists[1] is None:
        return []
    left, right = ({reject.id: reject for reject in entries or ()} for entries in lists)
    return sorted(id for id in left.keys() | right.keys() if left.get(id) != right.get(id))
