"""Servers that hang, as where a disk does, and calls that are given up: every wait ends."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from vlmsearch_mocks import MockEncoder

from tests.support.chaos import Servers, servers
from tests.support.postgres_servers import PostgresServer, postgres_server
from vlmsearch import BackendUnavailableError, Document, Pipeline
from vlmsearch._util.cancellation import CancelToken, run_apart, running_under
from vlmsearch.errors import OperationCancelledError
from vlmsearch.registry import open_store


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Servers, PostgresServer]]:
    with servers(tmp_path_factory.mktemp("servers")) as both, postgres_server() as postgres:
        postgres.make_database("index")
        yield both, postgres


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("postgresql", "postgresql"),
        ("mongodb", "mongo"),
        ("chroma server", "chroma"),
        ("mongodb+chroma", "mongo"),
        ("mongodb+chroma", "chroma"),
    ],
)
def test_a_call_to_a_server_that_hangs_ends(kind: str, name: str, served: tuple[Servers, PostgresServer]) -> None:
    both, postgres = served
    options = "timeout=1&retries=0"
    urls = {
        "postgresql": f"{postgres.conninfo('index')}?table={name}&{options}",
        "mongodb": f"mongodb://{both.mongo.address}/{name}?{options}",
        "chroma server": f"chroma://{both.chroma}/{name}?{options}",
        "mongodb+chroma": f"mongodb+chroma://{both.mongo.address}/pair-{name}?chroma=http://{both.chroma}&{options}",
    }
    with open_store(urls[kind]) as store, open_store(urls[kind]) as unopened:
        pipeline = Pipeline(MockEncoder(), store)
        pipeline.add(Document("a", text="a cat"))
        calls: list[Callable[[], object]] = [
            lambda: pipeline.search("a cat"),
            lambda: pipeline.add(Document("b", text="a dog")),
            lambda: Pipeline(MockEncoder(), unopened).search("a cat"),
        ]
        with postgres.stopped() if kind == "postgresql" else both.stopped(name):
            for call in calls:
                for error, seconds in ((BackendUnavailableError, 10), (OperationCancelledError, 10)):
                    token, started = CancelToken(), time.monotonic()
                    if error is OperationCancelledError:
                        threading.Timer(0.2, token.cancel).start()
                    with running_under(token), pytest.raises(error):
                        call()
                    assert time.monotonic() - started < seconds
        assert [match.document.id for match in pipeline.search("a cat")] == ["a"]
        assert pipeline.add(Document("b", text="a dog")).added == 1
        pipeline.check(repair=True)
        assert pipeline.check().clean


def test_a_call_that_was_given_up_begins_nothing_more() -> None:
    token, begun = CancelToken(), threading.Event()
    token.cancel()
    with running_under(token), pytest.raises(OperationCancelledError):
        run_apart(begun.set)
    assert not begun.wait(0.2)
