"""Stores on servers beside the bare drivers."""

from __future__ import annotations

from chromadb import HttpClient
from pymongo import MongoClient

from benchmarks.servers import main
from tests.support.tables import table
from vlmsearch.stores.chroma.connection import chroma_settings

OTHERS = ["vlmsearch-bench", "vlmsearch-bench-2.documents", "vlmsearch-benchmark"]


def test_every_figure_is_measured_and_nothing_else_is_touched(mongo_address: str, chroma_address: str) -> None:
    host, _, port = chroma_address.partition(":")
    client = HttpClient(host=host, port=int(port), settings=chroma_settings())

    def names() -> set[str]:
        return {collection.name for collection in client.list_collections()}

    before = names()
    for name in OTHERS:
        client.create_collection(name)
    where = ("--mongo", mongo_address, "--chroma", chroma_address)
    rows = table(main, *where, "--documents", "1000", "--dim", "8", "--queries", "3")
    left = names() - before
    for name in OTHERS:
        client.delete_collection(name)
    assert len(rows) == 4
    assert all(float(row["ours"]) > 0 and float(row["bare"]) > 0 for row in rows)
    assert left == set(OTHERS)
    with MongoClient[dict[str, object]](mongo_address) as mongo:
        assert "vlmsearch-bench" not in mongo.list_database_names()
