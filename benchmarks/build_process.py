"""The process of one build of vlmsearch that `benchmarks.builds` starts.

It is run as a script, with the folder of the build in PYTHONPATH, so that nothing here imports the benchmarks. Requests
and replies are plain values, which every build can read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import waiting

DrawnDocument = tuple[str, str, dict[str, Any], NDArray[np.float32]]
"""The id, text, metadata and vector of a document."""
Scored = list[tuple[str, float]]
"""Ids with scores, best first."""


class Cost(NamedTuple):
    """The cost of one call: milliseconds on the wall and of processors, and waits for the server."""

    wall: float
    client: float
    server: float | None
    trips: int


class Meter:
    """The cost of calls in this process, and in some processes of the server that answer it."""

    def __init__(self, *pids: int) -> None:
        self._pids = set(pids)
        self._trips = 0

    def watch(self) -> None:
        """Count every connection from now on, and every wait, as long as this process lives."""
        begin, wait = psycopg.Connection.__init__, waiting.wait

        def begun(session: psycopg.Connection[Any], pgconn: psycopg.pq.abc.PGconn, *values: Any) -> None:
            self._pids.add(pgconn.backend_pid)
            begin(session, pgconn, *values)

        def counted(*values: Any, **named: Any) -> object:
            self._trips += 1
            return wait(*values, **named)

        psycopg.Connection.__init__ = begun  # type: ignore[method-assign,assignment]
        waiting.wait = counted  # type: ignore[assignment]

    def measure(self, call: Callable[[], Any]) -> tuple[Cost, Any]:
        """Make a call, and return its cost and its answer."""
        trips, server = self._trips, self._server()
        client, start = time.process_time(), time.perf_counter()
        answer = call()
        wall, client = time.perf_counter() - start, time.process_time() - client
        time.sleep(0.001)  # until the server has gone to sleep, which is when it counts
        after = self._server()
        used = sum(of_pid - server.get(pid, 0.0) for pid, of_pid in after.items())
        return Cost(1000 * wall, 1000 * client, used if after else None, self._trips - trips), answer

    def _server(self) -> dict[int, float]:
        """Return the milliseconds of the server's processes; nothing where they are on another machine."""
        used = {}
        for folder in (Path(f"/proc/{pid}") for pid in self._pids):
            if folder.exists() and (folder / "comm").read_text().startswith("postgres"):
                used[int(folder.name)] = int((folder / "schedstat").read_text().split()[0]) / 1e6
        return used


class MeasuredIndex:
    """An index whose calls are measured. Each method returns the call, with what is ready before it."""

    def __init__(self, url: str, dim: int) -> None:
        from vlmsearch import Pipeline
        from vlmsearch.bench.search import WidenedEncoder
        from vlmsearch.registry import open_encoder, open_store

        self._encoder = WidenedEncoder(open_encoder("onnx:demo-minilm"), dim)
        self._store: Any = open_store(url)
        self._store.bind(self._encoder.fingerprint, self._encoder.spaces)
        self._pipeline = Pipeline(self._encoder, self._store)
        (self._field,) = self._encoder.spaces[0].fields

    def write(self, documents: list[DrawnDocument]) -> Callable[[], Any]:
        """Add documents in one batch."""
        from vlmsearch import Record
        from vlmsearch.types import Document, Stamp

        records = [
            Record(Document(id, text, metadata=metadata), {self._field: vector}, Stamp(id))
            for id, text, metadata, vector in documents
        ]
        return lambda: self._store.upsert(records)

    def finish(self) -> Callable[[], Any]:
        """Make what is made after many documents."""
        return lambda: str(self._store.check(repair=True).clean)

    def words(self, query: str, where: dict[str, object] | None) -> Callable[[], Scored]:
        """Search by words alone."""
        search = partial(self._store.search_words, query, limit=100, where=_parsed(where))
        return lambda: [(hit.id, hit.score) for hit in search().hits]

    def nearest(self, vector: NDArray[np.float32], where: dict[str, object] | None) -> Callable[[], Scored]:
        """Search by a vector alone."""
        search = partial(self._store.search, self._field, vector[None], limit=10, where=_parsed(where))
        return lambda: [(hit.id, hit.score) for hit in search()[0]]

    def search(self, query: str, options: dict[str, Any]) -> Callable[[], Any]:
        """Search as a user does."""

        def call() -> Any:
            shown = self._pipeline.search(query, **options)
            scores = [(match.document.id, match.score) for match in (*shown.matches, *shown.closest)]
            return scores, shown.total, {key: dict(counts) for key, counts in shown.facets.items()}

        return call


def _parsed(where: dict[str, object] | None) -> object:
    from vlmsearch.stores.filters import parse_filter

    return where if where is None else parse_filter(where)


def serve(requests: Connection, url: str, dim: int) -> None:
    """Answer requests until there are no more."""
    meter = Meter()
    meter.watch()
    index = MeasuredIndex(url, dim)
    requests.send("ready")
    with suppress(EOFError):
        while True:
            name, *values = requests.recv()
            cost, answer = meter.measure(getattr(index, name)(*values))
            requests.send((tuple(cost), answer))


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file, where pgvector.py hides the package of that name
    serve(Connection(int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
