"""The time of what a user calls to search: in a process, as a command, and over HTTP.

The documents are drawn. Captions have everyday words, whose frequencies fall as those of a language do, a number each,
and the vectors of a real model. Longer documents have about 50 terms and random vectors of any length, and a given
share of them has each of some marked words. Queries are encoded by a real model, so that all of a search is measured.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count as numbers
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vlmsearch._util.machine import proc_bytes
from vlmsearch.bench.service import ServiceClient
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import BackendError
from vlmsearch.search.relevance import Backgrounds
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
_WORDS = {
    "who": "dog cat man woman child boy girl bird horse player rider runner climber dancer tourist worker baby group",
    "how": "small large brown white black young old wet happy tired red blue green yellow striped grey golden tall",
    "does": "runs jumps sits sleeps plays walks stands waits swims looks reads eats climbs rides rests smiles sings",
    "near": "on in near behind under beside across through along over",
    "place": "beach street park river mountain field house bridge forest garden kitchen market station lake road",
    "thing": "ball hat umbrella camera bag bicycle stick boat car book guitar flower kite rope helmet fence tree",
}
"""The words of captions by their place in them, the most frequent first."""
_CAPTION = "A {how} {who} {does} {near} the {place} with a {thing}, number {number}"
_QUERIES = {
    "2 words": "{how} {who}",
    "8 words": "{how} {who} {does} {near} the {place} with {thing}",
    "a code": "number {number}",
}
_BATCH = 1000
_FILTERS: dict[str, dict[str, object]] = {
    "1 % of the documents": {"percent": 0},
    "half of them": {"percent": {"$lt": 50}},
}
FACETS = ("percent", "kind", "year")
"""The keys of the drawn documents."""
_IMPORTS = "numpy, onnxruntime, tokenizers, click"


class Queries(NamedTuple):
    """Some queries, and what they are called."""

    name: str
    texts: Sequence[str]


@dataclass(frozen=True)
class SearchFigure:
    """The time of one kind of call.

    Attributes:
        what: The kind of call.
        words: The words of the queries.
        p50_ms: What a call took, in the middle.
        p99_ms: What 99 of 100 calls did not exceed.
        cpu_ms: Processor time of a call, of all threads and processes that did the work; None where the system does
            not say it.
        rate: Calls a second.
        memory: Bytes of the processes of a service, with their part of what they share; None for other calls, and on
            systems other than Linux.
    """

    what: str
    words: str
    p50_ms: float
    p99_ms: float
    cpu_ms: float | None
    rate: float
    memory: int | None = None


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
    """Yield records of drawn documents of 50 words, some at a time.

    Args:
        count: Number of documents.
        encoder: The encoder whose text field they have a vector of: of its spaces the last that has texts.
        seed: What is drawn.

    Returns:
        Batches of records.
    """
    space = [space for space in encoder.spaces if "text" in space.modalities][-1]
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
        texts = []
        for i in range(size):
            words = [vocabulary[at] for at in drawn[i]]
            for kind, held in marks.items():
                words += [word for word, is_held in zip(marked_words(kind), held[i]) if is_held]
            texts.append(" ".join(words))
        yield _records(start, texts, space, vectors)


def draw_captions(count: int, encoder: Encoder, *, seed: int = 0) -> Iterator[list[Record]]:
    """Yield records of drawn captions with the encoder's own vectors, some at a time.

    Args:
        count: Number of captions.
        encoder: The encoder of the texts.
        seed: What is drawn.

    Returns:
        Batches of records.
    """
    space = [space for space in encoder.spaces if "text" in space.modalities][-1]
    rng = random.Random(seed)
    for start in range(0, count, _BATCH):
        texts = [_filled(_CAPTION, rng, number % 10_000) for number in range(start, min(start + _BATCH, count))]
        yield _records(start, texts, space, encoder.encode_texts(texts)[space.name])


def _filled(template: str, rng: random.Random, number: int) -> str:
    """Return a template with drawn words, each as often as it is said in a language: by Zipf's law."""
    drawn = {}
    for kind, said in _WORDS.items():
        words = said.split()
        (drawn[kind],) = rng.choices(words, [1 / (2 + rank) for rank in range(len(words))])
    return template.format(number=number, **drawn)


def _records(start: int, texts: Sequence[str], space: Space, vectors: Vectors) -> list[Record]:
    records = []
    for number, (text, vector) in enumerate(zip(texts, vectors), start):
        metadata: dict[str, Any] = {"percent": number % 100, "kind": "abcdefgh"[number % 8], "year": 2000 + number % 25}
        document = Document(f"document-{number:09}", text, metadata=metadata)
        records.append(Record(document, {Field(space.name, "text"): vector}, Stamp(str(number))))
    return records


def fill(
    store: Store, encoder: Encoder, drawn: Iterable[Sequence[Record]], on_progress: Callable[[int], None] | None = None
) -> float:
    """Write drawn documents into an index that is empty.

    Args:
        store: The store.
        encoder: The encoder that queries will be encoded with.
        drawn: The documents, in batches.
        on_progress: Function that is called with the number of documents that are written.

    Returns:
        Documents a second of a processor, without drawing them.
    """
    store.bind(encoder.fingerprint, encoder.spaces)
    seconds, written = 0.0, 0
    for records in drawn:
        start = time.process_time()
        store.upsert(records)
        seconds += time.process_time() - start
        written += len(records)
        if on_progress is not None:
            on_progress(written)
    Backgrounds().keep(store, written, encoder)  # as those do who index
    return written / max(seconds, 1e-9)


def measure_searches(
    pipeline: Pipeline, kinds: Sequence[Queries], *, calls: int, clients: int
) -> Iterator[SearchFigure]:
    """Time searches of an index of drawn documents.

    Args:
        pipeline: The index.
        kinds: Kinds of queries: `caption_queries` or `marked_queries`. The first are asked in all kinds of calls.
        calls: Number of calls of each kind that are timed.
        clients: Number of threads that search at once in the last figure.

    Returns:
        The figures, as they are measured.
    """
    store, search = pipeline.store, partial(pipeline.search, limit=10)
    for queries in kinds:
        if isinstance(store, WordSearch):
            yield _timed("words alone, 100 hits", partial(store.search_words, limit=100), queries, calls)
        yield _timed("search", search, queries, calls)
    for what, where in _FILTERS.items():
        yield _timed(f"search, {what}", partial(search, where=where), kinds[0], calls)
    yield _timed("search, count", partial(search, count=True), kinds[0], calls)
    yield _timed("search, count and 3 facets", partial(search, count=True, facets=FACETS), kinds[0], calls)
    yield _timed("search, sorted by a key", partial(search, sort="-year"), kinds[0], calls)
    yield _timed(f"search, {clients} threads", search, kinds[0], calls, clients)


def measure_processes(encoder: str, store: str, queries: Queries, *, calls: int) -> Iterator[SearchFigure]:
    """Time the command that searches an index, beside a process that only imports its libraries.

    Args:
        encoder: URL of the model.
        store: URL of the index.
        queries: The queries.
        calls: Number of processes of each kind.

    Returns:
        The figures. On Windows, which does not say it, their processor time is 0.
    """

    def run(*arguments: str) -> None:
        done = subprocess.run([sys.executable, *arguments], capture_output=True, check=False)  # noqa: S603
        if done.returncode:
            raise BackendError(f"a process failed: {done.stderr.decode(errors='replace')}")

    search = partial(run, "-m", "vlmsearch", "search", "--encoder", encoder, "--store", store)
    yield _timed("vlmsearch search", search, queries, calls, clock=_of_children)
    yield _timed(f"import {_IMPORTS}", lambda _: run("-c", f"import {_IMPORTS}"), queries, calls, clock=_of_children)


def measure_http(
    encoder: str, store: str, queries: Queries, *, workers: int, calls: int, clients: int
) -> Iterator[SearchFigure]:
    """Time searches of `vlmsearch serve`. The clients are in a process of their own, as the service is.

    Args:
        encoder: URL of the model.
        store: URL of the index.
        queries: The queries.
        workers: Number of processes of the service that search.
        calls: Number of requests that are timed for each figure.
        clients: Number of clients that ask at once in the second figure.

    Returns:
        The figures of one client and of many. Processor time and memory are those of all processes of the service.
    """
    alone = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    with _serving(encoder, store, workers) as (url, pid), alone:
        for number in (1, clients):
            what = f"HTTP, {number} client{'s' * (number > 1)}" + f", {workers} workers" * (workers > 1)
            figure = alone.submit(_ask, url, pid, what, queries, calls, number).result()
            parts = [proc_bytes(f"{own}/smaps_rollup", "Pss") for own in _family(pid)]
            yield replace(figure, memory=sum(part or 0 for part in parts) or None)


@contextmanager
def _serving(encoder: str, store: str, workers: int) -> Iterator[tuple[str, int]]:
    """Run the command of the service, and yield its URL and process once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vlmsearch", "serve", "--encoder", encoder, "--store", store, "--port", str(port)]
    command += ["--generator", "none", "--workers", str(workers)]
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stderr=log) as service:  # noqa: S603
        try:
            with ServiceClient(f"http://127.0.0.1:{port}") as client:
                while not _answers(client):
                    if service.poll() is not None:
                        log.seek(0)
                        raise BackendError(f"the service did not start: {log.read().decode(errors='replace')}")
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}", service.pid
        finally:
            service.terminate()


def _answers(client: ServiceClient) -> bool:
    with suppress(BackendError):
        return client.documents() >= 0
    return False


def _ask(url: str, pid: int, what: str, queries: Queries, calls: int, clients: int) -> SearchFigure:
    with ServiceClient(url) as client:
        ask = client.asker("search")
        return _timed(what, lambda query: ask([query]), queries, calls, clients, clock=partial(_of_family, pid))


def _family(pid: int) -> Iterator[int]:
    """Yield a process and, on Linux, those that it started."""
    yield pid
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in file.read_text(encoding="ascii").split():
            yield from _family(int(child))


def _of_family(pid: int) -> float | None:
    """Return the processor seconds of a process and of those that it started.

    None on systems other than Linux.
    """
    seconds = 0.0
    for own in _family(pid):
        stat = Path(f"/proc/{own}/stat")
        if not stat.exists():
            return None
        times = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
        seconds += sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return seconds


def _of_children() -> float:
    """Return the processor seconds of the processes that this one started and that have ended."""
    return sum(os.times()[2:4])


def caption_queries() -> list[Queries]:
    """Return queries of drawn captions."""
    rng = random.Random(1)
    return [Queries(name, [_filled(template, rng, 77 * n) for n in range(1, 9)]) for name, template in _QUERIES.items()]


def marked_queries() -> list[Queries]:
    """Return queries of drawn documents of 50 words."""
    kinds = (("usual", 2), ("frequent", 8), ("rare", 2))
    return [Queries(f"{length} {kind}", queries_of(kind, length)) for kind, length in kinds]


def queries_of(kind: str, length: int) -> list[str]:
    """Return queries of some words of a kind of `SHARES`."""
    words = marked_words(kind)
    return [" ".join(words[(start + i) % _MARKED] for i in range(length)) for start in range(_MARKED)]


def _timed(
    what: str, call: Callable[[str], object], queries: Queries, calls: int, clients: int = 1,
    *, clock: Callable[[], float | None] = time.process_time,
) -> SearchFigure:  # fmt: skip
    """Time calls of one thread or several, with the clock of their processors."""
    turn = numbers()

    def timed(_: int) -> float:
        query = queries.texts[next(turn) % len(queries.texts)]
        before = time.perf_counter()
        call(query)
        return time.perf_counter() - before

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(timed, range(2 * clients)))  # what first calls make is not measured
        before, start = clock(), time.perf_counter()
        times = list(threads.map(timed, range(calls)))
        seconds, after = time.perf_counter() - start, clock()
    cpu = None if before is None or after is None else 1000 * (after - before) / calls
    p50, p99 = 1000 * np.percentile(times, (50, 99))
    return SearchFigure(what, queries.name, float(p50), float(p99), cpu, calls / seconds)
