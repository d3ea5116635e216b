"""Readable documents in MongoDB, with their vectors there or in Chroma: filters, words, samples and writes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from vlmsearch_mocks.contracts.records import SPACES
from vlmsearch_mocks.contracts.words import make_record
from vlmsearch_mocks.pair import MockStore, mock_mongo_store

from tests.support.every_store import MakeStore, make_store, store_url
from tests.support.readable_stores import (
    check_concurrent,
    check_restricted,
    check_writes,
    make_readable,
    replace_readers,
)
from vlmsearch import Document, InvalidBatchError, Record, Store
from vlmsearch.registry import open_store
from vlmsearch.stores.mongodb import words as mongo_words
from vlmsearch.stores.mongodb.index import MongoIndex
from vlmsearch.stores.readers import readable

__all__ = ["make_store"]
pytestmark = pytest.mark.server
KINDS = ["mongodb", "mongodb+chroma"]


def words_of(store: Store, names: Sequence[str]) -> tuple[list[int], object]:
    """What a restricted store counts, and how it ranks."""
    assert isinstance(store, MongoIndex)
    words = store.words_within(readable(["group:a"]))
    return words.count_words(names), words.search_words(" ".join(names), limit=20)


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path: "object") -> Iterator[tuple[Store, Store]]:
    """Two processes' stores of one index."""
    url = store_url(request.param, tmp_path, request)  # type: ignore[arg-type]
    with open_store(url) as first, open_store(url) as second:
        first.bind("e", SPACES)
        second.bind("e", SPACES)
        yield first, second


@pytest.mark.parametrize("kind", KINDS)
def test_a_restricted_store_says_what_a_store_of_the_readable_documents_says(kind: str, make_store: MakeStore) -> None:
    with make_store(kind) as whole:
        check_restricted(whole, lambda: make_store(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_readers_stay_until_others_are_given(kind: str, make_store: MakeStore) -> None:
    with make_store(kind) as store:
        check_writes(store)


@pytest.mark.parametrize("make", [mock_mongo_store, MockStore])
def test_the_stand_ins_do_the_same(make: "type[MockStore]") -> None:
    check_restricted(make(), make)
    check_writes(make())


def test_readers_stay_while_another_process_writes(pair: tuple[Store, Store]) -> None:
    check_concurrent(*pair)


def test_readers_that_come_between_a_look_and_a_write_stay(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = pair
    plain = [replace(record, document=replace_readers(record.document, None)) for record in make_readable(8)]
    closed = [replace(record, document=replace_readers(record.document, ["group:b"])) for record in plain]
    assert isinstance(store, MongoIndex)
    write, ids = store.write_rows, [record.document.id for record in plain]

    def write_late(rows: Sequence[Record], readers: Mapping[str, object]) -> object:
        monkeypatch.setattr(store, "write_rows", write)
        other.upsert(closed[:4])
        return write(rows, readers)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "write_rows", write_late)
    store.upsert(plain)
    monkeypatch.setattr(store, "write_rows", write_late)
    closed = closed[4:]
    given = [make_record("new", "a dog"), *plain[4:]]
    with pytest.raises(
        InvalidBatchError, match="4 items cannot be used: item 1: 'id-004' is the id of another document"
    ):
        store.upsert_within(given, readable(["group:a"]))
    readers = frozenset({"group:b"})
    assert [document.readers for document in other.get(ids)] == [readers] * 8


def test_what_another_process_takes_away_is_gone_from_the_words(pair: tuple[Store, Store]) -> None:
    store, other = pair
    records = [make_record(f"id-{i}", f"dog word{i}", {"readers": ("group:a",)}) for i in range(4)]  # type: ignore[dict-item]
    store.upsert(records)
    assert words_of(store, ["dog", "zebra"])[0] == [4, 0]
    other.upsert([replace(records[0], document=Document("id-0", "dog word0", readers=["group:b"]))])
    counts, hits = words_of(store, ["dog", "zebra"])
    other.delete(["id-0"])
    assert (counts, hits) == ([3, 0], words_of(other, ["dog", "zebra"])[1])


def test_estimates_are_of_the_readable_documents(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mongo_words, "_SAMPLED", 40)
    shown = [make_record(f"id-{i:03}", "dog" if i % 3 else "cat rare" if i == 6 else "cat") for i in range(90)]
    hidden = [
        replace(record, document=Document(f"no-{i}", "dog rare", readers=["group:b"])) for i, record in enumerate(shown)
    ]
    with make_store("mongodb") as whole, make_store("mongodb") as small:
        for store, records in ((whole, [*hidden, *shown]), (small, shown)):
            store.bind("e", SPACES)
            store.upsert(records)
        assert words_of(whole, ["dog", "cat", "rare"]) == words_of(small, ["dog", "cat", "rare"])
        assert words_of(whole, ["rare"])[0] == [1]
