"""Chroma: where an index may be, what a killed process leaves, and what happens when a server is not there."""

import os
import pickle
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import servers
from tests.support.chroma import (
    IMAGE,
    PROCESSES,
    SPACES,
    TEXT,
    Died,
    check_whole,
    chroma_client,
    dying_at,
    record,
    vector_files,
    writing,
)
from vlmsearch import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    Document,
    IndexMismatchError,
    InvalidBatchError,
    Record,
    Space,
    Stamp,
)
from vlmsearch.registry import open_store
from vlmsearch.stores.chroma.collections import ChromaCollection, HnswOptions
from vlmsearch.stores.chroma.connection import TOKEN_VARIABLE
from vlmsearch.stores.chroma.log import DATABASE
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.filters import parse_filter
from vlmsearch.types import Reject

# ---- locations


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("", "needs a folder"),
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


@pytest.mark.parametrize("options", [{"timeout": 0.0}, {"timeout": -1.0}, {"retries": -1}, {"ssl": True}])
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        ChromaStore(str(tmp_path / "index"), **options)


@pytest.mark.parametrize("options", [{"max_neighbors": 1}, {"ef_construction": 0}, {"ef_search": -4}])
def test_a_graph_without_links_or_candidates_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"hnsw_{next(iter(options))} is at least 2"):
        HnswOptions(**options)


def test_options_come_from_the_url(tmp_path: Path) -> None:
    with open_store(f"chroma:{tmp_path / 'index'}?hnsw_ef_search=50&hnsw_max_neighbors=8") as store:
        store.bind("encoder", SPACES)
    with chroma_client(tmp_path / "index") as client:
        hnsw = client.get_collection("vlmsearch.1.clip.image", embedding_function=None).configuration_json["hnsw"]
    assert (hnsw["ef_search"], hnsw["max_neighbors"], hnsw["space"]) == (50, 8, "ip")


def test_three_slashes_are_an_absolute_folder(tmp_path: Path) -> None:
    assert ChromaStore(f"//{tmp_path}/index").name == f"chroma:{tmp_path}/index"


def test_reading_an_empty_folder_makes_nothing_and_binding_uses_it(tmp_path: Path) -> None:
    with ChromaStore(str(tmp_path)) as store:
        assert store.manifest() is None
        assert list(tmp_path.iterdir()) == []
        store.bind("encoder", SPACES)
        assert store.manifest() is not None


def test_a_folder_of_photos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"jpeg")
    with ChromaStore(str(tmp_path)) as store:
        assert store.manifest() is None
        with pytest.raises(ConfigError, match=r"among other files \(photo.jpg\)"):
            store.bind("encoder", SPACES)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_the_way_is_a_config_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with ChromaStore(str(tmp_path / name)) as store:
        assert store.manifest() is None
        with pytest.raises(ConfigError, match="cannot be made"):
            store.bind("encoder", SPACES)


def test_a_database_that_is_none_is_a_backend_error(tmp_path: Path) -> None:
    (tmp_path / "chroma.sqlite3").write_bytes(b"no database " * 1000)
    with ChromaStore(str(tmp_path)) as store, pytest.raises(BackendError, match="open its database") as caught:
        store.manifest()
    assert caught.value.__cause__ is not None


def test_a_relative_folder_stays_the_same_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with ChromaStore("./index") as store:
        assert store.name == "chroma:index"
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.bind("encoder", SPACES)
        store.upsert([record(1)])
    assert (tmp_path / "index" / "chroma.sqlite3").exists()
    assert not (tmp_path / "elsewhere" / "index").exists()


def test_a_dotenv_file_in_the_current_folder_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("PERSIST_DIRECTORY=/nowhere\nCHROMA_SERVER_NOFILE=many\n")
    monkeypatch.chdir(tmp_path)
    with ChromaStore("index") as store:
        store.bind("encoder", SPACES)


# ---- other things in the same database


def rows_of(folder: Path, *topics: str) -> dict[str, list[Any]]:
    """All that a database has of some collections, of their segments and in their log."""
    marks = ", ".join("?" * len(topics))
    collections = f"SELECT id FROM collections WHERE id IN ({marks})"
    segments = f"SELECT id FROM segments WHERE collection IN ({collections})"
    with closing(sqlite3.connect(folder / DATABASE)) as db:
        return {
            table: db.execute(f"SELECT * FROM {table} WHERE {condition}", topics).fetchall()
            for table, condition in {
                "collections": f"id IN ({marks})",
                "collection_metadata": f"collection_id IN ({marks})",
                "segments": f"collection IN ({marks})",
                "embeddings": f"segment_id IN ({segments})",
                "embedding_metadata": f"id IN (SELECT id FROM embeddings WHERE segment_id IN ({segments}))",
                "max_seq_id": f"segment_id IN ({segments})",
                "embeddings_queue": f"substr(topic, -36) IN ({marks})",
            }.items()
        }


@pytest.mark.slow
def test_foreign_collections_are_left_alone_bit_for_bit(tmp_path: Path) -> None:
    """Also one of a dropped collection whose log is there yet, and one of our name in a database of Chroma's own."""
    folder = tmp_path / "db"
    vectors = np.random.default_rng(0).normal(size=(1100, 8)).astype(np.float32)
    with chroma_client(folder) as client:
        theirs = client.create_collection("theirs", metadata={"made": "by them"}, embedding_function=None)
        for _ in range(2):  # entries in the log that later ones supersede
            theirs.upsert([f"{i}" for i in range(1100)], vectors, documents=[f"text {i}" for i in range(1100)])
        client._admin_client.create_database("other")
        client.set_database("other")
        same_name = client.create_collection("vlmsearch.1.clip.image", embedding_function=None)
        for row in vectors[:2]:
            same_name.upsert(["a"], row[None])
    dropped = "01234567-89ab-cdef-0123-456789abcdef"
    with closing(sqlite3.connect(folder / DATABASE)) as db, db:
        entry = "INSERT INTO embeddings_queue (operation, topic, id) VALUES (3, ?, 'a')"
        db.execute(entry, [f"persistent://default/default/{dropped}"])
    (folder / dropped).mkdir()
    (folder / dropped / "data_level0.bin").write_bytes(b"theirs")
    topics = (str(theirs.id), str(same_name.id), dropped)

    def state() -> tuple[object, ...]:
        files = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before}
        return rows_of(folder, *topics), files

    before = [path for path in folder.glob("*/*") if path.is_file()]
    found = state()
    assert len(before) > 5
    assert all(rows_of(folder, *topics).values())
    with ChromaStore(str(folder)) as store:
        assert store.manifest() is None
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(1100)])
        store.upsert([record(i, 1) for i in range(20)])
        store.delete(["id-3"])
        other = store.beside("another", SPACES)
        other.upsert([record(i) for i in range(1100)])
        store.freeze(other)
        store.switch(other)
        assert store.drop_old()
        assert store.check(repair=True).clean
    lock = folder / "vlmsearch.lock"
    lock.write_bytes(b"W" + lock.read_bytes()[1:])  # its vector files are made again
    with ChromaStore(str(folder)) as store:
        assert len(check_whole(store)) == 1100
    assert state() == found
    with chroma_client(folder) as client:
        again = client.get_collection("theirs", embedding_function=None)
        assert again.get(["7"])["documents"] == ["text 7"]
        assert again.query(query_embeddings=vectors[7:8], n_results=1)["ids"] == [["7"]]


def test_a_foreign_collection_of_the_same_name_is_refused(tmp_path: Path) -> None:
    with chroma_client(tmp_path / "db") as client:
        client.create_collection("vlmsearch.about", embedding_function=None)
    with ChromaStore(str(tmp_path / "db")) as store, pytest.raises(ConfigError, match="did not make"):
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


def test_a_space_may_have_any_name(tmp_path: Path) -> None:
    spaces = [Space(name, 4, frozenset({"image"})) for name in ("a", "a.b", "a/b", "Ä", "all MiniLM", "-", "a.2eb")]
    vector = np.array([1, 0, 0, 0], np.float32)
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", spaces)
        for i, space in enumerate(spaces):
            store.upsert([Record(Document(str(i)), {space.fields[0]: vector})])
        for i, space in enumerate(spaces):
            assert [hit.id for hit in store.search(space.fields[0], vector[None], limit=9)[0]] == [str(i)]


# ---- cut-off writes


def at_every_write(location: str, act: Callable[[ChromaStore], object]) -> Iterator[ChromaStore]:
    """A store after the action died at its first write, then at its second, and so on until it did not die."""
    for number in range(100):
        died = False
        with ChromaStore(location) as store, dying_at(number):
            try:
                act(store)
            except Died:
                died = True
        with ChromaStore(location) as store:
            if not died:
                assert number > 1
                return
            yield store


def left_over(store: ChromaStore) -> int:
    """Rows of vectors, whether they count or not."""
    assert store.manifest() is not None
    return sum(len(list(store._vectors.keys(field))) for field in (IMAGE, TEXT))


def test_a_bind_that_was_cut_off_leaves_no_index_and_the_next_one_makes_it(tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    for store in at_every_write(location, lambda store: store.bind("encoder 1", SPACES)):
        assert store.manifest() is None
        assert store.search(IMAGE, record(1).vectors[IMAGE][None], limit=3) == [[]]
    with ChromaStore(location) as store:
        store.upsert([record(1)])
        assert len(check_whole(store)) == 1


def test_an_upsert_that_was_cut_off_adds_nothing_and_the_next_one_completes_it(tmp_path: Path) -> None:
    records = [record(i) for i in range(5)]
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", SPACES)
    for store in at_every_write(str(tmp_path / "index"), lambda store: store.upsert(records)):
        assert check_whole(store) == {}
    with ChromaStore(str(tmp_path / "index")) as store:
        assert len(check_whole(store)) == 5
        assert left_over(store) == 10


def test_a_document_is_replaced_at_one_instant(tmp_path: Path) -> None:
    old = [record(i, 0) for i in range(5)]
    new = [record(i, 1) for i in range(6)]
    location = str(tmp_path / "index")
    with ChromaStore(location) as store:
        store.bind("encoder", SPACES)
        store.upsert(old)
    turns = []
    for store in at_every_write(location, lambda store: store.upsert(new)):
        digests = check_whole(store)
        turns.append({int(digest.split()[1]) for digest in digests.values()})
        assert turns[-1] in ({0}, {1})
        store.upsert(old)
        store.delete(["id-5"])
    assert turns[0] == {0}
    assert turns[-1] == {1}
    with ChromaStore(location) as store:
        store.upsert(new)
        assert set(check_whole(store).values()) == {f"{i} 1" for i in range(6)}
        assert left_over(store) == 12


def test_a_field_that_a_replaced_document_lost_is_gone_whenever_the_process_ends(tmp_path: Path) -> None:
    query = record(1).vectors[TEXT][None]
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", SPACES)
        store.upsert([record(1), record(2)])
    changed = [record(1, 1, fields=[IMAGE])]
    for store in at_every_write(str(tmp_path / "index"), lambda store: store.upsert(changed)):
        has_text = store.stamps(["id-1"])["id-1"] == Stamp("1 0")
        assert [hit.id for hit in store.search(TEXT, query, limit=5)[0]] == (["id-1", "id-2"] if has_text else ["id-2"])
    with ChromaStore(str(tmp_path / "index")) as store:
        assert [hit.id for hit in store.search(TEXT, query, limit=5)[0]] == ["id-2"]


def test_a_delete_that_was_cut_off_never_shows_half_a_document(tmp_path: Path) -> None:
    location = str(tmp_path / "index")
    with ChromaStore(location) as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(8)])
    counts = [
        len(check_whole(store)) for store in at_every_write(location, lambda store: store.delete(["id-1", "id-2"]))
    ]
    assert counts == [8, 6]
    with ChromaStore(location) as store:
        assert left_over(store) == 12


def test_a_page_is_full_whose_documents_are_all_replaced_after_they_were_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearest = ChromaCollection.nearest
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(60)])

        def meanwhile(*arguments: Any) -> object:
            found = nearest(*arguments)
            monkeypatch.undo()
            store.upsert([record(i, 1) for i in range(60)])
            return found

        monkeypatch.setattr(ChromaCollection, "nearest", meanwhile)
        hits = store.search(IMAGE, record(3).vectors[IMAGE][None], limit=60)[0]
        assert {hit.id for hit in hits} == {f"id-{i}" for i in range(60)}
        assert hits[0].score < 0.99  # of the new vector


def test_many_left_over_vectors_do_not_shorten_a_page(tmp_path: Path) -> None:
    location, query = str(tmp_path / "index"), record(0).vectors[IMAGE]
    near = [Record(Document(f"near-{i}"), {IMAGE: query}) for i in range(1500)]
    with ChromaStore(location) as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(30)])
    with ChromaStore(location) as store, dying_at(1), pytest.raises(Died):
        store.upsert(near)
    with ChromaStore(location) as store:
        assert len(store.search(IMAGE, query[None], limit=20)[0]) == 20
        assert len(check_whole(store)) == 30
        assert store.delete([one.document.id for one in near]) == 0
        assert left_over(store) == 60


PROCESSES.set_forkserver_preload(["vlmsearch.stores.chroma.store", __name__])


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_killed_processes_lose_nothing_that_was_written(tmp_path: Path, kills: int) -> None:
    location, rng, torn = tmp_path / "index", np.random.default_rng(5), 0
    for turn in (0, 1):
        for _ in range(kills):
            with writing(location, turn, 1500) as (process, _):
                time.sleep(float(rng.uniform(0.02, 0.4)))
                process.kill()
            torn += (location / "vlmsearch.lock").read_bytes().startswith(b"W")
            with ChromaStore(str(location)) as store:
                check_whole(store)
    assert torn or kills == 2
    with writing(location, 1, 1500) as (_, pipe):
        assert pipe.recv() == "done"
    with ChromaStore(str(location)) as store:
        digests = check_whole(store)
    assert set(digests.values()) == {f"{i} 1" for i in range(1500) if i % 50}


def test_stores_of_one_process_share_a_folder(tmp_path: Path) -> None:
    with ChromaStore(str(tmp_path / "index")) as one, ChromaStore(f"{tmp_path}/./index") as other:
        one.bind("encoder", SPACES)
        other.bind("encoder", SPACES)
        one.upsert([record(1)])
        other.upsert([record(2)])
        one.close()
        assert len(check_whole(other)) == 2
        assert len(check_whole(one)) == 2


def test_a_process_that_is_forked_later_is_told_so_and_leaves_the_folder_alone(tmp_path: Path) -> None:
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", SPACES)
        store.upsert([record(1), record(2)])
        store.delete(["id-2"])
        log = (tmp_path / "index" / DATABASE).read_bytes()
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)  # ends it, should it wait for ever
            for one in (store, ChromaStore(str(tmp_path / "index")), ChromaStore(str(tmp_path / "other"))):
                try:
                    one.bind("encoder", SPACES)
                    one.upsert([record(3)])
                except ConfigError as exc:
                    os.write(writer, f"{exc}\n".encode())
                one.close()
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as told:
            messages = told.read().splitlines()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(messages) == 3
        assert all(f"forked from process {os.getpid()} after" in message for message in messages)
        assert (tmp_path / "index" / DATABASE).read_bytes() == log
        store.upsert([record(4)])
        assert sorted(check_whole(store)) == ["id-1", "id-4"]


@pytest.mark.parametrize("damage", ["nonsense", "missing"])
def test_vector_files_that_do_not_load_are_made_again(tmp_path: Path, damage: str) -> None:
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(1100)])
    files = vector_files(tmp_path / "index")
    assert len(files) >= 6
    for path in files:
        if path.name == "index_metadata.pickle":
            if damage == "missing":
                path.unlink()
            else:
                path.write_bytes(pickle.dumps(["nonsense"]))
    with ChromaStore(str(tmp_path / "index")) as store:
        assert len(check_whole(store)) == 1100


def test_a_database_whose_log_was_purged_is_not_touched(tmp_path: Path) -> None:
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(2000)])
    with closing(sqlite3.connect(tmp_path / "index" / "chroma.sqlite3")) as db, db:
        db.execute("DELETE FROM embeddings_queue WHERE seq_id < (SELECT min(seq_id) FROM max_seq_id)")
    lock = tmp_path / "index" / "vlmsearch.lock"
    lock.write_bytes(b"W" + lock.read_bytes()[1:])
    with ChromaStore(str(tmp_path / "index")) as store:
        assert len(check_whole(store)) == 2000


def test_what_is_deleted_or_replaced_leaves_the_files(tmp_path: Path) -> None:
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", SPACES)
        store.upsert([record(i) for i in range(20)])
        store.upsert([record(i, 1) for i in range(5, 20)])
        store.delete([f"id-{i}" for i in range(5)])
    with closing(sqlite3.connect(tmp_path / "index" / "chroma.sqlite3")) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        content = repr([db.execute(f"SELECT * FROM {table}").fetchall() for table in tables])
    assert "text 7 1" in content
    assert "text 7 0" not in content
    assert "text 3 0" not in content


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
    class Odd(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(BackendError, match=message) as caught:
                ChromaStore(f"//127.0.0.1:{server.server_port}/name").manifest()
        finally:
            server.shutdown()
    assert type(caught.value) is error
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("retries", [0, 1, 2, 4])
def test_a_server_that_is_away_is_asked_as_often_as_was_said(retries: int) -> None:
    asked: list[str] = []

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(503)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(BackendUnavailableError):
                ChromaStore(f"//127.0.0.1:{server.server_port}/name", retries=retries).manifest()
        finally:
            server.shutdown()
    assert len(asked) == retries + 1


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
        assert len(check_whole(store)) == 51
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


def test_every_document_is_found_among_many_with_equal_vectors(tmp_path: Path) -> None:
    same = record(0).vectors[IMAGE]
    records = [record(i) for i in range(1500)]
    records = [Record(r.document, {IMAGE: same if i % 2 else r.vectors[IMAGE]}) for i, r in enumerate(records)]
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", SPACES)
        store.upsert(records)
        assert len(store.search(IMAGE, same[None], limit=5000)[0]) == 1500
        for i in range(0, 1500, 50):
            where = parse_filter({"number": i})
            found = store.search(IMAGE, records[i].vectors[IMAGE][None], limit=3, where=where)[0]
            assert [hit.id for hit in found] == [f"id-{i}"]
            assert found[0].score == pytest.approx(1.0, abs=1e-5)
