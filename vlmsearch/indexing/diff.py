"""Comparing two indexes: documents, vectors, stamps and reject lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vlmsearch.errors import ConfigError
from vlmsearch.indexing.copy import pages_of, stamped, unknown
from vlmsearch.indexing.parquet import ParquetIndex
from vlmsearch.stores.base import RejectList, Store
from vlmsearch.types import Manifest, Record

TOLERANCE = 1e-6
"""What the numbers of two vectors differ by at most, where they are the same to every store."""
LISTED = 1000
"""Differences that a report lists, unless another number is asked for."""


@dataclass(frozen=True)
class DocumentDifference:
    """Say how one document differs.

    Attributes:
        id: The document's.
        what: ``first only`` or ``second only``, or what is not the same: ``text``, ``image``, ``metadata``, ``source``,
            ``digest`` or the vectors of a field, such as ``clip/image``; ``rejects`` for an entry of that list.
    """

    id: str
    what: tuple[str, ...]


@dataclass(frozen=True)
class DiffReport:
    """Say how two indexes differ.

    Attributes:
        documents: How many documents were compared or are in one of the two alone.
        index: What of the indexes themselves differs: ``model`` (the fingerprint of the encoder), ``spaces`` or
            ``tuning``.
        counts: How many documents differ in what.
        differences: The first of them.
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
    """Compare two indexes, in whatever stores they are. When they were made does not count.

    Documents are read some at a time. What is written meanwhile may be compared as it was or as it is.

    Args:
        first: An index, or an export of one.
        second: The other; of the two, one at most is an export.
        tolerance: By how much a number of a vector may differ; 0 for the same bits.
        limit: How many differences are listed; all are counted.
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
    manifests = [_manifest(each) for each in (first, second)]
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


def _manifest(index: Store | ParquetIndex) -> Manifest:
    manifest = index.manifest()
    if manifest is None:
        raise ConfigError(f"{index.name} is not an index yet: there is nothing to compare")
    return manifest


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
        theirs = {record.document.id: record for record in there.records(ids)}
        yield [
            DocumentDifference(id, _differing(record, theirs[id], tolerance) if id in theirs else only[:1])
            for id, record in mine.items()
        ]
    for ids in pages_of(there.ids()):
        yield [DocumentDifference(id, only[1:]) for id in unknown(here, ids)]


def _differing(first: Record, second: Record, tolerance: float) -> tuple[str, ...]:
    one, other = first.document, second.document
    checks = {
        "text": one.text == other.text,
        "image": one.image == other.image,
        "metadata": _typed(one.metadata) == _typed(other.metadata),
        "source": first.stamp.source == second.stamp.source,
        "digest": first.stamp.digest == second.stamp.digest,
    }
    for field in sorted(first.vectors.keys() | second.vectors.keys()):
        vectors = [record.vectors[field] for record in (first, second) if field in record.vectors]
        checks[str(field)] = (
            len(vectors) == 2
            and vectors[0].shape == vectors[1].shape
            and bool(np.all(np.abs(vectors[0] - vectors[1]) <= tolerance))
        )
    return tuple(name for name, same in checks.items() if not same)


def _typed(metadata: Mapping[str, object]) -> dict[str, tuple[type, object]]:
    """Metadata in a form in which 1, 1.0 and True differ."""
    return {key: (type(value), value) for key, value in metadata.items()}


def _differing_rejects(first: Store | ParquetIndex, second: Store | ParquetIndex) -> Sequence[str]:
    """Return the ids of inputs that are on one list alone, or with another entry.

    None where one of the two keeps no list.
    """
    lists = [each.rejects() if isinstance(each, (ParquetIndex, RejectList)) else None for each in (first, second)]
    if lists[0] is None or lists[1] is None:
        return []
    one, other = ({reject.id: reject for reject in each or ()} for each in lists)
    return sorted(id for id in one.keys() | other.keys() if one.get(id) != other.get(id))
