"""Readable documents in Chroma: filters, samples and writes, and rows that earlier versions wrote."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records, unit_vectors
from vlmsearch_mocks.pair import mock_chroma_store

from tests.support.every_store import MakeStore, make_store, store_url
from tests.support.readable_stores import (
    check_concurrent,
    check_restricted,
    check_writes,
    make_readable,
    replace_readers,
)
from vlmsearch import ConfigError
from vlmsearch.registry import open_store
from vlmsearch.stores.chroma import vectors as chroma_vectors
from vlmsearch.stores.chroma.filters import filterable
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.readers import readable
from vlmsearch.stores.restricted import restricted_store
from vlmsearch.types import MetadataValue

__all__ = ["make_store"]
pytestmark = pytest.mark.server


def test_a_restricted_store_says_what_a_store_of_the_readable_documents_says(make_store: MakeStore) -> None:
    with make_store("chroma server") as whole:
        check_restricted(whole, lambda: make_store("chroma server"))


def test_readers_stay_until_others_are_given(make_store: MakeStore) -> None:
    with make_store("chroma server") as store:
        check_writes(store)


def test_the_stand_in_does_the_same() -> None:
    check_restricted(mock_chroma_store(), mock_chroma_store)
    check_writes(mock_chroma_store())


def test_readers_stay_while_another_process_writes(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = store_url("chroma server", tmp_path, request)
    with open_store(url) as store, open_store(url) as other:
        check_concurrent(store, other)


def test_readers_that_come_between_the_last_look_and_the_write_stay(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = store_url("chroma server", tmp_path, request)
    plain = [replace(record, document=replace_readers(record.document, None)) for record in make_readable(3)]
    closed = [replace(record, document=replace_readers(record.document, ["group:b"])) for record in plain]
    ids = [record.document.id for record in plain]
    with open_store(url) as store, open_store(url) as other:
        assert isinstance(store, ChromaStore)
        store.bind("e", SPACES)
        other.bind("e", SPACES)
        name, thread = store._name, threading.Thread(target=other.upsert, args=(closed,))

        def name_late(*args: Any, **options: Any) -> None:
            if not thread.ident:
                thread.start()
                while len(other.get(ids)) < len(ids):
                    time.sleep(0.01)
            name(*args, **options)

        monkeypatch.setattr(store, "_name", name_late)
        store.upsert(plain)
        thread.join()
        assert [document.readers for document in store.get(ids)] == [frozenset({"group:b"})] * 3
        assert store.check().clean


def test_passages_that_another_writer_put_back_are_not_shown(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes all of its rows between those of the passages and those of the documents of one that gives readers."""
    url = store_url("chroma server", tmp_path, request)
    plain = [replace(record, document=replace_readers(record.document, None)) for record in make_readable(3)]
    closed = [replace(record, document=replace_readers(record.document, ["group:a"])) for record in plain]
    queries = unit_vectors(1, TEXT)
    with open_store(url) as store, open_store(url) as other:
        assert isinstance(store, ChromaStore)
        assert isinstance(other, ChromaStore)
        store.bind("e", SPACES)
        other.bind("e", SPACES)
        upsert, seen = store._documents.upsert, list[object]()
        shown = restricted_store(other, readable(["group:b"]))

        def upsert_late(*args: Any) -> None:
            if not seen:
                seen.append(None)
                other.upsert(plain)
            upsert(*args)
            seen.append(shown.search(TEXT, queries, limit=9))

        monkeypatch.setattr(store._documents, "upsert", upsert_late)
        store.upsert(closed)
        assert seen[1:] == [[[]]] * len(seen[1:])
        assert [hit.id for hit in other.search(TEXT, queries, limit=9)[0] if "#passage" in hit.id], "there are passages"
        rows = other.read_rows([f"{record.document.id}#passage={n}" for record in closed for n in (1, 2)], "document")
        assert {row.document.readers for row in rows.values()} == {frozenset({"group:a"})}
        assert not store.check().missing


def test_rows_of_earlier_versions_show_what_has_no_readers_alone(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def earlier(metadata: Mapping[str, MetadataValue]) -> dict[str, str | int | bool]:
        return {key: value for key, value in filterable(metadata).items() if key != "readers"}

    monkeypatch.setattr(chroma_vectors, "filterable", earlier)
    with make_store("chroma server") as store:
        store.bind("e", SPACES)
        values: list[dict[str, Any]] = [{}, {"readers": ("group:a",)}, {"readers": "group:a"}, {"readers": 7}]
        store.upsert(make_records(4, metadata=values))
        query = unit_vectors(1)
        for principals, ids in (([], ["id-0"]), (["group:a"], ["id-0", "id-1", "id-2"]), (["group:b"], ["id-0"])):
            seen = restricted_store(store, readable(principals))
            assert sorted(hit.id for hit in seen.search(IMAGE, query, limit=9)[0]) == ids
            assert sorted(hit.id for hit in seen.compare(IMAGE, query, ["id-0", "id-1", "id-2", "id-3"])) == ids
            assert sorted(seen.sample_ids(IMAGE, 9)) == sorted(seen.ids()) == ids


def test_of_a_large_index_few_readable_documents_are_searched_exactly(make_store: MakeStore) -> None:
    records = make_records(1300, metadata=[{"readers": ("group:a" if i % 40 == 0 else "b",)} for i in range(1300)])  # type: ignore[dict-item]
    with make_store("chroma server") as store:
        store.bind("e", SPACES)
        store.upsert(records)
        query = unit_vectors(1, seed=7)
        hits = restricted_store(store, readable(["group:a"])).search(IMAGE, query, limit=33)[0]
        exact = sorted(range(0, 1300, 40), key=lambda i: -float(records[i].vectors[IMAGE] @ query[0]))
        assert [hit.id for hit in hits] == [f"id-{i}" for i in exact]


def test_more_principals_than_chroma_compares_are_refused(make_store: MakeStore) -> None:
    with make_store("chroma server") as store:
        store.bind("e", SPACES)
        store.upsert(make_records(2, metadata=[{"readers": ("group:199",)}, {}]))  # type: ignore[dict-item]
        groups = [f"group:{i}" for i in range(1001)]
        assert len(restricted_store(store, readable(groups[:1000])).search(IMAGE, unit_vectors(1), limit=9)[0]) == 2
        message = (
            r"Chroma compares at most 1,000 principals, not 1,001: name fewer groups, or copy the index to `sqlite:`"
        )
        with pytest.raises(ConfigError, match=message):
            restricted_store(store, readable(groups)).search(IMAGE, unit_vectors(1), limit=9)
