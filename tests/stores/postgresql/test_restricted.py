"""A restricted handle says what an index of the readable documents says."""

import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from vlmsearch_mocks import MockEncoder
from vlmsearch_mocks.contracts.records import CAPTION, IMAGE, SPACES, make_records, unit_vectors

from tests.support.postgres_servers import PostgresServer, execute, postgres_server
from tests.support.readable_stores import check_restricted
from vlmsearch import BackendError, Document, InvalidBatchError, Pipeline, Record
from vlmsearch.registry import open_store
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.listing import documents_after
from vlmsearch.stores.postgresql.connection import Session
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.readers import readable
from vlmsearch.stores.restricted import restricted_store
from vlmsearch.types import MetadataChange

WORDS = ["dog", "snow", "car", "blue", "pay", "rise", "map", "tree", "river", "house", "night", "cat", "red", "green"]
GERMAN = "das ist nicht der Hund und die Häuser werden mit den Straßen laufend gebaut"
ODD = "user:\"ö', {}\\"
GROUPS = [f"group:{number}" for number in range(6)]
HR = readable(["group:hr"])
_tables = map("restricted{}".format, itertools.count())


def _documents() -> list[Document]:
    """Documents of some words; a few have passages, and hidden ones another language."""
    rng = random.Random(1)
    documents = []
    for number in range(150):
        readers = None if rng.random() < 0.2 else rng.sample(GROUPS, rng.randint(0, 2))
        text = ". ".join(" ".join(rng.choices(WORDS, k=8)) for _ in range(50 if number % 20 == 7 else 2))
        metadata = {"n": number % 5, "tags": rng.sample(WORDS, 2)}
        id = f"file-{number // 3}.pdf#page={number % 3}" if number > 120 else f"doc-{number:03}"
        documents.append(Document(id, text=text, readers=readers, metadata=metadata))
    return [*documents, *(Document(f"g{n}", text=GERMAN, readers=["group:0", ODD]) for n in range(3))]


@pytest.fixture(scope="module")
def whole(postgres_url: str) -> Iterator[Pipeline]:
    """Give an index in which documents were replaced and deleted."""
    store = open_store(f"{postgres_url}?table={next(_tables)}")
    with Pipeline(MockEncoder(), store) as pipeline:
        pipeline.add(_documents())
        pipeline.add(_documents()[40:60])
        pipeline.delete([document.id for document in _documents()[50:70]])
        yield pipeline


@pytest.fixture(params=[[], GROUPS[1:2], GROUPS[2:5], [ODD, *GROUPS[1:], *(f"other:{n}" for n in range(200))]], ids=len)
def handles(
    request: pytest.FixtureRequest, whole: Pipeline, postgres_url: str
) -> Iterator[tuple[Pipeline, Pipeline, set[str]]]:
    """Give a restricted handle, an index of its documents alone, and the ids of the others."""
    store, scope = whole.store, readable(request.param)
    assert isinstance(store, PostgresStore)
    written = [id for (id,) in store._run("list", f"SELECT id FROM {store._tables.documents} ORDER BY row")]
    documents = {document.id: document for document in whole.documents()}
    there = [id for id in written if id in documents and scope.matches(documents[id].metadata)]
    with Pipeline(MockEncoder(), open_store(f"{postgres_url}?table={next(_tables)}")) as small:
        small.store.bind(whole.encoder.fingerprint, whole.encoder.spaces)
        small.store.upsert(store.records(there))
        yield whole.restricted(request.param), small, documents.keys() - {*there}


pytestmark = pytest.mark.filterwarnings("ignore::vlmsearch.errors.UncalibratedWarning")
SEARCHES: list[dict[str, Any]] = [
    {"limit": 20, "facets": ["n", "tags"], "count": True},
    {"limit": 8, "where": {"n": {"$gte": 2}, "tags": "dog"}, "count": True},
    {"limit": 10, "sort": "-n"},
    {"limit": 10, "group": False, "min_score": 0.0},
    {"limit": 10, "diversity": 0.5, "without": "blue car"},
]


def test_a_restricted_handle_says_what_an_index_of_the_readable_documents_says(
    handles: tuple[Pipeline, Pipeline, set[str]],
) -> None:
    restricted, small, hidden = handles
    for query, options in [
        ("Häuser running", SEARCHES[0]),
        *itertools.product(("dog snow", "blue at nigth"), SEARCHES),
    ]:
        assert restricted.search(query, **options) == small.search(query, **options), (query, options)
    there = list(small.documents())
    assert list(restricted.documents()) == there
    assert (len(restricted), restricted.count()) == (len(there), len(there))
    known, expected = (
        {key: value for key, value in handle.info().items() if key not in {"created", "store", "rejected", "search"}}
        for handle in (restricted, small)
    )
    assert known == expected
    for document in there[:3]:
        assert restricted.explain(document.id, "dog river") == small.explain(document.id, "dog river")
        assert restricted.search(like=[document.id], limit=5) == small.search(like=[document.id], limit=5)
    some = sorted(hidden)[:3]
    assert (restricted.get(some), restricted.delete(some)) == ([], 0)
    assert [restricted.explain(id, "dog").outcome for id in some] == ["absent"] * len(some)


def test_a_restricted_store_is_one_of_the_readable_documents(postgres_url: str) -> None:
    with open_store(f"{postgres_url}?table={next(_tables)}") as store:
        check_restricted(store, lambda: open_store(f"{postgres_url}?table={next(_tables)}"))


def test_an_approximate_search_and_a_sample_are_of_readable_documents(whole: Pipeline, postgres_url: str) -> None:
    store = whole.store
    assert isinstance(store, PostgresStore)
    scope = readable(GROUPS[:2])
    restricted = restricted_store(store, scope)
    expected = [id for id in store.sample_ids(CAPTION, 1000) if id in {*restricted.row_ids()}]
    assert restricted.sample_ids(CAPTION, 30) == expected[:30] != []
    with open_store(f"{postgres_url}?table={store._table}&exact_up_to=10") as other:
        vectors = store.sample(CAPTION, 5)
        hits = restricted_store(other, scope).search(CAPTION, vectors, limit=20)
        assert [[hit.id for hit in page] for page in hits] == [
            [hit.id for hit in page] for page in restricted.search(CAPTION, vectors, limit=20)
        ]


def test_a_search_by_vectors_looks_at_the_language_of_no_text(whole: Pipeline) -> None:
    with open_store(whole.store.name) as store:
        assert isinstance(store, PostgresStore)
        handle: Any = restricted_store(store, readable(GROUPS[:2]))
        assert handle.search(CAPTION, whole.store.sample(CAPTION, 1), limit=5)[0]
        assert store._words._language_of == {}
        assert handle.search_words("dog", limit=5).hits
        assert store._words._language_of != {}


def _store(postgres_url: str, records: list[Record]) -> PostgresStore:
    store = open_store(f"{postgres_url}?table={next(_tables)}")
    assert isinstance(store, PostgresStore)
    store.bind("e", SPACES)
    store.upsert(records)
    return store


def _with(record: Record, readers: list[str] | None) -> Record:
    return replace(record, document=replace(record.document, metadata=Document("x", readers=readers).metadata))


def _objects(url: str, table: str) -> set[str]:
    """Return the names of all tables, indexes, columns and policies of an index."""
    with psycopg.connect(url) as session:
        rows = session.execute(
            "SELECT c.relname || ' ' || coalesce(a.attname, '') FROM pg_class c LEFT JOIN pg_attribute a "
            "ON a.attrelid = c.oid AND attnum > 0 WHERE c.relname ^@ %s UNION SELECT tablename || policyname "
            "FROM pg_policies WHERE tablename ^@ %s",
            (table, table),
        ).fetchall()
    return {name for (name,) in rows}


def test_an_index_without_readers_has_nothing_for_them(postgres_url: str) -> None:
    records = make_records(4)
    with _store(postgres_url, records) as store:
        before = _objects(postgres_url, store._table)
        assert restricted_store(store, HR).sample_ids(next(iter(records[0].vectors)), 9)
        restricted_store(store, HR).upsert([_with(record, None) for record in records])
        assert _objects(postgres_url, store._table) == before
        assert not any("readers" in name for name in before)


WAYS: dict[str, Callable[[Any], list[str]]] = {
    "nearest": lambda store: [hit.id for hit in store.search(IMAGE, unit_vectors(1), limit=9)[0]],
    "compared": lambda store: [hit.id for hit in store.compare(IMAGE, unit_vectors(1), ["id-0", "id-1"])],
    "words": lambda store: [hit.id for hit in store.search_words("text", limit=9).hits],
    "sample": lambda store: store.sample_ids(IMAGE, 9),
    "ids": lambda store: list(store.ids()),
    "pages": lambda store: [document.id for document in documents_after(store, "", 9)],
    "count": lambda store: ["id-0", "id-1"][: len(store)],
}


@pytest.mark.parametrize("way", WAYS)
def test_the_first_readers_close_a_document_for_handles_that_are_open(way: str, postgres_url: str) -> None:
    """Whatever such a handle does first, it finds that the index has lists of readers by now."""
    records = make_records(2)
    with _store(postgres_url, records) as store, open_store(store.name) as other:
        handle = restricted_store(other, HR)
        assert sorted(WAYS[way](handle)) == ["id-0", "id-1"]
        store.upsert([_with(records[1], ["group:it"])])
        assert WAYS[way](handle) == ["id-0"]


def test_an_index_without_readers_is_searched_by_the_statements_of_all_documents(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[str] = []
    execute = Session.execute

    def noted(session: Session, query: Any, *args: Any, **options: Any) -> Any:
        executed.append(str(query))
        return execute(session, query, *args, **options)

    with Pipeline(MockEncoder(), open_store(f"{postgres_url}?table={next(_tables)}")) as pipeline:
        pipeline.add([Document(f"d{n}", text=" ".join(WORDS[n : n + 5])) for n in range(9)])
        handles = [pipeline, pipeline.restricted(["group:hr"])]
        monkeypatch.setattr(Session, "execute", noted)
        by_handle = []
        for handle in (*handles, *handles):
            executed.clear()
            assert not handle.search("dog snow", where={"n": 1})
            assert handle.search("dog snow", min_score=0, limit=3)
            by_handle.append(list(executed))
    assert by_handle[2] == by_handle[3] != []


def test_readers_by_hand_in_an_index_that_has_no_lists_are_closed_to_new_processes(postgres_url: str) -> None:
    records = make_records(2)
    with _store(postgres_url, records) as store:
        table = f'"{store._table}$1"'
        execute(postgres_url, f"""UPDATE {table} SET metadata = '{{"readers": "group:it"}}' WHERE id = 'id-1'""")
        with open_store(store.name) as other:
            handle = restricted_store(other, HR)
            assert {name: way(handle) for name, way in WAYS.items()} == {name: ["id-0"] for name in WAYS}


def test_indexing_again_keeps_the_readers_in_every_process(postgres_url: str) -> None:
    records = make_records(3)
    with _store(postgres_url, records[:1]) as store, open_store(store.name) as other:
        assert len(restricted_store(other, HR)) == 1  # it has seen the index without lists
        store.upsert([_with(records[0], ["group:it"]), _with(records[1], ["group:hr"]), records[2]])
        other.upsert([_with(record, None) for record in records])
        for seen in (store, other):
            assert [document.readers for document in seen.get([record.document.id for record in records])] == [
                {"group:it"},
                {"group:hr"},
                None,
            ]
            assert sorted(restricted_store(seen, HR).ids()) == [records[1].document.id, records[2].document.id]
            assert len(restricted_store(seen, HR)) == 2
        other.upsert([_with(records[0], ["*"])])
        assert len(restricted_store(store, HR)) == 3
        assert store.check().clean


def test_a_new_text_keeps_the_readers_in_its_passages_and_its_digest(postgres_url: str) -> None:
    with Pipeline(MockEncoder(), open_store(f"{postgres_url}?table={next(_tables)}")) as pipeline:
        pipeline.add([Document("a", text="a dog. " * 400, readers=["group:it"]), Document("b", text="a cat")])
        longer = Document("a", text="a map of the river. " * 400)
        assert pipeline.add([longer]).updated == 1
        assert pipeline.add([longer]).unchanged == 1
        assert pipeline.store.count_passages() > 2
        hidden = pipeline.restricted(["group:hr"])
        assert [match.document.id for match in hidden.search("a map of the river", min_score=0)] == ["b"]
        assert list(hidden.store.row_ids()) == ["b"]
        assert pipeline.check().clean


def test_who_makes_readers_at_the_same_time_as_another_one_writes_never_opens_a_document(postgres_url: str) -> None:
    """Writers with and without readers race for new ids, and for the table of lists."""
    records = make_records(30)
    with _store(postgres_url, []) as store:
        others = [open_store(store.name) for _ in range(3)]
        for other in others:
            assert other.manifest() is not None
        with ThreadPoolExecutor(4) as pool:
            readers: list[list[str] | None] = [None, ["group:it"], None, ["group:it"]]
            tasks = [
                pool.submit(writer.upsert, [_with(record, names) for record in records[at : at + 10]])
                for at in range(0, 30, 10)
                for writer, names in zip((store, *others), readers)
            ]
            for task in tasks:
                task.result()
        assert {document.readers for document in store.get([r.document.id for r in records])} == {
            frozenset(["group:it"])
        }
        assert len(restricted_store(store, HR)) == 0
        assert store.check().clean
        for other in others:
            other.close()


def test_a_restricted_writer_replaces_and_removes_readable_documents_alone(postgres_url: str) -> None:
    hidden, own, new = make_records(3)
    with _store(postgres_url, [_with(hidden, ["group:it"]), _with(own, ["group:hr"])]) as store:
        restricted = restricted_store(store, HR)
        with pytest.raises(InvalidBatchError) as caught:
            restricted.upsert([_with(hidden, None), _with(own, None), _with(new, ["group:it"])])
        assert list(caught.value.items) == [0, 2]
        restricted.upsert([_with(own, None)])
        assert restricted.delete([hidden.document.id, own.document.id, "none"]) == 1
        assert list(store.ids()) == [hidden.document.id]


def test_words_and_lists_follow_a_change_of_readers(postgres_url: str) -> None:
    records = [
        Record(Document(f"d{n}", text="dog " * (n + 1), readers=["group:hr"] if n else ["group:it"]), {})
        for n in range(3)
    ]
    with _store(postgres_url, records) as store:
        restricted: Any = restricted_store(store, HR)
        assert restricted.count_words(["dog"]) == [2]
        for readers, count in ((["group:hr", "group:it"], 3), (["user:ann"], 2), (None, 3)):
            (record,) = store.records(["d0"])
            new = Document("d0", readers=readers).metadata
            assert store.update_metadata([MetadataChange(record.document, record.stamp, new, "")]) == ["d0"]
            assert restricted.count_words(["dog"]) == [count]
            assert len(restricted.search_words("dog", limit=9).hits) == len(restricted) == count


@pytest.mark.parametrize("has_words", [True, False])
def test_no_number_of_changes_looks_like_none(has_words: bool, postgres_url: str) -> None:
    """The segments of words that changes leave are merged, and never are those of an earlier moment again."""
    text, vector = "text" if has_words else None, unit_vectors(1)[0]
    documents = [Document(f"d{number}", text=text, image=Path("-.png"), readers=["group:hr"]) for number in range(40)]
    records = [Record(document, {IMAGE: vector}) for document in documents]
    with _store(postgres_url, records) as store, open_store(store.name) as other:
        handle, ids = restricted_store(other, HR), {document.id for document in documents}
        for count in range(1, 9):
            for document in documents[:count]:
                (record,) = store.records([document.id])
                given = Document("x", readers=["group:it" if document.id in ids else "group:hr"]).metadata
                assert store.update_metadata([MetadataChange(record.document, record.stamp, given, "")])
                ids ^= {document.id}
            words: Any = handle
            assert {hit.id for hit in handle.search(IMAGE, unit_vectors(1), limit=40)[0]} == ids, count
            found = {hit.id for hit in words.search_words("text", limit=40).hits}
            assert found == (ids if has_words else set()), count


def test_documents_that_come_back_with_other_readers_are_looked_at(postgres_url: str) -> None:
    """Somebody restores the table of documents alone, whose lists and words stay as they were."""
    records = [_with(record, ["group:hr"]) for record in make_records(4)]
    with _store(postgres_url, records) as store:
        table = f'"{store._table}$1"'
        execute(
            postgres_url,
            f"CREATE TABLE copied (LIKE {table} INCLUDING ALL)",
            f"INSERT INTO copied OVERRIDING SYSTEM VALUE SELECT * FROM {table}",
        )
        handle = restricted_store(store, HR)
        assert WAYS["nearest"](handle) != []
        execute(
            postgres_url,
            f"UPDATE copied SET readers = -1 WHERE id = 'id-0'; ALTER TABLE {table} RENAME TO gone",
            f"ALTER TABLE copied RENAME TO {table}",
        )
        assert not any("id-0" in way(handle) for name, way in WAYS.items() if name != "count")
        assert len(handle) == 3


def test_tables_that_were_away_are_looked_at_when_they_are_there_again(postgres_url: str) -> None:
    records = make_records(2)
    with _store(postgres_url, [_with(records[0], None), _with(records[1], ["group:it"])]) as store:
        handle = restricted_store(store, HR)
        names = [f"{store._table}$1{end}" for end in ("", "$1", "$2", "$3", "$words", "$pages")]
        for old, new in (("", "away_"), ("away_", "")):
            for name in names:
                execute(postgres_url, f'ALTER TABLE IF EXISTS "{old}{name}" RENAME TO "{new}{name}"')
            if new:
                for way in WAYS.values():
                    with pytest.raises(BackendError):
                        way(handle)
        assert {name: way(handle) for name, way in WAYS.items()} == {name: ["id-0"] for name in WAYS}


def test_what_is_known_of_another_generation_opens_nothing(postgres_url: str) -> None:
    """A thread may read while another one opens the next generation of the index."""
    records = make_records(2)
    with _store(postgres_url, [_with(records[0], None), _with(records[1], ["group:it"])]) as store:
        handle = restricted_store(store, HR)
        for known in (store._known._replace(lists="", documents="another"), store._known._replace(lists="wrong")):
            store._known, store._open_by = known._replace(documents="another"), known.proof
            assert {name: way(handle) for name, way in WAYS.items()} == {name: ["id-0"] for name in WAYS}


def test_readers_that_were_written_by_hand_are_closed_until_a_repair(postgres_url: str) -> None:
    records = make_records(4)
    with _store(
        postgres_url, [_with(records[0], ["group:it"]), *(_with(record, None) for record in records[1:])]
    ) as store:
        name = f'"{store._table}$1"'
        names = """'{"readers": "group:hr"}'"""
        execute(
            postgres_url,
            f"UPDATE {name} SET metadata = {names} WHERE id = '{records[1].document.id}'",
            f"""UPDATE {name} SET metadata = '{{"readers": 7}}' WHERE id = '{records[2].document.id}'""",
        )
        assert list(restricted_store(store, HR).ids()) == [records[3].document.id]
        assert [line for line in store.check().unindexed if line.startswith("readers of ")] == [
            f"readers of {records[1].document.id}",
            f"readers of {records[2].document.id}",
        ]
        store.upsert([_with(records[0], ["group:other"])])
        store.check(repair=True)
        assert store.check().clean
        assert sorted(restricted_store(store, HR).ids()) == [records[1].document.id, records[3].document.id]
        with psycopg.connect(postgres_url) as session:
            lists = session.execute(f'SELECT names FROM "{store._table}$1$readers" ORDER BY names'.encode()).fetchall()
        assert lists == [([],), (["group:hr"],), (["group:other"],)]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as postgres:
        execute(postgres.conninfo("postgres"), *(f"CREATE ROLE {role} LOGIN" for role in ("app", "analyst", "reader")))
        execute(postgres.make_database("walls"), "CREATE EXTENSION vector; CREATE SCHEMA app AUTHORIZATION app")
        yield postgres


def test_another_role_reads_by_sql_what_its_setting_says(server: PostgresServer) -> None:
    url = f"{server.url_of('app', 'walls')}?schema=app"
    with Pipeline(MockEncoder(), open_store(url)) as pipeline:
        pipeline.add([Document("open", text="a dog"), Document("hr", text="a cat", readers=["group:hr", "user:ann"])])
        pipeline.add([Document("it", text="a car", readers=["group:it"]), Document("none", text="x", readers=[])])
    execute(
        server.conninfo("walls"),
        "GRANT USAGE ON SCHEMA app TO analyst, reader; GRANT SELECT ON ALL TABLES IN SCHEMA app TO analyst, reader",
        "GRANT app TO reader WITH INHERIT FALSE, SET FALSE; GRANT UPDATE ON ALL TABLES IN SCHEMA app TO analyst",
    )
    with psycopg.connect(server.url_of("analyst", "walls"), autocommit=True) as session:

        def seen(principals: str | None) -> list[str]:
            if principals is not None:
                session.execute("SELECT set_config('vlmsearch.principals', %s, false)", (principals,))
            rows = session.execute('SELECT id FROM app."vlmsearch$1" ORDER BY id').fetchall()
            return [id for (id,) in rows]

        assert [seen(None), seen("group:hr"), seen("user:bob\ngroup:it"), seen("")] == [
            ["open"],
            ["hr", "open"],
            ["it", "open"],
            ["open"],
        ]
        assert session.execute('SELECT names FROM app."vlmsearch$1$readers"').fetchall() == []
        assert session.execute("""UPDATE app."vlmsearch$1" SET readers = NULL""").rowcount == 0
    with Pipeline(MockEncoder(), open_store(f"{server.url_of('reader', 'walls')}?schema=app")) as pipeline:
        assert (len(pipeline), len(pipeline.restricted(["group:it"]))) == (4, 2)
        assert [match.document.id for match in pipeline.restricted(["user:ann"]).search("a cat", min_score=0)] != []
        with pytest.raises(BackendError, match="permission denied"):
            pipeline.delete(["open"])


def test_a_filter_of_somebody_on_the_key_is_no_permission(postgres_url: str) -> None:
    records = make_records(2)
    with _store(postgres_url, [_with(records[0], ["group:hr"]), _with(records[1], None)]) as store:
        documents = store.documents_after("", 9, parse_filter({"readers": "group:hr"}))
        assert [document.id for document in documents] == [records[0].document.id]
