"""Copying an index from one store to another, vectors included: nothing is encoded again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vlmsearch._util.batching import batches
from vlmsearch.errors import ConfigError, IndexMismatchError
from vlmsearch.indexing.flow import upsert
from vlmsearch.indexing.parquet import ParquetIndex
from vlmsearch.search.relevance import Backgrounds
from vlmsearch.stores.base import RejectList, Store, Tunable, needed_manifest
from vlmsearch.types import Manifest, Record, Reject, Stamp

BATCH = 512
"""Documents that are in memory at a time."""


@dataclass(frozen=True)
class CopyReport:
    """A report of one run of `copy`, in documents.

    Attributes:
        documents: All that the target has now.
        copied: Those that were written.
        unchanged: Those that the target had with the same stamp, and that were skipped.
        pruned: Those that were removed from the target because the source does not have them.
        rejects: How many entries the source's reject list has, all of them now on the target's list; None where
            one of the two stores keeps no such list.
        refused: Documents that the target does not hold because they are larger than it takes.
        seconds: How long the run took.
        files: All that the target has now and that are no parts of files.
    """

    documents: int
    copied: int
    unchanged: int
    pruned: int
    rejects: int | None
    refused: tuple[Reject, ...]
    seconds: float
    files: int = 0


def copy(
    source: Store | ParquetIndex,
    target: Store,
    *,
    prune: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> CopyReport:
    """Copy all documents of an index to another store.

    Vectors, stamps, the reject list and the tuning come with them.

    Each batch is durable when it is counted, and the next run skips what the target has with the same stamp: run it
    again after it was interrupted, or to bring the target up to date. Others may search and write meanwhile; what they
    change in the source after it was read is copied by the next run. A tuning that the source has takes the place of
    the target's, where the target keeps one.

    Args:
        source: The index to read, or an export of one. Nothing is written to it.
        target: Where to copy to: a store without an index, or an index of the same encoder.
        prune: Also remove from the target all documents, and entries of the reject list, that the source does not
            have, whoever put them there.
        on_progress: Called with the number of documents done so far.

    Returns:
        What was done.

    Raises:
        ConfigError: The source is not an index, or source and target are the same one.
        IndexMismatchError: The target is an index of another encoder, and nothing was written; or the source was
            built anew meanwhile, and what this run was reading is gone.

    Example:
        >>> from vlmsearch import Document, Pipeline
        >>> from vlmsearch.registry import open_encoder, open_store
        >>> with open_store("mock:") as source, open_store("mock:") as target:
        ...     report = Pipeline(open_encoder("mock:"), source).add(Document("a", text="a dog"))
        ...     (copy(source, target).copied, copy(source, target).unchanged)
        (1, 1)
    """
    started = time.monotonic()
    manifest = needed_manifest(source)
    _check_target(source, manifest, target)
    target.bind(manifest.fingerprint, manifest.spaces)
    copied, unchanged, refused = copy_documents(source, target, on_progress)
    pruned = _prune(source, target) if prune else 0
    rejects = _copy_rejects(source, target, prune=prune)
    if manifest.tuning and isinstance(target, Tunable):
        target.tune(manifest.tuning)
    Backgrounds().keep(target, copied)
    seconds = time.monotonic() - started
    return CopyReport(len(target), copied, unchanged, pruned, rejects, tuple(refused), seconds, target.count_files())


def copy_documents(
    source: Store | ParquetIndex, target: Store, on_progress: Callable[[int], None] | None
) -> tuple[int, int, list[Reject]]:
    """Copy the documents that the target lacks or has otherwise.

    Returns:
        The number of those, of those that it had, and those that it refused.
    """
    copied = unchanged = 0
    refused: list[Reject] = []
    for stamps, read in stamped(source):
        there = target.stamps(list(stamps))
        changed = [id for id, stamp in stamps.items() if not stamp.digest or there.get(id) != stamp]
        records = read(changed) if changed else []
        too_large = upsert(target, records) if records else []
        copied += len(records) - len(too_large)
        unchanged += len(stamps) - len(changed)
        refused += too_large
        if on_progress:
            on_progress(copied + unchanged + len(refused))
    return copied, unchanged, refused


def stamped(
    source: Store | ParquetIndex,
) -> Iterator[tuple[Mapping[str, Stamp], Callable[[Sequence[str]], list[Record]]]]:
    """Yield the stamps of all documents, some at a time.

    With each part comes a function that reads the records of some ids.
    """
    if isinstance(source, ParquetIndex):
        for page in source.pages(BATCH):
            records = {record.document.id: record for record in page}
            stamps = {id: record.stamp for id, record in records.items()}
            yield stamps, partial(_chosen, records)
    else:
        for ids in batches(source.ids(), BATCH):
            yield source.stamps(ids), source.records


def _chosen(records: Mapping[str, Record], ids: Sequence[str]) -> list[Record]:
    return [records[id] for id in ids]


def _check_target(source: Store | ParquetIndex, manifest: Manifest, target: Store) -> None:
    """Raise ConfigError where the target is the source, and IndexMismatchError where another encoder filled it."""
    there = target.manifest()
    if source is target or (there == manifest and _place(source.name) == _place(target.name)):
        raise ConfigError(f"`source` and `target` are the same index, {source.name}: name another place for the copy")
    if there and (there.fingerprint != manifest.fingerprint or set(there.spaces) != set(manifest.spaces)):
        raise IndexMismatchError(
            f"{target.name} was built with {there.fingerprint} and {source.name} with {manifest.fingerprint}, whose "
            "vectors cannot be compared: give `target` a place without an index, or first bring one of the two to the "
            "other's model with `vlmsearch reindex --encoder URL`"
        )


def _place(name: str) -> str:
    """Return the name of a store, with an absolute path without links.

    A store that is no folder or file keeps its name.
    """
    scheme, _, place = name.partition(":")
    return name if place.startswith("//") else f"{scheme}:{Path(place).resolve()}"


def unknown(source: Store | ParquetIndex, ids: Sequence[str]) -> list[str]:
    """Return those of some ids that an index does not have."""
    if isinstance(source, ParquetIndex):
        return source.unknown(ids)
    there = source.stamps(ids)
    left = [id for id in ids if id not in there]
    # of an index that is not there any more, `stamps` may give none; `records` raises
    known = {record.document.id for record in source.records(left)} if left else set()
    return [id for id in left if id not in known]


def _prune(source: Store | ParquetIndex, target: Store) -> int:
    """Remove what the target has and the source does not; how many documents that were."""
    gone = (unknown(source, page) for page in batches(target.ids(), BATCH))
    return sum(target.delete(ids) for ids in gone if ids)


def _copy_rejects(source: Store | ParquetIndex, target: Store, *, prune: bool) -> int | None:
    """Put the source's entries on the target's list.

    What is a document by now is taken off, with ``prune`` all else too.
    """
    given = source.rejects() if isinstance(source, (ParquetIndex, RejectList)) else None
    if given is None or not isinstance(target, RejectList):
        return None
    there = {reject.id: reject for reject in target.rejects()}
    entries = {reject.id: reject for reject in given}
    new = [reject for id, reject in entries.items() if there.get(id) != reject]
    if new:
        target.reject(new)
    others = [id for id in there if id not in entries]
    healed = others if prune else list(set(others) - set(unknown(source, others)))
    if healed:
        target.release(healed)
    return len(entries)
