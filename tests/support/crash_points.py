"""Every point at which a writing process can die: before, at half of and after every call that it makes to a server."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.worlds import HALVED, AnyStore, Died, Moment, Process, World
from vlmsearch import Record, Stamp
from vlmsearch.stores.base import CheckReport, WordSearch
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.filters import parse_filter
from vlmsearch.types import MetadataChange

Action = Literal["add", "update", "relabel", "delete", "repair"]
ACTIONS: tuple[Action, ...] = get_args(Action)


def stamped(records: Sequence[Record]) -> list[Record]:
    """Each with a stamp and a word of its own."""
    made = []
    for record in records:
        number = int(str(record.document.metadata["number"]))
        letter = "abcdefghi"[abs(number)]  # a digit would be a part of its own, which other documents share
        word = f"old{letter}" if number >= 0 else f"new{letter}"
        made.append(Record(replace(record.document, text=word), record.vectors, Stamp(str(number))))
    return made


OLD = stamped(make_records(6, (IMAGE, TEXT)))
NEW = stamped(make_records(8, (IMAGE, TEXT), seed=40, metadata=[{"number": -i - 1} for i in range(8)]))
LABELLED = [
    replace(record, document=replace(record.document, metadata={"label": "cat"}), stamp=Stamp("labelled"))
    for record in OLD
]
CHANGED = {
    "add": [6, 7],
    "update": [1, 2, 3],
    "relabel": [1, 2, 3],
    "delete": [1, 2, 3],
    "repair": [1, 2, 3, 6, 7],
}
"""The numbers of the documents that an action writes or deletes; all others stay as they are in OLD."""


def filled(world: World) -> None:
    with world.open() as store:
        store.bind("encoder", SPACES)
        store.upsert(OLD)


def act(store: AnyStore, action: Action) -> None:
    if action == "delete":
        store.delete([NEW[i].document.id for i in CHANGED["delete"]])
    elif action == "repair":
        store.check(repair=True)
    elif action == "relabel":
        changed = [(OLD[i], LABELLED[i]) for i in CHANGED["relabel"]]
        store.update_metadata(
            [MetadataChange(o.document, o.stamp, n.document.metadata, n.stamp.digest) for o, n in changed]
        )
    else:
        store.upsert([NEW[i] for i in CHANGED[action]])


def break_off(world: World) -> None:
    """Leave what a repair has to do: a write and a delete that were cut off."""
    for action, last in (("update", 6), ("add", 5), ("delete", 5)):
        with suppress(Died):
            act(world.open(Process(last)), action)  # type: ignore[arg-type]


def points(make: Callable[[], World], action: Action) -> Iterator[tuple[int, Moment]]:
    """Every point of an action: the number of a call, and how the process dies there."""
    world = ready(make, action)
    process = Process()
    act(world.open(process), action)
    for number, name in enumerate(process.calls):
        yield number, "before"
        if name in HALVED:
            yield number, "half"
        yield number, "after"
        if world.is_served:
            yield number, "late"


def ready(make: Callable[[], World], action: Action) -> World:
    world = make()
    filled(world)
    if action == "repair":
        break_off(world)
    return world


def check_point(make: Callable[[], World], action: Action, number: int, moment: Moment) -> None:
    """Die at a point; nothing that was there may be lost, a repair ends clean, and the action can be done again."""
    world, process = ready(make, action), Process(number, moment)
    with pytest.raises(Died):
        act(world.open(process), action)
    with world.open() as store:
        check_documents(store, action)
        assert not repaired(store).missing
        for call in process.late:
            with suppress(Exception):
                call()
            check_documents(store, action)
            if not isinstance(store, ChromaStore):
                assert not store.check().missing
            repaired(store)
        check_documents(store, action)
        act(store, action)
        if action == "repair":
            act(store, "update")
        assert store.check() == CheckReport(store.name, len(store), expected_counts(store))
        check_documents(store, action)


def repaired(store: AnyStore) -> CheckReport:
    report = store.check(repair=True)
    after = store.check()
    assert after.in_progress == 0
    assert not [*after.orphans, *after.stale, *after.unfinished], after
    return report


def expected_counts(store: AnyStore) -> dict[str, int]:
    count = len(store)
    return {"clip/image": count, "clip/text": 0, "minilm/text": count}


def check_documents(store: AnyStore, action: Action) -> None:
    """Each document is as it was or as it became, found by all its vectors, or, if written late, counts as changed."""
    there = {document.id: document for document in store.get(list(store.ids()))}
    stamps = store.stamps(list(there))
    changed = {NEW[i].document.id for i in CHANGED[action]}
    for record in OLD:
        id = record.document.id
        assert id in changed or there.get(id) == record.document, f"{id} is lost"
    if isinstance(store, WordSearch):
        for record in (*OLD, *NEW):
            hits = store.search_words(str(record.document.text), limit=20).hits
            assert [hit.id for hit in hits] == [id for id, each in there.items() if each.text == record.document.text]
    for id, document in there.items():
        assert document in [r.document for r in (*OLD, *NEW, *LABELLED) if r.document.id == id]
        if stamps[id].digest == "" and id in changed:
            continue  # indexing its source again writes it
        (record,) = [r for r in (*OLD, *NEW, *LABELLED) if r.document == document]
        assert stamps[id] == record.stamp
        for each in (IMAGE, TEXT):
            hits = store.search(each, record.vectors[each][None], limit=20)[0]
            assert hits, (id, each)
            assert hits[0].id == id, (id, each, hits)
            assert np.isclose(hits[0].score, 1.0, atol=1e-4)
            assert [hit.id for hit in hits].count(id) == 1
            labelled = store.search(each, record.vectors[each][None], limit=20, where=parse_filter({"label": "cat"}))[0]
            assert (id in [hit.id for hit in labelled]) == ("label" in document.metadata)


@contextmanager
def no_waiting() -> Iterator[None]:
    """A repair does not wait for what a killed writer may have sent: here nothing is on its way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vlmsearch.stores.writers.wait_for_requests", lambda: None)
        yield
