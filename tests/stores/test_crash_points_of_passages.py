"""A process that dies leaves documents with passages that are whole or count as changed."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import pytest
from vlmsearch_mocks.contracts.passages import make_long
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT

from tests.stores.test_crash_points import each_call_once
from tests.support.crash_points import no_waiting
from tests.support.worlds import HALVED, KINDS, AnyStore, Kind, Moment, Process, mock_world
from vlmsearch import Document, Record, Stamp
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.passages import rows_of
from vlmsearch.stores.rows import RowByRowStore
from vlmsearch.stores.versions import read_documents
from vlmsearch.types import MetadataChange

Action = Literal["add", "replace", "shorten", "label", "rewrite", "delete"]
OLD = make_long("a")
SHORT = Record(
    Document("a", "Short."), {IMAGE: OLD.vectors[IMAGE], TEXT: OLD.passages[0].vectors[TEXT]}, Stamp("d3"), "encoder 1"
)
LABELLED = replace(
    OLD, document=replace(OLD.document, metadata={"label": "cat"}), stamp=replace(OLD.stamp, digest="d1+cat")
)
NEW = make_long("a", ("One part. ", "Another part."), first=8, digest="d2")
REWRITTEN = replace(NEW, vectors=OLD.vectors, document=replace(NEW.document, metadata={}))
OTHER = make_long("b", first=12)
AFTER = {"add": OLD, "replace": NEW, "shorten": SHORT, "label": LABELLED, "rewrite": REWRITTEN, "delete": None}


def act(store: AnyStore, action: Action) -> None:
    after = AFTER[action]
    if after is None:
        store.delete(["a"])
    elif action in ("label", "rewrite"):
        text, passages = (None, ()) if action == "label" else (after.document.text, after.passages)
        read = store.records(["a"])[0]
        metadata, digest = after.document.metadata, after.stamp.digest
        store.update_metadata(
            [MetadataChange(read.document, read.stamp, metadata, digest, text=text, passages=passages)]
        )
    else:
        store.upsert([after])


def ready(kind: Kind, action: Action) -> Callable[[Process], AnyStore]:
    world = mock_world(kind)
    with world.open() as store:
        store.bind("encoder 1", SPACES)
        store.upsert([OTHER] if action == "add" else [OLD, OTHER])
    return world.open


def points(kind: Kind, action: Action) -> Iterator[tuple[int, Moment]]:
    process = Process()
    act(ready(kind, action)(process), action)
    for number, name in enumerate(process.calls):
        for moment in ("before", *(["half"] if name in HALVED else []), "after", "late"):
            yield number, moment  # type: ignore[misc]


def check(store: AnyStore, action: Action) -> None:
    """Check that what is read is of one version, or that the document counts as changed."""
    wanted = {record.stamp: record for record in (OLD, AFTER[action]) if record is not None}
    there = {record.document.id: record for record in store.records(["a", "b"])}
    assert store.stamps(["b"]) == {"b": OTHER.stamp}
    assert len(there["b"].passages) == len(OTHER.passages)
    texts = {record.document.text: record for record in wanted.values()}
    if "a" in there:
        stamp = store.stamps(["a"])["a"]
        assert there["a"].stamp == stamp
        if stamp.digest:
            record = wanted[stamp]
            assert there["a"].document == record.document
            assert [part.passage for part in there["a"].passages] == [part.passage for part in record.passages]
            for part in record.passages:
                [hits] = store.search(TEXT, part.vectors[TEXT][None], limit=9)
                assert hits[0].id == f"a#passage={part.passage.number}"
                assert np.isclose(hits[0].score, 1.0, atol=1e-4)
    else:
        assert action in ("add", "delete")
    [hits] = store.search(TEXT, OLD.passages[1].vectors[TEXT][None], limit=20)
    for id, content in read_documents(store, {hit.id for hit in hits}, hits).items():
        if id.startswith("a"):
            record = texts[content.document.text]
            assert content.passage in (None, *(part.passage for part in record.passages))
    assert sorted(store.ids()) == [*(["a"] if "a" in there else []), "b"]


@pytest.mark.parametrize("action", get_args(Action))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choose", [each_call_once, pytest.param(iter, marks=pytest.mark.exhaustive)])
def test_a_document_with_passages_is_whole_or_counts_as_changed(
    kind: Kind, action: Action, choose: Callable[[Any], Iterable[tuple[int, Moment]]]
) -> None:
    looked = 0
    with no_waiting():
        for number, moment in choose(points(kind, action)):
            looked += 1
            try:
                die_there(kind, action, number, moment)
            except AssertionError as exc:
                raise AssertionError(f"died at call {number}, {moment}") from exc
    assert looked


def die_there(kind: Kind, action: Action, number: int, moment: Moment) -> None:
    open_world, process = ready(kind, action), Process(number, moment)
    with process.until_it_dies():
        act(open_world(process), action)
    with open_world(Process()) as store:
        check(store, action)
        repair(store)
        for call in process.late:
            with suppress(Exception):
                call()
            check(store, action)
            repair(store)
        check(store, action)
        after = AFTER[action]
        store.upsert([after]) if after else store.delete(["a"])
        report = store.check()
        assert report.clean, report
        assert store.count_passages() == 3 + (len(after.passages) if after else 0)
        check(store, action)


def repair(store: AnyStore) -> None:
    """Repair the store. A document that lacks a passage counts as changed then; only Chroma names it still."""
    store.check(repair=True)
    report = store.check()
    assert not [*report.orphans, *report.stale, *report.unfinished], report
    assert isinstance(store, ChromaStore) or not report.missing


@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_of_a_document_leave_it_whole_or_changed(kind: Kind) -> None:
    open_world = ready(kind, "replace")

    def write(records: list[Record]) -> None:
        with open_world(Process()) as store:
            for record in records * 5:
                store.upsert([record])

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, [[OLD, SHORT], [NEW, OLD], [SHORT, NEW]]))
    with open_world(Process()) as store:
        [read], [stamp] = store.records(["a"]), store.stamps(["a"]).values()
        assert read.stamp == stamp
        wanted = {record.stamp: record for record in (OLD, NEW, SHORT)}
        if stamp.digest:
            assert read.document == wanted[stamp].document
            assert [p.passage for p in read.passages] == [p.passage for p in wanted[stamp].passages]
        store.upsert([NEW])
        assert store.stamps(["a"]) == {"a": NEW.stamp}
        assert store.check().clean


@pytest.mark.parametrize("kind", KINDS)
def test_a_check_names_passages_that_are_missing_of_another_version_or_of_no_document(kind: Kind) -> None:
    with ready(kind, "replace")(Process()) as store:
        assert isinstance(store, RowByRowStore)
        assert len(store) == 2
        older = replace(OLD, stamp=Stamp("d0"))
        store.write_rows([*rows_of([older])[:1], *rows_of([make_long("gone")])[:2]])
        store.remove_rows(["b#passage=3"])
        assert store.stamps(["a", "b", "gone"]) == {id: Stamp("", "books/long.txt") for id in ("a", "b")}
        for repair in (False, True):
            report = store.check(repair=repair)
            assert report.documents == len(store) == 2
            assert report.missing == ("a#passage=1", "b#passage=3")
            assert report.orphans == ("gone#passage=1", "gone#passage=2")
        assert store.check().missing == (("a#passage=1", "b#passage=3") if kind == "chroma" else ())
        assert [record.stamp.digest for record in store.records(["a", "b"])] == ["", ""]
        assert store.count_passages() == 4
        store.upsert([OLD, OTHER])
        assert store.check().clean
