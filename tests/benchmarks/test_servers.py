"""`vlmsearch bench servers` against real servers."""

from __future__ import annotations

import json
from functools import partial

import pytest
from chromadb import HttpClient
from click.testing import CliRunner
from pymongo import MongoClient

from tests.support.servers import free_port
from vlmsearch.cli import cli
from vlmsearch.errors import BackendUnavailableError
from vlmsearch.stores.chroma.connection import chroma_settings

SMALL = ("--documents", "1000", "--dim", "8", "--queries", "3", "--json")
OTHERS = ["vlmsearch-bench", "vlmsearch-bench-2.documents", "vlmsearch-benchmark"]


def bench(mongo: str, chroma: str) -> object:
    result = CliRunner().invoke(cli, ["bench", "servers", "--mongo", mongo, "--chroma", chroma, *SMALL])
    if isinstance(result.exception, Exception):
        raise result.exception
    return json.loads(result.stdout)["figures"]


def test_every_figure_is_measured_and_nothing_else_is_touched(mongo_address: str, chroma_address: str) -> None:
    host, _, port = chroma_address.partition(":")
    client = HttpClient(host=host, port=int(port), settings=chroma_settings())

    def names() -> set[str]:
        return {collection.name for collection in client.list_collections()}

    before = names()
    for name in OTHERS:
        client.create_collection(name)
    figures = bench(mongo_address, chroma_address)
    left = names() - before
    for name in OTHERS:
        client.delete_collection(name)
    assert isinstance(figures, list)
    assert len(figures) == 4
    assert all(figure["ours"] > 0 and figure["bare"] > 0 for figure in figures)
    assert left == set(OTHERS)
    with MongoClient[dict[str, object]](mongo_address) as mongo:
        assert "vlmsearch-bench" not in mongo.list_database_names()


def test_a_server_that_does_not_answer_is_named(mongo_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with pytest.raises(BackendUnavailableError, match=f"the Chroma server at {nowhere} could not be reached"):
        bench(mongo_address, nowhere)
    monkeypatch.setattr("benchmarks.servers.MongoClient", partial(MongoClient, serverSelectionTimeoutMS=100))
    with pytest.raises(BackendUnavailableError, match=f"the MongoDB at {nowhere} cannot be used: .*refused"):
        bench(nowhere, nowhere)
