"""Chroma: where an index may be, what a killed process leaves, and what happens when a server is not there."""

import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb import Collection
from vlmsearch_mocks.pair import mock_chroma_store

from tests.support import servers
from tests.support.scripted_http import Answer, scripted_server
from tests.support.worlds import Process, World, mock_world
from vlmsearch import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    Document,
    Field,
    IndexMismatchError,
    InvalidBatchError,
    Record,
    Space,
    Stamp,
)
from vlmsearch.registry import open_store
from vlmsearch.stores.chroma.collections import ChromaCollection, HnswOptions
from vlmsearch.stores.chroma.connection import TOKEN_VARIABLE, chroma_settings
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.filters import parse_filter
from vlmsearch.types import Reject

IMAGE, TEXT = Field("clip", "image"), Field("minilm", "text")
SPACES = (Space("clip", 16, frozenset({"image"})), Space("minilm", 16, frozenset({"text"})))


def record(number: int, turn: int = 0, *, fields: Sequence[Field] = (IMAGE, TEXT)) -> Record:
    """A record whose content is known from its stamp."""
    rows = np.random.default_rng([number, turn]).normal(size=(2, 16)).astype(np.float32)
    vectors = dict(zip((IMAGE, TEXT), rows / np.linalg.norm(rows, axis=1, keepdims=True)))
    document = Document(f"id-{number}", text=f"text {number} {turn}", metadata={"turn": turn, "number": number})
    return Record(document, {field: vectors[field] for field in fields}, Stamp(f"{number} {turn}"))


def client(address: str) -> Any:
    """Chroma's own client, as other programs use it."""
    host, _, port = address.partition(":")
    return chromadb.HttpClient(host, int(port), settings=chroma_settings())


# ---- locations


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("", "needs a server"),
        ("//", "not an address of an index"),
        ("//host", "chroma://host:8000/name"),
        ("//host:8000", "chroma://host:8000/name"),
        ("//host:8000/", "not an address"),
        ("//host:8000/a b", "not an address"),
        ("//host:8000/a/b", "not an address"),
        ("//:8000/name", "not an address"),
        ("//host:port/name", "chroma://host:8000/name"),
        ("//host:99999/name", "chroma://host:8000/name"),
    ],
)
def test_a_location_that_is_none_is_refused_with_what_one_looks_like(location: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ChromaStore(location)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match=TOKEN_VARIABLE) as caught:
        ChromaStore("//user:hunter2@host:8000/name")
    assert "hunter2" not in str(caught.value)


def test_a_token_that_cannot_be_sent_is_not_repeated(monkeypatch: pytest.MonkeyPatch, chroma_address: str) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "hunter2\nsecond line")
    with pytest.raises(ConfigError, match=TOKEN_VARIABLE) as caught:
        ChromaStore(f"//{chroma_address}/token").manifest()
    assert "hunter2" not in str(caught.value)


def test_a_token_is_sent_in_the_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        store = ChromaStore(f"//127.0.0.1:{server.getsockname()[1]}/name", timeout=0.5, retries=0)
        with pytest.raises(BackendUnavailableError) as caught:
            store.manifest()
        peer, _ = server.accept()
        with peer:
            request = peer.recv(65536).decode().lower()
    assert "authorization: bearer s3cret" in request
    assert "x-chroma-token: s3cret" in request
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("options", [{"timeout": 0.0}, {"timeout": -1.0}, {"retries": -1}])
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ChromaStore("//host/name", **options)


@pytest.mark.parametrize("options", [{"max_neighbors": 1}, {"ef_construction": 0}, {"ef_search": -4}])
def test_a_graph_without_links_or_candidates_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"`{next(iter(options))}` is from 2 to"):
        HnswOptions(**options)


def test_options_come_from_the_url(chroma_address: str) -> None:
    with open_store(f"chroma://{chroma_address}/options?hnsw_ef_search=50&hnsw_max_neighbors=8") as store:
        store.bind("encoder", SPACES)
    made = client(chroma_address).get_collection("options.1.clip.image", embedding_function=None)
    hnsw = made.configuration_json["hnsw"]
    assert (hnsw["ef_search"], hnsw["max_neighbors"], hnsw["space"]) == (50, 8, "ip")


def test_a_dotenv_file_in_the_current_folder_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chroma_address: str
) -> None:
    (tmp_path / ".env").write_text("PERSIST_DIRECTORY=/nowhere\nCHROMA_SERVER_NOFILE=many\n")
    monkeypatch.chdir(tmp_path)
    with ChromaStore(f"//{chroma_address}/dotenv") as store:
        store.bind("encoder", SPACES)


# ---- other things on the same server


def test_a_foreign_collection_of_the_same_name_is_refused(chroma_address: str) -> None:
    client(chroma_address).create_collection("theirs.about", embedding_function=None)
    with ChromaStore(f"//{chroma_address}/theirs") as store, pytest.raises(ConfigError, match="did not make"):
        store.bind("encoder", SPACES)


def test_two_indexes_on_one_server_are_apart(chroma_address: str) -> None:
    with ChromaStore(f"//{chroma_address}/one") as one, ChromaStore(f"//{chroma_address}/two") as two:
        one.bind("encoder 1", SPACES)
        two.bind("encoder 2", SPACES[:1])
        one.upsert([record(1)])
        two.reject([Reject("id-2", "corrupt", "bad")])
        assert (len(one), len(two), len(one.rejects())) == (1, 0, 0)
        with pytest.raises(IndexMismatchError):
            one.bind("encoder 2", SPACES[:1])


def test_a_space_may_have_any_name(chroma_address: str) -> None:
    spaces = [Space(name, 4, frozenset({"image"})) for name in ("a", "a.b", "a/b", "Ä", "all MiniLM", "-", "a.2eb")]
    vector = np.array([1, 0, 0, 0], np.float32)
    with ChromaStore(f"//{chroma_address}/spaces") as store:
        store.bind("encoder", spaces)
        for i, space in enumerate(spaces):
            store.upsert([Record(Document(str(i)), {space.fields[0]: vector})])
        for i, space in enumerate(spaces):
            assert [hit.id for hit in store.search(space.fields[0], vector[None], limit=9)[0]] == [str(i)]


# ---- cut-off writes; `tests/stores/test_crash_points.py` has more


class Died(BaseException):
    """Stands for the end of the process."""


def cut_off(store: ChromaStore, step: str, records: Sequence[Record]) -> None:
    """Write as a process does that ends before a step."""

    def die(*_: object, **__: object) -> None:
        raise Died

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, step, die)
        with pytest.raises(Died):
            store.upsert(records)


def at_every_call(world: World, records: Sequence[Record] | None) -> Iterator[ChromaStore]:
    """A store after a process died at its first call, then at its second, and so on until it did not die.

    It binds the store and writes ``records``, or binds it only.
    """
    for number in range(200):
        process = Process(number)
        with process.until_it_dies():
            store = world.open(process)
            store.bind("encoder", SPACES)
            if records is not None:
                store.upsert(records)
        opened = world.open()
        assert isinstance(opened, ChromaStore)
        if not process.was_killed:
            assert number > 5
            return
        yield opened


def test_a_bind_that_was_cut_off_leaves_no_index_and_the_next_one_makes_it() -> None:
    world, query = mock_world("chroma"), record(1).vectors[IMAGE][None]
    for store in at_every_call(world, None):
        assert store.search(IMAGE, query, limit=3) == [[]]
        if store.manifest() is not None:
            break
    with world.open() as last:
        last.bind("encoder", SPACES)
        last.upsert([record(1)])
        assert [hit.id for hit in last.search(IMAGE, query, limit=3)[0]] == ["id-1"]


def test_a_field_that_a_replaced_document_lost_is_gone_whenever_the_process_ends() -> None:
    world, query = mock_world("chroma"), record(1).vectors[TEXT][None]
    with world.open() as first:
        first.bind("encoder", SPACES)
        first.upsert([record(1), record(2)])
    turns = []
    for store in at_every_call(world, [record(1, 1, fields=[IMAGE])]):
        turns.append(store.stamps(["id-1"])["id-1"])
        has_text = turns[-1] == Stamp("1 0")
        assert [hit.id for hit in store.search(TEXT, query, limit=5)[0]] == (["id-1", "id-2"] if has_text else ["id-2"])
    assert set(turns) == {Stamp("1 0"), Stamp("1 1")}


def test_many_left_over_vectors_do_not_shorten_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.stores.writers.wait_for_requests", lambda: None)
    query = record(0).vectors[IMAGE]
    near = [Record(Document(f"near-{i}"), {IMAGE: query}) for i in range(1500)]
    with mock_chroma_store() as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(30)])
        cut_off(store, "_name", near)
        assert len(store.search(IMAGE, query[None], limit=20)[0]) == 20
        assert store.delete([one.document.id for one in near]) == 0
        assert len(store.check(repair=True).orphans) == 1000  # of the first batch
        assert sum(store.check().vectors.values()) == 60


def test_a_stale_vector_near_the_query_costs_no_further_search(monkeypatch: pytest.MonkeyPatch) -> None:
    query, new = record(7).vectors[IMAGE], record(7, 1)
    ask, asked = Collection.query, []

    def count(self: Collection, **options: Any) -> object:
        asked.append(options)
        return ask(self, **options)

    with mock_chroma_store() as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(30)])
        cut_off(store, "_clean", [new])
        monkeypatch.setattr(Collection, "query", count)
        hits = store.search(IMAGE, query[None], limit=5)[0]
        assert len(asked) == 1
        assert store.stamps(["id-7"])["id-7"] == new.stamp
        report = store.check()
        assert [name.split()[:2] for name in report.stale] == [["clip/image", "id-7"], ["minilm/text", "id-7"]]
        assert store.check(repair=True).repaired
        assert store.search(IMAGE, query[None], limit=5)[0] == hits


# ---- writes during a search


def search_during(store: ChromaStore, vector: np.ndarray[Any, Any], limit: int, records: Sequence[Record]) -> Any:
    """Search while ``records`` are written once what is nearest has been read."""
    nearest = ChromaCollection.nearest

    def meanwhile(*arguments: Any) -> object:
        found = nearest(*arguments)
        store.upsert(records)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChromaCollection, "nearest", meanwhile)
        return store.search(IMAGE, vector[None], limit=limit)[0]


@pytest.mark.parametrize("near", [True, False])
def test_a_document_that_is_replaced_during_a_search_is_in_its_new_place(near: bool) -> None:
    query = record(7).vectors[IMAGE]
    with mock_chroma_store() as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(30)])
        replaced = Record(Document("id-7"), {IMAGE: record(99).vectors[IMAGE] if near else -query})
        during = search_during(store, query, 30, [replaced])
        after = store.search(IMAGE, query[None], limit=30)[0]
        assert [hit.id for hit in during] == [hit.id for hit in after]
        assert [hit.score for hit in during] == pytest.approx([hit.score for hit in after], abs=1e-5)


def test_a_page_is_full_whose_documents_are_all_replaced_after_they_were_found() -> None:
    with mock_chroma_store() as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(60)])
        hits = search_during(store, record(3).vectors[IMAGE], 60, [record(i, 1) for i in range(60)])
        assert {hit.id for hit in hits} == {f"id-{i}" for i in range(60)}
        assert hits[0].score < 0.99  # of the new vector


# ---- servers


def test_a_server_that_is_not_there_is_reported_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with ChromaStore(f"//127.0.0.1:{port}/name") as store:
        for call in (store.manifest, lambda: store.bind("encoder", SPACES), lambda: len(store)):
            with pytest.raises(BackendUnavailableError, match=f"127.0.0.1:{port}.*look for") as caught:
                call()
            assert caught.value.__cause__ is not None


def test_a_server_that_does_not_answer_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        store = ChromaStore(f"//127.0.0.1:{server.getsockname()[1]}/name", timeout=0.5, retries=0)
        started = time.monotonic()
        with pytest.raises(BackendUnavailableError, match="did not answer in time"):
            store.manifest()
        assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (200, "<html>hello</html>", BackendError, "failed to look for"),
        (404, "<html>no such page</html>", BackendError, "failed to look for"),
        (401, "who are you?", BackendError, TOKEN_VARIABLE),
        (403, "{}", BackendError, TOKEN_VARIABLE),
        (503, "busy", BackendUnavailableError, "could not be reached"),
        (500, '{"error": "InternalError", "message": "disk full"}', BackendError, "disk full"),
    ],
)
def test_odd_answers_are_backend_errors(status: int, body: str, error: type[BackendError], message: str) -> None:
    with scripted_server(Answer(status, body.encode())) as server, pytest.raises(BackendError, match=message) as caught:
        ChromaStore(server.url.removeprefix("http:") + "/name").manifest()
    assert type(caught.value) is error
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("retries", [0, 1, 2, 4])
def test_a_server_that_is_away_is_asked_as_often_as_was_said(retries: int) -> None:
    with scripted_server(Answer(503)) as server, pytest.raises(BackendUnavailableError):
        ChromaStore(server.url.removeprefix("http:") + "/name", retries=retries).manifest()
    assert len(server.requests) == retries + 1


@pytest.mark.server
def test_a_store_outlives_a_restart_of_its_server(tmp_path: Path) -> None:
    with servers.chroma_server(tmp_path) as address:
        store = ChromaStore(f"//{address}/name", timeout=5)
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(50)])
    with pytest.raises(BackendUnavailableError, match="to read rows"):
        store.upsert([record(50)])
    with servers.chroma_server(tmp_path, address):
        store.upsert([record(50)])
        assert len(store) == len(store.search(IMAGE, record(1).vectors[IMAGE][None], limit=60)[0]) == 51
        store.close()


def test_a_large_batch_is_sent_in_parts_that_the_server_takes(chroma_address: str) -> None:
    texts = {f"long-{i}": f"{i} " + "x" * 1_000_000 for i in range(20)}
    with ChromaStore(f"//{chroma_address}/large") as store:
        store.bind("encoder", SPACES)
        store.upsert([Record(Document(id, text=text), {TEXT: record(1).vectors[TEXT]}) for id, text in texts.items()])
        assert [document.text for document in store.get(list(texts))] == list(texts.values())


def test_a_document_that_no_request_can_hold_is_refused_and_the_largest_is_sent(chroma_address: str) -> None:
    with ChromaStore(f"//{chroma_address}/single") as store:
        store.bind("encoder", SPACES)
        large = [Record(Document("large", text="\n" * (each * 2**20)), record(0).vectors) for each in (11, 13)]
        store.upsert([record(1), large[0]])
        assert sorted(store.ids()) == ["id-1", "large"]
        message = r"'large' has [0-9,]+ bytes as it is sent; .* 37,748,736"
        with pytest.raises(InvalidBatchError, match=message) as caught:
            store.upsert([record(2), large[1]])
        assert {item: error.code for item, error in caught.value.items.items()} == {1: "too_large"}
        assert sorted(store.ids()) == ["id-1", "large"]
        assert store.check().in_progress == 0


def test_a_batch_with_much_metadata_is_sent_in_parts_that_the_server_takes(chroma_address: str) -> None:
    notes = {f"noted-{i}": f"{i} " + "\x01" * 1_000_000 for i in range(8)}  # each character takes 6 bytes in a request
    documents = [Document(id, text="text", metadata={"note": note}) for id, note in notes.items()]
    with ChromaStore(f"//{chroma_address}/noted") as store:
        store.bind("encoder", SPACES)
        store.upsert([Record(document, {TEXT: record(1).vectors[TEXT]}) for document in documents])
        assert store.get(list(notes)) == documents


# ---- recall


def test_every_document_is_found_among_many_with_equal_vectors(chroma_address: str) -> None:
    same = record(0).vectors[IMAGE]
    records = [record(i) for i in range(1500)]
    records = [Record(r.document, {IMAGE: same if i % 2 else r.vectors[IMAGE]}) for i, r in enumerate(records)]
    with ChromaStore(f"//{chroma_address}/equal") as store:
        store.bind("encoder", SPACES)
        store.upsert(records)
        assert len(store.search(IMAGE, same[None], limit=5000)[0]) == 1500
        for i in range(0, 1500, 50):
            where = parse_filter({"number": i})
            found = store.search(IMAGE, records[i].vectors[IMAGE][None], limit=3, where=where)[0]
            assert [hit.id for hit in found] == [f"id-{i}"]
            assert found[0].score == pytest.approx(1.0, abs=1e-5)


def test_recall_is_measured_and_equal_vectors_are_named(chroma_address: str) -> None:
    records = [record(i) for i in range(1300)]
    same = [Record(r.document, {**r.vectors, IMAGE: records[0].vectors[IMAGE]}) for r in records[:250]]
    with ChromaStore(f"//{chroma_address}/recall") as store:
        store.bind("encoder", SPACES)
        store.upsert(records[:900])
        assert store.describe() == {"search": "exact"}
        store.upsert([*same, *records[900:]])
        described, report = store.describe(), store.check()
        assert (report.clean, len(report.identical)) == (True, 1)
        assert report.identical[0] == f"clip/image: {described.pop('identical clip/image')}"
        share = int(report.identical[0].removeprefix("clip/image: ").partition(" % of the vectors are equal")[0])
        assert share == pytest.approx(100 * 250 / 1300, abs=6)
        assert described.pop("search") == "approximate"
        assert set(described) == {"search clip/image", "search minilm/text"}
        for text in described.values():
            assert text.startswith("approximate, recall ")
            assert float(text.split()[2]) > 0.8
            assert " passes " in text
        store.delete([r.document.id for r in same])
        assert store.check().identical == ()


# ---- the client alone


def test_the_client_alone_opens_an_index(chroma_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chromadb.config, "is_thin_client", True)  # as the package chromadb-client says of itself
    with open_store(f"chroma://{chroma_address}/client-alone") as store:
        assert store.manifest() is None
