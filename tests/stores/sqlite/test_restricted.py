"""What a restricted handle says is what an index of the readable documents alone says."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, make_records

from vlmsearch import Document, Pipeline
from vlmsearch.errors import InvalidBatchError
from vlmsearch.stores.listing import documents_after, gallery_after
from vlmsearch.stores.readers import readable
from vlmsearch.stores.restricted import restricted_store
from vlmsearch.stores.sqlite.store import SqliteStore

WORDS = ["dog", "snow", "car", "blue", "pay", "rise", "map", "tree", "river", "house", "night", "cat", "red", "green"]
GROUPS = [f"group:{number}" for number in range(6)]
PRINCIPALS: list[list[str]] = [[], GROUPS[:1], GROUPS[2:5], GROUPS]


def drawn_documents(rng: random.Random, ids: Sequence[str]) -> list[Document]:
    """Documents of some words, and a few long ones with passages."""
    documents = []
    for number, id in enumerate(ids):
        readers = None if rng.random() < 0.2 else rng.sample(GROUPS, rng.randint(0, 2))
        count = 400 if number % 20 == 7 else rng.randint(2, 30)
        text = ". ".join(" ".join(rng.choices(WORDS, k=8)) for _ in range(-(-count // 8)))
        metadata = {"n": number % 5, "tags": rng.sample(WORDS, 2)}
        documents.append(Document(id, text=text, readers=readers, metadata=metadata))
    return documents


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """An index with passages and parts of files, and some documents replaced or deleted."""
    rng = random.Random(1)
    ids = [f"doc-{number}" for number in range(130)] + [
        f"file-{n}.pdf#page={page}" for n in range(12) for page in (1, 2, 3)
    ]
    rng.shuffle(ids)
    place = tmp_path_factory.mktemp("whole")
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{place / 'index'}", generator="extractive:") as pipeline:
        pipeline.add(drawn_documents(rng, ids))
        pipeline.add(drawn_documents(rng, ids[:30]))
        pipeline.delete(ids[20:40])
        assert pipeline.store.count_passages() > 20
        yield pipeline


def index_of(whole: Pipeline, principals: Sequence[str], place: Path) -> Pipeline:
    """An index of the readable documents alone, in the order in which they were written."""
    store = whole.store
    assert isinstance(store, SqliteStore)
    documents = {document.id: document for document in whole.documents()}
    with store._reading("list") as (db, tables):
        written = [row.id for row in tables.all(db) if row.id in documents]
    small = Pipeline.open(encoder="onnx:demo", store=f"sqlite:{place / 'small'}", generator="extractive:")
    small.store.bind(whole.encoder.fingerprint, whole.encoder.spaces)
    scope = readable(principals)
    small.store.upsert(store.records([id for id in written if scope.matches(documents[id].metadata)]))
    return small


@pytest.fixture(params=PRINCIPALS, ids=len)
def handles(request: pytest.FixtureRequest, whole: Pipeline, tmp_path: Path) -> Iterator[tuple[Pipeline, Pipeline]]:
    """A restricted handle, and an index of its documents alone."""
    with index_of(whole, request.param, tmp_path) as small:
        yield whole.restricted(request.param), small


pytestmark = pytest.mark.filterwarnings("ignore::vlmsearch.errors.UncalibratedWarning")
SEARCHES: list[dict[str, Any]] = [
    {"limit": 20, "facets": ["n", "tags"], "count": True},
    {"limit": 8, "where": {"n": {"$gte": 2}, "tags": "dog"}, "count": True, "facets": ["n"]},
    {"limit": 10, "sort": "-n", "count": True},
    {"limit": 10, "group": False, "min_score": 0.0},
    {"limit": 10, "diversity": 0.5},
    {"limit": 10, "without": "blue car"},
]


@pytest.mark.parametrize("options", SEARCHES, ids=lambda options: "-".join(options))
def test_searches_are_those_of_an_index_of_the_readable_documents(
    handles: tuple[Pipeline, Pipeline], options: dict[str, Any]
) -> None:
    restricted, small = handles
    for text in ("dog snow", "pay rise", "blue car at nigth", '"red green"', "page"):
        assert restricted.search(text, **options) == small.search(text, **options), text


def test_documents_and_numbers_are_those_of_an_index_of_the_readable_documents(
    handles: tuple[Pipeline, Pipeline], whole: Pipeline
) -> None:
    restricted, small = handles
    there = list(small.documents())
    assert list(restricted.documents()) == there
    assert (len(restricted), restricted.count()) == (len(small), small.count()) == (len(there), len(there))
    assert {document.id for document in whole.documents()} > {document.id for document in there} or len(there) == 0
    of_index = {"created", "store", "rejected", "search", "size"}
    known, expected = ({key: value for key, value in of.info().items() if key not in of_index} for of in handles)
    assert known == expected
    assert restricted.duplicates(threshold=0.8) == small.duplicates(threshold=0.8)
    for first, second in zip(there[:3], there[3:]):
        likes: dict[str, Any] = {"like": [first.id], "without": [second.id], "limit": 5}
        assert restricted.search(**likes) == small.search(**likes)
    ids = [document.id for document in whole.documents()]
    assert restricted.get(ids) == small.get(ids)
    for id in ids[::10]:
        assert restricted.explain("dog snow river", id) == small.explain("dog snow river", id)


def test_pages_of_results_are_those_of_an_index_of_the_readable_documents(handles: tuple[Pipeline, Pipeline]) -> None:
    pages: list[list[Any]] = [[], []]
    for handle, shown in zip(handles, pages):
        cursor = None
        for _ in range(3):
            matches = handle.search("dog river", limit=4, cursor=cursor)
            shown.append(list(matches))
            if (cursor := matches.cursor) is None:
                break
    assert pages[0] == pages[1]
    assert len(pages[0]) > 1


def test_a_store_within_a_scope_is_a_store_of_the_readable_records(
    handles: tuple[Pipeline, Pipeline], whole: Pipeline
) -> None:
    restricted: Any = handles[0].store
    small: Any = handles[1].store
    ids, rows = list(whole.store.ids()), list(whole.store.row_ids())
    assert sorted(restricted.ids()) == list(small.ids())
    assert sorted(restricted.row_ids()) == sorted(small.row_ids())
    assert restricted.stamps(ids) == small.stamps(ids)
    assert restricted.fields(rows) == small.fields(rows)
    assert restricted.passages(ids) == small.passages(ids)
    for field in (field for space in small.manifest().spaces for field in space.fields):
        assert restricted.sample_ids(field, 20) == small.sample_ids(field, 20)
        assert np.array_equal(restricted.sample(field, 20), small.sample(field, 20))
        query = whole.store.sample(field, 1)
        if len(query):
            assert restricted.search(field, query, limit=9) == small.search(field, query, limit=9)
            assert restricted.compare(field, query[:1], rows) == small.compare(field, query[:1], rows)
    for text in ("dog", "pay rise"):
        assert restricted.search_words(text, limit=9) == small.search_words(text, limit=9)
        assert restricted.compare_words(text, rows) == small.compare_words(text, rows)
    assert restricted.count_words(WORDS) == small.count_words(WORDS)
    assert documents_after(restricted, "doc-2", 5) == documents_after(small, "doc-2", 5)
    assert gallery_after(restricted, None, 9, "n") == gallery_after(small, None, 9, "n")


def stored(store: SqliteStore, *documents: Document) -> None:
    """Write documents with random vectors and digests."""
    records = make_records(len(documents))
    store.upsert([replace(record, document=document) for record, document in zip(records, documents)])


def part_of(store: SqliteStore, principals: Sequence[str]) -> Any:
    """The store within what principals may read."""
    return restricted_store(store, readable(principals))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(str(tmp_path / "index")) as opened:
        opened.bind("e", SPACES)
        yield opened


def test_languages_of_other_documents_say_nothing_of_words(store: SqliteStore) -> None:
    hidden = [Document(f"h{number}", text="die Katzen und der Hund sind im Haus", readers=[]) for number in range(3)]
    stored(store, Document("a", text="a katz with a hat"), *hidden)
    assert {hit.id for hit in store.search_words("katzen", limit=5).hits} == {"a", "h0", "h1", "h2"}
    everyone = part_of(store, [])
    assert everyone.search_words("katzen", limit=5).hits == []
    assert [hit.id for hit in everyone.search_words("katz", limit=5).hits] == ["a"]
    stored(store, Document("b", text="die Hunde und der Kater sind im Haus"))
    assert [hit.id for hit in everyone.search_words("katzen", limit=5).hits] == ["a"]


def test_readers_stay_where_a_document_is_written_without_any(store: SqliteStore) -> None:
    stored(store, Document("a", text="pay", readers=["group:hr"]), Document("b", text="map"))
    stored(store, Document("a", text="pay rise"), Document("b", text="old map"))
    assert [document.readers for document in store.get(["a", "b"])] == [frozenset({"group:hr"}), None]
    assert list(part_of(store, []).ids()) == ["b"]
    stored(store, Document("a", text="pay", readers=["*"]))
    assert list(part_of(store, []).ids()) == ["b", "a"]
    stored(store, Document("a", text="pay", readers=[]))
    assert list(part_of(store, ["group:hr"]).ids()) == ["b"]


def test_a_restricted_writer_replaces_and_deletes_readable_documents_alone(store: SqliteStore) -> None:
    stored(store, Document("a", text="pay", readers=["group:hr"]), Document("b", text="map"), Document("c", text="car"))
    everyone = part_of(store, [])
    changed = [replace(record, document=Document(id, text="new")) for record, id in zip(make_records(2), "ab")]
    with pytest.raises(InvalidBatchError, match="'a' is the id of another document: choose another id"):
        everyone.upsert(changed)
    assert [document.text for document in store.get(["a", "b"])] == ["pay", "map"], "all or nothing"
    everyone.upsert(changed[1:])
    assert everyone.delete(["a", "b", "absent", "b"]) == 1
    assert list(store.ids()) == ["a", "c"]
    assert part_of(store, ["group:hr"]).delete(["a"]) == 1


def test_what_a_scope_may_read_changes_with_the_readers(store: SqliteStore) -> None:
    everyone = part_of(store, [])
    query = make_records(1)[0].vectors[IMAGE][None]
    for readers, there in ([], False), (["*"], True), (["user:ann"], False), (["*", "user:ann"], True):
        stored(store, Document("a", text="pay", readers=readers))
        assert bool(everyone.search(IMAGE, query, limit=1)[0]) is there
        assert bool(everyone.search_words("pay", limit=1).hits) is there
        assert (len(everyone), everyone.sample_ids(IMAGE, 3)) == (there, ["a"] * there)
    assert store.delete(["a"]) == 1
    assert (len(everyone), everyone.sample_ids(IMAGE, 3), everyone.count_words(["pay"])) == (0, [], [0])


def test_the_last_scopes_are_kept_and_no_others(store: SqliteStore) -> None:
    stored(store, *(Document(f"d{n}", text="pay", readers=[f"group:{n}"]) for n in range(12)))
    for _ in range(2):
        for n in range(12):
            scope = part_of(store, [f"group:{n}"])
            assert [hit.id for hit in scope.search_words("pay", limit=20).hits] == [f"d{n}"]
    with store._viewing("count") as (_, _, view):
        assert list(view.scopes) == [readable([f"group:{n}"]) for n in range(4, 12)]
