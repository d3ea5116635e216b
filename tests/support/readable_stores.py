"""Stores whose documents have readers, and what a restricted store has to say: what one of the readable ones says."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from vlmsearch_mocks.contracts.records import IMAGE as PICTURE, SPACES, TEXT, unit_vectors

from vlmsearch import Document, InvalidBatchError, Record, Stamp, Store
from vlmsearch.stores.base import CountsWords
from vlmsearch.stores.filters import FilterGroup, parse_filter
from vlmsearch.stores.listing import all_documents, count_documents, documents_after
from vlmsearch.stores.readers import readable
from vlmsearch.stores.restricted import restricted_store
from vlmsearch.stores.versions import read_documents
from vlmsearch.types import EncodedPassage, MetadataChange, Passage

GROUPS = [f"group:{letter}" for letter in "abcdef"]
WORDS = ["dog", "snow", "car", "blue", "pay", "rise", "map", "tree", "river", "house", "night", "cat", "red", "gold"]


def make_readable(count: int, *, seed: int = 1) -> list[Record]:
    """Records with texts, of which some have passages, some any readers, and some those that nobody is."""
    rng = random.Random(seed)
    pictures, texts = unit_vectors(count, PICTURE, seed=seed), unit_vectors(2 * count, TEXT, seed=seed + 1)
    records = []
    for i in range(count):
        words = " ".join(rng.choices(WORDS, k=rng.randint(2, 30)))
        readers = None if i % 5 == 0 else ["*"] if i % 7 == 0 else rng.sample(GROUPS, rng.randint(0, 3))
        document = Document(f"id-{i:03}", text=f"{words} word{i}", metadata={"n": i % 4}, readers=readers)
        record = Record(document, {PICTURE: pictures[i], TEXT: texts[2 * i]}, Stamp(f"digest {i}", "source"))
        if i % 6 == 1:
            half = len(words) // 2
            parts = [Passage(1, 0, half, "", words[:half]), Passage(2, half, len(words), "", words[half:])]
            passages = [EncodedPassage(part, {TEXT: texts[2 * i + n]}) for n, part in enumerate(parts)]
            record = replace(record, vectors={PICTURE: pictures[i]}, passages=tuple(passages))
        records.append(record)
    return records


def check_restricted(whole: Store, make_small: Callable[[], Store], *, count: int = 48) -> None:
    """Check that a restricted store says what a store of the readable documents alone says."""
    whole.bind("e", SPACES)
    whole.upsert(make_readable(count))
    ids = [f"id-{i:03}" for i in range(count)]
    for principals in ([], ["group:a"], GROUPS[1:4]):
        scope = readable(principals)
        there = [record for record in whole.records(ids) if scope.matches(record.document.metadata)]
        assert 0 < len(there) < count
        with make_small() as small:
            small.bind("e", SPACES)
            small.upsert(there)
            seen = restricted_store(whole, scope)
            for what, of_seen, of_small in zip(*map(list, (_NAMES, _said(seen, ids), _said(small, ids)))):
                assert of_seen == of_small, (principals, what)


_NAMES = (
    "documents",
    "counts",
    "records",
    "stamps",
    "fields",
    "rows",
    "page",
    "passages",
    "samples",
    "searches",
    "words",
)


def _said(store: Store, ids: Sequence[str]) -> Iterator[object]:
    """What a store says of its documents and of those that it does not have."""
    where = parse_filter({"n": {"$lte": 2}})
    yield list(all_documents(store)), sorted(store.ids()), len(store), store.get([*ids, "id-001#passage=1"])
    yield count_documents(store, ["n", "readers"], where)
    records = store.records(ids)
    yield [
        (record.document, record.stamp, sorted(map(str, record.vectors)), len(record.passages)) for record in records
    ]
    yield store.stamps(ids)
    yield store.fields(ids), store.fields(["id-001#passage=1", "id-007#passage=2"])
    yield sorted(store.row_ids())
    yield documents_after(store, "id-004", 5, where)
    yield store.passages(ids)
    yield [store.sample_ids(field, 5) for field in (PICTURE, TEXT)], sorted(store.sample(PICTURE, 9).tolist())
    hits = []
    for field in (PICTURE, TEXT):
        queries = unit_vectors(3, field, seed=99)
        for some in (None, where, FilterGroup("$or", (where, readable(["group:f"])))):
            hits += store.search(field, queries, limit=7, where=some)
            hits.append(store.compare(field, queries[:1], ids, some))
    yield hits, [read_documents(store, [hit.id for hit in page], page) for page in hits]
    said: list[object] = [isinstance(store, CountsWords)]
    if isinstance(store, CountsWords):
        for query in ("dog snow", "pay rise of gold", "word3", "word4 nothing"):
            for some in (None, where):
                said += [store.search_words(query, limit=6, where=some), store.compare_words(query, ids, some)]
        said += [store.count_words(["dog", "word3", "zebra"]), store.count_words([*WORDS * 20, "word4"])]
    yield said


def check_writes(store: Store) -> None:
    """Check that readers stay until others are given, and that a restricted writer changes what it may read alone."""
    store.bind("e", SPACES)
    first = make_readable(8)
    store.upsert([replace(record, document=replace_readers(record.document, ["group:a"])) for record in first])
    names = [record.document.id for record in first]
    plain = [replace(record, document=replace_readers(record.document, None)) for record in first]
    store.upsert(plain)
    assert {document.readers for document in store.get(names)} == {frozenset({"group:a"})}
    assert restricted_store(store, readable([])).get([f"{names[1]}#passage=1"]) == []
    outside, inside = (restricted_store(store, readable([name])) for name in ("group:b", "group:a"))
    assert refused(outside, plain[:3]) == names[:3]
    assert refused(inside, [replace(plain[0], document=replace_readers(plain[0].document, ["group:b"]))]) == names[:1]
    inside.upsert(plain[:3])
    assert outside.delete(names) == 0
    assert inside.delete([*names[:2], "nothing"]) == 2
    assert len(store) == 6
    there = store.records(names[2:3])[0]
    change = MetadataChange(there.document, there.stamp, {"n": 5, "readers": ("*",)}, "changed")
    assert outside.update_metadata([change]) == []
    assert inside.update_metadata([change]) == [names[2]]
    assert [document.id for document in outside.get(names)] == [names[2]]
    store.upsert([replace(plain[3], document=replace_readers(plain[3].document, ["*"]))])
    assert [document.id for document in outside.get(names)] == names[2:4]


def check_concurrent(store: Store, other: Store, rounds: int = 6) -> None:
    """Check that readers stay whoever writes at the same moment without knowing them, and that hits never show them."""
    store.bind("e", SPACES)
    other.bind("e", SPACES)
    records = [replace(record, document=replace_readers(record.document, None)) for record in make_readable(4)]
    for _ in range(rounds):
        store.delete([record.document.id for record in records])
        with writing(other, records, times=2):
            closed = [replace(r, document=replace_readers(r.document, ["group:a"])) for r in records]
            store.upsert(closed)
        shown = restricted_store(store, readable(["group:b"]))
        assert (shown.get([r.document.id for r in records]), len(shown)) == ([], 0)
        queries = unit_vectors(1, TEXT)
        assert shown.search(TEXT, queries, limit=9) == [[]]


@contextmanager
def writing(store: Store, records: Sequence[Record], *, times: int) -> Iterator[None]:
    """Write records in another thread meanwhile."""
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(times):
                store.upsert(records)
        except BaseException as exc:  # noqa: BLE001 - it is raised again below
            failures.append(exc)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert failures == []


def replace_readers(document: Document, readers: Sequence[str] | None) -> Document:
    """The document with other readers, or none."""
    plain = {key: value for key, value in document.metadata.items() if key != "readers"}
    return Document(document.id, document.text, document.image, plain, readers)


def refused(store: Store, records: Sequence[Record]) -> list[str]:
    """The ids of the records that a store does not take."""
    try:
        store.upsert(records)
    except InvalidBatchError as exc:
        return [records[index].document.id for index in exc.items]
    return []
