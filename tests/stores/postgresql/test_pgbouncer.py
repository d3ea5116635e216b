"""Behind pgbouncer, each transaction may be on another connection to the server, and nothing relies on one."""

from collections.abc import Iterator

import psycopg
import pytest
from vlmsearch_mocks import MockEncoder
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.hammer import LEAST, hammer
from tests.support.pgbouncer import pgbouncer
from tests.support.postgres_servers import postgres_server
from vlmsearch import BackendUnavailableError, Document, Pipeline
from vlmsearch.indexing.reindex import drop_old, reindex
from vlmsearch.registry import open_store
from vlmsearch.stores.postgresql.store import PostgresStore

RECORDS = make_records(30, (IMAGE, TEXT))


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    """The URLs of a database behind pgbouncer, which has three connections to it, and of the database itself."""
    with postgres_server() as server, pgbouncer(server, connections=3) as address:
        server.make_database("index")
        yield f"postgresql://{address}/index", server.conninfo("index")


def test_eight_threads_write_and_eight_search_behind_pgbouncer(urls: tuple[str, str]) -> None:
    with open_store(f"{urls[0]}?table=threads&connections=16") as store:
        assert isinstance(store, PostgresStore)
        seen = hammer(store, 1)
        assert min(seen.searches, seen.writes) > LEAST
        assert store.check().clean
    with psycopg.connect(urls[1], autocommit=True) as session:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'index' AND pid <> pg_backend_pid()"
        row = session.execute(query).fetchone()
    assert row is not None
    assert row[0] <= 3


def test_settings_of_a_transaction_end_with_it(urls: tuple[str, str]) -> None:
    with open_store(f"{urls[0]}?table=settings&exact_up_to=0&ef_search=77&timeout=9") as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        for record in RECORDS:
            assert store.search(IMAGE, record.vectors[IMAGE][None], limit=1)[0][0].id == record.document.id
    names = ("statement_timeout", "search_path", "enable_sort", "hnsw.ef_search")
    with psycopg.connect(urls[0], autocommit=True) as session:
        found = [session.execute(f"SHOW {name}".encode()).fetchone() for name in names]
    assert found == [("0",), ('"$user", public',), ("on",), ("40",)]


def test_an_index_is_built_anew_and_a_slow_statement_ended(urls: tuple[str, str]) -> None:
    encoders = MockEncoder(), MockEncoder(neighbours={"a red star": ["a blue moon"]})
    with open_store(f"{urls[0]}?table=anew&timeout=1") as store:
        Pipeline(encoders[0], store).add([Document(f"{n}", text=f"text {n}") for n in range(20)])
        assert reindex(store, encoders[1]).switched
        assert drop_old(store)
        pipeline = Pipeline(encoders[1], store)
        assert pipeline.search("text 7", limit=1, min_score=0)[0].document.id == "7"
        with psycopg.connect(urls[1]) as other:
            other.execute("LOCK TABLE anew$2 IN SHARE MODE")
            with pytest.raises(BackendUnavailableError, match=r"took longer to .* than timeout=1 seconds"):
                store.delete(["7"])
        assert store.delete(["7"]) == 1
