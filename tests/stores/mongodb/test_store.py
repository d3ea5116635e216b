"""How MongoDB is reached: addresses, users, TLS, time-outs, and what is never said or let through."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bson.binary import Binary, BinaryVectorDtype
from pymongo import MongoClient
from vlmsearch_mocks import MockEncoder
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records, unit_vectors

from tests.support.mongo_servers import make_certificates, mongo_server
from tests.support.servers import free_port
from vlmsearch import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    Document,
    InvalidBatchError,
    InvalidInputError,
    Pipeline,
    Record,
)
from vlmsearch.registry import open_store
from vlmsearch.stores import writers
from vlmsearch.stores.base import reject_list_of
from vlmsearch.stores.filters import Comparison
from vlmsearch.stores.mongodb.connection import MongoOptions
from vlmsearch.stores.mongodb.scan import read_blocks
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb.values import compile_filter
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.writers import WriteEntry, at_work, this_process

SECRET = "s3cret-Pa55"


# ---- addresses and options


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mongodb:", "needs a location"),
        ("mongodb:host/db", "mongodb://host:27017/database, not mongodb:host/db"),
        ("mongodb://host", "'' is not a name for a database"),
        ("mongodb://host/a/b", "'a/b' is not a name for a database"),
        ("mongodb://host/admin", "'admin' is not a name for a database"),
        ("mongodb://host/a$b", "is not a name for a database"),
        ("mongodb://ho st/db", "the address of a database is"),
        ("mongodb://host,/db", "the address of a database is"),
        ("mongodb://host/db?index=a.b", "the name of an index has .* not 'a.b'"),
        ("mongodb://host/db?index=system", "the name of an index has"),
        ("mongodb://host/db?timeout=0", "`timeout` is from 0.001 to 1,000,000"),
        ("mongodb://host/db?retries=99", "`retries` is from 0 to 20"),
        ("mongodb://host/db?tls_ca_file=x", "are for tls=true"),
        ("mongodb://host/db?tls=true&tls_ca_file=/no/such", "there is no file '/no/such'"),
        ("mongodb://host/db?auth_mechanism=NONE", "is one of SCRAM-SHA-256"),
        ("mongodb://host/db?w=0", "has w=majority, and nothing else: a write counts when a majority"),
        ("mongodb+chroma://host/db?chroma=http://host&journal=false", "has journal=true, and nothing else: a write"),
        (
            "mongodb://host/db?readPreference=secondary",
            "has readPreference=primary, and nothing else",
        ),
        ("mongodb://host/db?tls=true&tlsInsecure=true", "has no option 'tlsInsecure'"),
        ("mongodb://localhost/db?tlsAllowInvalidHostnames=true&directConnection=true", "are for tls=true"),
        ("mongodb://host/db?tls=true&TLS=false", "option tls of store mongodb: is given twice"),
        ("mongodb://host/db?tls=true&tlsAllowInvalidHostnames=true&directConnection=true", "is for a forwarded port"),
        ("mongodb://localhost/db?tls=true&tlsAllowInvalidHostnames=true", "with direct_connection=true"),
        ("mongodb://host/db?directConection=true", "has no option 'directConection'; did you mean 'direct_connection'"),
        ("mongodb+chroma://host/db?chroma=ftp://host", "is a server, such as http://host:8000"),
        ("mongodb+chroma://host/db?chroma=http:host", "is a server, such as http://host:8000"),
        ("mongodb+chroma://host/db?chroma=http:///folder", "is a server, such as http://host:8000"),
        ("mongodb+chroma://host/db?chroma=http://a@host:8000", "takes no user and password"),
        ("mongodb+chroma://host/db?chroma=http://host&hnsw_ef_search=1", "`ef_search` is from 2 to"),
    ],
)
def test_a_wrong_address_says_what_is_right(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_store(url)


@pytest.mark.parametrize("options", [f"appName={'a' * 129}", "tls=true&authMechanism=MONGODB-X509&authSource=admin"])
def test_what_the_driver_does_not_take_is_said_in_one_line(options: str) -> None:
    with open_store(f"mongodb://localhost/db?{options}") as store, pytest.raises(ConfigError, match="cannot be opened"):
        store.manifest()


def test_a_secret_in_a_url_is_refused_and_not_repeated() -> None:
    for url in (f"mongodb://user:{SECRET}@host/db", f"mongodb+chroma://user:{SECRET}@host/db?chroma=http://vec"):
        with pytest.raises(ConfigError, match="VLMSEARCH_MONGO_PASSWORD") as caught:
            open_store(url)
        assert SECRET not in str(caught.value)


def test_a_user_without_a_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMSEARCH_MONGO_USER", "reader")
    with pytest.raises(ConfigError, match="belong together"):
        open_store("mongodb://host/db")


def test_constructing_connects_to_nothing() -> None:
    with open_store("mongodb://no.such.host.invalid/db") as store:
        assert store.name == "mongodb://no.such.host.invalid/db"


# ---- a server that is not there


def test_a_server_that_is_not_there_is_named_with_the_operation() -> None:
    address, started = f"127.0.0.1:{free_port()}", time.monotonic()
    for url in (f"mongodb://{address}/db", f"mongodb+chroma://{address}/db?chroma=http://{address}"):
        separator = "&" if "?" in url else "?"
        with open_store(f"{url}{separator}timeout=0.3&retries=1") as store:
            message = rf"^mongodb://{address}/db could not be reached to look for the index: .*refused"
            with pytest.raises(BackendUnavailableError, match=message) as caught:
                store.manifest()
            assert caught.value.__cause__ is not None
    assert time.monotonic() - started < 20


def test_a_server_behind_a_forwarded_port_is_asked_directly(
    mongo_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    advertised, port = mongo_address.split(":")
    resolve = socket.getaddrinfo

    def inside_the_cluster_alone(host: str, *args: Any, **kwargs: Any) -> Any:
        if host == advertised:
            raise socket.gaierror("Name or service not known")
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", inside_the_cluster_alone)
    url = f"mongodb://localhost:{port}/forwarded?timeout=2&retries=0"
    with open_store(url) as store, pytest.raises(BackendUnavailableError, match="internal hostnames"):
        store.manifest()
    for spelling in (
        "directConnection=true&appName=me&retryWrites=false",
        "direct_connection=true",
        "directconnection=1",
    ):
        with open_store(f"{url}&{spelling}") as store:
            store.bind("e", SPACES)
            store.upsert(make_records(3))
            assert len(store) == 3


# ---- authentication and TLS


def test_a_user_and_password_from_the_environment_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, both = make_certificates(tmp_path)
    key = tmp_path / "keyfile"
    key.write_text("a" * 32)
    key.chmod(0o600)
    extra = [
        "--tlsMode",
        "requireTLS",
        "--tlsCertificateKeyFile",
        str(both),
        "--tlsAllowConnectionsWithoutCertificates",
    ]
    extra += ["--tlsCAFile", str(authority), "--keyFile", str(key), "--auth"]
    options = {"tls": True, "tlsCAFile": str(authority)}
    with mongo_server(tmp_path) as server, server.client() as client:
        roles = [{"role": "readWrite", "db": "private"}]
        client.admin.command("createUser", "writer", pwd=SECRET, roles=roles)
    with mongo_server(tmp_path, extra=extra, client_options=options, port=server.port):
        url = f"mongodb://{server.address}/private?timeout=5&retries=0"
        tls = f"&tls=true&tlsCAFile={authority}"
        with open_store(url) as store, pytest.raises(BackendUnavailableError, match=server.address):
            store.manifest()
        with open_store(url + "&tls=true") as store, pytest.raises(BackendUnavailableError, match="certificate"):
            store.manifest()
        with open_store(url + tls) as store, pytest.raises(BackendError, match="VLMSEARCH_MONGO_USER"):
            store.bind("e", SPACES)
        forwarded = (
            url.replace("127.0.0.1", "localhost") + tls.replace("tls_ca_file", "tlsCAFile") + "&directConnection=true"
        )
        with open_store(forwarded) as store, pytest.raises(BackendUnavailableError, match="Hostname mismatch"):
            store.manifest()
        monkeypatch.setenv("VLMSEARCH_MONGO_USER", "writer")
        monkeypatch.setenv("VLMSEARCH_MONGO_PASSWORD", SECRET + "wrong")
        with open_store(url + tls) as store, pytest.raises(BackendError, match="refused to look for") as caught:
            store.manifest()
        assert SECRET not in str(caught.value)
        assert SECRET not in store.name
        monkeypatch.setenv("VLMSEARCH_MONGO_PASSWORD", SECRET)
        with open_store(forwarded + "&tlsAllowInvalidHostnames=true&authSource=admin") as store:
            store.bind("e", SPACES)
            store.upsert(make_records(3))
            assert store.search(IMAGE, unit_vectors(1), limit=1)[0][0].id == "id-0"


# ---- what is in the database


def _client(address: str) -> "MongoClient[dict[str, Any]]":
    return MongoClient(f"mongodb://{address}/")


def test_vectors_are_bson_float32_vectors(mongo_address: str) -> None:
    (record,) = make_records(1, (IMAGE, TEXT))
    with MongoStore(f"//{mongo_address}/bson") as store, _client(mongo_address) as client:
        store.bind("e", SPACES)
        store.upsert([record])
        row = client["bson"]["vlmsearch.1.documents"].find_one({"_id": "id-0"})
        assert row is not None
        kept = Binary(row["vectors"]["clip/image"], 9).as_vector()
        assert kept.dtype == BinaryVectorDtype.FLOAT32
        assert np.array(kept.data, np.float32).tolist() == record.vectors[IMAGE].tolist()
        assert store.describe() == {"search": "exact"}


def test_a_scan_may_take_longer_than_each_of_its_batches(mongo_address: str) -> None:
    with MongoStore(f"//{mongo_address}/scan", options=MongoOptions(timeout=6, retries=0)) as store:
        store.bind("e", SPACES)
        store.upsert(make_records(180))
        slow = {"$where": "if (this._id === 'id-50' || this._id === 'id-150') { sleep(3500); } return true;"}
        started = time.monotonic()
        blocks = store.run("search", lambda rows: list(read_blocks(rows, IMAGE, 32, slow)))
        assert time.monotonic() - started > 6
        assert [len(block.heads) for block in blocks] == [101, 79]


def test_the_index_of_another_scheme_is_not_opened(mongo_address: str) -> None:
    with MongoStore(f"//{mongo_address}/kinds") as store:
        store.bind("e", SPACES)
    with (
        MongoChromaStore(f"//{mongo_address}/kinds", chroma="http://127.0.0.1") as store,
        pytest.raises(ConfigError, match=r"was made by mongodb:, .* not mongodb\+chroma:"),
    ):
        store.manifest()


def test_two_indexes_in_one_database_are_apart(mongo_address: str) -> None:
    with MongoStore(f"//{mongo_address}/two", index="a") as a, MongoStore(f"//{mongo_address}/two", index="b") as b:
        a.bind("e", SPACES)
        b.bind("other", SPACES)
        a.upsert(make_records(3))
        assert (len(a), len(b)) == (3, 0)


def test_what_mongodb_cannot_keep_is_refused_before_anything_is_written(mongo_address: str) -> None:
    with MongoStore(f"//{mongo_address}/large", options=MongoOptions(retries=0)) as store:
        store.bind("e", SPACES)
        large = [Record(Document(id, text="x" * (16 * 2**20)), {}) for id in ("big", "bigger")]
        with pytest.raises(InvalidBatchError, match=r"'big' has more than .*'bigger' has more than") as caught:
            store.upsert([large[0], *make_records(1), large[1]])
        assert {item: error.code for item, error in caught.value.items.items()} == {0: "too_large", 2: "too_large"}
        for id in ("", "x" * 1025, "a\0b", "\ud800"):
            with pytest.raises(InvalidInputError):
                store.upsert([Record(Document(id), {})])
        with pytest.raises(InvalidInputError):
            store.upsert([Record(Document("a", metadata=dict.fromkeys(map(str, range(1_001)), 1)), {})])
        assert len(store) == 0


@pytest.mark.parametrize("kind", ["mongodb", "mongodb+chroma"])
def test_a_text_that_is_too_large_stops_no_run(
    kind: str, mongo_address: str, chroma_address: str, tmp_path: Path
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    large = folder / "b.txt"
    for name in ("a.txt", "b.txt", "c.txt"):
        (folder / name).write_text(f"a star in {name}")
    url = f"{kind}://{mongo_address}/stops-{len(kind)}"
    with open_store(url if kind == "mongodb" else f"{url}?chroma=http://{chroma_address}") as store:
        pipeline = Pipeline(MockEncoder(), store)
        assert pipeline.index(folder).added == 3
        large.write_text("a star " * (3 * 2**20))
        with pytest.raises(InvalidInputError, match=f"'{large}' has more than 15,728,640 bytes.*strict"):
            pipeline.index(folder, strict=True)
        for _ in range(2):
            report = pipeline.index(folder)
            assert (report.unchanged, [(r.id, r.code) for r in report.rejects]) == (2, [(str(large), "too_large")])
        assert [reject.id for reject in reject_list_of(store).rejects()] == [str(large)]
        assert sorted(store.ids()) == [str(folder / "a.txt"), str(folder / "c.txt")]
        large.write_text("a star")
        assert pipeline.index(folder).added == 1
        assert reject_list_of(store).rejects() == []
        assert pipeline.check().clean


# ---- vectors that are kept in memory


def test_what_another_writer_changes_is_seen_at_once_though_vectors_are_kept(mongo_address: str) -> None:
    location = f"//{mongo_address}/kept"
    records, changed = make_records(50), make_records(50, seed=9)
    with MongoStore(location) as reader, MongoStore(location) as writer, MongoStore(location, cache=0) as plain:
        writer.bind("e", SPACES)
        writer.upsert(records)
        for turn in range(6):
            for query in (records[turn], changed[turn]):
                vector = query.vectors[IMAGE][None]
                for _ in range(2):
                    found, wanted = reader.search(IMAGE, vector, limit=50), plain.search(IMAGE, vector, limit=50)
                    assert [(hit.id, hit.score) for hit in found[0]] == [(hit.id, hit.score) for hit in wanted[0]]
            assert reader._cache.find(IMAGE) is not None
            writer.upsert(changed[turn : turn + 1]) if turn % 2 else writer.delete([f"id-{turn}"])
            assert reader._cache.find(IMAGE) is None


def test_nothing_is_kept_while_a_writer_is_at_it_or_where_there_is_no_room(mongo_address: str) -> None:
    with MongoStore(f"//{mongo_address}/busy") as store:
        store.bind("e", SPACES)
        store.upsert(make_records(50))
        with store._changes.writing("write", []):
            assert len(store.search(IMAGE, unit_vectors(1), limit=9)[0]) == 9
            assert store._cache.find(IMAGE) is None
            assert (store.check().in_progress, store.check().clean) == (1, True)
        assert store.check().in_progress == 0
        store._cache._max_bytes = 100
        assert len(store.search(IMAGE, unit_vectors(1), limit=9)[0]) == 9
        assert store._cache.find(IMAGE) is None


def test_a_writer_that_failed_is_found_by_a_check_and_repaired(mongo_address: str) -> None:
    with MongoStore(f"//{mongo_address}/failed") as store:
        store.bind("e", SPACES)
        with pytest.raises(KeyboardInterrupt), store._changes.writing("write", []):
            raise KeyboardInterrupt
        store.upsert(make_records(50))
        assert len(store.search(IMAGE, unit_vectors(1), limit=9)[0]) == 9
        assert store._cache.find(IMAGE) is None
        assert len(store.check().unfinished) == 1
        assert store.check(repair=True).repaired
        assert store.check().clean
        store.search(IMAGE, unit_vectors(1), limit=9)
        assert store._cache.find(IMAGE) is not None


def test_a_killed_writer_is_taken_off_after_a_moment_and_vectors_are_kept_again(
    mongo_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"//{mongo_address}/killed"
    with MongoStore(location) as store:
        store.bind("e", SPACES)
        store.upsert(make_records(50))
        code = (
            f"import os, signal; from vlmsearch.stores.mongodb.store import MongoStore\n"
            f"store = MongoStore({location!r})\n"
            "store.needed()\n"
            "with store._changes.writing('write', []): store.manifest(); os.kill(os.getpid(), signal.SIGKILL)"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
        assert len(store._changes.entries()) == 1
        monkeypatch.setattr(writers, "IN_FLIGHT_SECONDS", 0.5)
        for _ in range(2):
            assert len(store.search(IMAGE, unit_vectors(1), limit=9)[0]) == 9
            assert store._cache.find(IMAGE) is None, "what it had sent may still be carried out"
        time.sleep(0.6)
        assert store.search(IMAGE, unit_vectors(1), limit=9) == store.search(IMAGE, unit_vectors(1), limit=9)
        assert store._cache.find(IMAGE) is not None
        assert store.check().clean


def test_a_writer_in_a_forked_process_is_not_taken_for_this_one(mongo_address: str) -> None:
    location = f"//{mongo_address}/forked"
    with MongoStore(location) as store:
        store.bind("e", SPACES)
    (told, tell), (over, end) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        with suppress(BaseException), MongoStore(location) as store:
            store.manifest()
            with store._changes.writing("write", []):
                os.write(tell, b"writing")
                os.close(end)
                os.read(over, 1)
        os._exit(0)
    os.close(tell)
    try:
        assert os.read(told, 7) == b"writing"
        with MongoStore(location) as store:
            assert store.check().clean
            assert store._changes.count() is None
    finally:
        os.close(end)
        os.waitpid(child, 0)
    with MongoStore(location) as store:
        store.manifest()
        assert store._changes.count() is not None


def test_numbers_of_processes_mean_nothing_outside_their_container() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    machine, number, _ = this_process().rsplit(":", 2)
    assert WriteEntry("w", f"{machine}:{ended.pid}:00000000").is_gone
    assert not WriteEntry("w", f"{machine}:{os.getppid()}:00000000").is_gone
    assert WriteEntry("w", f"{machine}:{number}:00000000").is_gone, "a process before this one that had its number"
    assert not WriteEntry("w", f"{machine}0:{ended.pid}:00000000").is_gone
    assert WriteEntry("w", f"{machine}0:{ended.pid}:00000000", age=601.0).is_gone
    assert WriteEntry("w", this_process()).is_gone
    with at_work("w"):
        assert not WriteEntry("w", this_process()).is_gone
    if sys.platform == "linux":
        assert machine.endswith(os.readlink("/proc/self/ns/pid"))


def test_a_long_write_has_an_entry_for_each_batch(mongo_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.stores.mongodb.store._WRITES", 2)
    with MongoStore(f"//{mongo_address}/long") as store:
        store.bind("e", SPACES)
        write, seen = store._write, list[WriteEntry]()

        def note(writes: list[Any]) -> int:
            seen.extend(store._changes.entries())
            return write(writes)

        monkeypatch.setattr(store, "_write", note)
        store.upsert(make_records(5))
        assert [(entry.kind, entry.documents) for entry in seen] == [("write", 2), ("write", 2), ("write", 1)]
        assert len({entry.version for entry in seen}) == 3
        assert not store._changes.entries()


# ---- filters


@pytest.mark.parametrize("key", ["$where", "$function", "a.b", "$expr", "a.$b", "%0024where", "\0", "\ud800"])
def test_no_key_is_an_operator_or_a_path(key: str, mongo_address: str) -> None:
    compiled = compile_filter(Comparison(key, "$eq", "sleep(1000)"))
    (path,) = compiled
    assert path.startswith("metadata.")
    assert "$" not in path
    assert path.count(".") == 1
    with MongoStore(f"//{mongo_address}/operators") as store:
        store.bind("e", SPACES)
        store.upsert(make_records(1))
        assert store.search(IMAGE, unit_vectors(1), limit=3, where=Comparison(key, "$eq", "x")) == [[]]
        assert len(store.search(IMAGE, unit_vectors(1), limit=3, where=Comparison(key, "$ne", "x"))[0]) == 1
