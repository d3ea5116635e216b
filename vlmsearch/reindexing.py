"""Building an index anew with another model, beside the old one, and then switching in one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError
from vlmsearch.indexing import Flow, IndexOptions
from vlmsearch.maintenance import Replaceable
from vlmsearch.sources import Sourced
from vlmsearch.stores.base import Store
from vlmsearch.types import Document, Stamp

_BATCH = 500
_ROUNDS = 3
"""How often the old index is looked through for what has changed in it meanwhile."""


@dataclass(frozen=True)
class ReindexReport:
    """What `reindex` did. ``lost`` are documents that cannot be encoded again: their images are not kept or not there.

    ``encoded`` counts documents of this run, ``documents`` all that the new index has; ``switched`` is False where
    something would have been lost.
    """

    documents: int
    encoded: int
    lost: tuple[str, ...]
    switched: bool
    seconds: float


def reindex(
    store: Store,
    encoder: Encoder,
    *,
    allow_missing: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> ReindexReport:
    """Encode all documents of ``store`` with ``encoder`` into an index beside it, and switch to that.

    The old index answers until then and is kept until `drop_old`. What an interrupted run did is not done again.
    Where documents would be lost, it does not switch unless ``allow_missing``. What others write to the old index
    meanwhile is in the new one too; once it has switched, their writes fail with IndexMismatchError.
    """
    started = time.monotonic()
    replaceable = _replaceable(store)
    manifest = store.manifest()
    if manifest is None:
        raise ConfigError(f"{store.name} is no index yet")
    if manifest.fingerprint == encoder.fingerprint:
        raise ConfigError(f"{store.name} was built with {encoder.fingerprint} already")
    new = replaceable.beside(encoder.fingerprint, encoder.spaces)
    encoded, lost, looked = 0, set[str](), set[int]()
    for _ in range(_ROUNDS):
        looked.clear()
        done = _encode(_to_encode(store, new, lost, looked), encoder, new, lost, on_progress)
        new.delete(_gone(store, new))
        encoded += done
        if not done:
            break
    switched = allow_missing or not lost
    if switched:
        encoded += _catch_up(replaceable.switch(), store, encoder, lost, looked)
    documents = len(store if switched else new)
    return ReindexReport(documents, encoded, tuple(sorted(lost)), switched, time.monotonic() - started)


def _encode(
    documents: Iterable[Sourced],
    encoder: Encoder,
    into: Store,
    lost: set[str],
    on_progress: Callable[[int], None] | None,
) -> int:
    """Encode documents into an index; how many. What cannot be encoded goes to ``lost``."""
    before = {reject.id for reject in into.rejects()}
    report = Flow(encoder, into, IndexOptions(retry_failed=True, on_progress=on_progress)).run(documents)
    failed = {reject.id for reject in report.rejects}
    into.release(list(failed - before))
    lost |= failed
    return report.added + report.updated


def _catch_up(old: Store, new: Store, encoder: Encoder, lost: set[str], looked: set[int]) -> int:
    """Bring what was written to the old index after it had been ``looked`` through into the new one, now in use.

    What has been written to the new one since stays.
    """
    late = _to_encode(old, new, lost, set(), unless=looked)
    encoded = _encode(late, encoder, new, lost, None)
    gone = _gone(old, new)
    new.delete([id for id, stamp in new.stamps(gone).items() if _mark(id, stamp) in looked])
    return encoded


def drop_old(store: Store) -> bool:
    """Remove the index that `reindex` replaced; False where there is none."""
    return _replaceable(store).drop_old()


def _replaceable(store: Store) -> Replaceable:
    if not isinstance(store, Replaceable):
        raise ConfigError(
            f"{store.name} cannot have another index beside its own; build one with "
            "`vlmsearch index PATHS --store NEW --encoder URL`"
        )
    return store


def _to_encode(
    store: Store, new: Store, lost: set[str], looked: set[int], unless: Collection[int] = ()
) -> Iterator[Sourced]:
    """The documents that the new index does not have as the old one has them; those that cannot be go to ``lost``.

    What the old index has goes to ``looked``; what is in ``unless`` is left out.
    """
    ids = store.ids()
    while batch := list(islice(ids, _BATCH)):
        stamps, there, fields = store.stamps(batch), new.stamps(batch), store.fields(batch)
        marks = {id: _mark(id, stamp) for id, stamp in stamps.items()}
        looked.update(marks.values())
        changed = [id for id in batch if id in stamps and stamps[id] != there.get(id)]
        wanted = [id for id in changed if id not in lost and marks[id] not in unless]
        for document in store.get(wanted):
            if document.image is None and any(field.modality == "image" for field in fields.get(document.id, ())):
                lost.add(document.id)
            elif _is_indexable(document):
                yield Sourced(document, stamps[document.id].source)
            else:
                lost.add(document.id)


def _mark(id: str, stamp: Stamp) -> int:
    """A document in one form, in few bytes: an index may have millions."""
    return hash((id, stamp))


def _gone(store: Store, new: Store) -> list[str]:
    """What the new index has and the old one no longer."""
    ids, gone = new.ids(), list[str]()
    while batch := list(islice(ids, _BATCH)):
        there = store.stamps(batch)
        gone += [id for id in batch if id not in there]
    return gone


def _is_indexable(document: Document) -> bool:
    return bool(document.text) or document.image is not None
