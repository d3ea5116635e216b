"""What a store that keeps a reject list has to do with it."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

from pathlib import Path

import pytest

from vlmsearch.errors import VlmsearchError
from vlmsearch.stores.base import RejectList, Store
from vlmsearch.types import Reject, Stamp
from vlmsearch_mocks.contracts.records import SPACES, StoreSuite, make_records


def reject_list(store: Store) -> RejectList:
    """Return the store as the list that it keeps."""
    assert isinstance(store, RejectList), f"{store.name} keeps no reject list"
    return store


class RejectListContract(StoreSuite):
    """Every sentence of `RejectList`: subclass it beside `StoreContract` for a store that keeps such a list."""

    def test_the_list_of_what_does_not_exist_is_empty_and_makes_nothing(self, tmp_path: Path) -> None:
        before = sorted(tmp_path.rglob("*"))
        with self.make_store(tmp_path) as store:
            assert reject_list(store).rejects() == []
            reject_list(store).release(["a"])
            assert store.manifest() is None
        assert sorted(tmp_path.rglob("*")) == before

    def test_rejecting_before_bind_is_refused(self, tmp_path: Path) -> None:
        with self.make_store(tmp_path) as store:
            with pytest.raises(VlmsearchError, match="bind"):
                reject_list(store).reject([Reject("a", "corrupt", "bad")])
            assert store.manifest() is None

    def test_the_list_is_kept_by_id(self, store: Store) -> None:
        rejects = [
            Reject("b", "corrupt", "bad \U0001f436\n", Stamp("d", "s")),
            Reject("a", "too_large", ""),
            Reject("c", "empty", "e"),
        ]
        kept = reject_list(store)
        kept.reject(rejects)
        assert kept.rejects() == sorted(rejects, key=lambda reject: reject.id)
        kept.reject([Reject("a", "unreadable", "now this", Stamp("2"))])
        kept.release(["c", "never"])
        assert kept.rejects() == [Reject("a", "unreadable", "now this", Stamp("2")), rejects[0]]
        kept.reject([])
        kept.release([])
        assert len(kept.rejects()) == 2
        kept.release(["a", "b"])
        assert kept.rejects() == []

    def test_the_list_and_the_documents_are_apart(self, store: Store) -> None:
        store.upsert(make_records(2))
        reject_list(store).reject([Reject("id-0", "corrupt", "bad"), Reject("other", "corrupt", "bad")])
        assert (len(store), sorted(store.ids()), store.get(["other"])) == (2, ["id-0", "id-1"], [])
        store.delete(["id-0"])
        assert [reject.id for reject in reject_list(store).rejects()] == ["id-0", "other"]

    def test_a_durable_store_has_its_list_after_it_was_closed(self, tmp_path: Path) -> None:
        reject = Reject("bad", "empty", "m")
        with self.make_store(tmp_path) as store:
            store.bind("encoder 1", SPACES)
            reject_list(store).reject([reject])
        with self.make_store(tmp_path) as store:
            assert reject_list(store).rejects() == ([reject] if self.durable else [])
