"""The time of what a user calls to search: words of each frequency, filters, counts and facets, alone and together.

The documents are drawn. Their texts have about 50 terms, whose frequencies fall as those of a language do. A given
share of the texts has each of some marked words. Their vectors are random. The queries are encoded by a real model, so
that all of a search is measured; its vectors are brought to the length that is wanted.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import count as numbers
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from vlmsearch._util.machine import proc_bytes
from vlmsearch.bench.service import ServiceClient
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import BackendError
from vlmsearch.stores.base import WordSearch
from vlmsearch.types import Document, Field, ImageSource, Record, Role, Space, Stamp, Vectors

if TYPE_CHECKING:
    from vlmsearch.pipeline import Pipeline
    from vlmsearch.stores.base import Store

SHARES = {"frequent": 0.4, "usual": 0.1, "rare": 0.0001}
"""Shares of the documents that hold a marked word, by what it is called."""
_MARKED = 8
_VOCABULARY = 50_000
_LENGTH = 50
_BATCH = 1000
_PATIENCE = 600.0
"""Seconds to wait for a service to start."""
_FILTERS: dict[str, dict[str, object]] = {
    "1 % of the documents": {"percent": 0},
    "half of them": {"percent": {"$lt": 50}},
}
_FACETS = ("percent", "kind", "year")


@dataclass(frozen=True)
class SearchFigure:
    """The time of one kind of call.

    Attributes:
        what: The kind of call.
        words: The words of the queries, and their number.
        p50_ms: What a call took, in the middle.
        p99_ms: What 99 of 100 calls did not exceed.
        cpu_ms: Processor time of a call, of all threads; None where another process did the work.
        rate: Calls a second.
    """

    what: str
    words: str
    p50_ms: float
    p99_ms: float
    cpu_ms: float | None
    rate: float


@dataclass(frozen=True)
class Memory:
    """The memory of a process, in bytes.

    Attributes:
        own: What it shares with no other.
        mapped: What it maps from files, which all processes that map them share.
    """

    own: int
    mapped: int

    @classmethod
    def of(cls, pid: int | None) -> Memory | None:
        """Return the memory of a process; None on systems other than Linux."""
        own, mapped = (proc_bytes(f"{pid}/status", name) for name in ("RssAnon", "RssFile"))
        return None if own is None or mapped is None else cls(own, mapped)


class WidenedEncoder(Encoder):
    """A model for texts whose vectors are brought to another length by a random matrix.

    Args:
        encoder: The model; of its spaces, the last that has texts is taken.
        dim: The length of the vectors.
    """

    def __init__(self, encoder: Encoder, dim: int) -> None:
        self._encoder = encoder
        self._space = [space for space in encoder.spaces if "text" in space.modalities][-1]
        self._matrix = np.random.default_rng(0).standard_normal((self._space.dim, dim), np.float32)
        self.spaces = (Space(self._space.name, dim, frozenset({"text"})),)
        self.fingerprint = f"{encoder.fingerprint}, {dim} numbers"
        self.relevance = encoder.relevance

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Encode texts."""
        vectors = self._encoder.encode_texts(texts, role=role)[self._space.name] @ self._matrix
        return {self._space.name: vectors / np.linalg.norm(vectors, axis=1, keepdims=True)}

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Return nothing: no space has images."""
        return {}

    def close(self) -> None:
        """Close the model."""
        self._encoder.close()


def marked_words(kind: str) -> list[str]:
    """Return the words that mark a share of the drawn documents.

    ``kind`` is one of `SHARES`.
    """
    return [f"{kind}{chr(97 + i)}" for i in range(_MARKED)]


def draw_documents(count: int, encoder: Encoder, *, seed: int = 0) -> Iterator[list[Record]]:
    """Yield records of drawn documents, some at a time.

    Args:
        count: Number of documents.
        encoder: The encoder whose text field they have a vector of: of its spaces the last that has texts.
        seed: What is drawn.

    Returns:
        Batches of records.
    """
    space = [space for space in encoder.spaces if "text" in space.modalities][-1]
    field = Field(space.name, "text")
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = ["".join(word) for word in rng.choice(letters, (_VOCABULARY, 7))]
    shares = 1 / (np.arange(_VOCABULARY) + 10)
    bounds = np.cumsum(shares / shares.sum())
    for start in range(0, count, _BATCH):
        size = min(_BATCH, count - start)
        drawn = np.minimum(np.searchsorted(bounds, rng.random((size, _LENGTH))), _VOCABULARY - 1).tolist()
        vectors = rng.standard_normal((size, space.dim), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        marks = {kind: rng.random((size, _MARKED)) < share for kind, share in SHARES.items()}
        records = []
        for i in range(size):
            words = [vocabulary[at] for at in drawn[i]]
            for kind, held in marks.items():
                words += [word for word, is_held in zip(marked_words(kind), held[i]) if is_held]
            number = start + i
            metadata: dict[str, Any] = {
                "percent": number % 100, "kind": "abcdefgh"[number % 8], "year": 2000 + number % 25
            }  # fmt: skip
            document = Document(f"document-{number:09}", " ".join(words), metadata=metadata)
            records.append(Record(document, {field: vectors[i]}, Stamp(str(number))))
        yield records


def fill(store: Store, encoder: Encoder, count: int, on_progress: Callable[[int], None] | None = None) -> float:
    """Write drawn documents into an index that is empty.

    Args:
        store: The store.
        encoder: The encoder that queries will be encoded with.
        count: Number of documents.
        on_progress: Function that is called with the number of documents that are written.

    Returns:
        Documents a second, without drawing them.
    """
    store.bind(encoder.fingerprint, encoder.spaces)
    seconds, written = 0.0, 0
    for records in draw_documents(count, encoder):
        start = time.perf_counter()
        store.upsert(records)
        seconds += time.perf_counter() - start
        written += len(records)
        if on_progress is not None:
            on_progress(written)
    return written / max(seconds, 1e-9)


def measure_searches(
    pipeline: Pipeline, kinds: Sequence[str], lengths: Sequence[int], *, calls: int, clients: int
) -> Iterator[SearchFigure]:
    """Time searches of an index of drawn documents.

    Args:
        pipeline: The index.
        kinds: Kinds of words that queries have, of `SHARES`.
        lengths: Numbers of words that queries have.
        calls: Number of calls of each kind that are timed.
        clients: Number of threads that search at once in the last figure.

    Returns:
        The figures, as they are measured. The first call of a process is the first of them.
    """
    store = pipeline.store
    named = f"{lengths[0]} {kinds[0]}"
    yield _timed("first search of a process", named, pipeline.search, queries_of(kinds[0], lengths[0]), 1, warm=False)
    for kind in kinds:
        for length in lengths:
            queries = queries_of(kind, length)
            named = f"{length} {kind}"
            if isinstance(store, WordSearch):
                yield _timed("words alone, 100 hits", named, partial(store.search_words, limit=100), queries, calls)
            yield _timed("search", named, partial(pipeline.search, limit=10), queries, calls)
    queries, named = queries_of(kinds[0], lengths[0]), f"{lengths[0]} {kinds[0]}"
    for what, where in _FILTERS.items():
        yield _timed(f"search, {what}", named, partial(pipeline.search, where=where), queries, calls)
    counted = partial(pipeline.search, count=True)
    yield _timed("search, count", named, counted, queries, calls)
    yield _timed("search, count and 3 facets", named, partial(counted, facets=_FACETS), queries, calls)
    yield _timed("search, sorted by a key", named, partial(pipeline.search, sort="-year"), queries, calls)
    yield _together(f"search, {clients} threads", named, partial(pipeline.search, limit=10), queries, calls, clients)


def measure_http(
    encoder: str, dim: int, store: str, kind: str, length: int, *, calls: int, clients: int
) -> tuple[list[SearchFigure], Memory | None]:
    """Time searches over HTTP, with the service in a process of its own.

    Args:
        encoder: URL of the model that queries are encoded with.
        dim: The length of its vectors, as for `WidenedEncoder`.
        store: URL of the index.
        kind: Kind of the words of the queries, of `SHARES`.
        length: Their number.
        calls: Number of requests that are timed for each figure.
        clients: Number of clients that ask at once in the second figure.

    Returns:
        The figures of one client and of many, without processor time, which is the other process's, and the memory of
        the service; None on systems that do not say it.
    """
    figures = []
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe()
    server = spawn.Process(target=_serve, args=(encoder, dim, store, sender), daemon=True)
    server.start()
    try:
        if not receiver.poll(_PATIENCE):
            raise BackendError("the service did not start")
        with ServiceClient(f"http://127.0.0.1:{receiver.recv()}") as client:
            ask, queries, named = client.asker("search"), queries_of(kind, length), f"{length} {kind}"
            for number in (1, clients):
                what = f"HTTP, {number} client{'s' if number > 1 else ''}"
                figure = _together(what, named, lambda query: ask([query]), queries, calls, number)
                figures.append(replace(figure, cpu_ms=None))
        return figures, Memory.of(server.pid)
    finally:
        server.terminate()
        server.join()


def _serve(encoder: str, dim: int, store: str, ready: Connection) -> None:
    """Run a service of one index, and say at which port."""
    from vlmsearch.encoders.batching import BatchingEncoder
    from vlmsearch.pipeline import Pipeline
    from vlmsearch.registry import open_encoder, open_store
    from vlmsearch.server.app import create_app
    from vlmsearch.server.run import HttpServer, listen
    from vlmsearch.server.service import OpenIndex, Service
    from vlmsearch.server.settings import IndexSettings, ServerSettings

    index = IndexSettings(store=store, encoder=encoder, generator="")
    settings = ServerSettings(indexes={"default": index}, port=0)
    with BatchingEncoder(WidenedEncoder(open_encoder(encoder), dim)) as batching, open_store(store) as opened:
        pipeline = Pipeline(batching, opened)
        with Service(settings, {"default": OpenIndex("default", index, pipeline)}) as service:
            listening = listen(settings)
            pipeline.search("a word")  # reads the index
            ready.send(listening.getsockname()[1])
            HttpServer(create_app(service), service).run(sockets=[listening])


def queries_of(kind: str, length: int) -> list[str]:
    """Return queries of some words of a kind of `SHARES`."""
    words = marked_words(kind)
    return [" ".join(words[(start + i) % _MARKED] for i in range(length)) for start in range(_MARKED)]


def _timed(
    what: str, words: str, call: Callable[[str], object], queries: Sequence[str], calls: int, *, warm: bool = True
) -> SearchFigure:
    if warm:
        call(queries[0])  # what the first call makes is not measured
    return _together(what, words, call, queries, calls, 1)


def _together(
    what: str, words: str, call: Callable[[str], object], queries: Sequence[str], calls: int, clients: int
) -> SearchFigure:
    """Time calls of one thread or several."""
    turn = numbers()

    def timed(_: int) -> float:
        query = queries[next(turn) % len(queries)]
        before = time.perf_counter()
        call(query)
        return time.perf_counter() - before

    cpu, start = time.process_time(), time.perf_counter()
    if clients == 1:
        times = list(map(timed, range(calls)))
    else:
        with ThreadPoolExecutor(clients) as threads:
            times = list(threads.map(timed, range(calls)))
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu
    p99 = float(np.percentile(times, 99))
    return SearchFigure(what, words, 1000 * statistics.median(times), 1000 * p99, 1000 * cpu / calls, calls / seconds)
