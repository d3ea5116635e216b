"""Two PostgreSQL servers by streaming replication: what a replica shows, and what is there after a failover."""

import shutil
import threading
from collections.abc import Iterator

import psycopg
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.hammer import DOCUMENTS, NumberEncoder, check_page, make
from tests.support.postgres_servers import PostgresServer, postgres_folder
from vlmsearch import BackendUnavailableError, Pipeline
from vlmsearch.errors import BackendError
from vlmsearch.registry import open_store
from vlmsearch.stores.postgresql.store import PostgresStore

DURABLE = {"fsync": "on", "synchronous_commit": "remote_apply", "hot_standby_feedback": "on"}
RECORDS = make_records(20, (IMAGE, TEXT))


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A server and its replica, which has applied what a commit on the first has returned from."""
    with postgres_folder() as one, postgres_folder() as two:
        primary, replica = PostgresServer(one, DURABLE), PostgresServer(two, DURABLE)
        primary.prepare()
        replica.data.mkdir(mode=0o700)
        replica.prepare()
        shutil.chown(replica.data, two.owner())
        try:
            primary.start()
            primary.make_database("index")
            source = f"host=127.0.0.1 port={primary.port} user=postgres"
            replica.program("pg_basebackup", "-D", str(replica.data), "-R", "-d", source, "-c", "fast", "--no-sync")
            replica.start()
            _do(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
            yield primary, replica
        finally:
            primary.kill()
            replica.kill()


def _do(server: PostgresServer, *statements: str) -> None:
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as session:
        for statement in statements:
            session.execute(statement)


def _of_both(primary: PostgresServer, replica: PostgresServer, options: str) -> str:
    return f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/index?{options}"


def test_a_replica_shows_whole_documents_and_takes_no_writes(pair: tuple[PostgresServer, PostgresServer]) -> None:
    primary, replica = pair
    stop = threading.Event()
    with (
        open_store(f"{primary.conninfo('index')}?table=whole") as store,
        open_store(f"{replica.conninfo('index')}?table=whole") as copy,
    ):
        store.bind(NumberEncoder.fingerprint, NumberEncoder.spaces)
        store.upsert([make(i, 0) for i in range(DOCUMENTS)])

        def write() -> None:
            turn = 0
            while not stop.is_set():
                turn += 1
                store.upsert([make(i, turn) for i in range(turn % 7, DOCUMENTS, 7)])

        writing = threading.Thread(target=write)
        writing.start()
        try:
            pipeline = Pipeline(NumberEncoder(), copy)
            for number in range(25):
                check_page(pipeline, f"query {number}")
        finally:
            stop.set()
            writing.join()
        assert isinstance(copy, PostgresStore)
        assert copy.check().clean
        message = r"is a replica and cannot write documents: name all hosts, and target_session_attrs=read-write"
        with pytest.raises(BackendUnavailableError, match=message):
            copy.upsert([make(0, 1)])
        with pytest.raises(BackendUnavailableError, match="is a replica and cannot delete documents"):
            copy.delete(["doc-0"])


def test_a_commit_that_no_replica_has_is_not_taken_for_done(pair: tuple[PostgresServer, PostgresServer]) -> None:
    primary, replica = pair
    with open_store(f"{primary.conninfo('index')}?table=alone&timeout=2&retries=0") as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:10])
        replica.kill()
        with pytest.raises(BackendUnavailableError, match="does not know whether what was written outlives this serv"):
            store.upsert(RECORDS[10:])
        replica.start()
        store.upsert(RECORDS[10:])
        assert len(store) == 20


def test_what_was_acknowledged_is_there_after_a_failover(pair: tuple[PostgresServer, PostgresServer]) -> None:
    primary, replica = pair
    kept: dict[str, int] = {}
    sent: dict[str, int] = {}
    promoted, stop = threading.Event(), threading.Event()
    after: list[int] = []
    url = _of_both(primary, replica, "target_session_attrs=read-write&timeout=5&retries=1")
    with open_store(url) as store:
        assert isinstance(store, PostgresStore)
        store.bind(NumberEncoder.fingerprint, NumberEncoder.spaces)

        def write() -> None:
            turn = 0
            while not stop.is_set():
                turn += 1
                numbers = [(turn * 5 + i) % 60 for i in range(5)]
                sent.update({f"doc-{number}": turn for number in numbers})
                try:
                    store.upsert([make(number, turn) for number in numbers])
                except BackendError:
                    continue
                kept.update({f"doc-{number}": turn for number in numbers})
                if promoted.is_set():
                    after.append(turn)

        writing = threading.Thread(target=write)
        writing.start()
        try:
            while len(kept) < 60 and writing.is_alive():
                stop.wait(0.01)
            primary.kill()
            replica.program("pg_ctl", "promote", "-D", str(replica.data), "-w")
            promoted.set()
            while len(after) < 5 and writing.is_alive():
                stop.wait(0.01)
        finally:
            stop.set()
            writing.join()
        assert len(after) >= 5
        found = {document.id: int(str(document.metadata["turn"])) for document in store.get(list(kept))}
        assert all(kept[id] <= found[id] <= sent[id] for id in kept), "nothing that was acknowledged is lost"
        assert len(store) == 60
        assert store.check().clean
        check_page(Pipeline(NumberEncoder(), store), "a query", 60)
    with open_store(primary.conninfo("index")) as gone:
        message = r"could not be reached to look for the index: .*refused"
        with pytest.raises(BackendUnavailableError, match=message):
            gone.manifest()
