"""What a store has to do for the readers of documents: see `vlmsearch.stores.readers`."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from vlmsearch.errors import InvalidBatchError
from vlmsearch.stores.base import Store
from vlmsearch.stores.filters import Filter, FilterGroup, parse_filter
from vlmsearch.stores.label_keys import with_labels
from vlmsearch.stores.listing import all_documents
from vlmsearch.stores.readers import readable
from vlmsearch.stores.restricted import restricted_store
from vlmsearch.types import READERS, MetadataChange, MetadataValue, Record
from vlmsearch_mocks.contracts.passages import make_long
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, StoreSuite, make_records, unit_vectors

_HR = "group:hr"
_NOBODY = ("",)
_ODD = (
    "group:HR", "group:hr ", "group:h", "group:hr2", 'a "q" \'n\' --', "a,b", "$where", "a.b", "%", "_", "\\", "\u00e9",
    "e\u0301", "\u4eba\u4e8b", "\U0001f436", "x" * 256, "readers", "None", "1",
)  # fmt: skip
_QUERY = unit_vectors(1)


def records_for(readers: Sequence[MetadataValue | None], *, seed: int = 0) -> list[Record]:
    """Return records with these values of ``readers``; None for none."""
    metadata = [{"number": n, **({} if value is None else {READERS: value})} for n, value in enumerate(readers)]
    return make_records(len(readers), (IMAGE, TEXT), seed=seed, metadata=metadata)  # type: ignore[arg-type]


def assert_shown(store: Store, scope: Filter, numbers: Collection[int], note: str = "") -> None:
    """Check that these records alone pass, by each way to ask for them."""
    ids, handle = sorted(f"id-{n}" for n in numbers), restricted_store(store, scope)
    assert sorted(hit.id for hit in store.search(IMAGE, _QUERY, limit=99, where=scope)[0]) == ids, note
    assert sorted(hit.id for hit in store.compare(IMAGE, _QUERY, [*store.ids()], scope)) == ids, note
    assert [document.id for document in all_documents(store, scope)] == ids, note
    assert (sorted(handle.ids()), len(handle)) == (ids, len(ids)), note


class ReadersSuite(StoreSuite):
    """The readers of documents, in filters, in writes, and in what only some stores do."""

    def test_a_document_is_shown_to_its_readers_and_one_without_readers_to_everyone(self, store: Store) -> None:
        store.upsert(records_for([None, (_HR,), (_HR, "user:ann"), ("*",), ("*", _HR), _HR, "*"]))
        assert_shown(store, readable([]), [0, 3, 4, 6])
        assert_shown(store, readable([_HR]), range(7))
        assert_shown(store, readable(["user:ann", "user:bob"]), [0, 2, 3, 4, 6])
        assert [document.readers for document in store.get(["id-0", "id-2", "id-4"])] == [None, {_HR, "user:ann"}, None]

    def test_no_readers_and_values_that_are_no_names_are_for_nobody(self, store: Store) -> None:
        store.upsert(records_for([None, _NOBODY, 7, True, 0.5, False, 0]))
        for principals in ([], [""], [_HR, "7", "True", "true", "0.5", "7.0", "1", "False", "0"]):
            assert_shown(store, readable(principals), [0])

    def test_names_are_compared_as_they_are(self, store: Store) -> None:
        names = (*(f"group:{n}" for n in range(1000)),)
        store.upsert(records_for([(_HR,), *((name,) for name in _ODD), names[:999], names[999:]]))
        for n, name in enumerate((_HR, *_ODD)):
            assert_shown(store, readable([name]), [n], name)
        assert_shown(store, readable(_ODD), range(1, len(_ODD) + 1))
        assert_shown(store, readable([*names[990:], *map(str, range(500))]), [19, 20, 21])

    def test_readers_and_another_filter_pass_what_passes_both(self, store: Store) -> None:
        store.upsert(records_for([None, (_HR,), (_HR, "user:ann"), ("user:ann",), ("*",)]))
        for given, numbers in (({"number": {"$gte": 1}}, {2, 4}), ({READERS: {"$ne": "*"}}, {0, 2})):
            others = FilterGroup("$and", (readable(["user:ann"]), parse_filter(given)))
            assert_shown(store, FilterGroup("$and", (readable([_HR]), others)), numbers)

    def test_a_record_without_readers_keeps_those_of_the_index(self, store: Store) -> None:
        """Check that all else is replaced, and that ``*`` opens a document again."""
        store.upsert(records_for([(_HR,), None, (_HR,), _NOBODY, (_HR,)]))
        new = records_for([None, None, ("user:ann",), None, ("*",), None], seed=5)
        store.upsert(new)
        wanted: list[MetadataValue | None] = [(_HR,), None, ("user:ann",), _NOBODY, ("*",), None]
        for record, given, readers in zip(store.records([f"id-{n}" for n in range(6)]), new, wanted):
            kept = {READERS: readers} if readers is not None and READERS not in given.document.metadata else {}
            assert record.document == replace(given.document, metadata={**given.document.metadata, **kept})
            assert record.stamp == replace(given.stamp, digest=with_labels(given.stamp.digest, kept))
        store.upsert(records_for([None] * 6))
        assert_shown(store, readable([]), [1, 4, 5])
        assert_shown(store, readable([_HR]), [0, 1, 4, 5])

    def test_changes_of_metadata_set_readers_and_take_them_off(self, store: Store) -> None:
        store.upsert(records_for([None, (_HR,), (_HR,), (_HR,), (_HR,)]))
        new = [record.document.metadata for record in records_for([(_HR,), ("user:ann",), None, _NOBODY])]
        read = store.records([f"id-{n}" for n in range(4)])
        changes = [MetadataChange(record.document, record.stamp, given, "new") for record, given in zip(read, new)]
        assert (len(store.update_metadata(changes)), store.delete(["id-4"])) == (4, 1)
        store.upsert(records_for([None] * 5))  # a document that was deleted has left no readers
        assert_shown(store, readable([]), [2, 4])
        assert_shown(store, readable([_HR]), [0, 2, 4])
        assert_shown(store, readable(["user:ann"]), [1, 2, 4])

    def test_passages_have_the_readers_of_their_document(self, store: Store) -> None:
        store.upsert([make_long("open"), with_readers(make_long("pay", first=4), (_HR,))])
        for principals, ids in (([], {"open"}), ([_HR], {"open", "pay"})):
            rows, scope = {f"{id}#passage={n}" for id in ids for n in (1, 2, 3)}, readable(principals)
            handle = restricted_store(store, scope)
            assert handle.passages(["open", "pay"]).keys() == ids
            assert {hit.id for hit in store.search(TEXT, unit_vectors(1, TEXT), limit=9, where=scope)[0]} == rows
            assert {hit.id for hit in store.compare(TEXT, unit_vectors(1, TEXT), [*store.row_ids()], scope)} == rows
            assert {*handle.row_ids()} == {*handle.sample_ids(TEXT, 9)} == rows

    def test_an_id_that_is_not_readable_is_one_that_is_not_there(self, store: Store) -> None:
        store.upsert(records_for([None, (_HR,), _NOBODY]))
        handle, ids = restricted_store(store, readable(["user:ann"])), ["id-0", "id-1", "id-2", "never"]
        documents = [*handle.get(ids), *(record.document for record in handle.records(ids))]
        assert [document.id for document in documents] == ["id-0", "id-0"]
        assert [*handle.stamps(ids), *handle.fields(ids), *handle.sample_ids(IMAGE, 9)] == ["id-0"] * 3
        changes = [MetadataChange(record.document, record.stamp, {}, "") for record in store.records(ids[1:])]
        assert (handle.update_metadata(changes), handle.delete(ids[1:]), len(store)) == ([], 0, 3)

    def test_a_writer_can_read_what_it_replaces_and_what_it_writes(self, store: Store) -> None:
        before = records_for([None, (_HR,), ("user:ann",)])
        store.upsert(before)
        handle = restricted_store(store, readable(["user:ann"]))
        for wrong in ([("user:ann",), ("user:ann",)], [(_HR,)], [None, None]):
            with pytest.raises(InvalidBatchError) as caught:
                handle.upsert(records_for(wrong, seed=3))
            assert list(caught.value.items) == [len(wrong) - 1]
            assert store.get(["id-0", "id-1", "id-2"]) == [record.document for record in before]
        fitting = records_for([None, None, None, ("user:ann", _HR)], seed=4)
        handle.upsert([fitting[0], *fitting[2:]])
        assert_shown(store, readable([_HR]), [0, 1, 3])
        assert (handle.delete(["id-1", "id-2"]), sorted(store.ids())) == (1, ["id-0", "id-1", "id-3"])

    def test_readers_are_kept_while_others_write(self, store: Store, tmp_path: Path) -> None:
        """Check that a writer who names no readers brings none back that were replaced before."""
        store.upsert(records_for([("group:0",)]))
        is_over = threading.Event()

        def write() -> None:
            with self.make_store(tmp_path) if self.durable else nullcontext(store) as other:
                other.bind("encoder 1", SPACES)
                while not is_over.is_set():
                    other.upsert(records_for([None], seed=1))

        names = []
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                for n in range(1, 30):
                    store.upsert(records_for([(f"group:{n}",)], seed=n))
                    time.sleep(0.003)  # so that the other writes meanwhile
                    names += [document.metadata[READERS] for document in store.get(["id-0"])]
            finally:
                is_over.set()
            writing.result()
        assert names == [(f"group:{n}",) for n in range(1, 30)]


def with_readers(record: Record, readers: tuple[str, ...]) -> Record:
    """Return a record with these readers."""
    metadata = {**record.document.metadata, READERS: readers}
    return replace(record, document=replace(record.document, metadata=metadata))
