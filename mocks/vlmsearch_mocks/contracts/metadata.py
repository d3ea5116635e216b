"""What `Store.update_metadata` promises."""
# ruff: noqa: S101 - these are tests

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from vlmsearch.errors import InvalidBatchError
from vlmsearch.stores.base import RejectList, Replaceable, Store, WordSearch, check_store
from vlmsearch.stores.filters import parse_filter
from vlmsearch.types import MetadataChange, Record, Reject, Scalar, Stamp
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, StoreSuite, make_records

_NEW: Mapping[str, Scalar] = {"label": "cat", "label:cat": 0.9, "number": 2**60}
_COLOUR = parse_filter({"label": "cat"})
_OLD = parse_filter({"number": {"$lt": 100}})


def _read(store: Store, ids: Sequence[str]) -> list[MetadataChange]:
    """Changes of documents as they are now."""
    return [
        MetadataChange(record.document, record.stamp, _NEW, f"{record.stamp.digest}+new")
        for record in store.records(ids)
    ]


class MetadataSuite(StoreSuite):
    """Changing metadata, and nothing that others have written since they were read."""

    def test_a_change_undoes_nothing_that_was_written_since(self, store: Store) -> None:
        """Check that a document which was written after it was read stays as it was written."""
        store.upsert(make_records(1))
        changes = _read(store, ["id-0"])
        (newer,) = make_records(1, metadata=[{"number": 50}])
        store.upsert([newer])
        store.update_metadata(changes)
        assert store.get(["id-0"]) == [newer.document]

    def test_metadata_are_replaced_and_vectors_stay_bit_for_bit(self, store: Store) -> None:
        """Check that metadata and the digest alone change.

        Filters see them, and words are found as before.
        """
        store.upsert(make_records(30, (IMAGE, TEXT)))
        before = {record.document.id: record for record in store.records([f"id-{i}" for i in range(30)])}
        ids = ["id-7", "id-3", "id-21"]
        assert store.update_metadata(_read(store, ids)) == ids
        assert len(store) == 30
        for record in store.records(list(before)):
            old = before[record.document.id]
            is_changed = record.document.id in ids
            assert record.document == (replace(old.document, metadata=_NEW) if is_changed else old.document)
            digest = f"{old.stamp.digest}+new" if is_changed else old.stamp.digest
            assert record.stamp == Stamp(digest, old.stamp.source)
            assert store.stamps([record.document.id]) == {record.document.id: record.stamp}
            assert record.vectors.keys() == old.vectors.keys()
            assert all(record.vectors[field].tobytes() == old.vectors[field].tobytes() for field in old.vectors)
        query = before["id-3"].vectors[IMAGE][None]
        assert {hit.id for hit in store.search(IMAGE, query, limit=30, where=_COLOUR)[0]} == set(ids)
        assert {hit.id for hit in store.search(IMAGE, query, limit=30, where=_OLD)[0]} == before.keys() - set(ids)
        assert store.search(IMAGE, query, limit=30)[0][0].id == "id-3"
        assert len(store.search(IMAGE, query, limit=40)[0]) == 30
        assert {hit.id for hit in store.compare(TEXT, before["id-3"].vectors[TEXT][None], ids, _COLOUR)} == set(ids)
        if isinstance(store, WordSearch):
            assert [hit.id for hit in store.search_words("3", limit=9, where=_COLOUR).hits] == ["id-3"]
            assert len(store.search_words("text", limit=40).hits) == 30

    def test_a_deleted_document_does_not_come_back(self, store: Store) -> None:
        """Nor does one that was never there; the others of the batch are changed."""
        store.upsert(make_records(4))
        changes = _read(store, ["id-0", "id-1", "id-2"])
        strange = replace(changes[0], document=replace(changes[0].document, id="never"))
        store.delete(["id-1"])
        assert store.update_metadata([*changes, strange]) == ["id-0", "id-2"]
        assert sorted(store.ids()) == ["id-0", "id-2", "id-3"]
        assert len(store) == 3
        query = make_records(4)[1].vectors[IMAGE][None]
        assert {hit.id for hit in store.search(IMAGE, query, limit=9)[0]} == {"id-0", "id-2", "id-3"}

    def test_what_others_changed_since_is_left_as_it_is(self, store: Store) -> None:
        """Check that other changes win over one that was read before them.

        These are updates and changes of metadata or of the stamp alone.
        """
        store.upsert(make_records(5))
        changes = _read(store, [f"id-{i}" for i in range(5)])
        new = make_records(3, seed=9)
        updated = replace(new[0], document=replace(new[0].document, text="new", metadata={"number": 50}))
        restamped = replace(make_records(5)[1], stamp=Stamp("another", "source 1"))
        store.upsert([updated, restamped])
        other = replace(changes[2], metadata={"number": 60}, digest=changes[2].stamp.digest)
        assert store.update_metadata([other]) == ["id-2"]
        assert store.update_metadata(changes) == ["id-3", "id-4"]
        records = {record.document.id: record for record in store.records([f"id-{i}" for i in range(5)])}
        assert [records[f"id-{i}"].document.metadata for i in range(3)] == [
            {"number": 50},
            {"number": 1},
            {"number": 60},
        ]
        assert (records["id-0"].document.text, records["id-1"].stamp.digest) == ("new", "another")
        query = new[0].vectors[IMAGE][None]
        assert store.search(IMAGE, query, limit=1)[0][0].id == "id-0"

    def test_nothing_is_changed_where_some_metadata_do_not_fit(self, store: Store) -> None:
        """Check that all changes that do not fit are named."""
        store.upsert(make_records(3))
        first, second, third = _read(store, ["id-0", "id-1", "id-2"])
        wrong = [replace(read, metadata={"$no": 1}) for read in (first, third)]
        with pytest.raises(InvalidBatchError) as caught:
            store.update_metadata([wrong[0], second, wrong[1]])
        assert sorted(caught.value.items) == [0, 2]
        assert [document.metadata for document in store.get(["id-0", "id-1"])] == [{"number": 0}, {"number": 1}]
        assert store.update_metadata([]) == []

    def test_a_change_may_bring_a_text_with_its_vectors(self, store: Store) -> None:
        """Check that words and vectors find the new text, and that what others changed since stays."""
        records = make_records(6, (IMAGE, TEXT))
        silent = [
            replace(r, document=replace(r.document, text=None), vectors={IMAGE: r.vectors[IMAGE]}) for r in records
        ]
        store.upsert(silent)
        vectors = [{TEXT: record.vectors[TEXT]} for record in records]
        changes = [
            replace(change, text=f"a zebra number {n}", vectors=vectors[n])
            for n, change in enumerate(_read(store, ["id-0", "id-1", "id-2"]))
        ]
        store.upsert([silent[1]])
        store.upsert([replace(silent[2], stamp=Stamp("another"))])
        done = store.update_metadata(changes)
        assert done[0] == "id-0"
        assert "id-2" not in done
        now = {record.document.id: record for record in store.records(["id-0", "id-2", "id-3"])}
        assert [now[id].document.text for id in ("id-0", "id-2", "id-3")] == ["a zebra number 0", None, None]
        assert now["id-0"].document.metadata == _NEW
        assert now["id-0"].vectors.keys() == {IMAGE, TEXT}
        assert now["id-0"].vectors[IMAGE].tobytes() == silent[0].vectors[IMAGE].tobytes()
        assert store.fields(["id-0", "id-3"]) == {"id-0": {IMAGE, TEXT}, "id-3": {IMAGE}}
        assert store.search(TEXT, vectors[0][TEXT][None], limit=1)[0][0].id == "id-0"
        assert store.search(IMAGE, silent[0].vectors[IMAGE][None], limit=1)[0][0].id == "id-0"
        if isinstance(store, WordSearch):
            assert {hit.id for hit in store.search_words("zebra", limit=9).hits} == set(done)
        assert len(store) == 6

    def test_an_index_that_is_not_there_has_nothing_to_change(self, tmp_path: Path) -> None:
        """Check that nothing is made."""
        with self.make_store(tmp_path / "none") as store:
            (record,) = make_records(1)
            assert store.update_metadata([MetadataChange(record.document, record.stamp, {}, "")]) == []
            assert store.manifest() is None

    def test_changes_beside_writers_undo_nothing(self, store: Store, tmp_path: Path) -> None:
        """Check that the last acknowledged state is there while threads write, delete and change metadata."""
        ids = [f"id-{i}" for i in range(12)]
        store.upsert(make_records(12))
        is_over, failures = threading.Event(), list[BaseException]()
        other = self.make_store(tmp_path) if self.durable else store

        def change() -> None:
            try:
                while not is_over.is_set():
                    other.update_metadata([replace(read, metadata={"label": "x"}) for read in _read(other, ids)])
            except BaseException as exc:  # noqa: BLE001 - told by the test
                failures.append(exc)

        def write(some: Sequence[str], seed: int) -> None:
            try:
                for turn in range(5):
                    store.upsert(_of_turn(some[::2], turn, seed))
                    store.delete(some[1::2])
                    assert not store.get(some[1::2])
                    texts = [document.text for document in store.get(some[::2])]
                    assert texts == [f"turn {turn}"] * len(some[::2]), texts
                    store.upsert(_of_turn(some[1::2], turn, seed))
                store.delete(some[1::2])
            except BaseException as exc:  # noqa: BLE001 - told by the test
                failures.append(exc)

        labelling = threading.Thread(target=change)
        writing = [threading.Thread(target=write, args=(ids[i::2], i)) for i in range(2)]
        for thread in (labelling, *writing):
            thread.start()
        for thread in writing:
            thread.join()
        is_over.set()
        labelling.join()
        if other is not store:
            other.close()
        assert not failures, failures
        assert sorted(store.ids()) == sorted(ids[i] for i in range(12) if i % 4 < 2)
        assert {document.text for document in store.get(ids)} == {"turn 4"}

    def test_the_reject_list_stays(self, store: Store) -> None:
        """Also where a document is on it."""
        if isinstance(store, RejectList):
            store.upsert(make_records(2))
            reject = Reject("id-0", "corrupt", "no image", Stamp("bad"))
            store.reject([reject])
            assert store.update_metadata(_read(store, ["id-0"])) == ["id-0"]
            assert store.rejects() == [reject]

    def test_each_index_has_its_own(self, store: Store) -> None:
        """Check that a change is in its own index alone.

        The other one is built beside it. Both are in order.
        """
        if not isinstance(store, Replaceable):
            return
        store.upsert(make_records(3))
        beside = store.beside("encoder 2", SPACES)
        beside.bind("encoder 2", SPACES)
        beside.upsert(make_records(3, seed=5))
        assert beside.update_metadata(_read(beside, ["id-1"])) == ["id-1"]
        assert store.get(["id-1"])[0].metadata == {"number": 1}
        assert beside.get(["id-1"])[0].metadata == _NEW
        assert store.update_metadata(_read(store, ["id-2"])) == ["id-2"]
        assert beside.get(["id-2"])[0].metadata == {"number": 2}
        assert check_store(store).clean
        assert check_store(beside).clean


def _of_turn(ids: Sequence[str], turn: int, seed: int) -> list[Record]:
    records = make_records(len(ids), seed=turn * 10 + seed)
    return [
        replace(record, document=replace(record.document, id=id, text=f"turn {turn}"), stamp=Stamp(f"turn {turn}"))
        for id, record in zip(ids, records)
    ]
