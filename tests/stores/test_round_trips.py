"""How often one search asks a server, on each kind of store."""

from __future__ import annotations

from typing import Any

import httpx
import pymongo
import pymongo.monitoring
import pytest
from vlmsearch_mocks import MockEncoder

from tests.support.every_store import MakeStore, make_store
from vlmsearch import Document, Pipeline
from vlmsearch.search import relevance
from vlmsearch.search.relevance import THRESHOLD
from vlmsearch.stores.postgresql.connection import Session

__all__ = ["make_store"]

SEARCHES: dict[str, dict[str, Any]] = {
    "usual words": {"text": "red star"},
    "nothing relevant": {"text": "red star"},
    "deeper page": {"text": "red star", "offset": 80, "min_score": 0},
    "filter": {"text": "red star", "where": {"number": {"$lt": 100}}},
}
MAX_CALLS = {
    # round trips; a transaction has two and more: begin and settings, then its queries
    "postgresql": {"usual words": 16, "nothing relevant": 16, "deeper page": 11, "filter": 12},
    # commands
    "mongodb": {"usual words": 13, "nothing relevant": 13, "deeper page": 11, "filter": 9},
    # requests over HTTP
    "chroma server": {"usual words": 8, "nothing relevant": 8, "deeper page": 9, "filter": 8},
}


class _Commands(pymongo.monitoring.CommandListener):
    """A count of commands, for clients that are made while it listens."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def started(self, event: pymongo.monitoring.CommandStartedEvent) -> None:
        self.calls.append(event.command_name)

    def succeeded(self, event: object) -> None:
        pass

    def failed(self, event: object) -> None:
        pass


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of servers, one entry a round trip."""
    made: list[str] = []
    execute, send, client = Session.execute, httpx.Client.send, pymongo.MongoClient.__init__

    def counted_execute(session: Session, query: Any, *args: Any, **options: Any) -> Any:
        made.append(str(query))
        return execute(session, query, *args, **options)

    def counted_send(session: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        made.append(f"{request.method} {request.url.path}")
        return send(session, request, **options)

    def listened_to(session: Any, *args: Any, **options: Any) -> None:
        client(session, *args, event_listeners=[_Commands(made)], **options)

    monkeypatch.setattr(Session, "execute", counted_execute)
    monkeypatch.setattr(httpx.Client, "send", counted_send)
    monkeypatch.setattr(pymongo.MongoClient, "__init__", listened_to)
    return made


@pytest.mark.parametrize("kind", MAX_CALLS)
def test_a_search_asks_the_server_few_times(
    kind: str, make_store: MakeStore, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    colours, shapes = ("red", "green", "blue", "black"), ("star", "square", "ring", "heart", "cube")
    documents = [
        Document(f"d{n:04}", f"a {colours[n % 4]} {shapes[n % 5]} number {n}", metadata={"number": n})
        for n in range(1500)
    ]
    with Pipeline(MockEncoder(), make_store(kind)) as pipeline:
        pipeline.add(documents)
        counts = {}
        for name, search in SEARCHES.items():
            threshold = 1.1 if name == "nothing relevant" else THRESHOLD
            monkeypatch.setattr(relevance, "THRESHOLD", threshold)
            pipeline.search(**search)  # which learns what is remembered
            calls.clear()
            pipeline.search(**search)
            counts[name] = len(calls)
    assert all(count <= MAX_CALLS[kind][name] for name, count in counts.items()), counts
